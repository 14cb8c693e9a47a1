"""PAFO on rows: how the power method's error scales, and a run planned by the theorem and checked.

Writes pafo.md, pafo.json, pafo.png and pafo.svg to paper/results. `--quick` runs a small version that only
prints.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path

import numpy as np

from fairstream.datasets import SyntheticStream, synthetic_stream
from fairstream.linalg import principal_angles
from fairstream.power import FairPowerMethod
from fairstream.theory import pafo_check, pafo_constants, pafo_plan

N_UNFAIR = 2
LABELS = {
    "b": "block size b",
    "p_min": "share of the smaller group",
    "gap": "gap, every block fresh",
    "gap, one block": "gap, one block reused",
    "d": "features d",
}


# How the error scales -------------------------------------------------------------------------------


def scaling_problem(d: int = 20, gap: float = 0.5, p: float = 0.5, seed: int = 0) -> SyntheticStream:
    """Two groups with S = diag(1, 1, 1 - gap, ..., 1 - gap): one gap, against all other directions."""
    spectra = np.ones((2, d))
    spectra[1] += 1 - gap
    spectra[1, :N_UNFAIR] = 2.0
    return SyntheticStream(np.stack([np.eye(d)] * 2), spectra, np.zeros(d), p=p, seed=seed)


def unfair_error(stream: SyntheticStream, b: int, steps: int, *, reuse: bool = False) -> float:
    """Return the distance of FNPM's unfair subspace from the true one, after `steps` blocks of b rows."""
    method = FairPowerMethod(
        stream.n_features,
        1,
        n_unfair=N_UNFAIR,
        constraint="covariance",
        step_rows=None if reuse else (b, b),
        power_steps=(steps, 1),
        random_state=stream.seed,
    )
    if reuse:
        X, groups = stream.sample(b)
        method.fit_full(X, groups)
    else:
        for block in stream.blocks(min(b, 8192), b * steps):
            method.update(block.X, block.groups)
    truth = np.eye(stream.n_features)[:, :N_UNFAIR]
    return float(np.sin(principal_angles(method.unfair_basis.T, truth)[0]))


def lemma_bound(stream: SyntheticStream, b: int, gap: float, delta: float = 0.1) -> float:
    """Return the error that Lemmas 1 and 2 promise for one block size."""
    logarithm = math.log(2 * (stream.n_features + N_UNFAIR) / delta)
    p_min = min(stream.probabilities)
    return 5 * math.sqrt(32 * stream.matrix_variance / (b * p_min) * logarithm) / gap


def sweeps(quick: bool) -> dict[str, dict]:
    """Run the sweeps over b, p_min, gap (fresh blocks, and one block reused) and d."""
    seeds = range(2 if quick else 10)
    b, steps = (2_000, 15) if quick else (10_000, 30)
    shrink = 5 if quick else 1
    points = {
        "b": [(n // shrink, {}, n // shrink, steps, 0.5) for n in (1_000, 4_000, 16_000, 64_000)],
        "p_min": [(p, {"p": p}, 2 * b, steps, 0.5) for p in (0.02, 0.04, 0.08, 0.16)],
        "gap": [(g, {"gap": g}, 4 * b, math.ceil(12 / g), g) for g in (0.1, 0.2, 0.4, 0.8)],
        "d": [(d, {"d": d}, 2 * b, steps, 0.5) for d in ((10, 20, 40) if quick else (10, 20, 40, 80, 160))],
    }
    points["gap, one block"] = points["gap"]
    results = {}
    for name, settings in points.items():
        rows = []
        for value, problem, block, n_steps, gap in settings:
            streams = [scaling_problem(**problem, seed=seed) for seed in seeds]
            errors = [unfair_error(s, block, n_steps, reuse=name == "gap, one block") for s in streams]
            rows.append(
                {
                    "value": value,
                    "block": block,
                    "error": float(np.mean(errors)),
                    "spread": float(np.std(errors)),
                    "bound": lemma_bound(streams[0], block, gap),
                }
            )
        results[name] = {
            "points": rows,
            "slope": slope(rows, "error"),
            "theorem": slope(rows, "bound"),
            "bound / error": float(np.mean([row["bound"] / row["error"] for row in rows])),
        }
        print(
            f"{LABELS[name]}: slope {results[name]['slope']:+.2f}, theorem {results[name]['theorem']:+.2f}",
            flush=True,
        )
    return results


def slope(rows: list[dict], key: str) -> float:
    values, errors = [row["value"] for row in rows], [row[key] for row in rows]
    return float(np.polyfit(np.log(values), np.log(errors), 1)[0])


# One run as planned ---------------------------------------------------------------------------------


def planned_problem() -> SyntheticStream:
    """Two groups, each spread along a line of its own and hardly beside it: small enough to be planned."""
    spectra = np.full((2, 4), 1e-6)
    spectra[1, 0], spectra[0, 1] = 1.0, 0.35
    return SyntheticStream(np.stack([np.eye(4)] * 2), spectra, np.zeros(4), p=0.35, distribution="rademacher")


def learner(blocks: tuple[int, int], steps: tuple[int, int]):
    """Return FNPM as a projection learner (Definition 1) with the given block sizes and steps."""

    def learn(stream: SyntheticStream) -> np.ndarray:
        method = FairPowerMethod(
            stream.n_features,
            1,
            constraint="covariance",
            step_rows=blocks,
            power_steps=steps,
            groups={"group": (0, 1)},
            on_empty_group="zero",  # as the paper prints it: a block has exactly as many rows as planned
            random_state=stream.seed,
        )
        for block in stream.blocks(65_536, blocks[0] * steps[0] + blocks[1] * steps[1]):
            method.update(block.X, block.groups)
        return method.components.T

    return learn


def planned_run(quick: bool, eps: float = 0.1, delta: float = 0.5) -> dict:
    """Draw as many rows as the plan asks for, check the promise, then see how few still keep it."""
    stream = planned_problem()
    constants = pafo_constants(stream, 1, 1, constraint="covariance")
    plan = pafo_plan(constants, eps, eps, delta)
    truth = stream.population(1, 1, "covariance")
    runs = []
    for fewer in (1e5, 1e3) if quick else (3e6, 1e6, 3e5, 1e5, 1e4, 1e2, 1):
        blocks = tuple(max(2, math.ceil(n / fewer)) for n in plan.step_rows)
        trials = 6 if fewer == 1 else 10 if fewer == 1e2 else 200
        started = time.perf_counter()
        check = pafo_check(
            learner(blocks, plan.power_steps), stream, truth, eps, eps, n_trials=10 if quick else trials
        )
        runs.append(
            {
                "fewer": fewer,
                "rows": sum(b * t for b, t in zip(blocks, plan.power_steps, strict=True)),
                "trials": len(check.gaps),
                "met": check.n_met,
                "interval": check.interval,
                "worst optimality gap": max(gap.optimality for gap in check.gaps),
                "worst fairness violation": max(gap.fairness for gap in check.gaps),
                "confirmed": check.confirms(delta),
                "seconds": round(time.perf_counter() - started, 1),
            }
        )
        print(
            f"rows / {fewer:g}: {check.n_met} of {len(check.gaps)} met, {runs[-1]['rows']:,} rows", flush=True
        )
    return {
        "promise": {"eps_optimality": eps, "eps_fairness": eps, "delta": delta},
        "step_rows": plan.step_rows,
        "power_steps": plan.power_steps,
        "rows": plan.n_rows,
        "eta": plan.eta,
        "terms": dict(plan.terms),
        "runs": runs[::-1],
    }


def paper_sized_plans() -> dict[str, float]:
    """How many rows the theorem asks for on the synthetic problem of appendix F.1."""
    gaussian = pafo_constants(synthetic_stream(10, p=0.2, mean_scale=2.0), 2, 3, tail=1e-30)
    signs = synthetic_stream(10, p=0.2, mean_scale=2.0, distribution="rademacher")
    bounded = pafo_constants(signs, 2, 3)
    return {
        "gaussian, truncated": float(pafo_plan(gaussian, 0.1, 0.1, 0.1).n_rows),
        "random signs": float(pafo_plan(bounded, 0.1, 0.1, 0.1).n_rows),
    }


# Output ---------------------------------------------------------------------------------------------


REPORT = """# PAFO learnability on rows

Error of the unfair subspace found by FNPM (sine of the largest angle, mean over seeds), log-log slopes. The
theorem's column is the slope of the bound of Lemmas 1 and 2 over the same points.

| error against | measured slope | theorem | bound / error |
|---|---|---|---|
{slopes}

With one block reused the error grows with 1 / gap as the bound does. With fresh blocks it grows more slowly:
to first order e <- (1 - gap) e + noise, with new noise in every step, whose stationary size is that of the
noise over sqrt(gap (2 - gap)). That predicts a slope of {fresh_slope:+.2f}.

## One planned run

Promise: eps_optimality {eps_optimality}, eps_fairness {eps_fairness}, delta {delta}. Plan: {T} steps on
blocks of {b:,} rows, then {TT} on blocks of {B:,}: {rows:,} rows a run, all of them drawn in
the first line of the table.

| rows | of the plan | trials | met | 95 % interval | worst optimality gap | worst violation |
|---|---|---|---|---|---|---|
{runs}

The smallest run that confirms the promise has {fewest:,} rows: on this problem the plan is loose by a factor
of at least {factor:,.0f}. Smaller runs keep the planned number of steps. The problem (d=4, k=m=1, g=0, two
groups that hardly leave a line each) was searched for among those with few planned rows, and delta is large
so that six full runs can decide.

On one synthetic problem of appendix F.1 (d=10, p=0.2, k=2, m=3; eps 0.1, 0.1, delta 0.1) the theorem asks
for {bounded:.0e} rows with bounded noise and {gaussian:.0e} with truncated Gaussian noise: it tells how rows
scale, not how many to collect.
"""


def markdown(results: dict) -> str:
    plan, sizes = results["planned"], results["paper_sized"]
    slopes = [
        f"| {LABELS[name]} | {sweep['slope']:+.2f} | {sweep['theorem']:+.2f} | {sweep['bound / error']:.0f} |"
        for name, sweep in results["sweeps"].items()
    ]
    runs = [
        f"| {run['rows']:,} | 1/{run['fewer']:,.0f} | {run['trials']} | {run['met']} "
        f"| {run['interval'][0]:.2f} to {run['interval'][1]:.2f} "
        f"| {run['worst optimality gap']:.1e} | {run['worst fairness violation']:.1e} |"
        for run in plan["runs"]
    ]
    confirmed = [run for run in plan["runs"] if run["confirmed"]]
    smallest = min(confirmed, key=lambda run: run["rows"], default={"rows": 0, "fewer": 0})
    return REPORT.format(
        slopes="\n".join(slopes),
        runs="\n".join(runs),
        fresh_slope=fresh_block_slope(results),
        **plan["promise"],
        **dict(zip("bB", plan["step_rows"], strict=True)),
        **dict(zip(("T", "TT"), plan["power_steps"], strict=True)),
        rows=plan["rows"],
        fewest=smallest["rows"],
        factor=smallest["fewer"],
        bounded=sizes["random signs"],
        gaussian=sizes["gaussian, truncated"],
    )


def fresh_block_slope(results: dict) -> float:
    """Predict the slope against the gap from the stationary size of e <- (1 - gap) e + noise."""
    noise = [(row["value"], row["bound"] * row["value"]) for row in results["sweeps"]["gap"]["points"]]
    return slope([{"value": g, "size": size / math.sqrt(g * (2 - g))} for g, size in noise], "size")


def figure(results: dict):
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "fairstream"
    import matplotlib.pyplot as plt

    panels = [("b",), ("p_min",), ("gap", "gap, one block"), ("d",)]
    canvas, axes = plt.subplots(1, 4, figsize=(14, 3.4), sharey=True, layout="constrained")
    for axis, names in zip(axes, panels, strict=True):
        for name in names:
            sweep = results["sweeps"][name]
            values = [row["value"] for row in sweep["points"]]
            errors, spread = ([row[key] for row in sweep["points"]] for key in ("error", "spread"))
            axis.errorbar(
                values,
                errors,
                yerr=spread,
                marker="o",
                capsize=3,
                label=f"{LABELS[name]}: {sweep['slope']:+.2f}",
            )
        bound = [row["bound"] for row in sweep["points"]]
        scaled = np.array(bound) * errors[-1] / bound[-1]
        axis.plot(values, scaled, "k--", label=f"theorem's slope: {sweep['theorem']:+.2f}")
        axis.set(xscale="log", yscale="log", xlabel=LABELS[names[0]].split(",")[0])
        axis.set_xticks(values, [f"{value:g}" for value in values], minor=False)
        axis.set_xticks([], minor=True)
        axis.legend(fontsize=8, frameon=False)
    axes[0].set_ylabel("error of the unfair subspace")
    return canvas


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small version that prints and writes nothing")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument(
        "--only",
        choices=("sweeps", "planned", "paper_sized"),
        help="run one part and keep the other as it was written last",
    )
    options = parser.parse_args()
    parts = {
        "sweeps": lambda: sweeps(options.quick),
        "planned": lambda: planned_run(options.quick),
        "paper_sized": paper_sized_plans,
    }
    fresh = {name: run() for name, run in parts.items() if options.only in (None, name)}
    if options.quick:
        if options.only is None:
            print(markdown(fresh))
        return
    options.output.mkdir(parents=True, exist_ok=True)
    written = options.output / "pafo.json"
    results = (json.loads(written.read_text()) if written.exists() else {}) | fresh
    written.write_text(json.dumps(results, indent=1) + "\n")
    if set(results) != set(parts):
        return
    (options.output / "pafo.md").write_text(markdown(results))
    canvas = figure(results)
    canvas.savefig(options.output / "pafo.png", dpi=110, metadata={"Software": None})
    canvas.savefig(options.output / "pafo.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
