"""Commands that use a model on data: transform, erase."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from fairstream.cli.answers import answer
from fairstream.cli.options import (
    as_json,
    data_argument,
    dither_options,
    load_subspace,
    open_data,
    output_option,
    reading_options,
)
from fairstream.cli.progress import progress_on_terminal
from fairstream.cli.writing import InputPath, WritingCommand
from fairstream.streaming.embed import embed_source, erase_source, open_like


@click.command(cls=WritingCommand)
@click.argument("model", type=InputPath())
@data_argument
@reading_options
@dither_options
@output_option("Where to write: .parquet, .csv or .npy.")
@as_json
def transform(
    model: Path,
    data: Path,
    dither: float | None,
    dither_key: Path | None,
    output: Path,
    as_json: bool,
    **reading: Any,
) -> None:
    """Write the fair coordinates of DATA, block by block.

    A table's columns are chosen and encoded as they were for the fit.
    """
    subspace = load_subspace(model)
    source = open_data(data, opener=partial(open_like, subspace), **reading)
    with progress_on_terminal("transform") as progress:
        rows = embed_source(subspace, source, output, dither=dither, key=dither_key, progress=progress)
    answer({"output": str(output), "n_rows": rows, "n_components": subspace.n_components}, as_json)


@click.command(cls=WritingCommand)
@click.argument("model", type=InputPath())
@data_argument
@reading_options
@dither_options
@output_option("Where to write: .parquet, .csv or .npy.")
@as_json
def erase(
    model: Path,
    data: Path,
    dither: float | None,
    dither_key: Path | None,
    output: Path,
    as_json: bool,
    **reading: Any,
) -> None:
    """Write DATA without its unfair part, in the original features, block by block."""
    subspace = load_subspace(model)
    source = open_data(data, opener=partial(open_like, subspace), **reading)
    with progress_on_terminal("erase") as progress:
        rows = erase_source(subspace, source, output, dither=dither, key=dither_key, progress=progress)
    answer({"output": str(output), "n_rows": rows, "n_features": subspace.n_features}, as_json)
