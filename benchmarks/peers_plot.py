"""One plot per workload: seconds, peak memory and probe AUC of every contender."""

from __future__ import annotations

from pathlib import Path
from typing import Any

COLOURS = {"ours": "#0b6e4f", "plain": "#8d99ae", "fair": "#e07a5f", "rival": "#f2cc8f"}
FAMILIES = {"ours": "fairstream", "plain": "not told the groups", "fair": "fair", "rival": "fair, our code"}


def plot(lines: list[dict[str, Any]], title: str, path: Path) -> None:
    """Draw the lines of one workload, one row each."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.patches import Patch
    from matplotlib.ticker import LogLocator, NullLocator

    matplotlib.rcParams.update({"svg.hashsalt": "peers", "svg.fonttype": "none", "font.size": 9})
    lines = [line for line in lines if line.get("failed") != "not started"][::-1]
    figure, axes = plt.subplots(
        1, 3, figsize=(11, 0.8 + 0.3 * len(lines)), sharey=True, width_ratios=(3, 2, 2), layout="constrained"
    )
    panels = (("seconds", "seconds (log)"), ("peak_mb", "peak memory, MB (log)"), ("auc", "linear probe AUC"))
    for axis, (field, label) in zip(axes, panels, strict=True):
        for height, line in enumerate(lines):
            if field in line:
                value = max(line[field], 1.0) if field == "peak_mb" else line[field]
                axis.plot(value, height, "o", color=COLOURS[line["family"]], markersize=7)
        axis.set_xlabel(label)
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(color="#dddddd", linewidth=0.6)
        axis.set_axisbelow(True)
        if field == "auc":
            axis.set_xlim(0.45, 1.0)
            axis.axvline(0.5, color="black", linewidth=0.8, linestyle=":")
        else:
            axis.set_xscale("log")
            axis.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=8))
            axis.xaxis.set_major_formatter("{x:g}")
            axis.xaxis.set_minor_locator(NullLocator())
    axes[0].set_ylim(-0.6, len(lines) - 0.4)
    axes[0].set_yticks(range(len(lines)), [line["contender"] for line in lines])
    for height, line in enumerate(lines):
        if "failed" in line:
            axes[0].text(
                0.02,
                height,
                _short(line),
                transform=axes[0].get_yaxis_transform(),
                va="center",
                color="#9d0208",
            )
    present = [family for family in FAMILIES if any(line["family"] == family for line in lines)]
    figure.legend(
        handles=[Patch(color=COLOURS[family], label=FAMILIES[family]) for family in present],
        loc="outside upper right",
        ncols=len(present),
        frameon=False,
    )
    figure.suptitle(title, x=0.01, ha="left", fontsize=9)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _short(line: dict[str, Any]) -> str:
    words = {
        "time": f"beyond {line['limits']['seconds']:g} s",
        "memory": f"beyond {line['limits']['gigabytes']:g} GB",
    }
    return words.get(line["failed"], line["error"].partition(":")[0])
