"""The synthetic experiments: appendix F.1's three power methods, and three solvers at equal rows.

Writes synthetic.md, synthetic.json, synthetic.png and synthetic.svg to paper/results. `--quick` runs two
seeds and only prints.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fairstream import FairStreamingPCA
from fairstream.datasets import Population, SyntheticStream, benchmark_stream, synthetic_stream
from fairstream.linalg import principal_angles
from fairstream.theory import pafo_gap

Learner = Callable[[SyntheticStream], np.ndarray]


# Learners: a stream in, a d x k matrix of components out ----------------------------------------------


def power(k: int, m: int, constraint: str, block: int, steps: tuple[int, int]) -> Learner:
    """Make a learner of the noisy power method on fresh blocks; "none" has no first phase."""
    n_rows = block * (steps[1] if constraint == "none" else sum(steps))

    def learn(stream: SyntheticStream) -> np.ndarray:
        model = FairStreamingPCA(
            k,
            n_unfair=m,
            constraint=constraint,
            solver="power",
            step_rows=(block, block),
            power_steps=steps,
            random_state=stream.seed,
        )
        for rows in stream.blocks(block, n_rows):
            model.partial_fit(rows.X, sensitive_features=rows.groups)
        return model.components_.T

    return learn


def one_pass(k: int, m: int, n_rows: int, rank: int | None = None) -> Learner:
    """Make a learner of the moments of n_rows rows, exact or sketched, solved once."""

    def learn(stream: SyntheticStream) -> np.ndarray:
        model = FairStreamingPCA(k, n_unfair=m, solver="exact" if rank is None else "sketch", rank=rank)
        for rows in stream.blocks(1_000 if rank is None else 2 * rank, n_rows):
            model.partial_fit(rows.X, sensitive_features=rows.groups)
        return model.components_.T

    return learn


# Appendix F.1 -----------------------------------------------------------------------------------------

K, M, BLOCK = 2, 3, 1_000
APPENDIX_F1: dict[str, tuple[int, Learner]] = {
    "vanilla NPM, 10 steps": (10 * BLOCK, power(K, M, "none", BLOCK, (10, 10))),
    "mean-matched NPM, 10 steps": (20 * BLOCK, power(K, M, "mean", BLOCK, (10, 10))),
    "FNPM m=3, 50 + 50 steps": (100 * BLOCK, power(K, M, "all", BLOCK, (50, 50))),
    "sketch L=8 m=3, one pass": (100 * BLOCK, one_pass(K, M, 100 * BLOCK, rank=8)),
    "exact m=3, one pass": (100 * BLOCK, one_pass(K, M, 100 * BLOCK)),
}


def appendix_problem(seed: int) -> SyntheticStream:
    """Draw one problem: d=10, p=0.2, eigenvalues 1/j, total mean zero, mean gap of length 2."""
    return synthetic_stream(10, p=0.2, decay=1.0, mean_scale=2.0, random_state=seed)


def measure(V: np.ndarray, stream: SyntheticStream, truth: Population) -> dict[str, float]:
    """Measure what a projection leaves between the groups and keeps of the variance, in the population."""
    covariances = stream.group_covariances
    return {
        "mean gap": float(np.linalg.norm(V.T @ stream.mean_gap)),
        "covariance gap": float(np.linalg.norm(V.T @ (covariances[1] - covariances[0]) @ V, 2)),
        "explained variance": float(np.trace(V.T @ stream.covariance @ V) / np.trace(stream.covariance)),
        "violation": pafo_gap(V, truth).fairness,
    }


def appendix_table(seeds: range) -> dict[str, dict]:
    results: dict[str, dict] = {}
    for seed in seeds:
        stream = appendix_problem(seed)
        truth = stream.population(K, M)
        learners = APPENDIX_F1 | {"population optimum": (0, lambda _, V=truth.V: V)}
        for name, (rows, learn) in learners.items():
            row = results.setdefault(name, {"rows": rows, "seeds": []})
            row["seeds"].append(measure(learn(stream), stream, truth))
    return {name: row | {"mean (std)": summary(row["seeds"])} for name, row in results.items()}


# Three solvers at equal rows ----------------------------------------------------------------------------


def solver_table(seeds: range, decay: float, n_rows: int = 20_000) -> dict[str, dict]:
    """d=200, p=0.2, m=5, k=10, one pass over 20,000 rows: ||Pi_U V|| and what the variance loses."""
    k, m = 10, 5
    learners = {
        "FNPM, 10 + 10 blocks": power(k, m, "all", n_rows // 20, (10, 10)),
        "sketch, L=60": one_pass(k, m, n_rows, rank=60),
        "exact": one_pass(k, m, n_rows),
    }
    results: dict[str, dict] = {name: {"rows": n_rows, "seeds": []} for name in learners}
    for seed in seeds:
        stream = benchmark_stream(decay, random_state=seed)
        truth = stream.population(k, m)
        for name, learn in learners.items():
            V = learn(stream)
            kept = 1 - pafo_gap(V, truth).optimality / truth.explained_variance
            results[name]["seeds"].append(
                {
                    "violation": pafo_gap(V, truth).fairness,
                    "variance kept": kept,
                    "sine to V": float(np.sin(principal_angles(V, truth.V)[0])),
                }
            )
    return {name: row | {"mean (std)": summary(row["seeds"])} for name, row in results.items()}


def summary(seeds: list[dict[str, float]]) -> dict[str, tuple[float, float]]:
    return {
        key: (float(np.mean([s[key] for s in seeds])), float(np.std([s[key] for s in seeds])))
        for key in seeds[0]
    }


# Output -------------------------------------------------------------------------------------------------


def table(results: dict[str, dict]) -> list[str]:
    columns = list(next(iter(results.values()))["mean (std)"])
    lines = [f"| method | rows | {' | '.join(columns)} |", "|---" * (len(columns) + 2) + "|"]
    for name, row in results.items():
        cells = [f"{mean:.3f} ({std:.3f})" for mean, std in row["mean (std)"].values()]
        lines.append(f"| {name} | {row['rows'] or '':{',' if row['rows'] else ''}} | {' | '.join(cells)} |")
    return lines


def markdown(results: dict) -> str:
    return "\n".join(
        [
            "# Synthetic experiments",
            "",
            "## Appendix F.1",
            "",
            "d=10, p=0.2, k=2, blocks of 1,000; ten random problems, mean (std). In the population:",
            "length of V'f, norm of V'(Sigma_1 - Sigma_0)V, share of the variance, norm of Pi_U V.",
            "",
            *table(results["appendix F.1"]),
            "",
            "## Three solvers at equal rows",
            "",
            "d=200, p=0.2, m=5, k=10, one pass over 20,000 rows; ten problems, mean (std). Violation is",
            "the norm of Pi_U V; variance kept is relative to the best fair V.",
            "",
            *(line for name, rows in results["solvers"].items() for line in (name, "", *table(rows), "")),
        ]
    )


def figure():
    """Draw 1,000 rows, projected by each of the three power methods, groups apart by colour."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "fairstream"
    import matplotlib.pyplot as plt

    stream = appendix_problem(0)
    # Rows that no learner has read: the stream far beyond the last of them.
    X, groups = stream.sample(1_000, start=1_000_000)
    canvas, axes = plt.subplots(1, 3, figsize=(12, 4), sharex=True, sharey=True, layout="constrained")
    for axis, (name, (_, learn)) in zip(axes, list(APPENDIX_F1.items())[:3], strict=True):
        Z = X @ learn(stream)
        for group, colour in ((0, "tab:blue"), (1, "tab:orange")):
            part = Z[groups == group]
            axis.scatter(
                *part.T, s=6, alpha=0.6, color=colour, linewidths=0, rasterized=True, label=f"group {group}"
            )
            values, vectors = np.linalg.eigh(np.cov(part.T))
            angle = np.linspace(0, 2 * np.pi, 100)
            ellipse = part.mean(axis=0)[:, None] + 2 * vectors * np.sqrt(values) @ [
                np.cos(angle),
                np.sin(angle),
            ]
            axis.plot(*ellipse, color=colour)
        axis.set(title=name, xlabel="first component", aspect="equal")
    axes[0].set_ylabel("second component")
    axes[0].legend(frameon=False)
    return canvas


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two seeds; prints and writes nothing")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    seeds = range(2 if options.quick else 10)
    results = {
        "appendix F.1": appendix_table(seeds),
        "solvers": {f"Eigenvalues j^-{decay:g}:": solver_table(seeds, decay) for decay in (0.5, 1.0)},
    }
    print(markdown(results))
    if options.quick:
        return
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "synthetic.md").write_text(markdown(results))
    (options.output / "synthetic.json").write_text(json.dumps(results, indent=1) + "\n")
    canvas = figure()
    canvas.savefig(options.output / "synthetic.png", dpi=110, metadata={"Software": None})
    canvas.savefig(options.output / "synthetic.svg", dpi=110, metadata={"Date": None})


if __name__ == "__main__":
    main()
