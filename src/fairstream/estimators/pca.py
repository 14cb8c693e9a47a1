"""FairStreamingPCA: the scikit-learn face of the library. It holds no mathematics."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin
from sklearn.utils.validation import check_is_fitted

from fairstream.estimators.base import FairEstimator
from fairstream.files.format import storable
from fairstream.linalg import FloatArray
from fairstream.subspace.choices import choice_names
from fairstream.subspace.frontier import Frontier


@storable
@dataclass(eq=False, repr=False)
class FairStreamingPCA(ClassNamePrefixFeaturesOutMixin, FairEstimator):  # type: ignore[misc]
    """PCA that nulls the directions in which sensitive groups differ, learned in one pass.

    Keeps as much variance as possible in `n_components` directions that are orthogonal to the gap between
    group means and to the leading `n_unfair` directions of the gap between group second moments.

    Parameters
    ----------
    n_components : int or float, optional
        Number of components, k. A share, above 0 and below 1: as few as hold more than this share of the
        variance that is available outside the nulled directions; not with solver "power". None keeps as many
        as the constraint leaves.
    n_unfair : int, dict of str to int, or "auto", default 1
        m: directions of each second-moment gap to null, for all attributes or per attribute. "auto": those
        beyond what chance shows, at most 10, see `Choices`; `subspace_.parameters` tells how many. Not with
        solver "power".
    constraint : {"all", "mean", "covariance", "none"}, default "all"
        Null mean gaps, second-moment gaps, both, or nothing (ordinary streaming PCA).
    directions : {"absolute", "relative"}, default "absolute"
        Which second-moment directions: largest absolute gap (the paper) or largest ratio, which on data with
        a steep spectrum costs much less variance.
    solver : {"auto", "exact", "sketch", "power"}, default "auto"
        "exact" keeps d x d moments; "sketch" keeps about `rank` directions, O(d rank) memory; "auto" is exact
        up to 2,000 features (fewer with very many groups) unless `rank` is given. "power" is the paper's
        fair noisy power method: O(d k) memory, two phases, no result before both are finished.
    rank : int, optional
        Directions that the sketch resolves; by default 4 q for q = k + unfair directions, or 2 q + 64 if that
        is less, at least 64. Moments are exact after all, as `solver_` then says, if it is at least half of
        the features, or by default up to 512 features. Data whose variance is spread evenly over many
        features (rare categories, standardised) needs a larger rank.
    step_rows : int or (int, int), optional
        "power" only: rows per step in the two phases. None reads the whole data in every step (not with
        `partial_fit`).
    power_steps : int or (int, int), default 10
        "power" only: steps of the two phases.
    on_empty_group : {"extend", "zero"}, default "extend"
        "power" only: extend a step whose rows lack a compared group, or take that group's sums as zero.
    sensitive_columns : str or list of str, optional
        Columns of X, a frame, that hold the sensitive attributes: they are the labels, in place of
        `sensitive_features`, and no features. `transform` and `erase` leave them out if they are there, so
        that a pipeline or a search needs no metadata routing.
    intersections : list of tuples of str, optional
        Attributes to combine, such as [("sex", "race")]: each combination of their groups that occurs is a
        group of a further attribute "sex & race".
    min_group_size : int, default 20
        A fit that compares a group of fewer rows warns, and a saved `subspace_` leaves out its count and
        mean, and those of the next smallest group if they would give these away.
    screen : int, float or list of str, optional
        Columns that no component may use: the number of them, taken by the largest standardised gap between
        group means (whole one-hot variables of a table at once); a limit (a float) that no gap may exceed; or
        names. Unless they are named, solver "power" first ranks columns by the rows of one step or, if
        step_rows is None, in a pass of its own.
    guard : float, default 0
        Price of what a nonlinear adversary reads from the scores: 0.5 to 32 for tables, about 1 if they have
        many categories; 8 for images. It trades variance for groups that trees and networks cannot tell
        apart, which moments alone cannot promise, and works best with `constraint="none"`. Needs a sample of
        rows, which a fit with a guard keeps.
    keep_target : float, default 0
        With a guard: reward for what can still be read of y.
    guard_seed : int, default 0
        Seed of the guard's draws.
    sample : int, optional
        Rows of each group to keep in `moments_`, for a guard; by default 4,096 if there is one. They are
        row-level data and go into no file.
    whiten : bool, default False
        Divide every coordinate by its deviation, so that all have unit variance.
    dither : float, default 0
        `transform` and `erase` add noise of this share of each score's deviation. The same row gets the same
        noise; whoever has the key can remove it.
    ids : bool or str, default False
        Make the noise of dither depend on whose row it is, not on its values, so that people with equal rows
        get different noise. A name: the column of X that holds the ids, whole numbers or text, and is no
        feature. True: ids are passed to `transform(X, ids=...)`.
    dither_key : path, optional
        File that holds the secret key of the noise; by default the environment variable
        FAIRSTREAM_DITHER_KEY does. The key itself is stored nowhere.
    random_state : int, RandomState or None
        "power" only: for the random starts; the other solvers are deterministic.

    Attributes
    ----------
    components_ : array (k, d)
    unfair_basis_ : array (m', d)
    mean_ : array (d,)
    explained_variance_, explained_variance_ratio_, singular_values_ : arrays (k,)
    noise_variance_ : float
    group_counts_ : dict, attribute -> label -> rows
    group_means_ : dict, attribute -> label -> array (d,)
    n_components_ : int
    n_samples_seen_ : int
    moments_ : GroupMoments, of all solvers but "power"
    power_ : FairPowerMethod, of solver "power"
    phase_ : str, of solver "power": "unfair" or "components"
    subspace_ : FairSubspace
    solver_ : str
    learner_ : Learner, what everything is solved from

    Notes
    -----
    `partial_fit` only updates the moments; the subspace is solved when it is first asked for.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> sex = rng.choice(["f", "m"], 400)
    >>> X = rng.normal(size=(400, 8))
    >>> X[:, 0] += 2 * (sex == "m")
    >>> pca = FairStreamingPCA(n_components=2, constraint="mean").fit(X, sensitive_features=sex)
    >>> Z = pca.transform(X)
    >>> bool(np.allclose(Z[sex == "m"].mean(axis=0), Z[sex == "f"].mean(axis=0)))
    True
    """

    kind: ClassVar[str] = "FairStreamingPCA"

    n_components: int | float | None = None
    _: KW_ONLY
    directions: str = "absolute"
    guard: float = 0.0
    keep_target: float = 0.0
    guard_seed: int = 0
    sample: int | None = None
    whiten: bool = False

    def frontier(self, n_unfair: Iterable[int] | None = None, **choices: Any) -> Frontier:
        """Return variance kept and gaps left for every m, from the moments alone.

        Parameters
        ----------
        n_unfair : iterable of int, optional
            None: 0 to 10, as far as they leave room for the components.
        **choices
            `n_components`, `constraint`, `directions`, ... if they are to differ from the estimator's.
        """
        self.moments_  # noqa: B018  an error if there are none
        own = {name: getattr(self, name) for name in choice_names()}
        kept = {name: value for name, value in own.items() if name not in ("n_components", "n_unfair")}
        return self.learner_.frontier(self.subspace_, n_unfair, kept | choices)

    # Using ------------------------------------------------------------------------------------------

    def transform(self, X: Any, *, axis: int | None = None, ids: Any = None) -> Any:
        """Return the fair coordinates of X, n x k, with `dither` if that is set.

        Parameters
        ----------
        X : array, frame, tensor or sparse matrix (n, d)
        axis : int, optional
            The axis of an array or tensor that holds the features, if it has not two axes: -1 for tokens of
            shape (texts, places, d).
        ids : array, Series or list (n,), optional
            Whose rows these are, as in `FairSubspace.embed`; not needed if `ids` names a column of X.

        Returns
        -------
        array, frame or tensor
            The kind that X is, unless `set_output` asks for another: a frame with its index, a tensor on its
            device and of its type.
        """
        check_is_fitted(self)
        given, noise = self._given(X, axis), self._noise(X, ids)
        Z = self.subspace_.embed(self._checked(given.rows), **noise)
        return Z if self._wraps_output() else given.back(Z, self.get_feature_names_out())

    def inverse_transform(self, Z: Any, *, axis: int | None = None) -> Any:
        """Return the rows, n x d, that fair coordinates stand for; kind of Z and `axis` as in `transform`."""
        check_is_fitted(self)
        return self.subspace_.reconstruct(Z, axis=axis)

    def score_samples(self, X: Any) -> FloatArray:
        """Return the log-likelihood of every row of X under the model of `get_covariance`, as an array."""
        check_is_fitted(self)
        return self.subspace_.score_samples(self._checked(self._given(X).rows))

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean log-likelihood of the rows of X; y is ignored."""
        return float(np.mean(self.score_samples(X)))

    def get_covariance(self) -> FloatArray:
        """Return the covariance of the model, d x d.

        It has `explained_variance_` along the components and `noise_variance_` everywhere else.

        This is the model of probabilistic PCA; the nulled directions count as noise. It is the covariance of
        X, whether or not `whiten` is set.
        """
        return self.subspace_.covariance()

    def get_precision(self) -> FloatArray:
        """Return the inverse of `get_covariance`, d x d."""
        return self.subspace_.precision()

    # What was learned -------------------------------------------------------------------------------

    @property
    def n_components_(self) -> int:
        """Number of columns of the embedding."""
        return self.subspace_.n_components

    @property
    def components_(self) -> FloatArray:
        """Fair directions, k x d."""
        return self.subspace_.components

    @property
    def explained_variance_(self) -> FloatArray:
        """Variance along each component, divisor n - 1."""
        return self.subspace_.explained_variance

    @property
    def explained_variance_ratio_(self) -> FloatArray:
        """Share of the total variance along each component."""
        return self.subspace_.explained_variance_ratio

    @property
    def singular_values_(self) -> FloatArray:
        """Norm of the centred data along each component."""
        values: FloatArray = np.sqrt(self.subspace_.explained_variance * (self.subspace_.n_rows - 1))
        return values

    @property
    def noise_variance_(self) -> float:
        """Mean variance of the directions that the components leave, the nulled ones among them."""
        return self.subspace_.noise_variance

    @property
    def _n_features_out(self) -> int:
        return self.n_components_
