"""open_source, the one door: finds the kind of the data and calls the module that opens it."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from fairstream.data.alignment import paired
from fairstream.data.blocks import BlockSource, is_source
from fairstream.data.file_search import (
    TABLE_KINDS,
    FileSet,
    as_url,
    find_files,
    is_database,
    is_glob,
    table_kind,
    tables_in,
)
from fairstream.data.ids import NumberedSource
from fairstream.data.image_files import is_image_name
from fairstream.data.other_libraries import comes_from_dask, lazy_kind
from fairstream.data.standard_input import spooled
from fairstream.data.tensors import is_tensor
from fairstream.errors import missing_extra


class _Kind(NamedTuple):
    """What messages call a kind of data, the function that opens it, and the options it takes."""

    words: str
    opener: str
    options: tuple[str, ...]


_MATRIX = ("features", "target", "ids", "keep_sensitive")
_TABLE = (*_MATRIX, "categories", "standardize", "impute", "encoding")
_COLUMNS = ("exclude", "unseen", "max_categories", "keep")
_CELLS = ("null_values", "decimal", "bad_rows")
_CSV = ("delimiter", "column_names", "column_types", "text_encoding", "newlines_in_values", *_CELLS)
_FILES = (*_TABLE, *_COLUMNS, "storage_options")
_STORE = ("features", "target", "ids", "key")
_NAMING = ("attributes", "name_column", "names")
_DECODING = ("mode", "resize", "workers", "prefetch", "max_pixels", "max_bytes", "on_error")
_KINDS = {
    "array": _Kind("an array", "arrays.open_array", _MATRIX),
    "npy": _Kind("a .npy file", "arrays.open_npy", _MATRIX),
    "npz": _Kind("an .npz file", "arrays.open_npz", (*_MATRIX, "key")),
    "frame": _Kind("a frame", "tables.open_frame", (*_TABLE, *_COLUMNS)),
    "parquet": _Kind("Parquet files", "tables.open_files", _FILES),
    "arrow": _Kind("Arrow files", "tables.open_files", _FILES),
    "csv": _Kind("a CSV file", "tables.open_files", (*_FILES, *_CSV)),
    "jsonl": _Kind("a file of JSON lines", "tables.open_files", _FILES),
    "lazy": _Kind("a lazy table", "tables.open_lazy", (*_TABLE, *_COLUMNS)),
    "database": _Kind("a database", "tables.open_database", (*_TABLE, *_COLUMNS, "query")),
    "hdf5": _Kind("an HDF5 file", "stores.open_hdf5", _STORE),
    "zarr": _Kind("a Zarr store", "stores.open_zarr", (*_STORE, "missing_chunks")),
    "store_object": _Kind("an h5py or zarr object", "stores.open_store_object", (*_STORE, "missing_chunks")),
    "images": _Kind("images", "images.open_images", (*_NAMING, *_DECODING)),
    "iterable": _Kind("an iterable", "iterables.open_iterable", ()),
    "dask": _Kind("a Dask collection", "dask_collections.open_dask", (*_TABLE, "weights")),
}
OPTIONS = frozenset(name for kind in _KINDS.values() for name in kind.options)
_SUFFIXES = {
    ".npy": "npy",
    ".npz": "npz",
    **TABLE_KINDS,
    ".h5": "hdf5",
    ".hdf5": "hdf5",
    ".zarr": "zarr",
    ".zip": "images",
}
_DATABASE_FILES = (".db", ".sqlite", ".sqlite3", ".duckdb")


def open_source(
    data: Any,
    *,
    sensitive_features: Any = None,
    features: Sequence[Any] | None = None,
    target: Any = None,
    ids: Any = None,
    block_size: int | None = None,
    **options: Any,
) -> BlockSource:
    """Open anything that holds rows as a re-iterable source of blocks.

    Nothing is read before iteration but headers (and labels that stand apart from the rows). Files are open
    only while blocks are drawn from them, and closed when a loop is left early. Sources can be pickled,
    except those over a generator or a record batch reader.

    Parameters
    ----------
    data : path, URL, list of these, array, frame, store, iterable or callable
        Tables: .csv, .tsv, .jsonl (all three also .gz, .bz2, .zst, .lz4), .parquet, .arrow, .feather; a file,
        a glob, a folder of one kind, or a list of these, here or behind a URL that fsspec opens
        (``s3://bucket/people/*.parquet``). Folders named "key=value" give their keys as columns. "-" is
        standard input. A database by its address: ``sqlite:///file``, ``duckdb:///file``,
        ``postgresql://user@host/database``. Other files: .npy, .npz (numpy or scipy sparse), .zarr, .h5, a
        folder or .zip of images. In memory: a numpy array or memory map, a scipy sparse matrix, a frame of
        pandas, polars or pyarrow, anything with ``__arrow_c_stream__``, an h5py or zarr array or group. Read
        block by block: a polars LazyFrame, a pyarrow Dataset, a DuckDB relation, a Hugging Face Dataset or
        IterableDataset. Any iterable of (X, labels), a torch DataLoader say, or a callable that returns one.
        A Dask array or data frame, or a list of delayed objects or futures, each of which yields rows,
        (rows, labels) or a `Block`. A block source passes through.
    sensitive_features : list of str, list of int, labels, optional
        Names of columns (tables), of sibling arrays (stores, .npz) or of attributes (images); indices of
        columns (matrices); or the labels themselves, one per row, in any form that `encode_groups` takes.
        For a Dask collection also labels in Dask; for a list of tasks the list of their labels.
    features : list, optional
        The columns that make up X, by name (tables) or index (matrices). By default all but the sensitive
        ones and the target, which must not be listed here either.
    target : str, int or array, optional
        A column by name or index, or one value per row.
    ids : str, int or array, optional
        Whose rows these are, for the noise of `dither`: a column by name or index, which is no feature, or
        one whole number or text per row. A Series is paired with a frame by its index.
    block_size : int, optional
        Rows of every block but the last; by default about 8 MB of rows, between 64 and 65,536.
    **options
        Only for the kinds of data that can honour them; any other raises.

        - matrices and tables: ``keep_sensitive`` (leave sensitive columns among the features);
        - tables: ``categories`` ({column: [values]}; None for the values makes a numeric column categorical),
          ``standardize`` (numeric columns to mean 0 and population standard deviation 1),
          ``impute="mean"`` (a missing number becomes the column's mean, a missing category the shares of the
          categories). Categories not given, ``standardize`` and ``impute`` take one first pass. Or
          ``encoding``, another source's `encoding`, to turn columns into the very same features.
          ``unseen`` says what becomes of a category that the encoding does not know: "raise" (by default),
          "ignore" (no feature of the column is 1) or "other" (a feature for all such categories, which must
          be there from the fit on). ``exclude`` (["name"]) names columns that are no features, instead of all
          that are in ``features``. ``max_categories`` (10,000) is the most that a column may have; with
          ``unseen="other"`` the rarest of more go to the others. ``keep`` (["id"]) names columns that are no
          features but carried along, to the output of `embed_source` and `erase_source`;
        - CSV: ``delimiter``, ``column_names`` (for a file without a header line), ``column_types``,
          ``text_encoding`` ("latin-1" say; UTF-8 by default), ``newlines_in_values`` (True if quoted text has
          line ends; else one is refused as the trace of a quote that was never closed), ``null_values``
          (["?"]: cells that count as missing, beside empty ones, "NA" and the like; the encoding remembers
          them, so that tables opened with it need not name them again: in frames and files of other kinds
          such text is missing too, among features, labels, target and ids), ``decimal`` ("," for
          0,5; columns are then separated by ";" unless ``delimiter`` says otherwise), ``bad_rows`` ("raise",
          or "skip" to leave out rows of another length or with text among numbers: their number is
          `skipped_rows` of the source, and a warning tells it);
        - files behind a URL: ``storage_options``, what fsspec needs to connect, such as ``{"anon": True}``;
        - databases: ``query``, a SELECT statement;
        - .npz, HDF5 and Zarr: ``key`` (the array that is X);
        - Zarr: ``missing_chunks`` ("raise", or "fill" to read a missing chunk as the fill value);
        - Dask collections: ``weights`` (one per row, in Dask or, if the number of rows is known, in memory;
          for a list of tasks the list of their weights). Blocks of an iterable bring their own;
        - images: ``attributes``, ``name_column``, ``names``, ``mode``, ``resize``, ``workers``, ``prefetch``,
          ``max_pixels``, ``max_bytes``, ``on_error``, see `fairstream.data.images.ImageSource`.

    Returns
    -------
    BlockSource
        Iterate it for `Block(X, groups, target, weights, ids)`; it knows `n_features`, `feature_names` and,
        if it can, `n_rows`.

    Examples
    --------
    >>> X = np.arange(12.0).reshape(6, 2)
    >>> source = open_source(X, sensitive_features={"sex": ["f", "m", "f", "m", "f", None]}, block_size=4)
    >>> [(block.X.shape, block.groups["sex"].codes.tolist()) for block in source]
    [((4, 2), [0, 1, 0, 1]), ((2, 2), [0, -1])]
    """
    given = {"features": features, "target": target}
    options |= {name: value for name, value in given.items() if value is not None}
    apart = ids is not None and not isinstance(ids, str | int | np.integer)
    options |= {} if ids is None or apart else {"ids": ids}
    if is_source(data):
        ignored = [
            *options,
            *(["sensitive_features"] if sensitive_features is not None else []),
            *(["block_size"] if block_size else []),
            *(["ids"] if apart else []),
        ]
        if ignored:
            raise ValueError(f"{ignored[0]} does not apply to a source that is already open: leave it out")
        opened: BlockSource = data
        return opened
    kind, opened = _recognised(data, options)
    allowed = _KINDS[kind].options
    unknown = [name for name in options if name not in allowed]
    if unknown:
        listed = ", ".join(("sensitive_features", "block_size", *allowed))
        words = _KINDS[kind].words
        raise ValueError(f"{unknown[0]} does not apply to {words}: leave it out (options: {listed})")
    if apart and kind == "dask":
        raise ValueError("ids holds values beside a Dask collection: name a column of it, or give blocks ids")
    if kind in TABLE_KINDS.values():
        options.pop("storage_options", None)  # the files have it
    source = _opener(kind)(opened, sensitive_features=sensitive_features, block_size=block_size, **options)
    source = NumberedSource(source, paired(ids, data, "ids")) if apart else source
    if origins := _origins(data, opened):
        source.path, source.origins = origins[0], origins  # type: ignore[attr-defined]  # no output may overwrite them
    return source


def _recognised(data: Any, options: Mapping[str, Any]) -> tuple[str, Any]:
    """Return the kind of the data, and what its opener takes: for tables in files the files."""
    storage = options.get("storage_options")
    if _lists_paths(data):
        files = find_files(data, storage)
        return files.kind, files
    if not isinstance(data, str | os.PathLike):
        return _kind_of_object(data), data
    if not os.fspath(data):
        raise ValueError('the path is empty: name a file, or pass "." for the current folder')
    url = as_url(data)
    if url is not None and is_database(url):
        return "database", url
    path = Path(spooled() if os.fspath(data) == "-" else data)
    kind = None if url is not None else _kind_of_path(path)
    if kind is None or kind in TABLE_KINDS.values():
        files = find_files(url or path, storage)
        return files.kind, files
    return kind, path


def _lists_paths(data: Any) -> bool:
    """Whether it is a list of paths or URLs."""
    return (
        isinstance(data, list | tuple)
        and len(data) > 0
        and all(isinstance(item, str | os.PathLike) for item in data)
    )


def _origins(data: Any, opened: Any) -> tuple[Path, ...]:
    """Return the local files, folders and globs that the data was named by."""
    listed = data if _lists_paths(data) else [data]
    if isinstance(opened, FileSet | Path):
        return tuple(Path(item) for item in listed if as_url(item) is None and os.fspath(item) != "-")
    mapped = getattr(data, "filename", None)  # of a memory map
    return (Path(mapped),) if isinstance(mapped, str | Path) else ()


def _opener(kind: str) -> Callable[..., BlockSource]:
    """Import only what the kind of data needs, so that extras stay optional."""
    module, _, function = _KINDS[kind].opener.partition(".")
    if module == "tables":
        try:
            import pyarrow  # noqa: F401
        except ModuleNotFoundError:
            raise missing_extra("pyarrow", "tables", f"reading {_KINDS[kind].words}") from None
    opener: Callable[..., BlockSource] = getattr(import_module(f"fairstream.data.{module}"), function)
    return opener


def _kind_of_path(path: Path) -> str | None:
    """Return the kind of a local path; None if its files must be found to tell."""
    text = str(path)
    if not path.exists():
        if is_glob(text):
            return None
        raise FileNotFoundError(f"{text} does not exist: check the path")
    if path.is_dir():
        return _kind_of_folder(path)
    if not path.is_file():  # a pipe would be waited for, a device read without end
        raise ValueError(f"{text} is not a regular file: write its contents to one first")
    kind = table_kind(text) or _SUFFIXES.get(path.suffix.lower())
    if kind is None:
        if path.suffix.lower() in _DATABASE_FILES:
            raise ValueError(f"{text} is a database: name it by URL, sqlite:///{text} or duckdb:///{text}")
        known = ", ".join(_SUFFIXES)
        raise ValueError(
            f"{text} ends in {path.suffix or 'nothing'}: rename it if it is one of {known}, else convert it"
        )
    return kind


def _kind_of_folder(path: Path) -> str | None:
    if path.suffix == ".zarr" or any((path / name).exists() for name in ("zarr.json", ".zgroup", ".zarray")):
        return "zarr"
    tables = tables_in(str(path))
    # A folder of images may hold the text with their attributes.
    text_only = all(table_kind(name) in ("csv", "jsonl") for name in tables)
    if text_only and any(is_image_name(name) for _, _, names in os.walk(path) for name in names):
        return "images"
    if tables:
        return None
    raise ValueError(f"{path} is a folder without tables, images or a Zarr store: check the path")


def _kind_of_object(data: Any) -> str:
    module = type(data).__module__.split(".")[0]
    if comes_from_dask(data):
        return "dask"
    if isinstance(data, np.ndarray) or sp.issparse(data):
        return "array"
    if module in ("h5py", "zarr"):
        return "store_object"
    if lazy_kind(data) is not None:
        return "lazy"
    if type(data).__name__ in ("DatasetDict", "IterableDatasetDict"):
        splits = ", ".join(map(repr, data))
        raise ValueError(f"the {type(data).__name__} has several data sets: pass one of {splits}, data[...]")
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        if type(data).__name__.endswith(("Series", "Array")):
            raise ValueError(
                f"a {type(data).__name__} is a single column: pass a frame or a two-dimensional array"
            )
        return "frame"
    if module == "pandas" and hasattr(data, "columns"):
        return "frame"
    if is_tensor(data) or (hasattr(data, "__array__") and hasattr(data, "shape")):
        return "array"
    if hasattr(data, "read"):
        raise ValueError(f"a {type(data).__name__} is an open file: pass its path, or read it into a frame")
    if hasattr(data, "cursor") or hasattr(data, "raw_connection"):
        raise ValueError(
            f"a {type(data).__name__} is a connection: pass the address of the database and a query, as in "
            'open_source("sqlite:///people.db", query="SELECT * FROM people"), or a relation of DuckDB'
        )
    if callable(data) and not inspect.isclass(data):
        return "iterable"
    if isinstance(data, Iterable) and not isinstance(data, bytes | dict | set):
        return "iterable"
    raise ValueError(
        f"a {type(data).__name__} cannot be opened: pass a path, an array, a frame, "
        "or an iterable of (X, labels)"
    )
