"""FairImagePCA: one fair streaming PCA per colour channel, all learned in the same pass."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, cast

from fairstream.data.blocks import Matrix
from fairstream.data.groups import Groups
from fairstream.estimators.channels import ChannelLearner, channel_columns
from fairstream.estimators.pca import FairStreamingPCA
from fairstream.estimators.solvers import new_learner
from fairstream.files.format import Arrays, Header, checked, storable
from fairstream.linalg import FloatArray
from fairstream.moments import GroupMoments
from fairstream.power import FairPowerMethod
from fairstream.subspace.channels import ChannelSubspaces, side_by_side
from fairstream.subspace.choices import check_choice, is_count
from fairstream.subspace.frontier import Frontier

CHANNELS = ("separate", "joint")


@storable
@dataclass(eq=False, repr=False, kw_only=True)
class FairImagePCA(FairStreamingPCA):
    """Fair streaming PCA of images: a model for each colour channel, in one pass over the rows.

    Rows are planar: all pixels of the first channel, then all of the second, and so on, as the image source
    yields them. Each channel gets its own `FairStreamingPCA`, so its unfair basis is orthonormal by itself
    and the group means coincide in every channel.

    Parameters
    ----------
    n_components : int or float, optional
        Number of components of each channel, k; a share of the variance may give channels different numbers.
        None keeps as many as the constraint leaves.
    n_channels : int, default 3
        Number of channels of a row, C; it must divide the number of features.
    channels : {"separate", "joint"}, default "separate"
        "separate" is the paper's: a model per channel. "joint" makes one model of all channels as one long
        vector, the same as `FairStreamingPCA`, and ignores `n_channels`.
    n_unfair, constraint, directions, solver, rank, step_rows, power_steps, on_empty_group, \
    sensitive_columns, intersections, min_group_size, screen, guard, keep_target, guard_seed, sample, \
    whiten, dither, dither_key, ids, random_state
        Of every channel's `FairStreamingPCA`.

    Attributes
    ----------
    estimators_ : tuple of FairStreamingPCA, one per channel; copies
    subspace_ : ChannelSubspaces
    components_ : tuple of arrays (k, d/C), one per channel
    unfair_basis_ : tuple of arrays (m', d/C), one per channel; m' may differ
    mean_ : array (d,)
    explained_variance_ : array (C k,), in the order of the columns that `transform` returns
    explained_variance_ratio_ : array (C k,), shares of the variance of all channels together
    group_counts_ : dict, attribute -> label -> rows
    group_means_ : dict, attribute -> label -> array (d,)
    moments_ : tuple of GroupMoments, one per channel, of all solvers but "power"
    n_components_ : int, C k
    n_samples_seen_ : int
    solver_ : str

    Notes
    -----
    A uint8 block is never turned to float whole: every channel's columns are a view of it, which the
    learner casts and centres some rows at a time, one channel after the other.

    Examples
    --------
    >>> import numpy as np
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

    kind: ClassVar[str] = "FairImagePCA"

    n_channels: int = 3
    channels: str = "separate"

    # A learner for each channel ---------------------------------------------------------------------

    def empty_learner(self, X: Matrix, groups: Groups | None) -> ChannelLearner:
        """Return an empty learner for each channel of rows like these."""
        parameters, columns = self.settings(), side_by_side(self._widths(X.shape[1]))
        return ChannelLearner([new_learner(parameters, channel_columns(X, of), groups) for of in columns])

    def stored_learner(self, header: Header, arrays: Arrays) -> ChannelLearner:
        """Return the learners that a file of this estimator describes."""
        learner = ChannelLearner.from_state(header, arrays)
        widths = [one.n_features for one in learner.learners]
        checked(widths == self._widths(learner.n_features), "channels and parameters")
        return learner

    @property
    def learner_(self) -> ChannelLearner:
        """What took in the rows: a learner for each channel."""
        learner = cast(ChannelLearner, super().learner_)
        fitted, asked = len(learner.learners), len(self._widths(learner.n_features))
        if fitted != asked:
            raise ValueError(
                f"{fitted} models were fitted so far, n_channels={self.n_channels} and "
                f"channels={self.channels!r} ask for {asked}: fit anew to change them"
            )
        return learner

    def check_source(self, source: Any) -> None:
        """Refuse a source with another number of channels, or without any.

        Examples
        --------
        >>> class Grey:
        ...     n_channels = 1
        >>> FairImagePCA(2).check_source(Grey())
        Traceback (most recent call last):
        ValueError: n_channels=3, the source has 1: pass n_channels=1
        """
        super().check_source(source)
        if getattr(source, "encoding", None) is not None:
            raise ValueError("the source is a table, which has no colour channels: use FairStreamingPCA")
        found = getattr(source, "n_channels", self.n_channels)
        if self.channels != "joint" and found != self.n_channels:
            raise ValueError(f"n_channels={self.n_channels}, the source has {found}: pass n_channels={found}")

    def _widths(self, n_features: int) -> list[int]:
        """Return the number of columns of every model, after checking that there are whole channels."""
        check_choice("channels", self.channels, CHANNELS)
        if self.channels == "joint":
            return [n_features]
        C = self.n_channels
        if not is_count(C, least=1):
            raise ValueError(f"n_channels={C!r}: give a whole number from 1")
        if n_features % C:
            raise ValueError(
                f"X has {n_features} features, n_channels={C} does not divide them: rows must be planar, one "
                'whole channel after the other; set n_channels, or channels="joint"'
            )
        return [n_features // C] * C

    # What was learned: as in FairStreamingPCA, of each channel ----------------------------------------

    @property
    def estimators_(self) -> tuple[FairStreamingPCA, ...]:
        """A fitted estimator for each channel; what it learns from now on stays its own."""
        shared = {
            name: value
            for name, value in self.get_params(deep=False).items()
            if name not in ("n_channels", "channels", "sensitive_columns", "intersections")
        }
        return tuple(FairStreamingPCA(**shared).adopt(one) for one in self.learner_.copy().learners)

    if TYPE_CHECKING:  # inherited; a tuple of what FairStreamingPCA has, one for each channel

        @property
        def subspace_(self) -> ChannelSubspaces: ...  # type: ignore[override]
        @property
        def moments_(self) -> tuple[GroupMoments, ...]: ...  # type: ignore[override]
        @property
        def power_(self) -> tuple[FairPowerMethod, ...]: ...  # type: ignore[override]
        @property
        def components_(self) -> tuple[FloatArray, ...]: ...  # type: ignore[override]
        @property
        def unfair_basis_(self) -> tuple[FloatArray, ...]: ...  # type: ignore[override]
        @property
        def noise_variance_(self) -> tuple[float, ...]: ...  # type: ignore[override]
        def get_covariance(self) -> tuple[FloatArray, ...]: ...  # type: ignore[override]
        def get_precision(self) -> tuple[FloatArray, ...]: ...  # type: ignore[override]
        def frontier(  # type: ignore[override]
            self, n_unfair: Iterable[int] | None = None, **choices: Any
        ) -> tuple[Frontier, ...]: ...
