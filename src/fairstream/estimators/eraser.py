"""FairEraser: takes the unfair part out of the rows and leaves their columns. It holds no mathematics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from sklearn.base import OneToOneFeatureMixin
from sklearn.utils.validation import check_is_fitted

from fairstream.estimators.base import FairEstimator
from fairstream.files.format import storable


@storable
class FairEraser(OneToOneFeatureMixin, FairEstimator):  # type: ignore[misc]
    """Erases the directions in which sensitive groups differ, and keeps the columns of X.

    For use before any model: what comes out has the columns, the names and the kind of what went in, except
    for the columns that `sensitive_columns` names. `FairStreamingPCA.erase` does the same with the same
    parameters, and knows `directions="relative"` too, which depend on the components.

    Parameters
    ----------
    n_unfair : int, dict of str to int, or "auto", default 1
        m: directions of each second-moment gap to erase, for all attributes or per attribute; "auto" as in
        `FairStreamingPCA`.
    constraint : {"all", "mean", "covariance"}, default "all"
        Erase mean gaps, second-moment gaps, or both. ("none" erases nothing.)
    solver, rank, step_rows, power_steps, on_empty_group, sensitive_columns, intersections, \
    min_group_size, screen, dither, ids, dither_key, random_state
        As in `FairStreamingPCA`.

    Attributes
    ----------
    unfair_basis_ : array (m', d)
    mean_ : array (d,)
    group_counts_ : dict, attribute -> label -> rows
    group_means_ : dict, attribute -> label -> array (d,)
    n_samples_seen_ : int
    moments_, power_, phase_, subspace_, solver_, learner_
        As in `FairStreamingPCA`; `subspace_` has a single component, which nothing here uses.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> rng = np.random.default_rng(0)
    >>> people = pd.DataFrame(rng.normal(size=(400, 3)), columns=["age", "income", "height"])
    >>> people["sex"] = rng.choice(["f", "m"], 400)
    >>> people["height"] += 2 * (people["sex"] == "m")
    >>> erased = FairEraser(constraint="mean", sensitive_columns=["sex"]).fit_transform(people)
    >>> [*erased]
    ['age', 'income', 'height']
    >>> means = erased.groupby(people["sex"]).mean()
    >>> bool(np.allclose(means.loc["f"], means.loc["m"]))
    True
    """

    kind: ClassVar[str] = "FairEraser"
    fixed: ClassVar[Mapping[str, Any]] = {
        "n_components": 1,
        "guard": 0.0,
        "keep_target": 0.0,
        "guard_seed": 0,
        "sample": None,
        "directions": "absolute",  # others depend on the number of components
        "whiten": False,
    }

    def transform(self, X: Any, *, axis: int | None = None, ids: Any = None) -> Any:
        """Return X, n x d, without its unfair part; X, `axis`, `ids` and what is returned as in `erase`."""
        check_is_fitted(self)
        given, noise = self._given(X, axis), self._noise(X, ids)
        rows = self.subspace_.erase(self._checked(given.rows), **noise)
        return rows if self._wraps_output() else given.back(rows)

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """Return the names of the columns that come out: `input_features` without the sensitive ones.

        Scaled features of a table are called "age (scaled)", so that nobody takes them for its columns.
        """
        if input_features is not None:
            apart = self._columns_apart
            input_features = [name for name in input_features if name not in apart]
        names = super().get_feature_names_out(input_features)
        if not self.learner_.schema.shares_names:
            return names
        return np.array([f"{name} (scaled)" for name in names], dtype=object)
