"""Commands that embed or erase data with a model: transform, erase."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from fairstream.cli.answers import answer
from fairstream.cli.options import (
    apply_options,
    as_json,
    data_argument,
    dither_options,
    load_subspace,
    names_option,
    open_data,
    output_option,
    reading_options,
    skipped_rows,
)
from fairstream.cli.progress import progress_on_terminal
from fairstream.cli.writing import InputPath, WritingCommand
from fairstream.streaming.embed import embed_source, erase_source, open_like

embedding_options = apply_options(
    click.argument("model", type=InputPath()),
    data_argument,
    reading_options,
    dither_options,
    names_option(
        "--keep",
        help_text="Columns of the table that are carried along to the output, before the others.",
    ),
    click.option(
        "--part-rows",
        type=click.IntRange(min=1),
        metavar="ROWS",
        help="Write a folder of files with so many rows each.",
    ),
    output_option("Where to write: .parquet, .arrow, .feather, .csv, .npy or .zarr."),
    as_json,
)


@click.command(cls=WritingCommand)
@embedding_options
def transform(**given: Any) -> None:
    """Write the fair coordinates of DATA, block by block.

    A table's columns are chosen and encoded as they were for the fit.
    """
    _write("transform", embed_source, "n_components", **given)


@click.command(cls=WritingCommand)
@embedding_options
def erase(**given: Any) -> None:
    """Write DATA without its unfair part, in the original features, block by block."""
    _write("erase", erase_source, "n_features", **given)


def _write(
    title: str,
    write: Callable[..., int],
    width: str,
    *,
    model: Path,
    data: Path,
    dither: float | None,
    dither_key: Path | None,
    keep: list[str] | None,
    part_rows: int | None,
    output: Path,
    as_json: bool,
    **reading: Any,
) -> None:
    subspace = load_subspace(model)
    share = subspace.dither if dither is None else dither
    ids = subspace.ids if share and isinstance(subspace.ids, str) else None
    source = open_data(data, opener=partial(open_like, subspace, ids=ids), keep=keep, **reading)
    with progress_on_terminal(title) as progress:
        rows = write(
            subspace,
            source,
            output,
            dither=dither,
            key=dither_key,
            part_rows=part_rows,
            progress=progress,
        )
    facts = {"output": str(output), "n_rows": rows, width: getattr(subspace, width)}
    answer({**facts, **skipped_rows(source)}, as_json)
