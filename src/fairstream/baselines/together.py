"""fit_all: every rival system on the same rows, for one audit of them all."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import scipy.sparse as sp

from fairstream.baselines.base import FairTransformer, check_count
from fairstream.baselines.inlp import INLP
from fairstream.baselines.kleindessner import KleindessnerFairPCA
from fairstream.baselines.leace import LeacePCA
from fairstream.baselines.mbf import MbFPCA
from fairstream.baselines.olfat import OlfatAswaniFairPCA
from fairstream.baselines.rlace import RLACE
from fairstream.baselines.samadi import SamadiFairPCA
from fairstream.data import open_source
from fairstream.data.groups import UNKNOWN
from fairstream.errors import FairstreamWarning

LINEAR: Mapping[str, type[FairTransformer]] = MappingProxyType(
    {
        "INLP": INLP,
        "Kleindessner et al.": KleindessnerFairPCA,
        "LEACE": LeacePCA,
        "MbF-PCA": MbFPCA,
        "Olfat and Aswani": OlfatAswaniFairPCA,
        "R-LACE": RLACE,
        "Samadi et al.": SamadiFairPCA,
    }
)
"""The linear rivals, by the names that reports show."""


def fit_all(
    X: Any,
    sensitive_features: Any = None,
    *,
    n_components: int = 10,
    systems: Mapping[str, type[FairTransformer]] | None = None,
    random_state: int = 0,
) -> dict[str, FairTransformer]:
    """Fit every rival system with its own defaults, to be audited beside your model.

    All rows are held in memory: no rival reads a stream.

    Parameters
    ----------
    X : array, frame, path or source
        As in `open_source`.
    sensitive_features : labels or names of columns, optional
        As in `open_source`. Not beside a source, which has them.
    n_components : int
        Number of components, k.
    systems : dict of str to class, optional
        Which systems, by the name that a report shows; `LINEAR` by default.
    random_state : int
        Seed of those that draw numbers.

    Returns
    -------
    dict of str to FairTransformer
        The fitted systems, for `audit`.

    Warns
    -----
    FairstreamWarning
        For every system that refuses the rows, because there are more than two groups for example. It is left
        out. If all of them refuse, that is an error.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> rows, sex = rng.normal(size=(200, 5)), rng.choice(["f", "m"], 200)
    >>> [*fit_all(rows, {"sex": sex}, n_components=2, systems={"LEACE": LeacePCA})]
    ['LEACE']
    """
    chosen = _checked_systems(LINEAR if systems is None else systems)
    k = check_count(n_components)
    options = {} if sensitive_features is None else {"sensitive_features": sensitive_features}
    blocks = [*open_source(X, **options)]
    if not blocks:
        raise ValueError("X has no rows: pass rows to fit the systems on")
    if not blocks[0].groups:
        raise ValueError(
            "sensitive_features is missing: no system can be fair without knowing the groups, pass one label "
            "per row, or open the source with sensitive_features=..."
        )
    if k > blocks[0].X.shape[1]:
        raise ValueError(f"n_components is {k}, X has {blocks[0].X.shape[1]} features: pass fewer")
    rows = np.concatenate([block.X.toarray() if sp.issparse(block.X) else block.X for block in blocks])
    labels = {
        name: [
            None if code == UNKNOWN else block.groups[name].labels[code]
            for block in blocks
            for code in block.groups[name].codes.tolist()
        ]
        for name in blocks[0].groups
    }
    fitted, refused = {}, {}
    for name, system in chosen.items():
        seeded = "random_state" in inspect.signature(system).parameters
        asked: Any = {"n_components": k} | ({"random_state": random_state} if seeded else {})
        try:
            fitted[name] = system(**asked).fit(rows, sensitive_features=labels)
        except ValueError as error:
            refused[name] = str(error)
    if not fitted:
        name, reason = [*refused.items()][-1]
        raise ValueError(f"no system can be fitted on these rows; {name}: {reason}")
    for name, reason in refused.items():
        warnings.warn(f"{name} is left out: {reason}", FairstreamWarning, stacklevel=2)
    return fitted


def _checked_systems(systems: Any) -> Mapping[str, type[FairTransformer]]:
    """Return the systems by name; refuse anything that is not a dict of classes."""
    if (
        not isinstance(systems, Mapping)
        or not systems
        or not all(isinstance(system, type) for system in systems.values())
    ):
        raise ValueError(
            f'systems is {systems!r}: pass a dict of names and classes, such as {{"LEACE": LeacePCA}}'
        )
    return systems
