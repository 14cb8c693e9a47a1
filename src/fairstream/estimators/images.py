"""FairImagePCA: one fair streaming PCA per colour channel, all learned in the same pass."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted, validate_data

from fairstream.data.alignment import paired
from fairstream.data.blocks import Matrix
from fairstream.data.groups import encode_groups
from fairstream.data.matrices import check_matrix
from fairstream.data.small_groups import MIN_GROUP_SIZE, warn_of_row_level
from fairstream.estimators import images_state
from fairstream.estimators.pca import FairStreamingPCA
from fairstream.files.format import Arrays, Header, PathLike, Storable, storable
from fairstream.linalg import FloatArray
from fairstream.moments import GroupMoments
from fairstream.subspace.channels import ChannelSubspaces
from fairstream.subspace.choices import NUnfair, check_choice
from fairstream.subspace.frontier import FrontierPoint

CHANNELS = ("separate", "joint")


@storable
class FairImagePCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, Storable):  # type: ignore[misc]
    """Fair streaming PCA of images: a model for each colour channel, in one pass over the rows.

    Rows are planar: all pixels of the first channel, then all of the second, and so on, as the image source
    yields them. Each channel gets its own `FairStreamingPCA`, so its unfair basis is orthonormal by itself
    and the group means coincide in every channel.

    Parameters
    ----------
    n_components : int, optional
        k of each channel. None keeps as many as the constraint leaves.
    n_channels : int, default 3
        C: how many channels a row holds; it must divide the number of features.
    channels : {"separate", "joint"}, default "separate"
        "separate" is the paper's: a model per channel. "joint" makes one model of all channels as one long
        vector, the same as `FairStreamingPCA`; `n_channels` then has no say.
    n_unfair, constraint, directions, solver, rank, block_size, power_steps, on_empty_group, min_group_size, \
    random_state
        Of every channel's `FairStreamingPCA`.

    Attributes
    ----------
    estimators_ : tuple of FairStreamingPCA, one per channel
    subspace_ : ChannelSubspaces
    components_ : tuple of arrays (k, d/C), one per channel
    unfair_basis_ : tuple of arrays (m', d/C), one per channel; m' may differ
    mean_ : array (d,)
    explained_variance_ : array (C k,), in the order of the columns that `transform` returns
    explained_variance_ratio_ : array (C k,), shares of the variance of all channels together
    group_counts_ : dict, attribute -> label -> rows
    group_means_ : dict, attribute -> label -> array (d,)
    moments_ : tuple of GroupMoments, one per channel, of all solvers but "power"
    n_samples_seen_ : int
    solver_ : str

    Notes
    -----
    A uint8 block is never turned to float whole: every channel's columns are a view of it, which the
    learner casts and centres some rows at a time, one channel after the other.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> glasses = rng.choice([False, True], 300)
    >>> X = rng.integers(0, 200, (300, 3 * 16), dtype=np.uint8)  # 300 RGB images of 4 x 4 pixels
    >>> X[glasses, 5] += 50  # a red pixel gives them away
    >>> pca = FairImagePCA(n_components=2, constraint="mean").fit(X, sensitive_features=glasses)
    >>> Z = pca.transform(X)
    >>> Z.shape, len(pca.components_), pca.components_[0].shape
    ((300, 6), 3, (2, 16))
    >>> bool(np.allclose(Z[glasses].mean(axis=0), Z[~glasses].mean(axis=0), atol=1e-3))
    True
    >>> pca.inverse_transform(Z)[0].reshape(3, 4, 4).shape
    (3, 4, 4)
    """

    estimators_: tuple[FairStreamingPCA, ...]
    _subspace: ChannelSubspaces | None

    __metadata_request__fit: ClassVar[dict[str, bool]] = {"sensitive_features": True}
    __metadata_request__partial_fit: ClassVar[dict[str, bool]] = {"sensitive_features": True}

    def __init__(
        self,
        n_components: int | None = None,
        *,
        n_channels: int = 3,
        channels: str = "separate",
        n_unfair: NUnfair = 1,
        constraint: str = "all",
        directions: str = "absolute",
        solver: str = "auto",
        rank: int | None = None,
        block_size: int | tuple[int, int] | None = None,
        power_steps: int | tuple[int, int] = 10,
        on_empty_group: str = "extend",
        min_group_size: int = MIN_GROUP_SIZE,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.n_channels = n_channels
        self.channels = channels
        self.n_unfair = n_unfair
        self.constraint = constraint
        self.directions = directions
        self.solver = solver
        self.rank = rank
        self.block_size = block_size
        self.power_steps = power_steps
        self.on_empty_group = on_empty_group
        self.min_group_size = min_group_size
        self.random_state = random_state

    # Learning ---------------------------------------------------------------------------------------

    def fit(
        self, X: Any, y: Any = None, *, sensitive_features: Any = None, sample_weight: Any = None
    ) -> Self:
        """Learn from all rows of X, forgetting what was learned before.

        Parameters
        ----------
        X : array or sparse matrix (n, d)
            Planar rows, uint8 for images.
        y : ignored
        sensitive_features, sample_weight
            As in `FairStreamingPCA.fit`.

        Returns
        -------
        FairImagePCA
            Itself. A rejected call leaves it as it was.
        """
        with self._unchanged_on_error():
            sensitive_features = paired(sensitive_features, X)
            sample_weight = paired(sample_weight, X, "sample_weight")
            X = self._validated(X, reset=True)
            groups = None if sensitive_features is None else encode_groups(sensitive_features, X.shape[0])
            self.estimators_ = tuple(
                estimator.fit(
                    channel_columns(X, columns), sensitive_features=groups, sample_weight=sample_weight
                )
                for estimator, columns in self.new_parts(X.shape[1])
            )
            self._subspace = ChannelSubspaces([estimator.subspace_ for estimator in self.estimators_])
        return self

    def partial_fit(
        self, X: Any, y: Any = None, *, sensitive_features: Any = None, sample_weight: Any = None
    ) -> Self:
        """Learn from one more block of any number of rows. Parameters as in `fit`."""
        with self._unchanged_on_error():
            started = self.__sklearn_is_fitted__()
            sensitive_features = paired(sensitive_features, X)
            sample_weight = paired(sample_weight, X, "sample_weight")
            X = self._validated(X, reset=not started)
            parts = self._parts_so_far() if started else self.new_parts(X.shape[1])
            # Copies learn, and take the place of all channels at once: none is ahead of the others.
            parts = [(copy.copy(estimator), columns) for estimator, columns in parts]
            groups = None if sensitive_features is None else encode_groups(sensitive_features, X.shape[0])
            for estimator, columns in parts:
                estimator.partial_fit(
                    channel_columns(X, columns), sensitive_features=groups, sample_weight=sample_weight
                )
            self.estimators_ = tuple(estimator for estimator, _ in parts)
            self._subspace = None
        return self

    def resolve(self, **changes: Any) -> FairImagePCA:
        """Return a new fitted estimator from the same moments, with some choices changed. No data needed.

        Parameters
        ----------
        **changes
            Any of `n_components`, `n_unfair`, `constraint`, `directions`.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> X, glasses = rng.normal(size=(300, 24)), rng.integers(0, 2, 300)
        >>> pca = FairImagePCA(n_components=3).fit(X, sensitive_features=glasses)
        >>> [U.shape for U in pca.resolve(n_components=2, n_unfair=4).unfair_basis_]
        [(5, 8), (5, 8), (5, 8)]
        """
        resolved = tuple(estimator.resolve(**changes) for estimator, _ in self._parts_so_far())
        other: FairImagePCA = clone(self).set_params(**changes)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self, name):
                setattr(other, name, getattr(self, name))
        other.estimators_, other._subspace = resolved, None
        return other

    def frontier(
        self, n_unfair: Iterable[int] | None = None, **choices: Any
    ) -> tuple[list[FrontierPoint], ...]:
        """Return, for each channel, variance kept and gaps left for every m, from the moments alone.

        Parameters as in `FairStreamingPCA.frontier`.
        """
        steps = None if n_unfair is None else [*n_unfair]
        return tuple(estimator.frontier(steps, **choices) for estimator in self._fitted())

    # Using ------------------------------------------------------------------------------------------

    def transform(self, X: Any) -> FloatArray:
        """Return the fair coordinates of X, n x C k, channel after channel."""
        check_is_fitted(self)
        return self.subspace_.embed(self._validated(X, reset=False))

    def inverse_transform(self, Z: Any) -> FloatArray:
        """Return the planar rows, n x d, that fair coordinates stand for."""
        check_is_fitted(self)
        return self.subspace_.reconstruct(np.asarray(Z))

    def erase(self, X: Any) -> FloatArray:
        """Return X, n x d, every channel without its part in its own unfair subspace."""
        check_is_fitted(self)
        return self.subspace_.erase(self._validated(X, reset=False))

    # Files ------------------------------------------------------------------------------------------

    kind: ClassVar[str] = "FairImagePCA"

    def save(self, path: PathLike) -> None:
        """Write to a file that `fairstream.load` reads back; warns if it holds the moments of few rows."""
        warn_of_row_level(*self._fitted()[0].seen_counts(), self.min_group_size)
        super().save(path)

    def to_state(self) -> tuple[dict[str, Any], dict[str, FloatArray]]:
        """Return parameters and what every channel has learned, as JSON values and arrays (not copied)."""
        self._parts_so_far()
        return images_state.describe(self)

    @classmethod
    def from_state(cls, header: Header, arrays: Arrays) -> Self:
        """Return the estimator that `to_state` described; `partial_fit` can go on."""
        return images_state.rebuild(cls, header, arrays)

    # What was learned -------------------------------------------------------------------------------

    @property
    def subspace_(self) -> ChannelSubspaces:
        """The frozen result; solved on first use after `partial_fit`."""
        self._fitted()
        if self._subspace is None:
            parts = self._parts_so_far()
            self._subspace = ChannelSubspaces([estimator.subspace_ for estimator, _ in parts])
        return self._subspace

    @property
    def moments_(self) -> tuple[GroupMoments, ...]:
        """The summary of each channel that everything else is solved from."""
        return tuple(estimator.moments_ for estimator in self._fitted())

    @property
    def components_(self) -> tuple[FloatArray, ...]:
        """Fair directions of each channel, k x d/C."""
        return self.subspace_.components

    @property
    def unfair_basis_(self) -> tuple[FloatArray, ...]:
        """Nulled directions of each channel, m' x d/C."""
        return self.subspace_.unfair_basis

    @property
    def mean_(self) -> FloatArray:
        """Mean of all rows."""
        return self.subspace_.mean

    @property
    def explained_variance_(self) -> FloatArray:
        """Variance along each column of the embedding, divisor n - 1."""
        return self.subspace_.explained_variance

    @property
    def explained_variance_ratio_(self) -> FloatArray:
        """Share of the variance of all channels along each column of the embedding."""
        return self.subspace_.explained_variance_ratio

    @property
    def group_counts_(self) -> Mapping[str, Mapping[Hashable, int | float]]:
        """Rows per attribute and group."""
        return self.subspace_.group_counts

    @property
    def group_means_(self) -> Mapping[str, Mapping[Hashable, FloatArray]]:
        """Mean per attribute and group."""
        return self.subspace_.group_means

    @property
    def n_samples_seen_(self) -> int | float:
        """Rows seen, or the sum of their weights."""
        return self._fitted()[0].n_samples_seen_

    @property
    def solver_(self) -> str:
        """The solver that "auto" came to."""
        return self._fitted()[0].solver_

    # Inside -----------------------------------------------------------------------------------------

    def new_parts(self, n_features: int) -> list[tuple[FairStreamingPCA, slice]]:
        """Return an unfitted estimator for each channel, and the columns that are its own."""
        return [
            (FairStreamingPCA(**self._channel_parameters()), columns) for columns in self._slices(n_features)
        ]

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "estimators_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _n_features_out(self) -> int:
        return self.subspace_.n_components

    def _channel_parameters(self) -> dict[str, Any]:
        return {
            name: value
            for name, value in self.get_params(deep=False).items()
            if name not in ("n_channels", "channels")
        }

    def _slices(self, n_features: int) -> list[slice]:
        """Return the columns of every model, after checking that there are whole channels."""
        check_choice("channels", self.channels, CHANNELS)
        if self.channels == "joint":
            return [slice(0, n_features)]
        C = self.n_channels
        if isinstance(C, bool) or not isinstance(C, int | np.integer) or C < 1:
            raise ValueError(f"n_channels={C!r}: give a whole number from 1")
        if n_features % C:
            raise ValueError(
                f"X has {n_features} features, n_channels={C} does not divide them: rows must be planar, one "
                'whole channel after the other; set n_channels, or channels="joint"'
            )
        width = n_features // C
        return [slice(c * width, (c + 1) * width) for c in range(C)]

    def _parts_so_far(self) -> list[tuple[FairStreamingPCA, slice]]:
        """Return every channel's fitted estimator and columns, with the parameters as they are now."""
        estimators, slices = self._fitted(), self._slices(self.n_features_in_)
        if len(estimators) != len(slices):
            raise ValueError(
                f"{len(estimators)} models were fitted so far, n_channels={self.n_channels} and "
                f"channels={self.channels!r} ask for {len(slices)}: fit anew to change them"
            )
        for estimator in estimators:
            estimator.set_params(**self._channel_parameters())
        return [*zip(estimators, slices, strict=True)]

    def _fitted(self) -> tuple[FairStreamingPCA, ...]:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError("this FairImagePCA is not fitted yet: call fit or partial_fit first")
        seen = [estimator.n_samples_seen_ for estimator in self.estimators_]
        if len({*seen}) > 1:
            raise RuntimeError(
                f"the channels have seen {', '.join(f'{n:,}' for n in seen)} rows: a partial_fit was broken "
                "off between them; fit anew, or go on from a checkpoint"
            )
        return self.estimators_

    @contextmanager
    def _unchanged_on_error(self) -> Iterator[None]:
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            self.__dict__ = before
            raise

    def _validated(self, X: Any, *, reset: bool) -> Any:
        check_matrix(X)  # before scikit-learn, which drops masks and follows sparse indices
        return validate_data(self, X, accept_sparse=("csr", "csc"), dtype="numeric", reset=reset)


def check_source_channels(estimator: FairImagePCA, source: Any) -> None:
    """Refuse a source whose channels are others than the estimator's, or that has none.

    Examples
    --------
    >>> class Grey:
    ...     n_channels = 1
    >>> check_source_channels(FairImagePCA(2), Grey())
    Traceback (most recent call last):
    ValueError: n_channels=3, the source has 1: pass n_channels=1
    """
    if getattr(source, "encoding", None) is not None:
        raise ValueError("the source is a table, which has no colour channels: use FairStreamingPCA")
    found = getattr(source, "n_channels", estimator.n_channels)
    if estimator.channels != "joint" and found != estimator.n_channels:
        raise ValueError(
            f"n_channels={estimator.n_channels}, the source has {found}: pass n_channels={found}"
        )


def channel_columns(X: Matrix, columns: slice) -> Matrix:
    """Return some columns: a view of an array, which costs nothing, and a copy of a sparse matrix."""
    return X if columns.stop - columns.start == X.shape[1] else X[:, columns]
