"""FairSubspace: the frozen result of a fit. It embeds, reconstructs and erases."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from fairstream.data.blocks import Matrix
from fairstream.data.frames import eager_frame
from fairstream.data.groups import label_order
from fairstream.data.ids import take_ids
from fairstream.data.kinds import Given
from fairstream.data.open import open_source
from fairstream.data.row_marks import checked_marks
from fairstream.data.schema import Schema
from fairstream.data.small_groups import (
    MIN_GROUP_SIZE,
    WITHHELD_REASON,
    plain_counts,
    warn_of_few_rows,
    withheld_groups,
)
from fairstream.data.table_errors import MissingValuesError, UnseenCategoryError
from fairstream.errors import AbsentColumnsError, FairstreamWarning
from fairstream.files.atomic import PathLike
from fairstream.files.format import (
    Arrays,
    Header,
    Storable,
    checked,
    checked_number,
    checked_orthonormal,
    checked_signs,
    label_from_json,
    label_to_json,
    storable,
)
from fairstream.files.onnx import write_embedding, write_erasure
from fairstream.linalg import FloatArray
from fairstream.subspace.dither import (
    ERASED,
    DitherKey,
    check_dither,
    check_ids_given,
    dithering,
    warn_of_less,
    warn_of_unused,
)
from fairstream.subspace.likelihood import covariance, log_likelihoods, noise_variance, precision
from fairstream.subspace.rows import by_slices, check_finite, checked_matrix, checked_slices


@storable
@dataclass(frozen=True, eq=False)
class FairSubspace(Storable):
    """A fair subspace, what was nulled to get it, and what it was learned from.

    A file of it leaves out the counts and means of groups with few rows, see `publishable`.

    Attributes
    ----------
    components : array (k, d)
        V', orthonormal rows, strongest first.
    unfair_basis : array (m', d)
        U', orthonormal rows, all orthogonal to the components.
    mean : array (d,)
        Mean of all rows seen; subtracted before projecting.
    explained_variance : array (k,)
        Variance (divisor n - 1) along each component.
    total_variance : float
        Sum of all variances (divisor n - 1).
    n_rows : int or float
        Rows seen, or the sum of their weights.
    group_counts : dict
        Attribute -> label -> rows.
    group_means : dict
        Attribute -> label -> mean (d,).
    schema : Schema
        Names of the features, and how table columns became them.
    parameters : dict
        How it was obtained: n_components, n_unfair, constraint, directions, solver, min_group_size. If it
        was tuned on rows, `held_back` is about the share of them whose groups are counted nowhere, and
        `guard_dither` the dither that its guard reckoned with, if that is not the one that was chosen.
    withheld_groups : dict
        Attribute -> labels whose counts and means are withheld; they were compared like the others.
    row_marks : array of uint64, optional
        Hashes of a few of the rows seen, by which an audit recognises them; see `RowMarks`.

    Examples
    --------
    >>> subspace = FairSubspace(np.eye(3)[:1], np.eye(3)[1:2], np.zeros(3), np.ones(1), 3.0, 10)
    >>> subspace.embed(np.array([[1.0, 2.0, 3.0]]))
    array([[1.]])
    >>> subspace.erase(np.array([[1.0, 2.0, 3.0]]))
    array([[1., 0., 3.]])
    """

    kind: ClassVar[str] = "FairSubspace"

    components: FloatArray
    unfair_basis: FloatArray
    mean: FloatArray
    explained_variance: FloatArray
    total_variance: float
    n_rows: int | float
    group_counts: Mapping[str, Mapping[Hashable, int | float]] = field(default_factory=dict)
    group_means: Mapping[str, Mapping[Hashable, FloatArray]] = field(default_factory=dict)
    schema: Schema = field(default_factory=Schema)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    withheld_groups: Mapping[str, tuple[Hashable, ...]] = field(default_factory=dict)
    row_marks: NDArray[np.uint64] | None = None

    def __post_init__(self) -> None:
        # Own, read-only copies: an issued result must not move when the learner learns more.
        for item in fields(self):
            object.__setattr__(self, item.name, _frozen(getattr(self, item.name)))

    def __reduce__(self) -> tuple[Callable[..., FairSubspace], tuple[Any, ...]]:
        return FairSubspace, tuple(_thawed(getattr(self, item.name)) for item in fields(self))

    @property
    def n_components(self) -> int:
        """Number of components, k."""
        return len(self.components)

    @property
    def n_features(self) -> int:
        """Number of columns, d."""
        return int(self.components.shape[1])

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """The name of every feature, if known."""
        return self.schema.feature_names

    @property
    def explained_variance_ratio(self) -> FloatArray:
        """Share of the total variance that each component keeps."""
        if self.total_variance <= 0:
            return np.zeros_like(self.explained_variance)
        return np.clip(self.explained_variance / self.total_variance, 0.0, 1.0)

    @property
    def groups(self) -> dict[str, tuple[Hashable, ...]]:
        """The labels of every attribute."""
        attributes = dict.fromkeys([*self.group_counts, *self.withheld_groups])
        return {
            a: tuple(
                sorted([*self.group_counts.get(a, ()), *self.withheld_groups.get(a, ())], key=label_order)
            )
            for a in attributes
        }

    @property
    def is_guarded(self) -> bool:
        """Whether the components were chosen against a nonlinear adversary."""
        return bool(self.parameters.get("guard"))

    @property
    def dither(self) -> float:
        """The noise that the model is meant to be used with, as a share of each score's deviation."""
        return float(self.parameters.get("dither") or 0.0)

    @property
    def ids(self) -> bool | str:
        """Whether noise depends on whose row it is: True, or the name of the column that says so."""
        return self.parameters.get("ids") or False

    @property
    def is_whitened(self) -> bool:
        """Whether `embed` divides every coordinate by its deviation."""
        return bool(self.parameters.get("whiten"))

    @property
    def scale(self) -> FloatArray:
        """What `embed` divides the coordinates by: their deviations if it whitens, else ones."""
        if not self.is_whitened:
            return np.ones_like(self.explained_variance)
        # A component without variance would divide by zero.
        return np.maximum(np.sqrt(self.explained_variance), np.finfo(self.explained_variance.dtype).eps)

    def embed(
        self,
        X: Matrix,
        *,
        axis: int | None = None,
        dither: float | None = None,
        key: DitherKey = None,
        ids: ArrayLike | None = None,
    ) -> Any:
        """Return the fair coordinates (X - mean) V, n x k, of unit variance if the model whitens.

        Parameters
        ----------
        X : array, frame, tensor or sparse matrix (n, d)
            Finite numbers. A frame may instead have the columns of the table that the model was fitted on:
            they are encoded as in the fit. If the features have the names of these columns, because all are
            numbers, a frame is always taken for the table: pass features that are scaled already as an array.
        axis : int, optional
            The axis of an array or tensor that holds the features, if it has not two axes: -1 for tokens of
            shape (texts, places, d). The others keep their place in what is returned.
        dither : float, optional
            Add noise of this share of each score's deviation; the same row gets the same noise. None adds
            what the model is meant to be used with, 0 adds none; less than that is warned of.
        key : bytes or path, optional
            Secret key of the noise, or a file that holds it; by default the environment variable
            FAIRSTREAM_DITHER_KEY.
        ids : array (n,) of whole numbers or text, optional
            Whose rows these are. Noise then depends on the id instead of the row's values: two people with
            equal rows get different noise, so that knowing one tells nothing of the other, and the same
            person gets the same noise in every table. A Series is paired with a frame by its index. A model
            made for ids refuses to add noise without them; one that knows the name of their column takes it
            out of a frame.

        Returns
        -------
        array, frame or tensor
            The kind that X is. Float32 and float64 keep their type, and so do all floats of a tensor.
        """
        X, ids = take_ids(X, ids, self.ids)
        given = Given(X, axis)
        return given.back(self._embedded(given.rows, dither, key, ids), self.component_names)

    def reconstruct(self, Z: Any, *, axis: int | None = None) -> Any:
        """Return the rows Z V' + mean, n x d, that coordinates stand for; Z and `axis` as in `embed`.

        A frame has the units that one returned by `erase` has.
        """
        given = Given(Z, axis)
        names = self.feature_names or [f"feature_{j}" for j in range(self.n_features)]
        rows = self._reconstructed(given.rows)
        return given.back(self.schema.in_table_units(rows) if given.is_frame else rows, names)

    def erase(
        self,
        X: Matrix,
        *,
        axis: int | None = None,
        dither: float | None = None,
        key: DitherKey = None,
        ids: ArrayLike | None = None,
    ) -> Any:
        """Return X without its unfair part, (X - mean)(I - UU') + mean, n x d.

        Parameters and what is returned as in `embed`; sparse input comes out dense. Here dither is a share of
        the root of the mean variance of a feature. A guarded model hides groups in its k scores only, so it
        returns the rows that these stand for, with a warning.

        Of a frame with the columns of the table that the model was fitted on, a frame of the features comes
        back: in the units of the table if every column is a number and so keeps its name, else as they are
        encoded, one-hot columns as "column=category". Either can be passed to `embed` again.
        """
        X, ids = take_ids(X, ids, self.ids)
        given = Given(X, axis)
        if self.is_guarded:
            warnings.warn(
                f"a guarded model hides groups in its {self.n_components} scores only: erase returns the "
                "rows that these stand for",
                FairstreamWarning,
                stacklevel=2,
            )
            rows = self._reconstructed(self._embedded(given.rows, dither, key, ids))
        else:
            rows = self._erased(given.rows, dither, key, ids)
        if self._is_table(given.rows):
            return given.back(self.schema.in_table_units(rows), self.feature_names)
        return given.back(rows)

    @property
    def component_names(self) -> tuple[str, ...]:
        """Names of the columns of an embedding."""
        return tuple(f"component_{j}" for j in range(self.n_components))

    def _share(self, dither: float | None, key: DitherKey, ids: ArrayLike | None) -> float:
        """Return the share of noise to add, after checking that it can be added."""
        share = self.dither if dither is None else dither
        check_dither(share)
        if dither is None:
            warn_of_unused(share, key, None if isinstance(self.ids, str) else ids)
        warn_of_less(share, self.dither)
        check_ids_given(self.ids, share, ids)
        return share

    def _embedded(self, X: Matrix, dither: float | None, key: DitherKey, ids: ArrayLike | None) -> FloatArray:
        dither = self._share(dither, key, ids)
        X, V = self._checked(X), self.components.T
        if sp.issparse(X):
            Z = np.asarray(X @ V) - self.mean @ V
        else:
            Z = by_slices(X, V.shape[1], self.components.dtype, lambda rows: (rows - self.mean) @ V)
        if dither:
            Z += dithering(X, dither * np.sqrt(self.explained_variance), key, ids).astype(Z.dtype)
        if self.is_whitened:
            Z /= self.scale.astype(Z.dtype)
        return Z

    def _reconstructed(self, Z: Matrix) -> FloatArray:
        Z = np.asarray(checked_matrix(Z, self.n_components, name="Z", sparse=False))
        check_finite(Z, "Z")
        rows: FloatArray = (Z * self.scale if self.is_whitened else Z) @ self.components + self.mean
        return rows

    def _erased(self, X: Matrix, dither: float | None, key: DitherKey, ids: ArrayLike | None) -> FloatArray:
        dither = self._share(dither, key, ids)
        X, U = self._checked(X), self.unfair_basis.T
        if sp.issparse(X):
            erased: FloatArray = X.toarray() - (np.asarray(X @ U) - self.mean @ U) @ U.T
        else:
            erased = by_slices(
                X,
                self.n_features,
                self.components.dtype,
                lambda rows: rows - ((rows - self.mean) @ U) @ U.T,
            )
        if dither:
            deviation = np.sqrt(self.total_variance / self.n_features)
            noise = dithering(X, np.full(self.n_features, dither * deviation), key, ids, ERASED)
            erased += noise.astype(erased.dtype)
        return erased

    # As a Gaussian model ----------------------------------------------------------------------------

    @property
    def noise_variance(self) -> float:
        """Mean variance of the directions that the components leave, the nulled ones among them."""
        return noise_variance(self.explained_variance, self.total_variance, self.n_rows, self.n_features)

    def covariance(self) -> FloatArray:
        """Return the covariance of the model, d x d: the components' variances, and noise elsewhere."""
        return covariance(*self._gaussian())

    def precision(self) -> FloatArray:
        """Return the inverse of `covariance`, d x d."""
        return precision(*self._gaussian())

    def score_samples(self, X: Matrix) -> FloatArray:
        """Return the log-likelihood of every row of X, as an array (n,), in O(n d k)."""
        model, X = self._gaussian(), self._checked(Given(X).rows)
        scores = np.empty(X.shape[0])
        for rows, values in checked_slices(X):
            scores[rows] = log_likelihoods(values.astype(np.float64) - self.mean, *model)
        return scores

    def _gaussian(self) -> tuple[FloatArray, FloatArray, float]:
        V, variances = self.components.astype(np.float64), self.explained_variance.astype(np.float64)
        return V, variances, self.noise_variance

    # Files ------------------------------------------------------------------------------------------

    def publishable(self) -> FairSubspace:
        """Return it as a file holds it: without the counts and means of groups with few rows.

        Groups of fewer than `parameters["min_group_size"]` rows (20 if not set) are withheld, and the next
        smallest as long as the total mean and the other groups would give away the mean of the withheld rows.

        Examples
        --------
        >>> counts, means = {"f": 30, "m": 40, "x": 2}, dict.fromkeys("fmx", np.zeros(2))
        >>> subspace = FairSubspace(np.eye(2)[:1], np.eye(2)[1:], np.zeros(2), np.ones(1), 2.0, 72,
        ...                         {"sex": counts}, {"sex": means})
        >>> subspace.publishable().group_counts["sex"], subspace.publishable().withheld_groups["sex"]
        (mappingproxy({'m': 40}), ('f', 'x'))
        """
        withheld = withheld_groups(self.group_counts, self.n_rows, self._min_group_size)
        if not withheld:
            return self
        return replace(
            self,
            group_counts=_without(self.group_counts, withheld),
            group_means=_without(self.group_means, withheld),
            withheld_groups={
                # By label: the order by size would tell which of them is the small one.
                a: tuple(sorted([*self.withheld_groups.get(a, ()), *withheld.get(a, ())], key=label_order))
                for a in dict.fromkeys([*self.withheld_groups, *withheld])
            },
        )

    @property
    def _min_group_size(self) -> int:
        size: int = self.parameters.get("min_group_size", MIN_GROUP_SIZE)
        return size

    def save(self, path: PathLike) -> None:
        """Write what is `publishable` to `path`, whole or not at all; `fairstream.load` reads it back."""
        warn_of_few_rows(self.n_rows, self._min_group_size)
        super().save(path)

    def describe(self) -> dict[str, Any]:
        """Return the main figures."""
        published = self.publishable()
        withheld = {a: [*map(str, labels)] for a, labels in published.withheld_groups.items()}
        return {
            "n_rows": self.n_rows,
            "n_features": self.n_features,
            "n_components": self.n_components,
            "n_removed": len(self.unfair_basis),
            "explained_variance_ratio": float(self.explained_variance_ratio.sum()),
            "parameters": _thawed(self.parameters),
            "groups": plain_counts(published.group_counts),
            **self._groups_counted(),
            **({"withheld_groups": withheld, "withheld_because": self._withheld_because} if withheld else {}),
        }

    def _groups_counted(self) -> dict[str, str]:
        """Return why the groups add up to fewer rows than there are, if tuning held some back.

        Not how many: with that number, the size of a withheld group would follow by subtraction.
        """
        held_back = self.parameters.get("held_back")
        if not isinstance(held_back, float):
            return {}
        told = f"without about {held_back:.0%} of the rows, which tuning held back to judge and confirm by"
        return {"groups_counted": told}

    @property
    def _withheld_because(self) -> str:
        return WITHHELD_REASON.format(f"{self._min_group_size:,}")

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return what is `publishable` as JSON values and arrays (not copied)."""
        published = self.publishable()
        if published is not self:
            return published.to_state()
        counts = [[a, label_to_json(a, g), n] for a, of in self.group_counts.items() for g, n in of.items()]
        means = [(a, g, mean) for a, of in self.group_means.items() for g, mean in of.items()]
        header = {
            "total_variance": self.total_variance,
            "n_rows": self.n_rows,
            "group_counts": counts,
            "group_means": [[a, label_to_json(a, g)] for a, g, _ in means],
            **self.schema.to_header(),
            "parameters": _thawed(self.parameters),
        }
        if self.withheld_groups:
            header["withheld_groups"] = [
                [a, label_to_json(a, label)] for a, labels in self.withheld_groups.items() for label in labels
            ]
        names = ("components", "unfair_basis", "mean", "explained_variance")
        arrays = {name: getattr(self, name) for name in names}
        if means:
            arrays["group_means"] = np.stack([mean for _, _, mean in means])
        if self.row_marks is not None:
            arrays["row_marks"] = self.row_marks
        return header, arrays

    @classmethod
    def from_state(cls, header: Header, arrays: Arrays) -> FairSubspace:
        """Return the subspace that `to_state` described, after checking that it can be one."""
        components, mean, parameters = arrays["components"], arrays["mean"], dict(header["parameters"])
        # Files written before there was a schema have the encoding among the parameters.
        schema = Schema.from_header({"encoding": parameters.pop("encoding", None), **header})
        k, d = components.shape
        means = arrays.get("group_means", np.zeros((0, d)))
        checked(arrays["unfair_basis"].shape[1:] == (d,) and mean.shape == (d,), "arrays and features")
        checked(arrays["explained_variance"].shape == (k,), "variances and components")
        checked(means.shape == (len(header["group_means"]), d), "group means and groups")
        checked(schema.feature_names is None or len(schema.feature_names) == d, "feature names and features")
        checked(k + len(arrays["unfair_basis"]) <= d, "components, unfair basis and features")
        checked_orthonormal(arrays["unfair_basis"], "the rows of the unfair basis")
        checked_orthonormal(components, "components", arrays["unfair_basis"])
        n_rows = checked_number(header["n_rows"], "n_rows")
        rounding = 1e-6 * d * float(np.abs(mean).max(initial=0.0)) ** 2  # of the squares it came from
        total_variance = float(checked_number(header["total_variance"], "total_variance", rounding))
        checked_signs(arrays["explained_variance"], "explained_variance", 1e-3 * abs(total_variance))
        group_counts: dict[str, dict[Hashable, int | float]] = {}
        for attribute, label, count in header["group_counts"]:
            counted = checked_number(count, f"the count of a group of {attribute!r}")
            checked(counted <= n_rows * (1 + 1e-6), "counts of groups and rows")
            group_counts.setdefault(attribute, {})[label_from_json(label)] = counted
        group_means: dict[str, dict[Hashable, FloatArray]] = {}
        for (attribute, label), row in zip(header["group_means"], means, strict=True):
            group_means.setdefault(attribute, {})[label_from_json(label)] = row
        size = parameters.get("min_group_size", MIN_GROUP_SIZE)
        checked(type(size) is int and size >= 1, "min_group_size and parameters")
        withheld: dict[str, list[Hashable]] = {}
        for attribute, label in header.get("withheld_groups", ()):
            withheld.setdefault(attribute, []).append(label_from_json(label))
        return cls(
            components=components,
            unfair_basis=arrays["unfair_basis"],
            mean=mean,
            explained_variance=arrays["explained_variance"],
            total_variance=total_variance,
            n_rows=n_rows,
            group_counts=group_counts,
            group_means=group_means,
            schema=schema,
            parameters=parameters,
            withheld_groups={attribute: tuple(labels) for attribute, labels in withheld.items()},
            row_marks=checked_marks(arrays["row_marks"]) if "row_marks" in arrays else None,
        )

    def to_onnx(self, path: PathLike, verb: str = "embed") -> None:
        """Write `embed` or `erase` as an ONNX model of a few nodes, for other runtimes.

        Parameters
        ----------
        path : path
            Written atomically.
        verb : {"embed", "erase"}
            The input of the model is called "X", its output "embedding" (n, k) or "erased" (n, d). There is
            no dither in it. Needs the extra `onnx`.

        Warns
        -----
        FairstreamWarning
            If the model is meant to be used with dither.
        """
        self._warn_of_missing_dither("ONNX")
        if verb not in ("embed", "erase"):
            raise ValueError(f"verb={verb!r} is not one of 'embed', 'erase'")
        if verb == "embed":
            write_embedding(path, self.mean, self.components / self.scale[:, None])
        elif self.is_guarded:
            write_erasure(path, self.mean, self.components, keeps_basis=True)
        else:
            write_erasure(path, self.mean, self.unfair_basis)

    def to_torch(self) -> Any:
        """Return a torch module whose `forward` is `embed`, with `erase` and `reconstruct` beside it.

        Its arrays are buffers, so a model can hold it and a state dict save it; gradients pass through. It
        works along the last axis of tensors of any shape, and has no dither. Needs the extra `torch`.

        Returns
        -------
        fairstream.files.torch_module.FairProjection
        """
        self._warn_of_missing_dither("a torch module")
        from fairstream.files.torch_module import projection  # here, because it imports torch

        return projection(self.mean, self.components, self.unfair_basis, self.scale, self.is_guarded)

    def _warn_of_missing_dither(self, form: str) -> None:
        if self.dither:
            warnings.warn(
                f"the model is meant to be used with dither={self.dither:g}, which {form} does not add: its "
                "scores hide less without noise",
                FairstreamWarning,
                stacklevel=3,
            )

    def _is_table(self, X: Any) -> bool:
        """Whether X is a frame with the columns of the table that the model was fitted on."""
        frame = eager_frame(X)
        return frame is not None and self.schema.names_table(frame.columns)

    def _checked(self, X: Matrix) -> Matrix:
        """Return X as `checked_matrix` does; dense values are checked slice by slice, while they are used."""
        if self._is_table(X):
            X = self._encoded(X)
        elif (frame := eager_frame(X)) is not None and frame.shape[1] != self.n_features:
            self._refuse_lacking(frame.columns)
        X = checked_matrix(X, self.n_features, self.feature_names)
        if sp.issparse(X):
            check_finite(X.data)
        return X

    def _refuse_lacking(self, given: Sequence[str]) -> None:
        """Refuse a frame without some columns of the table that the model was fitted on, and name them."""
        wanted = self.feature_names or () if self.schema.encoding is None else [*self.schema.variables()]
        lacking = [name for name in wanted if name not in given]
        if lacking and all(isinstance(name, str) for name in given):
            raise AbsentColumnsError("model", lacking, "X", given)

    def _encoded(self, frame: Any) -> FloatArray:
        """Return the features of a frame with the columns of the table that the model was fitted on."""
        if len(frame) == 0:  # its columns may have no type for want of a value
            return np.zeros((0, self.n_features))
        try:
            blocks = [block.X for block in open_source(frame, encoding=self.schema.encoding)]
        except UnseenCategoryError as error:
            raise ValueError(
                f'{error.told}: drop those rows, or open X with open_like(model, X, unseen="ignore") first '
                "and pass the rows of its blocks"
            ) from None
        except MissingValuesError as error:
            raise ValueError(
                f"{error.told}: fill them in or drop those rows first, or fit again on a table opened with "
                'open_source(..., impute="mean")'
            ) from None
        return np.concatenate(blocks)


def _without(
    of_groups: Mapping[str, Mapping[Hashable, Any]], withheld: Mapping[str, tuple[Hashable, ...]]
) -> dict[str, dict[Hashable, Any]]:
    """Return the entries of all other groups; an attribute without any is left out, as in a file."""
    kept = {
        a: {label: value for label, value in of.items() if label not in withheld.get(a, ())}
        for a, of in of_groups.items()
    }
    return {attribute: of for attribute, of in kept.items() if of}


def _frozen(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        value = np.array(value, order="C")
        value.setflags(write=False)
        return value
    if isinstance(value, Mapping):
        return MappingProxyType({key: _frozen(item) for key, item in value.items()})
    return value


def _thawed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _thawed(item) for key, item in value.items()}
    return value
