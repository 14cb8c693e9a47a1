"""
Several attributes, and their intersections
===========================================

A model can be fair to women and men, and to Black and white people, and still tell Black women from everybody else.
``intersections`` makes every combination a group of its own.
"""

# %%
# Here the combination of sex and race shifts a feature in such a way that neither attribute shows it by itself.

import matplotlib.pyplot as plt
import numpy as np

from fairstream import FairStreamingPCA

rng = np.random.default_rng(0)
n = 4_000
sex, race = rng.choice(["f", "m"], n), rng.choice(["a", "b"], n)
X = rng.normal(size=(n, 8)) * [2, 2, 1.5, 1, 1, 1, 1, 1]
X[:, 0] += 1.5 * (sex == "m")
X[:, 1] += 1.5 * (race == "b")
X[:, 2] += 1.5 * ((sex == "m") == (race == "b"))  # shows in no attribute alone
labels = {"sex": sex, "race": race}

# %%
models = {
    "plain PCA": FairStreamingPCA(3, constraint="none"),
    "sex": FairStreamingPCA(3, constraint="mean"),
    "sex and race": FairStreamingPCA(3, constraint="mean"),
    "sex, race, sex & race": FairStreamingPCA(3, constraint="mean", intersections=[("sex", "race")]),
}
for name, model in models.items():
    model.fit(X, sensitive_features={"sex": sex} if name == "sex" else labels)
cells = {f"{s}, {r}": (sex == s) & (race == r) for s in "fm" for r in "ab"}


def distance_from_the_rest(model):
    """Return how far the mean of each combination lies from that of all others, in standard deviations."""
    scores = model.transform(X)
    scores = scores / scores.std(axis=0)
    return [np.linalg.norm(scores[cell].mean(axis=0) - scores[~cell].mean(axis=0)) for cell in cells.values()]


# %%
figure, axis = plt.subplots(figsize=(8, 3.8))
for place, (name, model) in enumerate(models.items()):
    axis.bar(np.arange(4) + (place - 1.5) * 0.2, distance_from_the_rest(model), 0.2, label=name)
axis.set_xticks(range(4), cells)
axis.set(ylabel="distance from the others' mean")
axis.legend(title="made fair for", fontsize=8)
figure.tight_layout()
plt.show()

# %%
# What it costs: every comparison takes a direction.

for name, model in models.items():
    print(
        f"{name:22} {len(model.unfair_basis_)} directions nulled, {model.explained_variance_ratio_.sum():.0%} of the variance"
    )
