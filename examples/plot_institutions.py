"""
Several institutions, one model
===============================

Three hospitals may not share rows of patients. Each one summarises its own rows; only the summaries travel, and their
merger is what one pass over all rows would have given, to rounding.
"""

# %%
# Each hospital has other patients, and another share of women.

import matplotlib.pyplot as plt
import numpy as np

from fairstream import GroupMoments, solve

rng = np.random.default_rng(0)
hospitals = {}
for name, share, rows in [("north", 0.2, 4_000), ("south", 0.5, 6_000), ("small", 0.8, 500)]:
    sex = np.where(rng.random(rows) < share, "f", "m")
    X = rng.normal(size=(rows, 15)) * np.linspace(2, 1, 15)
    X[sex == "m", :3] += 1.2
    X[sex == "f", 4] *= 2
    hospitals[name] = X, sex

# %%
# In each hospital, the same few lines. What leaves it are counts, means and second moments of the groups, no row.

parts = []
for name, (X, sex) in hospitals.items():
    moments = GroupMoments(15)
    moments.update(X, {"sex": sex})
    parts.append(moments)
    print(f"{name:6} {len(X):6,} rows -> {moments.nbytes // 1000} kB")

# %%
# In one place: merge, and solve for any number of components and nulled directions.

merged = GroupMoments(15)
for part in parts:
    merged.merge(part)
together = solve(merged, n_components=3, n_unfair=1)

# %%
# The control: one pass over all rows, which nobody could do in earnest.

pooled = GroupMoments(15)
pooled.update(
    np.vstack([X for X, _ in hospitals.values()]), {"sex": np.concatenate([s for _, s in hospitals.values()])}
)
difference = np.abs(pooled.mean("sex", "f") - merged.mean("sex", "f")).max()
print(f"largest difference of the women's mean: {difference:.0e}")

# %%
# A hospital alone misses what others see: the gap between women and men that is left, on the patients of "north".

X, sex = hospitals["north"]


def gap_left(model):
    """Return the distance of the group means in standard deviations."""
    Z = model.embed(X)
    return np.linalg.norm((Z[sex == "f"].mean(axis=0) - Z[sex == "m"].mean(axis=0)) / Z.std(axis=0))


models = {
    "plain PCA": solve(merged, n_components=3, constraint="none"),
    "small alone": solve(parts[2], n_components=3, n_unfair=1),
    "south alone": solve(parts[1], n_components=3, n_unfair=1),
    "all, merged": together,
}
figure, axis = plt.subplots(figsize=(6.5, 3.2))
axis.barh(list(models), [gap_left(model) for model in models.values()])
axis.set_xlabel("gap between the means of women and men in north")
figure.tight_layout()
plt.show()

# %%
# A summary of few rows tells much about them: :doc:`/reference/files` says how much, and what to do.
