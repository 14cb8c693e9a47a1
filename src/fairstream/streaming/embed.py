"""Rows out: embeds or erases a whole source into a file or a folder of files, block by block."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from fairstream.data import open_source
from fairstream.data.blocks import BlockSource, Matrix, is_source
from fairstream.data.progress import Progress
from fairstream.errors import AbsentColumnsError, FairstreamWarning
from fairstream.files.atomic import PathLike
from fairstream.files.outputs import check_apart
from fairstream.linalg import FloatArray
from fairstream.streaming.sinks import ARROW, open_sink
from fairstream.subspace.channels import ChannelSubspaces
from fairstream.subspace.dither import DitherKey, dither_key, warn_of_unused
from fairstream.subspace.model import FairSubspace

_MATRICES = (".npy", ".npz", ".h5", ".hdf5", ".zarr", ".zip")

Model: TypeAlias = FairSubspace | ChannelSubspaces


def open_like(model: Model, data: Any, **options: Any) -> BlockSource:
    """Open data as the rows that a model was fitted on were: same columns, categories and scaling.

    Parameters
    ----------
    model : FairSubspace or ChannelSubspaces
        A model that was fitted on a table knows how its columns became features; for others the options tell.
    data, **options
        As in `open_source`. If the model knows the name of the column that tells whose rows these are, `ids`
        is that column unless told otherwise; `ids=None` leaves it out.

    Examples
    --------
    >>> import numpy as np
    >>> model = FairSubspace(np.eye(3)[:1], np.eye(3)[1:2], np.zeros(3), np.ones(1), 3.0, 10)
    >>> open_like(model, np.ones((5, 3))).n_features
    3
    """
    _check_model(model)
    encoding = model.schema.encoding
    if isinstance(model.ids, str) and model.dither:
        options = {"ids": model.ids} | options
    if encoding is not None and isinstance(data, str | Path) and Path(data).suffix.lower() in _MATRICES:
        raise ValueError(
            f"{data} is a matrix, the model was fitted on a table: pass a table with its columns"
        )
    try:
        source = open_source(data, **(options if encoding is None else {**options, "encoding": encoding}))
    except AbsentColumnsError as error:
        if error.argument == "encoding":
            raise ValueError(
                f"the model needs {error.lacking}: pass a table with the columns it was fitted on"
            ) from None
        if error.argument == "ids" and error.names == [model.ids]:
            raise ValueError(
                f"the model needs {error.lacking} for its noise: name the column that tells whose rows these "
                "are with ids=..."
            ) from None
        raise
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
    part_rows: int | None = None,
    progress: Progress | None = None,
) -> int:
    """Write the fair coordinates of all rows of a source to a file; return how many rows.

    Noise depends on the ids of the rows if the source has them, see `open_source`.

    Parameters
    ----------
    model : FairSubspace or ChannelSubspaces
        What embeds the rows.
    source : BlockSource
        The rows, opened with `open_like`. If it was opened with `keep`, those columns are written before the
        coordinates.
    path : path
        Ends in .parquet, .arrow, .feather, .csv (these need the `tables` extra), .npy or .zarr (the `stores`
        extra); appears only when complete. Must not be, or lie within, what the source was opened from.
    dither, key
        As in `FairSubspace.embed`.
    part_rows : int, optional
        Make `path` a folder of files with so many rows each, "part-00000.parquet" and so on.
    progress : callable, optional
        Called with (rows done, rows in all or None) after every block.

    Returns
    -------
    int
        Number of rows written.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> model = FairSubspace(np.eye(3)[:1], np.eye(3)[1:2], np.zeros(3), np.ones(1), 3.0, 10)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     embed_source(model, open_like(model, np.ones((5, 3))), f"{folder}/embedded.npy")
    5
    """
    _check_order(model, source, path)
    names = [f"component_{j}" for j in range(model.n_components)]
    _warn_of_kept_attributes(model, source)
    return _write(model, model.embed, dither, key, source, path, names, part_rows, progress)


def erase_source(
    model: Model,
    source: BlockSource,
    path: PathLike,
    *,
    dither: float | None = None,
    key: DitherKey = None,
    part_rows: int | None = None,
    progress: Progress | None = None,
) -> int:
    """Write all rows of a source without their unfair part to a file; return how many rows.

    Parameters are as in `embed_source`. A table has the units that a frame returned by `FairSubspace.erase`
    has, a matrix (.npy, .zarr) the features as they are encoded.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> model = FairSubspace(np.eye(3)[:1], np.eye(3)[1:2], np.zeros(3), np.ones(1), 3.0, 10)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     erase_source(model, open_like(model, np.ones((5, 3))), f"{folder}/erased.npy")
    5
    """
    _check_order(model, source, path)
    names = model.feature_names or [f"feature_{j}" for j in range(model.n_features)]
    _warn_of_kept_attributes(model, source)
    named = Path(path).suffix.lower() in ARROW

    def erase(X: Matrix, **noise: Any) -> FloatArray:
        rows: FloatArray = model.erase(X, **noise)
        return model.schema.in_table_units(rows) if named else rows

    return _write(model, erase, dither, key, source, path, names, part_rows, progress)


def _write(
    model: Model,
    apply: Callable[..., FloatArray],
    dither: float | None,
    key: DitherKey,
    source: BlockSource,
    path: PathLike,
    names: Sequence[str],
    part_rows: int | None,
    progress: Progress | None,
) -> int:
    done = 0
    share = model.dither if dither is None else dither
    check_apart(path, getattr(source, "origins", ()))
    key = dither_key(key) if share else key  # once: its file may change while rows are written
    with open_sink(path, names, getattr(source, "kept_names", ()), part_rows=part_rows) as write:
        for block in source:
            if done == 0 and dither is None:
                warn_of_unused(share, key, None if isinstance(model.ids, str) else block.ids)
            write(apply(block.X, dither=share, key=key, ids=block.ids), block.kept)
            done += block.n_rows
            if progress is not None:
                progress(done, source.n_rows)
    return done


def _check_model(model: object) -> None:
    if not isinstance(model, FairSubspace | ChannelSubspaces):
        what = "its subspace_" if hasattr(model, "fit") else "a FairSubspace, the subspace_ of an estimator"
        raise ValueError(f"model is a {type(model).__name__}: pass {what}, once it is fitted")


def _check_order(model: object, source: object, path: object) -> None:
    """Refuse arguments in another order, and data that is not open yet."""
    if is_source(model):
        raise ValueError(f"model is a {type(model).__name__}: pass the model first, (model, source, path)")
    _check_model(model)
    if not is_source(source):
        raise ValueError(
            f"source is a {type(source).__name__}: pass open_like(model, data), in the order (model, source, "
            "path)"
        )
    if not isinstance(path, str | os.PathLike):
        raise ValueError(f"path is a {type(path).__name__}: name a file, in the order (model, source, path)")


def _warn_of_kept_attributes(model: Model, source: BlockSource) -> None:
    """Warn if a sensitive attribute is written beside the rows that are to hide it."""
    told = [name for name in getattr(source, "kept_names", ()) if name in model.groups]
    if told:
        warnings.warn(
            f"keep names {told[0]!r}, a sensitive attribute of the model: whoever reads the output sees it",
            FairstreamWarning,
            stacklevel=3,
        )
