"""Commands that learn: fit, moments, merge, solve."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from fairstream.cli.answers import answer, say
from fairstream.cli.label_count import LabelCount
from fairstream.cli.options import (
    as_json,
    data_argument,
    encoding_options,
    id_option,
    ids_choice,
    intersections_option,
    load_moments,
    open_data,
    output_option,
    pair,
    reading_options,
    skipped_rows,
    solving_choices,
    solving_options,
)
from fairstream.cli.progress import guard_announced, progress_on_terminal
from fairstream.cli.writing import MODEL, MOMENTS, InputPath, OutputFolder, OutputPath, WritingCommand
from fairstream.data.file_search import absolute
from fairstream.data.small_groups import told_unlabelled
from fairstream.estimators.images import CHANNELS, FairImagePCA
from fairstream.estimators.pca import FairStreamingPCA
from fairstream.estimators.solvers import SOLVERS
from fairstream.streaming.checkpoint_folder import refuse_occupied
from fairstream.streaming.fit import collect_moments, fit_source
from fairstream.subspace.components import solve as solve_moments

MAX_WORKERS = 1_024  # more processes than this are a typing error

rank_option = click.option(
    "--rank",
    type=click.IntRange(min=1),
    help="Directions that the sketch keeps; without it moments are exact.",
)


@click.command(cls=WritingCommand)
@data_argument
@reading_options
@encoding_options
@intersections_option
@solving_options
@click.option(
    "--channels",
    type=click.Choice(CHANNELS),
    default="joint",
    show_default=True,
    help="For images: one model of all pixels, or one for each colour channel, in the same pass.",
)
@click.option("--solver", type=click.Choice(SOLVERS), default="auto", show_default=True)
@rank_option
@click.option(
    "--step-rows",
    metavar="b,B",
    help="Rows per step of --solver power, in its two phases; one number for both.  [default: all rows]",
)
@click.option(
    "--power-steps", metavar="T,T", help="Steps of --solver power in its two phases.  [default: 10]"
)
@click.option("--seed", type=int, help="For the random starts of --solver power.")
@click.option("--checkpoint", type=OutputFolder(), help="Folder for checkpoints.")
@click.option(
    "--every",
    type=click.IntRange(min=1),
    metavar="ROWS",
    help="Rows between checkpoints.  [default: a minute]",
)
@click.option("--resume", is_flag=True, help="Resume from the newest checkpoint, if there is one.")
@click.option(
    "--with-sample",
    is_flag=True,
    help="Let checkpoints hold the rows that --guard samples, to resume: row-level data.",
)
@click.option("--dask", metavar="ADDRESS", help="Fit on the Dask cluster of this scheduler: tcp://host:8786.")
@click.option(
    "--workers",
    type=click.IntRange(1, MAX_WORKERS),
    metavar="N",
    help="Fit with N worker processes on this machine.",
)
@click.option(
    "--save-moments",
    type=OutputPath(MOMENTS),
    help="Also write the moments, for frontier, solve and merge without a second pass.",
)
@output_option("The model file to write.", MODEL)
@as_json
def fit(
    data: Path,
    channels: str,
    solver: str,
    rank: int | None,
    step_rows: str | None,
    power_steps: str | None,
    seed: int | None,
    checkpoint: Path | None,
    every: int | None,
    resume: bool,
    with_sample: bool,
    dask: str | None,
    workers: int | None,
    save_moments: Path | None,
    output: Path,
    as_json: bool,
    **given: Any,
) -> None:
    """Fit a fair subspace on DATA in one pass and save it.

    DATA is a table (.csv, .tsv, .jsonl, .parquet, .arrow, .feather: a file, a folder, a quoted pattern, a
    URL, or - for standard input), the address of a database, a matrix (.npy, .npz, .h5, .zarr), or a folder
    or .zip of images.
    """
    choices = {**solving_choices(given), "solver": solver, "rank": rank, "random_state": seed}
    choices["ids"] = ids_choice(given["id_column"])
    choices["intersections"] = [*given.pop("intersections")] or None
    choices["step_rows"] = pair(step_rows, "--step-rows")
    if power_steps is not None:
        choices["power_steps"] = pair(power_steps, "--power-steps")
    if save_moments is not None and (solver == "power" or channels == "separate"):
        other = "--solver power" if solver == "power" else "--channels separate"
        raise click.UsageError(
            f"--save-moments does not go with {other}, which has none to save: leave it out"
        )
    client = _chosen_client(dask, workers, every)
    refuse_occupied(checkpoint, resume)
    place = data if client is None else absolute(data)  # workers may have been started in another folder
    with guard_announced(choices["guard"], partial(say, err=True)), progress_on_terminal("fit") as progress:
        source = open_data(place, **given)
        counted = LabelCount(source)
        estimator = fit_source(
            counted if client is None else source,
            _new_estimator(channels, source, choices),
            client=client,
            checkpoint=checkpoint,
            every=every,
            resume=resume,
            with_sample=with_sample,
            progress=progress,
        )
    unlabelled = counted.unlabelled if client is None else _unlabelled(estimator)
    subspace = estimator.subspace_
    subspace.save(output)
    if save_moments is not None:
        estimator.moments_.save(save_moments)
    told = unlabelled and told_unlabelled(
        subspace.group_counts, subspace.n_rows, unlabelled, estimator.min_group_size
    )
    files = {"model": str(output)} | ({} if save_moments is None else {"moments": str(save_moments)})
    facts = {**files, **subspace.describe(), "rows_without_label": told}
    answer({**facts, **skipped_rows(source)}, as_json)


def _new_estimator(channels: str, source: Any, choices: dict[str, Any]) -> Any:
    """Return what is to be fitted: one model, or one for each channel of the source."""
    if channels == "joint":
        return FairStreamingPCA(**choices)
    if not hasattr(source, "n_channels"):
        raise click.UsageError("--channels separate is for images, a folder or .zip: leave it out")
    return FairImagePCA(n_channels=source.n_channels, channels=channels, **choices)


def _chosen_client(dask: str | None, workers: int | None, every: int | None) -> str | int | None:
    """Return where the fit runs: a scheduler's address, a number of workers, or None for this process."""
    if dask is not None and workers is not None:
        raise click.UsageError("--dask and --workers are both given: choose one")
    client = workers if dask is None else dask
    if client is not None and every is not None:
        raise click.UsageError(
            "--every does not apply with --dask and --workers, which write about once a minute"
        )
    return client


def _unlabelled(estimator: FairStreamingPCA) -> dict[str, int] | None:
    """Return the rows without a label of a fit whose blocks others read; None if it did not count them."""
    if estimator.solver_ == "power":
        return None
    learner = estimator.learner_
    return {a: int(learner.n_rows - sum(counts.values())) for a, counts in learner.group_counts.items()}


@click.command(cls=WritingCommand)
@data_argument
@reading_options
@encoding_options
@intersections_option
@rank_option
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    metavar="ROWS",
    help="Also keep about this many rows of each group and their --target, for fairstream solve --guard and "
    "fairstream tune. The file then holds row-level data.",
)
@output_option("The moments file to write.", MOMENTS)
@as_json
def moments(
    data: Path, rank: int | None, sample: int | None, output: Path, as_json: bool, **reading: Any
) -> None:
    """Collect the group moments of DATA, to be merged with others and solved later."""
    with progress_on_terminal("moments") as progress:
        source = LabelCount(open_data(data, **reading))
        collected = collect_moments(source, rank=rank, sample=sample, progress=progress)
    collected.save(output, with_sample=sample is not None)
    facts = {"moments": str(output), **collected.describe()}
    answer({**facts, "rows_without_label": source.unlabelled, **skipped_rows(source)}, as_json)


@click.command(cls=WritingCommand)
@click.argument("files", type=InputPath(), nargs=-1, required=True)
@output_option("The moments file to write.", MOMENTS)
@as_json
def merge(files: tuple[Path, ...], output: Path, as_json: bool) -> None:
    """Merge moments FILES, as if their rows had been seen together."""
    merged = load_moments(files[0])
    for file in files[1:]:
        try:
            merged.merge(load_moments(file))
        except ValueError as error:
            raise ValueError(f"{file} does not go with {files[0]}: {error}") from error
    merged.save(output, with_sample=merged.sample is not None)
    answer({"moments": str(output), **merged.describe()}, as_json)


@click.command(cls=WritingCommand)
@click.argument("file", type=InputPath())
@solving_options
@id_option
@output_option("The model file to write.", MODEL)
@as_json
def solve(file: Path, id_column: str | None, output: Path, as_json: bool, **given: Any) -> None:
    """Solve a moments FILE for a fair subspace, without any pass over data."""
    choices = {**solving_choices(given), "ids": ids_choice(id_column)}
    with (
        guard_announced(choices["guard"], partial(say, err=True)),
        progress_on_terminal("solve"),
    ):  # which a guard has
        subspace = solve_moments(load_moments(file), **choices)
    subspace.save(output)
    answer({"model": str(output), **subspace.describe()}, as_json)
