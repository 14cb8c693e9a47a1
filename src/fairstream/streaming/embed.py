"""Rows out: embeds or erases a whole source into a .npy, .csv or .parquet file, block by block."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np

from fairstream.data import open_source
from fairstream.data.blocks import BlockSource
from fairstream.data.progress import Progress
from fairstream.errors import FairstreamWarning, missing_extra
from fairstream.files.format import PathLike, atomic_file
from fairstream.files.outputs import check_apart
from fairstream.linalg import FloatArray
from fairstream.subspace.channels import ChannelSubspaces
from fairstream.subspace.dither import DitherKey
from fairstream.subspace.model import FairSubspace

_SUFFIXES = (".npy", ".csv", ".parquet", ".pq")
_MATRICES = (".npy", ".npz", ".h5", ".hdf5", ".zarr", ".zip")

Model: TypeAlias = FairSubspace | ChannelSubspaces
Write: TypeAlias = Callable[[FloatArray], None]


def open_like(model: Model, data: Any, **options: Any) -> BlockSource:
    """Open data as the rows that a model was fitted on were: same columns, categories and scaling.

    Parameters
    ----------
    model : FairSubspace or ChannelSubspaces
        One fitted on a table knows how its columns became features; others leave it to the options.
    data, **options
        As in `open_source`.

    Examples
    --------
    >>> model = FairSubspace(np.eye(3)[:1], np.eye(3)[1:2], np.zeros(3), np.ones(1), 3.0, 10)
    >>> open_like(model, np.ones((5, 3))).n_features
    3
    """
    encoding = model.schema.encoding
    if encoding is not None and isinstance(data, str | Path) and Path(data).suffix.lower() in _MATRICES:
        raise ValueError(
            f"{data} is a matrix, the model was fitted on a table: pass a table with its columns"
        )
    source = open_source(data, **(options if encoding is None else {**options, "encoding": encoding}))
    if source.n_features != model.n_features:
        raise ValueError(
            f"the data has {source.n_features} features, the model {model.n_features}: choose the columns "
            "it was fitted on"
        )
    channels = getattr(model, "n_channels", 1)
    if channels not in (1, getattr(source, "n_channels", channels)):
        raise ValueError(f"the data has other channels than the model's {channels}: open it as for the fit")
    return source


def embed_source(
    model: Model,
    source: BlockSource,
    path: PathLike,
    *,
    dither: float | None = None,
    key: DitherKey = None,
    progress: Progress | None = None,
) -> int:
    """Write the fair coordinates of all rows of a source to a file; return how many rows.

    Parameters
    ----------
    model : FairSubspace or ChannelSubspaces
        What embeds the rows.
    source : BlockSource
        The rows, opened with `open_like`.
    path : path
        Ends in .npy, .csv or .parquet (the last two need the `tables` extra); appears only when complete.
        Must not be, or lie within, what the source was opened from.
    dither, key
        As in `FairSubspace.embed`.
    progress : callable, optional
        Called with (rows done, rows in all or None) after every block.

    Returns
    -------
    int
        Number of rows written.

    Examples
    --------
    >>> import tempfile
    >>> model = FairSubspace(np.eye(3)[:1], np.eye(3)[1:2], np.zeros(3), np.ones(1), 3.0, 10)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     embed_source(model, open_like(model, np.ones((5, 3))), f"{folder}/embedded.npy")
    5
    """
    names = [f"component_{j}" for j in range(model.n_components)]
    return _write(partial(model.embed, dither=dither, key=key), source, path, names, progress)


def erase_source(
    model: Model,
    source: BlockSource,
    path: PathLike,
    *,
    dither: float | None = None,
    key: DitherKey = None,
    progress: Progress | None = None,
) -> int:
    """Write all rows of a source without their unfair part to a file; return how many rows.

    Parameters are as in `embed_source`.

    Examples
    --------
    >>> import tempfile
    >>> model = FairSubspace(np.eye(3)[:1], np.eye(3)[1:2], np.zeros(3), np.ones(1), 3.0, 10)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     erase_source(model, open_like(model, np.ones((5, 3))), f"{folder}/erased.npy")
    5
    """
    names = model.feature_names or [f"feature_{j}" for j in range(model.n_features)]
    return _write(partial(model.erase, dither=dither, key=key), source, path, names, progress)


def _write(
    apply: Callable[[Any], FloatArray],
    source: BlockSource,
    path: PathLike,
    names: Sequence[str],
    progress: Progress | None,
) -> int:
    done = 0
    if (origin := getattr(source, "path", None)) is not None:
        check_apart(path, [origin])
    with open_sink(path, names) as write:
        for block in source:
            write(apply(block.X))
            done += block.n_rows
            if progress is not None:
                progress(done, source.n_rows)
    return done


@contextmanager
def open_sink(path: PathLike, names: Sequence[str]) -> Iterator[Write]:
    """Open a file for rows with these columns; yields a function that takes a block of them."""
    suffix = Path(path).suffix.lower()
    if suffix not in _SUFFIXES:
        known = ", ".join(_SUFFIXES)
        raise ValueError(f"{path} ends in {suffix or 'nothing'!r}: name one that ends in {known}")
    with atomic_file(path) as stream:
        sink = _npy_sink(stream, names) if suffix == ".npy" else _arrow_sink(stream, names, suffix)
        with sink as write:
            yield write


@contextmanager
def _npy_sink(stream: IO[bytes], names: Sequence[str]) -> Iterator[Write]:
    shape, dtype = [0, len(names)], np.dtype(np.float64)

    def head() -> None:
        # numpy leaves room in the header for the first axis to grow, so it can be written again at the end.
        about = {"descr": dtype.str, "fortran_order": False, "shape": tuple(shape)}
        np.lib.format.write_array_header_1_0(stream, about)

    def write(rows: FloatArray) -> None:
        nonlocal dtype
        if shape[0] == 0:
            dtype = rows.dtype
            head()
        shape[0] += len(rows)
        stream.write(np.ascontiguousarray(rows, dtype=dtype).data)

    yield write
    stream.seek(0)
    head()
    stream.seek(0, 2)


@contextmanager
def _arrow_sink(stream: IO[bytes], names: Sequence[str], suffix: str) -> Iterator[Write]:
    try:
        import pyarrow as pa
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError:
        words = "CSV" if suffix == ".csv" else "Parquet"
        raise missing_extra("pyarrow", "tables", f"writing {words}") from None
    if suffix == ".csv":
        _warn_of_formulas(names)
    schema = pa.schema([(name, pa.float64()) for name in names])

    def write(rows: FloatArray) -> None:
        columns = np.asarray(rows, dtype=np.float64).T
        arrays = [pa.array(np.ascontiguousarray(column)) for column in columns]
        writer.write_table(pa.Table.from_arrays(arrays, schema=schema))

    opened = pa.csv.CSVWriter if suffix == ".csv" else pa.parquet.ParquetWriter
    with opened(stream, schema) as writer:
        yield write


def _warn_of_formulas(names: Sequence[str]) -> None:
    """Say so if a spreadsheet would run a column's name; another name would not be the model's any more."""
    formulas = [name for name in names if name.startswith(("=", "+", "-", "@", "\t", "\r"))]
    if formulas:
        more = f" and {len(formulas) - 1} more begin" if len(formulas) > 1 else " begins"
        warnings.warn(
            f"column {formulas[0]!r}{more} like a formula, which a spreadsheet would run when it opens the "
            "CSV file: rename the column in the data, or write .parquet",
            FairstreamWarning,
            stacklevel=2,
        )
