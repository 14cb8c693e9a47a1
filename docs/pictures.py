"""Draw the pictures of the site that explain: python docs/pictures.py."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import numpy as np

from fairstream import FairStreamingPCA

HERE = Path(__file__).parent / "_static"
INKS = {"light": ("#222222", "#2a6fb0", "#d9822b"), "dark": ("#dddddd", "#7fb2e5", "#f2a65a")}


def clouds() -> tuple[np.ndarray, np.ndarray]:
    """Return points of two groups whose centres differ along one axis and whose spreads along another."""
    rng = np.random.default_rng(1)
    group = rng.integers(0, 2, 360)
    X = rng.normal(size=(360, 4)) * [1.0, 1.5, 1.2, 1.0]
    X[group == 1, 0] += 4
    X[group == 1, 1] *= 2.6
    return X, group


def draw(ground: str) -> None:
    """Draw plain PCA, centres nulled, and centres and one spread nulled."""
    ink, *colours = INKS[ground]
    matplotlib.rcParams.update({"svg.hashsalt": "fairstream", "text.color": ink, "axes.edgecolor": ink})
    X, group = clouds()
    steps = {
        "plain PCA": {"constraint": "none"},
        "centres nulled": {"constraint": "mean"},
        "centres and one spread nulled": {"n_unfair": 1},
    }
    figure, axes = plt.subplots(1, 3, figsize=(9, 2.1), sharex=True, sharey=True)
    for axis, (title, options) in zip(axes, steps.items(), strict=True):
        Z = FairStreamingPCA(2, **options).fit_transform(X, sensitive_features=group)
        for value, colour in enumerate(colours):
            axis.plot(*Z[group == value].T, ".", color=colour, markersize=4, alpha=0.7)
            axis.plot(*Z[group == value].mean(axis=0), "o", color=colour, markersize=11, markeredgecolor=ink)
        axis.set_title(title, fontsize=11)
        axis.set_aspect("equal")
        axis.set_xticks([])
        axis.set_yticks([])
        axis.patch.set_alpha(0)
    figure.tight_layout()
    figure.savefig(
        HERE / f"what-is-nulled-{ground}.svg", transparent=True, metadata={"Date": None, "Creator": None}
    )


if __name__ == "__main__":
    for name in INKS:
        draw(name)
