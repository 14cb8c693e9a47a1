"""The demonstration: Adult from disk, a model tuned to a limit beside the paper's and plain PCA."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairstream.auditing import audit, tune
from fairstream.data import open_source
from fairstream.datasets import load_adult
from fairstream.errors import missing_extra
from fairstream.estimators.pca import FairStreamingPCA
from fairstream.files.atomic import PathLike, atomic_file
from fairstream.files.outputs import check_replaceable
from fairstream.streaming.embed import open_like
from fairstream.subspace.frontier import residual_gaps
from fairstream.subspace.model import FairSubspace

LIMIT = 0.75  # AUC that no attacker may exceed
AIM = 0.70  # what is tuned for: an audit's attackers may have more rows, so a promise needs a margin
N_COMPONENTS = 10
# One setting, so that it takes a minute; `tune` searches more by itself.
SEARCHED: tuple[dict[str, Any], ...] = ({"constraint": "none", "guard": 1.0},)
DITHERS = (0.0, 0.1, 0.2, 0.3, 0.4)
PLAIN: dict[str, Any] = {"constraint": "none", "guard": 0.0, "dither": 0.0}
PAPER: dict[str, Any] = {"constraint": "all", "n_unfair": 1, "guard": 0.0, "dither": 0.0}
LARGEST_UNFAIR = 5
SENSITIVE = ("sex",)
PERSON = "person"  # a column of numbers, so that people with equal rows get different noise
TRAIN_ROWS = 32_561  # the training part of Adult as published; the rest is audited
BLOCK_SIZE = 2_000
AUDITED_ROWS = 5_000
MARK = {b"fairstream": b"demo"}  # in the schema of the tables that it writes
MODEL_KINDS = frozenset({FairSubspace.kind})


def run_demo(
    folder: PathLike = "demo", *, echo: Callable[[str], Any], overwrite: bool = False
) -> FairStreamingPCA:
    """Tune a model on Adult from a Parquet file in `folder`, save it, and audit it on rows it has not seen.

    Parameters
    ----------
    folder : path
        Made if it does not exist; gets two Parquet files, model.safetensors and report.html.
    echo : callable
        Takes a line of text.
    overwrite : bool
        Replace files of these names even if they are not those of an earlier demonstration.

    Returns
    -------
    FairStreamingPCA
        The fitted estimator.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    names = ("adult.parquet", "unseen.parquet", "model.safetensors", "report.html")
    data, unseen, model, page = (folder / name for name in names)
    if not overwrite and not (is_own(data) and is_own(unseen)):
        for path in (data, unseen, model, page):
            check_replaceable(path, MODEL_KINDS if path == model else ())
    write_adult(data, unseen)
    columns: dict[str, Any] = {
        "sensitive_features": list(SENSITIVE),
        "target": "income",
        "ids": PERSON,
        "block_size": BLOCK_SIZE,
    }
    source = open_source(data, standardize=True, impute="mean", **columns)
    echo(
        f"Streaming {source.n_rows:,} rows of {data}, {source.n_features} features, {BLOCK_SIZE:,} at a time"
    )
    echo(
        f"Choosing a model from which no attacker reads {SENSITIVE[0]} at an AUC above {AIM:.2f}, "
        f"to promise {LIMIT:.2f}"
    )
    tuned = tune(
        source,
        limit=AIM,
        n_components=N_COMPONENTS,
        searched=SEARCHED,
        dithers=DITHERS,
        attack="standard",
        ids=PERSON,
        announce=lambda line: echo(f"  {line}"),
    )
    for line in tuned.summary():
        echo(line)
    fair = tuned.estimator
    fair.subspace_.save(model)
    echo(f"Saved {model} ({model.stat().st_size:,} bytes); load it with fairstream.load")
    paper = fair.resolve(**PAPER)
    for line in (*comparison_lines(fair, paper), *frontier_lines(paper)):
        echo(line)
    models = {"the tuned model": fair, "the paper's method": paper}
    echo("")
    report = audit(
        models,
        open_like(fair.subspace_, unseen, **columns),
        train=(source,),
        sample_rows=AUDITED_ROWS,
        limit=LIMIT,
        title="Adult: what embeddings hide, keep and give away",
        announce=echo,
    )
    report.to_html(page)
    for line in ("", *report.summary(), "", f"Open {page.resolve()} in a browser for the whole report."):
        echo(line)
    return fair


def write_adult(seen: Path, unseen: Path) -> None:
    """Write the training and the test part of the embedded Adult table, people numbered, as Parquet files."""
    table = load_adult(backend="pyarrow")
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise missing_extra("pyarrow", "tables", "writing Parquet") from None
    table = table.append_column(PERSON, pa.array(range(1, table.num_rows + 1)))
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), **MARK})
    for path, part in ((seen, table[:TRAIN_ROWS]), (unseen, table[TRAIN_ROWS:])):
        with atomic_file(path) as stream:
            pq.write_table(part, stream, row_group_size=10_000)


def is_own(path: Path) -> bool:
    """Whether a file is a table that the demonstration wrote, so that it may write it again."""
    try:
        import pyarrow.parquet as pq

        return MARK.items() <= (pq.read_schema(path).metadata or {}).items()
    except (ImportError, OSError, ValueError):
        return False


def comparison_lines(fair: FairStreamingPCA, paper: FairStreamingPCA) -> list[str]:
    """Return what plain PCA, the paper's method and the tuned model keep and leave, from one summary."""
    models = (fair.resolve(**PLAIN), paper, fair)
    lines = ["", f"{'':24}{'plain PCA':>12}{'paper':>12}{'tuned':>12}"]
    # Noise counts as loss: this is what a linear map recovers.
    variances = [model.explained_variance_ratio_.sum() / (1 + model.dither**2) for model in models]
    lines.append(f"{'explained variance':24}" + "".join(f"{variance:>12.3f}" for variance in variances))
    gaps = [residual_gaps(fair.moments_, model.components_.T) for model in models]
    for kind, name in enumerate(("mean gap", "covariance gap")):
        for attribute in SENSITIVE:
            cells = "".join(f"{of[kind][attribute]:>12.3f}" for of in gaps)
            lines.append(f"{f'{name}, {attribute}':24}{cells}")
    return lines


def frontier_lines(fair: FairStreamingPCA) -> list[str]:
    """Return the price of fairness: variance kept and gaps left for every m."""
    heads = [f"{kind} {attribute}" for kind in ("mean", "cov.") for attribute in SENSITIVE]
    lines = ["", "The frontier, one line per m (directions nulled per comparison):"]
    lines.append(f"{'m':>3}{'nulled':>8}{'variance':>10}" + "".join(f"{head:>12}" for head in heads))
    for point in fair.frontier(range(LARGEST_UNFAIR + 1)):
        gaps = [of[attribute] for of in (point.mean_gap, point.covariance_gap) for attribute in SENSITIVE]
        cells = "".join(f"{gap:>12.3f}" for gap in gaps)
        lines.append(f"{point.n_unfair:>3}{point.n_removed:>8}{point.explained_variance_ratio:>10.3f}{cells}")
    return lines
