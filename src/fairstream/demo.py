"""The demonstration: Adult streamed from disk, a fair subspace beside plain PCA, the price of fairness."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairstream.datasets import load_adult
from fairstream.errors import missing_extra
from fairstream.estimator import FairStreamingPCA
from fairstream.fitting import fit_source
from fairstream.persist import PathLike
from fairstream.progress import progress_on_terminal
from fairstream.solve import residual_gaps
from fairstream.sources import open_source

N_COMPONENTS = 10
N_UNFAIR = 1
LARGEST_UNFAIR = 5
SENSITIVE = ("sex", "race")
BLOCK_SIZE = 2_000


def run_demo(folder: PathLike = "demo", *, echo: Callable[[str], Any]) -> FairStreamingPCA:
    """Fit on Adult from a Parquet file in `folder`, save the model there, and print what it gains and costs.

    Parameters
    ----------
    folder : path
        Made if it does not exist; gets adult.parquet and model.safetensors.
    echo : callable
        Takes a line of text.

    Returns
    -------
    FairStreamingPCA
        The fitted estimator.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    data, model = folder / "adult.parquet", folder / "model.safetensors"
    write_adult(data)
    source = open_source(
        data,
        sensitive=list(SENSITIVE),
        target="income",
        standardize=True,
        impute="mean",
        block_size=BLOCK_SIZE,
    )
    echo(
        f"Streaming {source.n_rows:,} rows of {data}, {source.n_features} features, {BLOCK_SIZE:,} at a time"
    )
    with progress_on_terminal("fit") as progress:
        fair = fit_source(source, n_components=N_COMPONENTS, n_unfair=N_UNFAIR, progress=progress)
    fair.subspace_.save(model)
    echo(f"Saved {model} ({model.stat().st_size:,} bytes); load it with fairstream.load")
    for line in (*comparison_lines(fair), *frontier_lines(fair)):
        echo(line)
    # The audit report is written here.
    return fair


def write_adult(path: Path) -> None:
    """Write the embedded Adult table as a Parquet file of several row groups."""
    table = load_adult(backend="pyarrow")
    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise missing_extra("pyarrow", "tables", "writing Parquet") from None
    pq.write_table(table, path, row_group_size=10_000)


def comparison_lines(fair: FairStreamingPCA) -> list[str]:
    """Return what plain PCA and the fair subspace keep and leak, from the same moments."""
    plain = fair.resolve(constraint="none")
    lines = ["", f"{'':24}{'plain PCA':>12}{'fair':>12}"]
    variance = [model.explained_variance_ratio_.sum() for model in (plain, fair)]
    lines.append(f"{'explained variance':24}{variance[0]:>12.3f}{variance[1]:>12.3f}")
    gaps = [residual_gaps(fair.moments_, model.components_.T) for model in (plain, fair)]
    for kind, name in enumerate(("mean gap", "covariance gap")):
        for attribute in SENSITIVE:
            before, after = gaps[0][kind][attribute], gaps[1][kind][attribute]
            lines.append(f"{f'{name}, {attribute}':24}{before:>12.3f}{after:>12.3f}")
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


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    run_demo(echo=_print)
