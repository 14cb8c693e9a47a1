"""Commands that only show: frontier, inspect, plan, demo."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from fairstream.cli.answers import answer, answer_table, say
from fairstream.cli.demo import run_demo
from fairstream.cli.describe import in_brief, inspect_file
from fairstream.cli.options import (
    NumberOrShare,
    as_json,
    data_argument,
    encoding_options,
    load_moments,
    open_data,
    reading_options,
)
from fairstream.cli.progress import progress_on_terminal
from fairstream.cli.writing import Command, InputPath, OutputFolder
from fairstream.subspace.choices import CONSTRAINTS, DIRECTIONS
from fairstream.subspace.frontier import frontier as frontier_of
from fairstream.theory import plan_source


@click.command(cls=Command)
@click.argument("file", type=InputPath())
@click.option(
    "-k",
    "--n-components",
    type=NumberOrShare(),
    metavar="K",
    required=True,
    help="Components to keep, or a share of the variance such as 0.95.",
)
@click.option(
    "-m",
    "--n-unfair",
    "largest",
    type=click.IntRange(min=0),
    help="Largest m.  [default: 10, or what leaves room for k]",
)
@click.option("--constraint", type=click.Choice(CONSTRAINTS), default="all", show_default=True)
@click.option("--directions", type=click.Choice(DIRECTIONS), default="absolute", show_default=True)
@as_json
def frontier(
    file: Path,
    n_components: int | float,
    largest: int | None,
    constraint: str,
    directions: str,
    as_json: bool,
) -> None:
    """Show, for every m, the variance kept and the gaps left, from a moments FILE alone."""
    steps = None if largest is None else range(int(constraint == "covariance"), largest + 1)
    points = frontier_of(
        load_moments(file), n_components, steps, constraint=constraint, directions=directions
    )
    answer_table([point.to_dict() for point in points], as_json)


@click.command(cls=Command)
@click.argument("file", type=InputPath())
@as_json
def inspect(file: Path, as_json: bool) -> None:
    """Check a model, moments or checkpoint FILE and show what it holds."""
    facts = inspect_file(file)
    answer(facts if as_json else in_brief(facts), as_json)


@click.command(cls=Command)
@data_argument
@reading_options
@encoding_options
@click.option("-k", "--n-components", type=click.IntRange(min=1), required=True, help="Components to keep.")
@click.option(
    "-m", "--n-unfair", type=click.IntRange(min=1), default=1, show_default=True, help="Directions to null."
)
@click.option("--eps-optimality", type=float, required=True, help="Variance that may be lost.")
@click.option(
    "--eps-fairness", type=float, required=True, help="Unfairness that may remain, between 0 and 1."
)
@click.option("--delta", type=float, default=0.1, show_default=True, help="Probability of failure.")
@click.option(
    "--sample",
    type=click.IntRange(min=2),
    default=10_000,
    show_default=True,
    help="Rows to sample.",
)
@as_json
def plan(
    data: Path,
    n_components: int,
    n_unfair: int,
    eps_optimality: float,
    eps_fairness: float,
    delta: float,
    sample: int,
    as_json: bool,
    **reading: Any,
) -> None:
    """Estimate from DATA how many rows the power method needs to keep a promise (PAFO, Theorem 1)."""
    with progress_on_terminal("plan") as progress:
        planned = plan_source(
            open_data(data, **reading),
            n_components,
            n_unfair,
            eps_optimality,
            eps_fairness,
            delta,
            sample_rows=sample,
            progress=progress,
        )
    answer({**asdict(planned), "n_rows": planned.n_rows}, as_json)


@click.command(cls=Command)
@click.option("--folder", type=OutputFolder(), default=Path("demo"), show_default=True)
@click.option("--overwrite", is_flag=True, help="Replace files that exist, whatever they are.")
def demo(folder: Path, overwrite: bool) -> None:
    """Choose a model for the Adult data and audit it on rows that it has not seen."""
    run_demo(folder, echo=say, overwrite=overwrite)
