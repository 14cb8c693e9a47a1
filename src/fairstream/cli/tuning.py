"""The command that chooses a model: tune."""

from __future__ import annotations

import csv
import io
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import click

from fairstream.auditing import tune as tune_rows
from fairstream.auditing.measure.attackers import STRENGTHS
from fairstream.auditing.tuning import Tuned
from fairstream.cli.answers import answer, say
from fairstream.cli.options import (
    as_json,
    data_argument,
    encoding_options,
    ids_choice,
    intersections_option,
    load_moments,
    open_data,
    output_option,
    reading_options,
)
from fairstream.cli.verdicts import VERDICT_CODES
from fairstream.cli.writing import MODEL, OutputPath, WritingCommand
from fairstream.files.atomic import atomic_file
from fairstream.files.format import stored_kind


def _whole_numbers(_: click.Context, option: click.Parameter, value: str) -> list[int]:
    try:
        numbers = [int(part) for part in value.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise click.BadParameter(f"{value!r} is not a whole number from 1, or several with commas: 5,10,20")
    return numbers


@click.command(cls=WritingCommand)
@data_argument
@reading_options
@encoding_options
@intersections_option
@click.option(
    "-k",
    "--n-components",
    callback=_whole_numbers,
    default="10",
    show_default=True,
    metavar="K[,K...]",
    help="Components to keep, or several numbers to choose from.",
)
@click.option(
    "--limit", type=float, help="AUC that no attacker may exceed, such as 0.65: keep what is possible."
)
@click.option("--keep", type=float, help="Share of plain PCA's variance to keep, such as 0.8: leak least.")
@click.option(
    "--maximise",
    type=click.Choice(["variance", "target"]),
    default="variance",
    show_default=True,
    help="What to keep below --limit; target is how well --target can be predicted.",
)
@click.option(
    "--attack",
    type=click.Choice([*STRENGTHS]),
    default="strong",
    show_default=True,
    help="How hard the chosen model is attacked.",
)
@click.option(
    "--sample",
    type=click.IntRange(min=100),
    default=30_000,
    show_default=True,
    help="Rows of each group to choose by.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of guards and attackers.")
@click.option("--candidates", type=OutputPath(), help="Write everything that was tried as CSV.")
@output_option("The model file to write.", MODEL)
@as_json
def tune(
    data: Path,
    n_components: list[int],
    limit: float | None,
    keep: float | None,
    maximise: str,
    attack: str,
    sample: int,
    seed: int,
    candidates: Path | None,
    output: Path,
    as_json: bool,
    **reading: Any,
) -> None:
    """Choose a model for DATA by what attackers read on rows held back, and save it.

    DATA is what `fit` reads, or a moments file with a sample of rows (fairstream moments --sample). Give
    --limit or --keep. The exit code is 3 if the limit does not hold on rows kept aside, 4 if that cannot be
    told.
    """
    stored = stored_kind(data) is not None
    given = [
        f"--{name.replace('_', '-')}"
        for name, value in reading.items()
        if stored and value and name != "id_column"
    ]
    if given:
        raise click.UsageError(
            f"{data} holds moments, which have their rows and attributes: leave {', '.join(given)} out"
        )
    rows = load_moments(data) if stored else open_data(data, **reading)
    tuned = tune_rows(
        rows,
        n_components=n_components,
        limit=limit,
        keep=keep,
        maximise=maximise,
        attack=attack,
        sample=sample,
        ids=ids_choice(reading["id_column"]),
        seed=seed,
        announce=partial(say, err=True),
    )
    tuned.estimator.subspace_.save(output)
    if candidates is not None:
        _write_candidates(tuned, candidates)
    for line in () if as_json else tuned.summary():
        say(line, err=True)
    verdicts = {name: found.answer for name, found in tuned.verdicts.items()}
    chosen = {name: None if value == "" else value for name, value in asdict(tuned.chosen).items()}
    answer({"model": str(output), **chosen, "verdicts": verdicts}, as_json)
    worst = [code for found, code in VERDICT_CODES.items() if found in verdicts.values()]
    if worst:
        click.get_current_context().exit(worst[0])


def _write_candidates(tuned: Tuned, path: Path) -> None:
    table = [asdict(candidate) for candidate in tuned.candidates]
    text = io.StringIO()
    writer = csv.DictWriter(text, [*table[0]])
    writer.writeheader()
    writer.writerows(table)
    with atomic_file(path) as stream:
        stream.write(text.getvalue().encode())
