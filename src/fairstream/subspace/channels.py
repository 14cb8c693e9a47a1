"""ChannelSubspaces: the frozen result of a fit channel by channel, one fair subspace for each."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairstream.data.alignment import paired
from fairstream.data.blocks import Matrix
from fairstream.data.kinds import Given
from fairstream.data.schema import Schema
from fairstream.data.small_groups import MIN_GROUP_SIZE, warn_of_few_rows
from fairstream.files.atomic import PathLike
from fairstream.files.format import Arrays, Header, Storable, checked, storable
from fairstream.linalg import FloatArray
from fairstream.subspace.dither import DitherKey, part_key, warn_of_unused
from fairstream.subspace.model import FairSubspace
from fairstream.subspace.rows import check_finite, checked_matrix


@storable
@dataclass(frozen=True, eq=False)
class ChannelSubspaces(Storable):
    """Fair subspaces of the channels of planar rows, side by side.

    Each channel has its own orthonormal components and its own orthonormal unfair basis: a gap between
    groups that is nulled in every channel by itself is nulled in the image.

    Parameters
    ----------
    channels : sequence of FairSubspace
        In the order of the columns, all of the same width and learned from the same rows.

    Examples
    --------
    >>> red = FairSubspace(np.eye(2)[:1], np.eye(2)[1:], np.zeros(2), np.ones(1), 2.0, 10)
    >>> image = ChannelSubspaces([red, red, red])
    >>> image.embed(np.array([[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]]))
    array([[1., 3., 5.]])
    >>> image.erase(np.array([[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]]))
    array([[1., 0., 3., 0., 5., 0.]])
    """

    kind: ClassVar[str] = "ChannelSubspaces"

    channels: Sequence[FairSubspace]

    def __post_init__(self) -> None:
        object.__setattr__(self, "channels", tuple(self.channels))
        if not self.channels:
            raise ValueError("channels is empty: pass one subspace per channel")
        for name in ("n_features", "n_rows", "group_counts"):
            if any(getattr(one, name) != getattr(self.channels[0], name) for one in self.channels):
                raise ValueError(f"channels differ in {name}: pass subspaces learned from the same rows")

    # What is known ----------------------------------------------------------------------------------

    @property
    def n_channels(self) -> int:
        """How many subspaces there are."""
        return len(self.channels)

    @property
    def n_features(self) -> int:
        """Columns of a row, all channels together."""
        return self.n_channels * self.channels[0].n_features

    @property
    def n_components(self) -> int:
        """Columns of the embedding, all channels together."""
        return sum(channel.n_components for channel in self.channels)

    @property
    def channel_slices(self) -> tuple[slice, ...]:
        """Columns of each channel in a row."""
        return side_by_side([channel.n_features for channel in self.channels])

    @property
    def component_slices(self) -> tuple[slice, ...]:
        """Columns of each channel in the embedding."""
        return side_by_side([channel.n_components for channel in self.channels])

    @property
    def components(self) -> tuple[FloatArray, ...]:
        """Fair directions of each channel, k x d/C."""
        return tuple(channel.components for channel in self.channels)

    @property
    def unfair_basis(self) -> tuple[FloatArray, ...]:
        """Nulled directions of each channel, m' x d/C; m' may differ."""
        return tuple(channel.unfair_basis for channel in self.channels)

    @property
    def mean(self) -> FloatArray:
        """Mean of all rows, all channels together."""
        return np.concatenate([channel.mean for channel in self.channels])

    @property
    def explained_variance(self) -> FloatArray:
        """Variance along each column of the embedding."""
        return np.concatenate([channel.explained_variance for channel in self.channels])

    @property
    def total_variance(self) -> float:
        """Variance of all channels together."""
        return float(sum(channel.total_variance for channel in self.channels))

    @property
    def explained_variance_ratio(self) -> FloatArray:
        """Share of the variance of all channels that each column of the embedding keeps."""
        total = self.total_variance
        return (
            np.clip(self.explained_variance / total, 0.0, 1.0) if total > 0 else 0 * self.explained_variance
        )

    @property
    def n_rows(self) -> int | float:
        """Rows seen, or the sum of their weights."""
        return self.channels[0].n_rows

    @property
    def group_counts(self) -> Mapping[str, Mapping[Hashable, int | float]]:
        """Rows per attribute and group."""
        return self.channels[0].group_counts

    @property
    def group_means(self) -> dict[str, dict[Hashable, FloatArray]]:
        """Mean per attribute and group, all channels together."""
        return {
            attribute: {
                label: np.concatenate([channel.group_means[attribute][label] for channel in self.channels])
                for label in means
            }
            for attribute, means in self.channels[0].group_means.items()
        }

    @property
    def groups(self) -> dict[str, tuple[Hashable, ...]]:
        """The labels of every attribute."""
        return self.channels[0].groups

    @property
    def withheld_groups(self) -> Mapping[str, tuple[Hashable, ...]]:
        """The labels of every attribute whose counts and means are withheld."""
        return self.channels[0].withheld_groups

    @property
    def schema(self) -> Schema:
        """Pixels have no names, and no table has channels: empty."""
        return Schema()

    @property
    def feature_names(self) -> None:
        """Pixels have no names."""
        return

    @property
    def parameters(self) -> dict[str, Any]:
        """How it was obtained; the same for all channels."""
        return {**self.channels[0].parameters, "n_channels": self.n_channels}

    @property
    def dither(self) -> float:
        """The noise that the model is meant to be used with, as a share of each score's deviation."""
        return self.channels[0].dither

    @property
    def ids(self) -> bool | str:
        """Whether noise depends on whose row it is: True, or the name of the column that says so."""
        return self.channels[0].ids

    def residual_mean_gaps(self) -> tuple[dict[str, float], ...]:
        """Return what is left in each channel of the gap f between group means, ``|V'f| / |f|``.

        The largest of an attribute's comparisons, from the group means that the fit saw. Zero to rounding
        if means were nulled; the power method on a stream nulls those of its first phase only. Attributes
        of which a file withholds a group are left out.
        """
        return tuple(
            {
                attribute: _residual_mean_gap(channel, attribute)
                for attribute in channel.group_means
                if attribute not in channel.withheld_groups
            }
            for channel in self.channels
        )

    # Using ------------------------------------------------------------------------------------------

    def embed(
        self,
        X: Matrix,
        *,
        axis: int | None = None,
        dither: float | None = None,
        key: DitherKey = None,
        ids: ArrayLike | None = None,
    ) -> Any:
        """Return the fair coordinates, n x (k of all channels), channel after channel.

        Parameters and the kind of what is returned as in `FairSubspace.embed`.
        """
        given, noise = Given(X, axis), self._noise(dither, key, paired(ids, X, "ids"))
        Z = self._by_channel(given.rows, FairSubspace.embed, noise, self.n_components, self.component_slices)
        return given.back(Z, [f"component_{j}" for j in range(self.n_components)])

    def erase(
        self,
        X: Matrix,
        *,
        axis: int | None = None,
        dither: float | None = None,
        key: DitherKey = None,
        ids: ArrayLike | None = None,
    ) -> Any:
        """Return X, n x d, every channel without its part in its own unfair subspace.

        Parameters and the kind of what is returned as in `FairSubspace.erase`.
        """
        given, noise = Given(X, axis), self._noise(dither, key, paired(ids, X, "ids"))
        return given.back(
            self._by_channel(given.rows, FairSubspace.erase, noise, self.n_features, self.channel_slices)
        )

    def reconstruct(self, Z: Any, *, axis: int | None = None) -> Any:
        """Return the rows, n x d, that the coordinates stand for; kind of Z and `axis` as in `embed`."""
        given = Given(Z, axis)
        coordinates = np.asarray(checked_matrix(given.rows, self.n_components, name="Z", sparse=False))
        check_finite(coordinates, "Z")
        rows: FloatArray | None = None
        for channel, inside, outside in zip(
            self.channels, self.component_slices, self.channel_slices, strict=True
        ):
            part = channel.reconstruct(coordinates[:, inside])
            rows = np.empty((len(coordinates), self.n_features), dtype=part.dtype) if rows is None else rows
            rows[:, outside] = part
        assert rows is not None
        return given.back(rows, [f"feature_{j}" for j in range(self.n_features)])

    def _noise(
        self, dither: float | None, key: DitherKey, ids: ArrayLike | None
    ) -> tuple[dict[str, Any], ...]:
        """Return the options of noise for each channel; with ids each has a key of its own."""
        share = self.dither if dither is None else dither
        if dither is None:
            warn_of_unused(share, key, ids)
        keys = [key] * self.n_channels
        if ids is not None and share and self.n_channels > 1:
            keys = [part_key(key, number) for number in range(self.n_channels)]
        return tuple({"dither": share, "key": of, "ids": ids} for of in keys)

    def _by_channel(
        self,
        X: Matrix,
        verb: Callable[..., FloatArray],
        noise: Sequence[Mapping[str, Any]],
        width: int,
        places: tuple[slice, ...],
    ) -> FloatArray:
        """Apply a verb of every channel's subspace to its columns, one channel at a time."""
        X = checked_matrix(X, self.n_features)
        if self.n_channels == 1:
            return verb(self.channels[0], X, **noise[0])
        result: FloatArray | None = None
        for channel, columns, place, options in zip(
            self.channels, self.channel_slices, places, noise, strict=True
        ):
            part = verb(channel, X[:, columns], **options)
            result = np.empty((X.shape[0], width), dtype=part.dtype) if result is None else result
            result[:, place] = part
        assert result is not None
        return result

    # As Gaussian models, one for each channel ----------------------------------------------------------

    @property
    def noise_variance(self) -> tuple[float, ...]:
        """Mean variance of the directions that the components of each channel leave."""
        return tuple(channel.noise_variance for channel in self.channels)

    def covariance(self) -> tuple[FloatArray, ...]:
        """Return the covariance of each channel's model, d/C x d/C."""
        return tuple(channel.covariance() for channel in self.channels)

    def precision(self) -> tuple[FloatArray, ...]:
        """Return the inverse of each channel's covariance."""
        return tuple(channel.precision() for channel in self.channels)

    def score_samples(self, X: Matrix) -> FloatArray:
        """Return the log-likelihood of every row of X, the sum over its channels, as an array (n,)."""
        X = checked_matrix(Given(X).rows, self.n_features)
        pairs = zip(self.channels, self.channel_slices, strict=True)
        scores: FloatArray = np.sum([one.score_samples(X[:, columns]) for one, columns in pairs], axis=0)
        return scores

    # Files ------------------------------------------------------------------------------------------

    def publishable(self) -> ChannelSubspaces:
        """Return it as a file holds it, see `FairSubspace.publishable`."""
        return ChannelSubspaces([channel.publishable() for channel in self.channels])

    def save(self, path: PathLike) -> None:
        """Write what is `publishable` to `path`, whole or not at all; `fairstream.load` reads it back."""
        warn_of_few_rows(self.n_rows, self.parameters.get("min_group_size", MIN_GROUP_SIZE))
        super().save(path)

    def describe(self) -> dict[str, Any]:
        """Return the main figures, some of them for each channel."""
        gaps = self.residual_mean_gaps()
        return {
            **self.channels[0].describe(),  # the same groups in all channels
            "n_features": self.n_features,
            "n_components": self.n_components,
            "n_channels": self.n_channels,
            "n_removed": [len(U) for U in self.unfair_basis],
            "channel_explained_variance_ratio": [
                float(channel.explained_variance_ratio.sum()) for channel in self.channels
            ],
            "channel_residual_mean_gap": {name: [of[name] for of in gaps] for name in gaps[0]},
            "explained_variance_ratio": float(self.explained_variance_ratio.sum()),
            "parameters": self.parameters,
        }

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return what is `publishable` as JSON values and arrays (not copied)."""
        headers, arrays = joined_states([channel.to_state() for channel in self.channels])
        return {"channels": headers}, arrays

    @classmethod
    def from_state(cls, header: Header, arrays: Arrays) -> ChannelSubspaces:
        """Return the subspaces that `to_state` described."""
        states = parted_states(header["channels"], arrays)
        return cls([FairSubspace.from_state(*state) for state in states])


def joined_states(
    states: Sequence[tuple[dict[str, Any], Mapping[str, NDArray[Any]]]],
) -> tuple[list[dict[str, Any]], dict[str, NDArray[Any]]]:
    """Return the headers of several states, and all their arrays named by channel: "0.components", ...

    Examples
    --------
    >>> joined_states([({"a": 1}, {"mean": np.zeros(1)}), ({"a": 2}, {"mean": np.ones(1)})])
    ([{'a': 1}, {'a': 2}], {'0.mean': array([0.]), '1.mean': array([1.])})
    """
    arrays = {
        f"{number}.{name}": array for number, (_, of) in enumerate(states) for name, array in of.items()
    }
    return [header for header, _ in states], arrays


def parted_states(headers: Any, arrays: Arrays) -> list[tuple[Header, dict[str, NDArray[Any]]]]:
    """Return the states that `joined_states` joined; refuses arrays of no channel."""
    checked(isinstance(headers, list) and len(headers) > 0, "channels and their states")
    parts: list[tuple[Header, dict[str, NDArray[Any]]]] = [(header, {}) for header in headers]
    places = {str(number): of for number, (_, of) in enumerate(parts)}
    for name, array in arrays.items():
        number, _, rest = name.partition(".")
        checked(number in places, "arrays and channels")
        places[number][rest] = array
    return parts


def side_by_side(widths: Sequence[int]) -> tuple[slice, ...]:
    """Return the columns of parts that lie side by side.

    Examples
    --------
    >>> side_by_side([2, 3])
    (slice(0, 2, None), slice(2, 5, None))
    """
    ends = np.cumsum([0, *widths]).tolist()
    return tuple(slice(start, stop) for start, stop in pairwise(ends))


def _residual_mean_gap(subspace: FairSubspace, attribute: str) -> float:
    counts = subspace.group_counts[attribute]
    seen = [label for label, count in counts.items() if count > 0]
    if len(seen) < 2:
        return 0.0
    weights = np.array([counts[label] for label in seen], dtype=np.float64)
    means = np.array([subspace.group_means[attribute][label] for label in seen], dtype=np.float64)
    rest = (weights @ means - weights[:, None] * means) / (weights.sum() - weights)[:, None]
    gaps = means - rest
    lengths = np.linalg.norm(gaps, axis=1)
    gaps = (gaps / np.where(lengths > 0, lengths, 1.0)[:, None]).astype(subspace.components.dtype)
    return float(np.linalg.norm(gaps @ subspace.components.T, axis=1).max())
