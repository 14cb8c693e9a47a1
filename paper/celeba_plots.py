"""Probe AUC against explained variance: the price of nulling more directions, one figure per attribute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from celeba_data import ATTRIBUTES

MODE_NAMES = {"grey": "grey", "rgb": "colour"}
FRONTIER_PROBES = ("linear", "quadratic", "trees")
Found = dict[str, Any]


def curve(of: Found, directions: str) -> list[tuple[int, Found]]:
    points = [(0, of["absolute m=0"])] if "absolute m=0" in of else []
    for name, values in of.items():
        if name.startswith(f"{directions} m=") and name != "absolute m=0" and "quadratic" in values:
            points.append((int(name.rpartition("=")[2]), values))
    return sorted(points, key=lambda point: point[0])


def draw_frontiers(found: Found, folder: Path) -> list[str]:
    """Draw probe AUC against explained variance, one figure per attribute."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    modes = [mode for mode in MODE_NAMES if found.get(mode, {}).get("sketch")]
    drawn = []
    for attribute in ATTRIBUTES if modes else ():
        canvas, axes = plt.subplots(
            len(modes), 3, figsize=(11, 3.4 * len(modes)), sharey=True, squeeze=False, layout="constrained"
        )
        for line, mode in zip(axes, modes, strict=True):
            of = found[mode]["sketch"].get(attribute, {})
            for axis, kind in zip(line, FRONTIER_PROBES, strict=True):
                draw_curves(axis, of, kind)
                axis.set_title(f"{MODE_NAMES[mode]}, k={found['k'][mode]:,}: {kind} probe", fontsize=10)
            line[0].set_ylabel("AUC on validation images")
        for axis in axes[-1]:
            axis.set_xlabel("explained variance")
        axes[0, 0].legend(frameon=False, fontsize=8, loc="upper left")
        canvas.suptitle(attribute)
        name = f"celeba-frontier-{attribute.lower()}.png"
        canvas.savefig(folder / name, dpi=90, metadata={"Software": None})
        plt.close(canvas)
        drawn.append(name)
    return drawn


def draw_curves(axis: Any, of: Found, kind: str) -> None:
    axis.axhline(0.5, color="0.8", linewidth=1)
    if kind in of.get("pca", {}):
        pca = of["pca"]
        axis.errorbar(
            pca["explained variance"],
            pca[kind],
            pca[f"{kind} error"],
            fmt="k*",
            markersize=9,
            label="plain PCA",
        )
    for directions, colour, marker in (("absolute", "tab:blue", "o"), ("relative", "tab:orange", "s")):
        points = [(m, values) for m, values in curve(of, directions) if kind in values]
        if not points:
            continue
        x, y, error = (
            [values[key] for _, values in points] for key in ("explained variance", kind, f"{kind} error")
        )
        axis.errorbar(x, y, error, color=colour, marker=marker, markersize=4, linewidth=1, label=directions)
        for (m, _), left, top in zip(points, x, y, strict=True):
            axis.annotate(
                str(m), (left, top), textcoords="offset points", xytext=(4, 4), fontsize=7, color=colour
            )
