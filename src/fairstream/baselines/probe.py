"""A last check of an embedding: warn if a linear classifier still reads the group from it."""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.svm import LinearSVC

from fairstream.baselines.base import Array, GroupedRows
from fairstream.errors import FairstreamWarning


def warn_if_readable(rows: GroupedRows, components: Array, remedy: str) -> None:
    """Warn if a linear classifier beats the share of the largest group by more than chance allows.

    Systems that stop by a count of steps, not by a proof, call this so that they never fail silently.
    Chance is three standard deviations of the accuracy of a constant answer.
    """
    codes = rows.attribute().codes
    known = codes >= 0
    embedded = (rows.X[known] - rows.X[known].mean(axis=0)) @ components.T
    deviation = embedded.std(axis=0)
    embedded = embedded / np.where(deviation > 0, deviation, 1.0)
    accuracy = float(LinearSVC(dual=False).fit(embedded, codes[known]).score(embedded, codes[known]))
    majority = float(np.bincount(codes[known]).max() / known.sum())
    if accuracy > majority + 3 * np.sqrt(majority * (1 - majority) / known.sum()):
        warnings.warn(
            f"{rows.system}: a linear classifier still reads the group from the embedding (accuracy "
            f"{accuracy:.3f}, largest group {majority:.3f}): {remedy}",
            FairstreamWarning,
            stacklevel=4,
        )
