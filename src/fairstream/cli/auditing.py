"""The command that checks a model: audit."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from fairstream.auditing import audit as audit_models
from fairstream.auditing.measure.attackers import FAMILIES, STRENGTHS
from fairstream.auditing.report import ModelReport
from fairstream.auditing.reproducing import as_commanded
from fairstream.cli.answers import printable, say
from fairstream.cli.options import F, NameList, data_argument, load_subspace, open_data, reading_options
from fairstream.cli.progress import progress_on_terminal
from fairstream.cli.verdicts import VERDICT_CODES
from fairstream.cli.writing import InputInText, InputPath, OutputPath, WritingCommand
from fairstream.streaming.embed import open_like


def report_option(flag: str, name: str, help_text: str) -> Callable[[F], F]:
    """Return an option that names a file to write the report to."""
    return click.option(flag, name, type=OutputPath(), help=help_text)


@click.command(cls=WritingCommand)
@click.argument("model", type=InputPath())
@data_argument
@reading_options
@click.option(
    "--against",
    type=InputInText(after_equals=False),
    multiple=True,
    help="Another model file to compare with; may be repeated. Plain PCA (pca) is always included.",
)
@click.option(
    "--train", type=InputPath(), help="Rows that an attacker may have: fitted on them, scored on DATA."
)
@click.option(
    "--attack",
    type=click.Choice([*STRENGTHS]),
    default="standard",
    show_default=True,
    help="How hard to attack; strong takes all rows and minutes.",
)
@click.option(
    "--limit",
    type=click.FloatRange(0.5, 1.0, min_open=True, max_open=True),
    help="AUC that no attacker may exceed; exit code 3 if it does not hold, 4 if that cannot be told.",
)
@click.option(
    "--intersections",
    type=NameList(),
    multiple=True,
    metavar="A,B",
    help="Attributes to cross in the table of decisions, such as sex,race; may be repeated.",
)
@click.option(
    "--attacker",
    "attackers",
    multiple=True,
    type=click.Choice([*FAMILIES]),
    help="Use only this attacker; may be repeated. All by default.",
)
@click.option(
    "--sample",
    type=click.IntRange(min=100),
    default=16_000,
    show_default=True,
    help="Rows that a standard attack sees.",
)
@click.option(
    "--min-group-size",
    type=click.IntRange(min=5),
    default=20,
    show_default=True,
    help="Groups with fewer rows are left out.",
)
@click.option(
    "--seen-rows",
    type=click.Choice(["flag", "refuse"]),
    default="flag",
    show_default=True,
    help="What to do if DATA has rows of the fit.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of sample, folds and attackers.")
@click.option("--name", help="What the report calls MODEL; the name of its file by default.")
@click.option("--title", default="Fairness audit", show_default=True, help="Heading of the report.")
@report_option("--json", "json_file", "Write the report as JSON.")
@report_option("--html", "html_file", "Write the report as a page.")
@report_option("--markdown", "markdown_file", "Write it as Markdown.")
def audit(
    model: Path,
    data: Path,
    against: tuple[str, ...],
    train: Path | None,
    attack: str,
    limit: float | None,
    intersections: tuple[tuple[str, ...], ...],
    attackers: tuple[str, ...],
    sample: int,
    min_group_size: int,
    seen_rows: str,
    seed: int,
    name: str | None,
    title: str,
    json_file: Path | None,
    html_file: Path | None,
    markdown_file: Path | None,
    **reading: Any,
) -> None:
    """Measure on DATA, which the fit has not seen, what MODEL's embedding gives away and what it cost."""
    others = [Path(name) for name in against if name != "pca"]
    first = name or model.stem
    models = {first: load_subspace(model)} | {path.stem: load_subspace(path) for path in others}
    if len(models) < 1 + len(others):
        raise ValueError(f"{first!r} and --against have the same name: rename one of the files")
    opener = partial(open_like, models[first])
    with progress_on_terminal("attack", unit="%") as progress:
        report = audit_models(
            models,
            open_data(data, opener=opener, **reading),
            train=None if train is None else (open_data(train, opener=opener, **reading),),
            attack=attack,
            limit=limit,
            intersections=[*intersections],
            attackers=attackers or None,
            sample_rows=sample,
            min_group_size=min_group_size,
            seen_rows=seen_rows,
            random_state=seed,
            title=title,
            announce=partial(say, err=True),
            progress=progress,
        )
    files = {"audited rows": data.name} | ({} if train is None else {"training rows": train.name})
    report = replace(
        report,
        models=tuple(_with_target(found, reading.get("target")) for found in report.models),
        reproduction=as_commanded(report.reproduction, _command_line(), files),
    )
    for path, write in (
        (json_file, report.to_json),
        (html_file, report.to_html),
        (markdown_file, report.to_markdown),
    ):
        if path is not None:
            write(path)
    say("\n".join(map(printable, report.summary())))
    code = VERDICT_CODES.get(report.models[0].answer or "")
    if code is not None:
        click.get_current_context().exit(code)


def _with_target(found: ModelReport, target: str | None) -> ModelReport:
    """Add the name of the target, which a source does not tell."""
    if found.decisions is None:
        return found
    return replace(found, decisions=replace(found.decisions, target=target))


def _command_line() -> str:
    """Return the command as it was typed, without the folder of the program."""
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
