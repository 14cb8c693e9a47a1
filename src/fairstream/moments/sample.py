"""RowSample: a bounded sample of rows per group that does not depend on how the data was cut or merged.

Every row has a 64-bit hash of its values, its labels and its target. A group keeps the rows with the smallest
hashes, so which rows are kept depends on the rows alone: merged samples of several parts equal the sample of
one stream. Equal rows have equal hashes and are kept once, with the sum of their weights. A row in the sample
has been in it since it first came, so its weight is exact.

Of rows too wide to be held, some numbers are kept that depend on the row alone (`RowMixer`).
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fairstream.data.blocks import Matrix
from fairstream.data.fingerprints import Words, row_fingerprints, scrambled
from fairstream.data.groups import UNKNOWN, Groups, label_order
from fairstream.files.format import Arrays, checked, checked_signs, label_from_json, label_to_json
from fairstream.moments.mixing import RowMixer

_HELD = (np.dtype(np.uint8), np.dtype(np.float32), np.dtype(np.float64))  # as they come; others in float64


@dataclass(frozen=True, slots=True)
class SampledRows:
    """Rows of a sample, with the group of each and how many rows of the data it stands for.

    Attributes
    ----------
    X : array (n, d), or (n, numbers) if the rows are mixed
    codes : dict, attribute -> array (n,)
        Index into `labels` of the attribute, -1 if unknown.
    labels : dict, attribute -> tuple
    own : dict, attribute -> bool array (n,)
        Whether a row is one of the R that its group of this attribute keeps. The others are kept by a group
        of another attribute: with them, a group would have too many rows of small groups.
    weights : array (n,)
    target : array (n,) or None
    mixer : RowMixer or None
        What has mixed the rows.
    """

    X: NDArray[Any]
    codes: Mapping[str, NDArray[np.intp]]
    labels: Mapping[str, tuple[Hashable, ...]]
    own: Mapping[str, NDArray[np.bool_]]
    weights: NDArray[np.float64]
    target: NDArray[np.float64] | None
    mixer: RowMixer | None = None

    def taken(self, rows: NDArray[np.intp]) -> SampledRows:
        """Return some of the rows."""
        return SampledRows(
            self.X[rows],
            {name: codes[rows] for name, codes in self.codes.items()},
            self.labels,
            {name: own[rows] for name, own in self.own.items()},
            self.weights[rows],
            None if self.target is None else self.target[rows],
            self.mixer,
        )


class RowSample:
    """The rows of every group with the smallest hashes, at most `size` different rows a group.

    Parameters
    ----------
    size : int
        R: different rows kept for each group of each attribute. A row that several groups keep is held once.
    key : int
        Another key gives another sample. Samples with different keys do not merge.
    mixer : RowMixer, optional
        Keep what it makes of the rows, not the rows.

    Examples
    --------
    >>> from fairstream import encode_groups
    >>> rng = np.random.default_rng(0)
    >>> X, sex = rng.normal(size=(100, 3)), rng.choice(["f", "m"], 100)
    >>> whole = RowSample(5).update(X, encode_groups({"sex": sex}, 100))
    >>> first = RowSample(5).update(X[:50], encode_groups({"sex": sex[:50]}, 50))
    >>> merged = RowSample(5).update(X[50:], encode_groups({"sex": sex[50:]}, 50)).merge(first)
    >>> bool((merged.rows().X == whole.rows().X).all()), len(whole)
    (True, 10)
    """

    def __init__(self, size: int, key: int = 0, mixer: RowMixer | None = None) -> None:
        if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
            raise ValueError(f"sample={size!r}: give the number of rows to keep per group, 1 or more")
        self.size, self.key, self.mixer = int(size), int(key), mixer
        self._hashes: Words = np.zeros(0, dtype=np.uint64)
        self._weights = np.zeros(0)
        self._X: NDArray[Any] | None = None
        self._groups: dict[str, Words] = {}  # per attribute, the hash of each row's label; 0: unknown
        self._labels: dict[str, dict[int, Hashable]] = {}
        self._target: NDArray[np.float64] | None = None
        self._own: dict[str, NDArray[np.bool_]] | None = None  # of some rows of another sample

    def __len__(self) -> int:
        return len(self._hashes)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        arrays = [self._hashes, self._weights, self._X, self._target, *self._groups.values()]
        return sum(int(array.nbytes) for array in arrays if array is not None)

    def describe(self) -> str:
        """Return what a reader of a file must know about it."""
        mixed = "" if self.mixer is None else f", each as {self.mixer.n_numbers:,} mixed values"
        return (
            f"{len(self):,} sampled rows, {self.size:,} a group at most{mixed}: treat this as row-level data"
        )

    def update(
        self,
        X: Matrix,
        columns: Groups,
        weights: NDArray[np.float64] | None = None,
        target: NDArray[Any] | None = None,
    ) -> RowSample:
        """Take in a block of rows; the state is the old one until all of it is computed."""
        self._refuse_selected("update")
        n = X.shape[0]
        groups, labels = {}, {name: dict(known) for name, known in self._labels.items()}
        hashes = row_fingerprints(X, self.key)
        for name, column in columns.items():
            table = np.array([_label_hash(name, label) for label in column.labels] + [0], dtype=np.uint64)
            groups[name] = table[column.codes]
            labels.setdefault(name, {}).update(zip(map(int, table[:-1]), column.labels, strict=True))
            hashes += scrambled(groups[name])
        values = None if target is None else np.asarray(target, dtype=np.float64)
        if values is not None:
            hashes += scrambled(values.view(np.uint64) ^ np.uint64(0x5851F42D4C957F2D))
        hashes = scrambled(hashes)
        candidates = np.flatnonzero(self._may_enter(hashes, groups))
        return self._replaced(
            hashes[candidates],
            (np.ones(n) if weights is None else weights)[candidates],
            self._held(X[candidates]),
            {name: group[candidates] for name, group in groups.items()},
            None if values is None else values[candidates],
            labels,
        )

    def check_mergeable(self, other: RowSample) -> None:
        """Refuse a sample that keeps other rows, or keeps them in another way."""
        if self.mixer != other.mixer:
            raise ValueError(
                "the samples hold their rows in different ways: collect them with the same rank, dtype and "
                "sample"
            )
        if (self.size, self.key) != (other.size, other.key):
            raise ValueError(
                f"the samples keep {self.size} and {other.size} rows a group with keys {self.key} and "
                f"{other.key}: only samples of one size and key merge"
            )

    def merge(self, other: RowSample) -> RowSample:
        """Add the rows of another sample, as if they had come here."""
        self.check_mergeable(other)
        if other._X is None:
            return self
        labels = {name: dict(known) for name, known in self._labels.items()}
        for name, known in other._labels.items():
            labels.setdefault(name, {}).update(known)
        return self._replaced(other._hashes, other._weights, other._X, other._groups, other._target, labels)

    def rows(self) -> SampledRows:
        """Return the rows of the sample, in the order of their hashes."""
        if self._X is None:
            raise ValueError("the sample has no rows yet: update with some first")
        codes: dict[str, NDArray[np.intp]] = {}
        labels: dict[str, tuple[Hashable, ...]] = {}
        for name, known in self._labels.items():
            present = [hashed for hashed in known if (self._groups[name] == np.uint64(hashed)).any()]
            present.sort(key=lambda hashed: label_order(known[hashed]))
            labels[name] = tuple(known[hashed] for hashed in present)
            codes[name] = np.full(len(self), UNKNOWN, dtype=np.intp)
            for code, hashed in enumerate(present):
                codes[name][self._groups[name] == np.uint64(hashed)] = code
        return SampledRows(self._X, codes, labels, self._own_rows(), self._weights, self._target, self.mixer)

    def _own_rows(self) -> dict[str, NDArray[np.bool_]]:
        """Return, per attribute, which rows have one of the R smallest hashes of their group."""
        if self._own is not None:
            return self._own
        own = {name: np.zeros(len(self), dtype=bool) for name in self._groups}
        order = np.argsort(self._hashes)
        for name, group in self._groups.items():
            for label in np.unique(group[group != 0]):
                own[name][order[group[order] == label][: self.size]] = True
        return own

    def kept(self, rows: NDArray[np.bool_]) -> RowSample:
        """Return a sample of some of the rows, in the order of `rows()`."""
        other = copy.copy(self)
        other._hashes, other._weights = self._hashes[rows], self._weights[rows]
        other._X = None if self._X is None else self._X[rows]
        other._groups = {name: group[rows] for name, group in self._groups.items()}
        other._target = None if self._target is None else self._target[rows]
        other._own = {name: own[rows] for name, own in self._own_rows().items()}
        return other

    def selected(self, features: NDArray[np.intp]) -> RowSample:
        """Return the same rows with some features alone."""
        other = copy.copy(self)
        if self.mixer is not None:
            other.mixer = self.mixer.selected(features)
        elif self._X is not None:
            other._X = self._X[:, features]
        return other

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return everything as JSON values and arrays (not copied)."""
        self._refuse_selected("save")
        labels = [
            [name, str(hashed), label_to_json(name, label)]
            for name, known in self._labels.items()
            for hashed, label in known.items()
        ]
        arrays: dict[str, Any] = {"sample_hashes": self._hashes, "sample_weights": self._weights}
        arrays |= {"sample_X": self._X, "sample_target": self._target}
        arrays |= {f"sample_group_{j}": group for j, group in enumerate(self._groups.values())}
        header = {"size": self.size, "key": self.key, "labels": labels, "attributes": [*self._groups]}
        if self.mixer is not None:
            header |= {"n_numbers": self.mixer.n_numbers, "dtype": self.mixer.dtype.name}
        return header, {name: array for name, array in arrays.items() if array is not None}

    @classmethod
    def from_state(cls, header: Mapping[str, Any], arrays: Arrays, n_features: int) -> RowSample:
        """Return the sample that `to_state` described, after checking that everything fits."""
        n_numbers, mixer = header.get("n_numbers", n_features), None
        checked(type(n_numbers) is int and 0 < n_numbers <= n_features, "numbers of sampled rows")
        if "n_numbers" in header:
            # Files of before mixers had a type tell it by what they hold.
            dtype = str(header.get("dtype", arrays["sample_X"].dtype if "sample_X" in arrays else "float64"))
            checked(dtype in ("float32", "float64"), "numbers of sampled rows and their type")
            mixer = RowMixer(n_features, n_numbers, np.dtype(dtype))
        sample = cls(header["size"], header["key"], mixer)
        hashes, weights = arrays["sample_hashes"], arrays["sample_weights"]
        n = len(hashes)
        groups = {name: arrays[f"sample_group_{j}"] for j, name in enumerate(header["attributes"])}
        words = [hashes, *groups.values()]
        checked(all(word.dtype == np.uint64 and word.shape == (n,) for word in words), "sampled rows")
        checked(weights.shape == (n,) and weights.dtype == np.float64, "sampled rows and weights")
        checked_signs(weights, "weights of sampled rows")
        X, target = arrays.get("sample_X"), arrays.get("sample_target")
        checked(n == 0 if X is None else X.shape == (n, n_numbers), "sampled rows and features")
        checked(mixer is None or X is None or X.dtype == mixer.dtype, "sampled rows and their type")
        checked(target is None or target.shape == (n,), "sampled rows and targets")
        sample._hashes, sample._weights, sample._X, sample._target = hashes, weights, X, target
        sample._groups = groups
        sample._labels = {name: {} for name in groups}
        for name, hashed, label in header["labels"]:
            sample._labels[name][int(hashed)] = label_from_json(label)
        return sample

    # Inside -----------------------------------------------------------------------------------------

    def _refuse_selected(self, verb: str) -> None:
        """Refuse mixed rows of some features: their numbers are still those of all features."""
        if self.mixer is not None and self.mixer.features is not None:
            raise ValueError(
                f"the sample holds mixed values of {self.mixer.n_features:,} features, this summary is of "
                f"{len(self.mixer.features):,} of them and for reading only: {verb} the one of all features"
            )

    def _held(self, X: Matrix) -> NDArray[Any]:
        """Return what is kept of rows."""
        if self.mixer is not None:
            return self.mixer.mixed(X)
        rows = np.asarray(X.toarray() if sp.issparse(X) else X)
        return rows if rows.dtype in _HELD else rows.astype(np.float64)

    def _may_enter(self, hashes: Words, groups: Mapping[str, Words]) -> NDArray[np.bool_]:
        """Whether a row's hash is small enough for one of its groups."""
        enters = np.zeros(len(hashes), dtype=bool)
        for name, group in groups.items():
            for label in np.unique(group[group != 0]):
                members = group == label
                kept = self._hashes[self._groups[name] == label] if name in self._groups else self._hashes[:0]
                if len(kept) < self.size:
                    enters |= members
                else:
                    enters |= members & (hashes <= np.partition(kept, self.size - 1)[self.size - 1])
        return enters

    def _replaced(
        self,
        hashes: Words,
        weights: NDArray[np.float64],
        X: NDArray[Any],
        groups: Mapping[str, Words],
        target: NDArray[np.float64] | None,
        labels: dict[str, dict[int, Hashable]],
    ) -> RowSample:
        """Join rows to those held, count equal ones once, drop what no group keeps, publish."""
        if self._X is not None:
            hashes = np.concatenate([self._hashes, hashes])
            weights = np.concatenate([self._weights, weights])
            X = np.concatenate([self._X, X])  # in a type that holds both
            groups = {name: np.concatenate([self._groups[name], groups[name]]) for name in self._groups}
            if (target is None) != (self._target is None):
                raise ValueError("some rows have a target and some have none: give every block one")
            if target is not None and self._target is not None:
                target = np.concatenate([self._target, target])
        distinct, first, place = np.unique(hashes, return_index=True, return_inverse=True)
        total = np.bincount(place, weights=weights, minlength=len(distinct))
        kept = np.zeros(len(distinct), dtype=bool)
        for group in groups.values():
            of_row = group[first]
            for label in np.unique(of_row[of_row != 0]):
                kept[np.flatnonzero(of_row == label)[: self.size]] = True
        rows = first[kept]
        state = {
            "_hashes": distinct[kept],
            "_weights": total[kept],
            "_X": X[rows],
            "_groups": {name: group[rows] for name, group in groups.items()},
            "_labels": labels,
            "_target": None if target is None else target[rows],
            "_own": None,
        }
        self.__dict__.update(state)
        return self


def _label_hash(attribute: str, label: Hashable) -> int:
    """Return a number for a label, the same on every machine, never 0."""
    text = f"{attribute}\0{type(label).__name__}\0{label!r}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") | 1
