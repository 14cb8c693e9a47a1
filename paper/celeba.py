"""The paper's CelebA experiment at full resolution, with the numbers it does not print.

    python paper/celeba.py              what is missing, then tables, figures and docs/evidence/celeba.md
    python paper/celeba.py --only frontier-grey figures
    python paper/celeba.py --quick      a few hundred small images, in seconds; prints and keeps nothing

Images come from FAIRSTREAM_DATA (or ../shared/data), are decoded once to paper/cache/celeba, and so is every
number, so that a run which was stopped goes on where it was. Figures with faces stay in that folder; the docs
get numbers, group means and images of subspaces.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from celeba_data import (
    ATTRIBUTES,
    CACHE,
    QUICK,
    ROOT,
    Deadline,
    Faces,
    OutOfTimeError,
    Plan,
    Stopwatch,
    data_folder,
    kept,
)

MODES = ("grey", "rgb")


def run_frontier(faces: Faces, mode: str) -> None:
    """Solve one pass for every m and both kinds of directions: variance kept against three probes."""
    from celeba_fits import sketch
    from celeba_measure import SketchedFaces

    sketched = None
    for attribute in ATTRIBUTES:
        for constraint, directions, m in frontier_choices(faces.plan, mode, attribute):
            path = sketch_file(faces, mode, attribute, constraint, directions, m)
            if not path.exists():
                sketched = sketched or SketchedFaces.of(faces, mode, sketch(faces, mode, ATTRIBUTES, "three"))
                kinds = ["linear"]
                if m in faces.plan.frontier_m:
                    kinds += ["quadratic", "trees"]
                if directions == "absolute" and m in {0, *ablated(faces.plan, mode, attribute)}:
                    kinds += ["kernel"]
                kept(path, lambda: sketched.measure(attribute, m, constraint, directions, kinds))  # noqa: B023


def ablated(plan: Plan, mode: str, attribute: str) -> tuple[int, ...]:
    """Return the m of the ablation: all of them in grey and for the first attribute in colour."""
    return plan.ablation_m if mode == "grey" or attribute == ATTRIBUTES[0] else plan.figure_m


def frontier_choices(plan: Plan, mode: str, attribute: str) -> list[tuple[str, str, int]]:
    absolute = sorted({*plan.frontier_m, *ablated(plan, mode, attribute)})
    return [
        ("none", "absolute", 0),
        *(("all", "absolute", m) for m in absolute),
        *(("all", "relative", m) for m in plan.frontier_m if m > 0),
    ]


def sketch_file(faces: Faces, mode: str, attribute: str, constraint: str, directions: str, m: int) -> Path:
    name = "pca" if constraint == "none" else f"{directions} m={m}"
    return faces.cache / mode / "sketch" / attribute / f"{name}.json"


def run_growth(faces: Faces) -> None:
    """Repeat the mean constraint alone with a quarter and a half of the images: leakage is sampling error."""
    from celeba_fits import sketch
    from celeba_measure import SketchedFaces

    everyone = faces.fit
    for part in (4, 2):
        faces.fit = everyone[: len(everyone) // part]
        for attribute in ATTRIBUTES:
            path = faces.cache / "growth" / f"{attribute} {part}.json"
            if not path.exists():
                moments = sketch(faces, "grey", ATTRIBUTES, f"part{part}")
                sketched = SketchedFaces.of(faces, "grey", moments)
                kept(path, lambda: sketched.measure(attribute, 0, "all", "absolute", ["linear"]))  # noqa: B023
    faces.fit = everyone


def power_choices(faces: Faces, mode: str) -> list[tuple[str, int, int, int]]:
    """Return (attribute, m, b, passes of stage 1), the most wanted first: m at one b, then b at one m."""
    plan, n = faces.plan, len(faces.fit)
    choices = [(a, m, plan.main_block, 1) for m in plan.figure_m for a in ATTRIBUTES]
    blocks = [b for b in plan.paper_blocks if b <= n]
    if mode == "grey":
        blocks += [n // share for share in plan.paper_shares]
    for attribute in ATTRIBUTES if mode == "grey" else ATTRIBUTES[:1]:
        choices += [(attribute, m, plan.main_block, 1) for m in plan.ablation_m]
        choices += [(attribute, plan.main_m, b, 1) for b in blocks]
        choices += [(attribute, plan.main_m, n, 5)]
    return [*dict.fromkeys(choices)]


def power_file(faces: Faces, mode: str, choice: tuple[str, int, int, int]) -> Path:
    attribute, m, b, passes = choice
    return faces.cache / mode / "power" / attribute / f"m={m} b={b} x{passes}.json"


def run_power(faces: Faces, mode: str) -> None:
    from celeba_figures import keep_projections
    from celeba_fits import power
    from celeba_measure import Embedded, checks, mean_gap, measure, validation_variance

    def fit_and_measure(attribute: str, m: int, b: int, passes: int) -> dict:
        fit = power(faces, mode, attribute, m, b, passes=passes)
        gaps = mean_gap(faces, mode, attribute, faces.fit[: len(faces.fit) // b * b])
        if mode == "rgb" and (b, passes) == (faces.plan.main_block, 1):
            keep_projections(faces, attribute, f"power m={m}", fit.U, fit.V, fit.means)
        images = Embedded.by(faces, mode, fit.V, fit.means)
        total = validation_variance(faces, mode, fit.means)
        found = measure(faces, mode, attribute, images, total, ["linear", "kernel"])
        return {**found, **fit.times, "checks": checks(fit.U, fit.V, gaps)}

    for choice in power_choices(faces, mode):
        kept(power_file(faces, mode, choice), lambda: fit_and_measure(*choice))  # noqa: B023


def run_subspaces(faces: Faces) -> None:
    """Solve the colour pass for the figures, check the results on the training stream."""
    from celeba_figures import keep_projections
    from celeba_fits import sketch
    from celeba_measure import checks, mean_gap

    from fairstream import solve

    moments = None
    for attribute in ATTRIBUTES:
        for m in faces.plan.figure_m:
            path = faces.cache / "rgb" / "subspaces" / f"{attribute} m={m}.json"
            if path.exists():
                continue
            moments = moments or sketch(faces, "rgb", ATTRIBUTES, "three")
            with Stopwatch() as watch:
                channels = [
                    solve(summary.restricted({attribute: (False, True)}), faces.plan.k_of("rgb"), m)
                    for summary in moments
                ]
            U, V = [c.unfair_basis.T for c in channels], [c.components.T for c in channels]
            keep_projections(faces, attribute, f"sketch m={m}", U, V, [c.mean for c in channels])
            gaps = mean_gap(faces, "rgb", attribute, faces.fit)
            found = {**watch.times, "checks": checks(U, V, gaps)}
            kept(path, lambda: found)  # noqa: B023


def run_all_attributes(faces: Faces) -> None:
    """One grey pass with all forty attributes, then a fair subspace for each from the same file."""
    from celeba_fits import sketch
    from celeba_measure import SketchedFaces

    from fairstream import load, solve

    names = [*faces.index.attributes]
    moments = sketch(faces, "grey", names, "all")

    def solve_all() -> dict:
        with Stopwatch() as watch:
            summary = load(faces.cache / "all-grey-0.moments")
            for attribute in names:
                one = summary.restricted({attribute: (False, True)})
                solve(one, faces.plan.k_of("grey"), faces.plan.main_m)
        return {"solves": len(names), **watch.times}

    kept(faces.cache / "all" / "solves.json", solve_all)
    sketched = None
    for attribute in names:
        path = faces.cache / "all" / "attributes" / f"{attribute}.json"
        if path.exists() or not probeable(faces, attribute):
            continue
        sketched = sketched or SketchedFaces.of(faces, "grey", moments)
        kinds = ["linear", "quadratic"]
        found = {
            "rows": int(faces.labels(attribute, faces.fit).sum()),
            "pca": sketched.measure(attribute, 0, "none", "absolute", kinds),
            "mean": sketched.measure(attribute, 0, "all", "absolute", kinds),
            "relative": sketched.measure(attribute, 2 * faces.plan.main_m, "all", "relative", kinds),
        }
        kept(path, lambda: found)  # noqa: B023


def probeable(faces: Faces, attribute: str) -> bool:
    """Whether both groups have enough images to fit a probe on and to score it."""
    parts = ((faces.probe, 20), (faces.valid, 10))
    return all(np.bincount(faces.labels(attribute, rows), minlength=2).min() >= n for rows, n in parts)


STEPS: dict[str, Callable[[Faces], None]] = {
    "frontier-grey": lambda faces: run_frontier(faces, "grey"),
    "growth": run_growth,
    "power-grey": lambda faces: run_power(faces, "grey"),
    "all": run_all_attributes,
    "frontier-rgb": lambda faces: run_frontier(faces, "rgb"),
    "subspaces": run_subspaces,
    "power-rgb": lambda faces: run_power(faces, "rgb"),
}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few, small images; writes to --output only")
    parser.add_argument("--only", nargs="+", default=[*STEPS], choices=[*STEPS, "report"])
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin nothing new after so long")
    parser.add_argument("--output", type=Path, help="in place of paper/results and docs/evidence")
    options = parser.parse_args(arguments)
    if not (data_folder() / "celeba").is_dir():
        raise SystemExit(
            f"no CelebA in {data_folder()}: set FAIRSTREAM_DATA to the folder that holds celeba/"
        )
    from celeba_report import write_report

    warnings.filterwarnings("ignore", message="the components keep")
    if not options.quick:
        faces = Faces(Plan(), CACHE)
        Deadline.set(options.minutes)
        try:
            for name in options.only:
                STEPS.get(name, lambda _: None)(faces)
        except OutOfTimeError as error:
            raise SystemExit(
                f"{options.minutes:g} minutes are over: run again to go on with {error}"
            ) from None
        output = options.output
        write_report(faces, output or Path(__file__).parent / "results", output or ROOT / "docs" / "evidence")
        return
    with tempfile.TemporaryDirectory() as folder:
        faces = Faces(QUICK, Path(folder))
        for name in options.only:
            STEPS.get(name, lambda _: None)(faces)
        output = options.output or Path(folder) / "output"
        output.mkdir(exist_ok=True)
        write_report(faces, output, output)
        print((output / "celeba.md").read_text())


if __name__ == "__main__":
    main()
