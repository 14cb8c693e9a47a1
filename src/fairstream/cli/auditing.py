"""The command that checks a model: audit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from fairstream.auditing import audit as audit_models
from fairstream.auditing.measure.probes import PROBES
from fairstream.cli.answers import printable, say
from fairstream.cli.options import F, data_argument, load_subspace, open_data, reading_options
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
    "--train", type=InputPath(), help="The training rows: classifiers are fitted on them and scored on DATA."
)
@click.option(
    "--probe",
    "probes",
    multiple=True,
    type=click.Choice([*PROBES]),
    help="Run only this probe; may be repeated. All by default.",
)
@click.option(
    "--sample",
    type=click.IntRange(min=100),
    default=10_000,
    show_default=True,
    help="Rows that the probes see.",
)
@click.option(
    "--min-group-size",
    type=click.IntRange(min=5),
    default=20,
    show_default=True,
    help="Groups with fewer rows are left out.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the sample, folds and probes.")
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
    probes: tuple[str, ...],
    sample: int,
    min_group_size: int,
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
    report = audit_models(
        models,
        open_data(data, opener=opener, **reading),
        train=None if train is None else (open_data(train, opener=opener, **reading),),
        probes=probes or None,
        sample_rows=sample,
        min_group_size=min_group_size,
        random_state=seed,
        title=title,
        announce=partial(say, err=True),
    )
    for path, write in (
        (json_file, report.to_json),
        (html_file, report.to_html),
        (markdown_file, report.to_markdown),
    ):
        if path is not None:
            write(path)
    say("\n".join(map(printable, report.summary())))
