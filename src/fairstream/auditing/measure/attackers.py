"""The attackers: classifiers that try to read a group off an embedding, from a line to forests and networks.

A family is one kind of classifier, a setting one way to configure it. Every attacker answers with log-odds,
so that attackers can be blended by their mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from fairstream.auditing.measure.fitting import one_thread
from fairstream.auditing.measure.probes import PROBES, equal_batches

FloatArray = NDArray[np.floating[Any]]
Codes = NDArray[np.integer[Any]]

FAMILIES = ("linear", "quadratic", "kernel", "boosting", "forest", "network")
STRENGTHS = ("standard", "strong")
SCORED_ROWS, SCORED_NUMBERS = 20_000, 2**19  # at once: products of wide rows take much memory
LEAST_SHARE = 1e-12
FOREST_ROWS = 50_000  # deep trees on more rows would take more than a gigabyte

# Number of rows, of columns, of groups; the seed; whether it is a trial that only compares settings.
Build = Callable[[int, int, int, int, bool], Any]


@dataclass(frozen=True)
class Attacker:
    """One way to attack: a family, the name of its setting, and how to build it.

    `most_rows` bounds the rows it is fitted on, for families whose features take much memory. A setting
    with `least_rows` is not tried on fewer: it is too large for them.
    """

    family: str
    setting: str
    build: Build
    most_rows: int | None = None
    least_rows: int = 0

    def log_odds(
        self, Z_fit: FloatArray, codes_fit: Codes, Z: FloatArray, seed: int, *, trial: bool = False
    ) -> FloatArray:
        """Fit on some rows and return the log-odds of others: (n,) for two groups, (n, g) otherwise."""
        n_groups = int(codes_fit.max()) + 1
        model = self.build(len(Z_fit), Z_fit.shape[1], n_groups, seed, trial)
        with one_thread():
            model.fit(Z_fit, codes_fit)
            at_once = max(1_000, min(SCORED_ROWS, SCORED_NUMBERS // Z.shape[1]))
            starts = range(0, len(Z), at_once)
            shares = np.vstack([model.predict_proba(Z[start : start + at_once]) for start in starts])
        # In single precision the largest share would be 1, with infinite odds.
        shares = np.clip(shares.astype(float), LEAST_SHARE, 1 - LEAST_SHARE)
        odds: FloatArray = np.log(shares) - np.log1p(-shares)
        return odds[:, 1] if n_groups == 2 else odds


class _Ranks(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Replace every value by its rank in the fitting rows; a value between two ranks gets their middle.

    Trees use the order of values only, and scikit-learn's forests round values to float32: ranks let them see
    values that differ in their last digits.
    """

    def fit(self, Z: FloatArray, codes: Codes | None = None) -> _Ranks:
        self.values_ = [np.unique(column) for column in Z.T]
        return self

    def transform(self, Z: FloatArray) -> FloatArray:
        ranks = [
            np.searchsorted(values, column, "left") + np.searchsorted(values, column, "right")
            for values, column in zip(self.values_, Z.T, strict=True)
        ]
        return np.column_stack(ranks).astype(np.float32)


class _Smoothed:
    """A forest with half a tree added for every group, so that no share is 0 or 1."""

    estimators_: list[Any]

    def predict_proba(self, Z: FloatArray) -> FloatArray:
        shares: FloatArray = super().predict_proba(Z)  # type: ignore[misc]
        n_trees, n_groups = len(self.estimators_), shares.shape[1]
        return (shares * n_trees + 0.5) / (n_trees + n_groups / 2)


class _Forest(_Smoothed, RandomForestClassifier):  # type: ignore[misc]
    pass


class _RandomisedForest(_Smoothed, ExtraTreesClassifier):  # type: ignore[misc]
    pass


def _probe(kind: str) -> Build:
    return lambda n_rows, n_columns, n_groups, seed, trial: PROBES[kind](n_rows, n_columns, n_groups, seed)


def _kernel(width: float, n_features: int) -> Build:
    def build(n_rows: int, n_columns: int, n_groups: int, seed: int, trial: bool) -> Pipeline:
        features = Nystroem(
            gamma=width / n_columns, n_components=min(n_features, n_rows // 2), random_state=seed
        )
        # Half the digits take half the time, and tell distances apart as well.
        single = FunctionTransformer(np.float32)
        return make_pipeline(StandardScaler(), single, features, LogisticRegression(C=10.0, max_iter=150))

    return build


def _boosting(**setting: Any) -> Build:
    def build(n_rows: int, n_columns: int, n_groups: int, seed: int, trial: bool) -> Any:
        return HistGradientBoostingClassifier(early_stopping=False, random_state=seed, **setting)

    return build


def _forest(leaf: int, n_trees: int) -> Build:
    def build(n_rows: int, n_columns: int, n_groups: int, seed: int, trial: bool) -> Pipeline:
        # Fewer trees rank the settings as well as all of them.
        forest = _Forest(n_trees // 3 if trial else n_trees, min_samples_leaf=leaf, random_state=seed)
        return make_pipeline(_Ranks(), forest)

    return build


def _randomised(leaf: int, n_trees: int) -> Build:
    def build(n_rows: int, n_columns: int, n_groups: int, seed: int, trial: bool) -> Any:
        n_drawn = min(n_columns, 10)  # of the columns at each split: all, if they are few
        return _RandomisedForest(
            n_trees // 3 if trial else n_trees,
            min_samples_leaf=leaf,
            max_features=max(n_drawn, int(np.sqrt(n_columns))),
            random_state=seed,
        )

    return build


def _network(largest_batch: int, **setting: Any) -> Build:
    def build(n_rows: int, n_columns: int, n_groups: int, seed: int, trial: bool) -> Pipeline:
        network = PROBES["mlp"](n_rows, n_columns, n_groups, seed)
        network[-1].set_params(batch_size=equal_batches(n_rows, largest_batch), **setting)
        return network

    return build


_LINEAR = Attacker("linear", "logistic regression", _probe("linear"))
_QUADRATIC = Attacker("quadratic", "logistic regression on products", _probe("quadratic"), 100_000)
_SMALL_BOOSTING = Attacker("boosting", "up to 100 trees of 31 leaves", _probe("trees"))
_LARGE_BOOSTING = Attacker(
    "boosting",
    "200 trees of 63 leaves",
    _boosting(max_iter=200, max_leaf_nodes=63, learning_rate=0.15, min_samples_leaf=10),
    least_rows=1_000,
)
FOREST = Attacker("forest", "100 trees, leaves of 1 row", _forest(1, 100))
_NETWORK = Attacker("network", "64 and 32 units", _network(512))

_STANDARD = (
    _LINEAR,
    _QUADRATIC,
    Attacker("kernel", "256 landmarks", _kernel(1.0, 256), 50_000),
    _SMALL_BOOSTING,
    _LARGE_BOOSTING,
    FOREST,
    Attacker("forest", "100 randomised trees, leaves of 2 rows", _randomised(2, 100)),
    _NETWORK,
)
_STRONG = (
    _LINEAR,
    _QUADRATIC,
    Attacker("kernel", "512 landmarks", _kernel(1.0, 512), 50_000),
    Attacker("kernel", "512 landmarks, narrow", _kernel(4.0, 512), 50_000),
    _SMALL_BOOSTING,
    _LARGE_BOOSTING,
    Attacker(
        "boosting",
        "300 trees of 127 leaves",
        _boosting(max_iter=300, max_leaf_nodes=127, learning_rate=0.15, min_samples_leaf=5, max_features=0.5),
    ),
    Attacker("forest", "180 trees, leaves of 1 row", _forest(1, 180), FOREST_ROWS),
    Attacker("forest", "180 trees, leaves of 4 rows", _forest(4, 180), FOREST_ROWS),
    Attacker("forest", "180 randomised trees, leaves of 1 row", _randomised(1, 180), FOREST_ROWS),
    Attacker("forest", "180 randomised trees, leaves of 5 rows", _randomised(5, 180), FOREST_ROWS),
    _NETWORK,
    Attacker(
        "network",
        "128 and 64 units",
        _network(256, hidden_layer_sizes=(128, 64), alpha=0.1, learning_rate_init=2e-3),
    ),
)

ATTACKERS: Mapping[str, tuple[Attacker, ...]] = {"standard": _STANDARD, "strong": _STRONG}
