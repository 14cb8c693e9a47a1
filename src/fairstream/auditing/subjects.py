"""Subjects: the embeddings under audit, ours or anything else with `transform`, behind one interface."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from fairstream.data.blocks import Block, BlockSource
from fairstream.data.row_marks import MOST_MARKS, RowMarks
from fairstream.data.schema import same_features
from fairstream.moments import GroupMoments
from fairstream.subspace.components import fair_components

FloatArray = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Subject:
    """One embedding under audit.

    `total_variance` is that of the training rows with divisor n, as the moments have it.
    `components` (k x d) and `mean` are None if the embedding is not linear; `moments` holds the training
    moments if the estimator still has them; `encoding` says how table columns became features. `noise` holds
    the deviation of the noise that the model adds to each coordinate, None if it adds none. The first
    `n_screened` rows of `unfair_basis` are features that were left out, each by itself. `row_marks`
    recognises rows of the fit. `has_noise` says whether `embed` adds noise, `ids` whether that depends on
    whose row it is, by name if a column tells.
    """

    name: str
    kind: str
    embed: Callable[..., FloatArray]  # of rows, and of their ids or None
    role: str = "model"
    components: FloatArray | None = None
    mean: FloatArray | None = None
    unfair_basis: FloatArray | None = None
    fitted_rows: int | None = None
    total_variance: float | None = None
    moments: GroupMoments | None = None
    feature_names: tuple[str, ...] | None = None
    encoding: Mapping[str, Any] | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    noise: FloatArray | None = None
    n_screened: int = 0
    is_guarded: bool = False
    row_marks: RowMarks | None = None
    has_noise: bool = False
    ids: bool | str = False

    @property
    def orthonormal(self) -> bool:
        """Whether reconstruction is the transpose of the embedding."""
        V = self.components
        return V is not None and self.noise is None and bool(np.allclose(V @ V.T, np.eye(len(V)), atol=1e-4))

    @property
    def n_removed(self) -> int | None:
        """Number of directions removed, None if unknown."""
        return None if self.unfair_basis is None else len(self.unfair_basis)

    @property
    def screened(self) -> tuple[int, ...]:
        """Numbers of the features that were left out by themselves."""
        if self.unfair_basis is None:
            return ()
        return tuple(np.abs(self.unfair_basis[: self.n_screened]).argmax(axis=1).tolist())

    def embed_block(self, block: Block) -> FloatArray:
        """Return the embedding of a block in memory, as it is handed on."""
        return self.embed(block.X, block.ids)

    def width(self, sample: Block) -> int:
        """Return the number of coordinates of the embedding."""
        if self.components is not None:
            return len(self.components)
        return int(self.embed_block(sample.take(slice(0, 2))).shape[1])

    def control_size(self, sample: Block) -> int:
        """Return the number of components of the plain PCA to compare it with."""
        return min(self.width(sample), sample.X.shape[1])

    def checked_linear(self, sample: Block) -> Subject:
        """Drop the components if the model does not embed as (x - mean)V: its variances would be wrong."""
        if self.components is None or self.mean is None:
            return replace(self, components=None)
        if self.noise is not None:
            return self  # one of ours, which is linear before the noise
        first = sample.take(slice(0, 8))
        head = np.asarray(first.X, dtype=float)
        expected, embedded = (head - self.mean) @ self.components.T, self.embed(head, first.ids)
        scale = float(np.abs(expected).max()) or 1.0
        same = embedded.shape == expected.shape and np.allclose(
            embedded, expected, atol=1e-3 * scale, rtol=1e-3
        )
        return self if same else replace(self, components=None)

    def digest(self) -> str:
        """Return a SHA-256 over the arrays that define the embedding, or over its settings if it has none."""
        digest = hashlib.sha256()
        arrays = [array for array in (self.components, self.mean, self.unfair_basis) if array is not None]
        for array in arrays:
            digest.update(np.ascontiguousarray(array, dtype="<f8").tobytes())
        if not arrays:
            digest.update(repr((self.kind, self.parameters)).encode())
        return digest.hexdigest()

    def looks_like(self, moments: GroupMoments) -> bool:
        """Whether these are the moments of the training rows: row count, mean and variance agree.

        A model without a row count is recognised by its mean alone, to nine digits.
        """
        if self.mean is None or self.fitted_rows not in (None, moments.n_rows):
            return False
        scale = np.sqrt(max(moments.total_variance, np.finfo(float).tiny))
        tolerance = 1e-4 if self.fitted_rows is not None else 1e-9
        same_mean = np.linalg.norm(self.mean - moments.mean()) <= tolerance * scale
        if self.total_variance is None:
            return bool(same_mean)
        return bool(same_mean and np.isclose(self.total_variance, moments.total_variance, rtol=1e-3))


def as_subjects(models: object) -> list[Subject]:
    """Turn one model, a list or a dict of models into subjects with different names.

    Examples
    --------
    >>> from sklearn.decomposition import PCA
    >>> pca = PCA(1).fit([[0.0, 1.0], [1.0, 0.0], [2.0, 2.0]])
    >>> [subject.name for subject in as_subjects([pca, pca])]
    ['PCA', 'PCA (2)']
    """
    if isinstance(models, Mapping):
        named = [(str(name), model) for name, model in models.items()]
    elif isinstance(models, list | tuple):
        named = [(type(model).__name__, model) for model in models]
    else:
        named = [(type(models).__name__, models)]
    if not named:
        raise ValueError("model is empty: pass at least one fitted model")
    taken: set[str] = set()
    subjects = []
    for name, model in named:
        unique = next(label for label in _numbered(name) if label not in taken)
        taken.add(unique)
        subjects.append(_as_subject(unique, model))
    return subjects


def check_widths(subjects: list[Subject], n_features: int) -> None:
    """Refuse rows whose width differs from that of the models' training rows."""
    for subject in subjects:
        if subject.mean is not None and len(subject.mean) != n_features:
            raise ValueError(
                f"X has {n_features} features, {subject.name} was fitted on {len(subject.mean)}: pass the "
                "same columns"
            )


def check_encodings(subjects: list[Subject], source: BlockSource) -> None:
    """Refuse a table whose columns were encoded or scaled differently from those of the fit."""
    used = getattr(source, "encoding", None)
    for subject in subjects:
        if used is not None and subject.encoding is not None and not same_features(subject.encoding, used):
            raise ValueError(
                f"{subject.name} was fitted on columns that were encoded or scaled otherwise: open the data "
                "with fairstream.streaming.embed.open_like, and fit models to be compared on one encoding "
                "(fairstream fit --like)"
            )


def plain_pca(moments: GroupMoments, n_components: int, name: str, fitted_on: str) -> Subject:
    """Return plain PCA of the same size, solved from moments: the control that every gap is compared with."""
    nothing = np.zeros((moments.n_features, 0))
    V, _ = fair_components(moments, nothing, n_components)
    components, mean = V.T.astype(float), moments.mean()
    return Subject(
        name=name,
        kind="PCA",
        role="control",
        embed=lambda X, ids=None: np.asarray(X, dtype=float) @ components.T - components @ mean,
        components=components,
        mean=mean,
        unfair_basis=np.zeros((0, moments.n_features)),
        parameters={"n_components": n_components, "fitted_on": fitted_on},
    )


def _numbered(name: str) -> Iterable[str]:
    yield name
    for number in range(2, 10_000):
        yield f"{name} ({number})"


def _as_subject(name: str, model: Any) -> Subject:
    # An eraser has a subspace too, but what it hands on is not the embedding.
    result = getattr(model, "subspace_", None) if hasattr(model, "components_") else None
    if result is None and all(hasattr(model, part) for part in ("embed", "components", "unfair_basis")):
        result = model
    if result is not None:
        return _our_subject(name, model, result)
    if not hasattr(model, "transform"):
        raise ValueError(
            f"model {name!r} is a {type(model).__name__} without transform: pass a fitted "
            "FairStreamingPCA, a FairSubspace, or a fitted transformer"
        )
    components, mean = (getattr(model, part, None) for part in ("components_", "mean_"))
    unfair = getattr(model, "unfair_basis_", None)
    rows = getattr(model, "n_samples_", getattr(model, "n_samples_seen_", None))
    dithers = hasattr(model, "subspace_") and bool(model.dither)  # an eraser
    return Subject(
        name=name,
        kind=type(model).__name__,
        embed=lambda X, ids=None: np.asarray(
            model.transform(X, ids=ids) if dithers else model.transform(X), dtype=float
        ),
        components=None if components is None else np.asarray(components, dtype=float),
        mean=None if mean is None else np.asarray(mean, dtype=float),
        unfair_basis=None if unfair is None else np.asarray(unfair, dtype=float),
        fitted_rows=None if rows is None else int(rows),
        parameters=_parameters(model),
        has_noise=dithers,
        ids=model.ids if dithers else False,
    )


def _our_subject(name: str, model: Any, result: Any) -> Subject:
    rows = getattr(result, "n_rows", None)
    settings = dict(getattr(result, "parameters", {}))
    moments = getattr(model, "moments_", None)
    dither = float(getattr(model, "dither", getattr(result, "dither", 0.0)) or 0.0)
    key, single = secrets.token_bytes(32), not isinstance(result.components, tuple)
    return Subject(
        name=name,
        kind=type(model).__name__,
        # What is handed on has the noise. Its key may stay secret: that of one audit is as good.
        embed=lambda X, ids=None: np.asarray(result.embed(X, dither=dither, key=key, ids=ids), dtype=float),
        components=_one_matrix(result.components),
        mean=np.asarray(result.mean, dtype=float),
        unfair_basis=_one_matrix(result.unfair_basis),
        fitted_rows=None if rows is None else int(rows),
        total_variance=None if not rows else float(result.total_variance) * (rows - 1) / rows,
        moments=moments if isinstance(moments, GroupMoments) else None,
        feature_names=getattr(result, "feature_names", None),
        encoding=getattr(getattr(result, "schema", None), "encoding", None),
        parameters=_parameters(model) or plain_parameter(settings),
        noise=dither * np.sqrt(np.asarray(result.explained_variance, dtype=float))
        if dither and single
        else None,
        n_screened=int(settings.get("n_screened", 0)) if single else 0,
        is_guarded=bool(settings.get("guard")),
        row_marks=None if (kept := getattr(result, "row_marks", None)) is None else _marks(kept, rows),
        has_noise=bool(dither),
        ids=getattr(result, "ids", False) if dither else False,
    )


def _marks(kept: NDArray[np.uint64], fitted_rows: int | None) -> RowMarks:
    """Return the marks of a fit, filled up with zeros if they are fewer than its rows.

    A block gives the marks of the 256 rows that come first, which are fewer marks if rows are equal. They
    tell of rows up to the last mark then, as 256 marks do, and not of all rows.
    """
    if fitted_rows is None or fitted_rows <= MOST_MARKS or not len(kept):
        return RowMarks(kept)
    return RowMarks(np.concatenate([np.zeros(MOST_MARKS - len(kept), dtype=np.uint64), kept]))


def _one_matrix(rows: Any) -> FloatArray:
    """Return directions as one matrix; each channel has columns of its own."""
    matrix: FloatArray = scipy.linalg.block_diag(*rows) if isinstance(rows, tuple) else rows
    return np.asarray(matrix, dtype=float)


def _parameters(model: Any) -> dict[str, Any]:
    """Return the constructor's parameters as plain values; anything else by the name of its type."""
    if not hasattr(model, "get_params"):
        return {}
    return {str(name): plain_parameter(value) for name, value in sorted(model.get_params(deep=False).items())}


def plain_parameter(value: Any) -> Any:
    """Return a parameter as JSON can hold it."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {str(key): plain_parameter(item) for key, item in value.items()}
    if isinstance(value, list | tuple) and len(value) <= 100:
        return [plain_parameter(item) for item in value]
    return type(value).__name__
