"""Sinks: files that rows are written to block by block, in one of several formats, whole or in parts."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np

from fairstream.errors import FairstreamWarning, missing_extra
from fairstream.files.atomic import PathLike, atomic_file, atomic_folder
from fairstream.linalg import FloatArray

ARROW = (".parquet", ".pq", ".arrow", ".feather", ".csv")
SUFFIXES = (*ARROW, ".npy", ".zarr")
_CHUNK_BYTES = 2**22  # of a Zarr array

Write: TypeAlias = Callable[..., None]
"""Takes a block of rows (n, width) and, if columns are carried along, an Arrow table of them."""


@contextmanager
def open_sink(
    path: PathLike, names: Sequence[str], kept: Sequence[str] = (), *, part_rows: int | None = None
) -> Iterator[Write]:
    """Open a file for rows with these columns; yields a function that takes a block of them.

    Parameters
    ----------
    path : path
        Ends in one of `SUFFIXES`; appears only when complete.
    names : sequence of str
        Of the columns.
    kept : sequence of str
        Columns that are carried along and written before the others; every block comes with a table of them.
    part_rows : int, optional
        Make `path` a folder of files with at most so many rows each.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with open_sink(Path(folder, "Z.npy"), ["a", "b"]) as write:
    ...         write(np.zeros((3, 2)))
    ...         write(np.ones((1, 2)))
    ...     np.load(Path(folder, "Z.npy")).shape
    (4, 2)
    """
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        known = ", ".join(SUFFIXES)
        raise ValueError(f"{path} ends in {suffix or 'nothing'}: name one that ends in {known}")
    if kept and suffix not in ARROW:
        raise ValueError(
            f"keep names columns of their own, {path} holds one matrix of numbers: write {', '.join(ARROW)}"
        )
    if both := [name for name in kept if name in names]:
        raise ValueError(f"keep names {both[0]!r}, which the output has already: rename the column")
    if part_rows is not None and (isinstance(part_rows, bool) or part_rows < 1 or suffix == ".zarr"):
        reason = "a Zarr store is in chunks anyway" if suffix == ".zarr" else "give 1 or more"
        raise ValueError(f"part_rows={part_rows!r}: {reason}, or leave it out")
    if suffix == ".csv":
        _warn_of_formulas([*kept, *names])
    if part_rows is not None:
        sink = _parts(path, names, suffix, part_rows)
    elif suffix == ".zarr":
        sink = _zarr_sink(path, names)
    else:
        sink = _file(path, names, suffix)
    with sink as write:
        yield write


@contextmanager
def _file(path: PathLike, names: Sequence[str], suffix: str) -> Iterator[Write]:
    with atomic_file(path) as stream:
        sink = _npy_sink(stream, names) if suffix == ".npy" else _arrow_sink(stream, names, suffix)
        with sink as write:
            yield write


@contextmanager
def _parts(path: PathLike, names: Sequence[str], suffix: str, part_rows: int) -> Iterator[Write]:
    """Write a folder of numbered files; all but the last have `part_rows` rows."""
    with atomic_folder(path) as folder, ExitStack() as opened:
        part: Write | None = None
        number = room = 0

        def write(rows: FloatArray, kept: Any = None) -> None:
            nonlocal part, number, room
            start = 0
            while start < len(rows):
                if part is None or not room:
                    opened.close()
                    part = opened.enter_context(_file(folder / f"part-{number:05}{suffix}", names, suffix))
                    number, room = number + 1, part_rows
                stop = min(start + room, len(rows))
                part(rows[start:stop], None if kept is None else kept.slice(start, stop - start))
                room -= stop - start
                start = stop

        yield write
        if part is None:  # no rows: a folder without a file could not be opened
            opened.enter_context(_file(folder / f"part-00000{suffix}", names, suffix))


@contextmanager
def _npy_sink(stream: IO[bytes], names: Sequence[str]) -> Iterator[Write]:
    n_rows, dtype = 0, np.dtype(np.float64)

    def head() -> None:
        # numpy leaves room in the header for the first axis to grow, so it can be written again at the end.
        stream.seek(0)
        about = {"descr": dtype.str, "fortran_order": False, "shape": (n_rows, len(names))}
        np.lib.format.write_array_header_1_0(stream, about)

    def write(rows: FloatArray, kept: Any = None) -> None:
        nonlocal n_rows, dtype
        if n_rows == 0:
            dtype = rows.dtype
            head()
        n_rows += len(rows)
        stream.write(np.ascontiguousarray(rows, dtype=dtype).data)

    yield write
    head()
    stream.seek(0, 2)


@contextmanager
def _zarr_sink(path: PathLike, names: Sequence[str]) -> Iterator[Write]:
    """Write the array X of a Zarr store, and the names of its columns as an attribute."""
    try:
        import zarr
    except ImportError:
        raise missing_extra("zarr", "stores", "writing Zarr") from None
    with atomic_folder(path) as folder:
        store = zarr.open_group(folder, mode="w")
        chunks = (max(1, _CHUNK_BYTES // (8 * max(len(names), 1))), len(names))
        X: Any = None

        def write(rows: FloatArray, kept: Any = None) -> None:
            nonlocal X
            if X is None:
                X = store.create_array("X", shape=(0, len(names)), chunks=chunks, dtype=rows.dtype)
            X.append(np.ascontiguousarray(rows, dtype=X.dtype))

        yield write
        if X is None:
            store.create_array("X", shape=(0, len(names)), chunks=chunks, dtype=np.float64)
        store["X"].attrs["columns"] = [*names]


@contextmanager
def _arrow_sink(stream: IO[bytes], names: Sequence[str], suffix: str) -> Iterator[Write]:
    try:
        import pyarrow as pa
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError:
        words = {".csv": "CSV", ".parquet": "Parquet", ".pq": "Parquet"}.get(suffix, "Arrow")
        raise missing_extra("pyarrow", "tables", f"writing {words}") from None
    openers = {".csv": pa.csv.CSVWriter, ".arrow": pa.ipc.new_file, ".feather": pa.ipc.new_file}
    numbers = [pa.field(name, pa.float64()) for name in names]
    writer: Any = None

    def opened(fields: Sequence[Any]) -> Any:
        return openers.get(suffix, pa.parquet.ParquetWriter)(stream, pa.schema(fields))

    def write(rows: FloatArray, kept: Any = None) -> None:
        nonlocal writer
        beside = [] if kept is None else [*kept.schema]
        writer = writer or opened([*beside, *numbers])
        columns = np.asarray(rows, dtype=np.float64).T
        arrays = [pa.array(np.ascontiguousarray(column)) for column in columns]
        carried = [] if kept is None else kept.columns
        writer.write_table(pa.Table.from_arrays([*carried, *arrays], schema=pa.schema([*beside, *numbers])))

    try:
        yield write
        writer = writer or opened(numbers)
    finally:
        if writer is not None:
            writer.close()


def _warn_of_formulas(names: Sequence[str]) -> None:
    """Warn if a spreadsheet would run a column's name; another name would no longer be the model's."""
    formulas = [name for name in names if name.startswith(("=", "+", "-", "@", "\t", "\r"))]
    if formulas:
        more = f" and {len(formulas) - 1} more begin" if len(formulas) > 1 else " begins"
        warnings.warn(
            f"column {formulas[0]!r}{more} like a formula, which a spreadsheet would run when it opens the "
            "CSV file: rename the column in the data, or write .parquet",
            FairstreamWarning,
            stacklevel=2,
        )
