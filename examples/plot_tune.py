"""
Let the library choose
======================

"No attacker may read the sex at an AUC above 0.65. Keep as much as you can." ``tune`` tries settings, judges each one on
rows that it was not fitted on, and confirms the winner once on rows that nothing else has seen.
"""

# %%
# A table with one-hot columns is the hard case: its scores form a lattice that trees can read.

import numpy as np

from fairstream import tune

rng = np.random.default_rng(0)
n = 3_000
sex = rng.integers(0, 2, n)
job = np.where(rng.random(n) < 0.3 + 0.4 * sex, 0, rng.integers(1, 6, n))  # one job tells the sex
numbers = rng.normal(size=(n, 5)) * [2, 1.5, 1.2, 1, 1]
numbers[:, 0] *= np.where(sex == 1, 1.6, 0.8)  # women and men differ in spread
X = np.column_stack([numbers, 2 * np.eye(6)[job]])

# %%
# Three settings instead of all, and weaker attackers than the default, so that this takes seconds. The defaults are
# the ones to use for a decision.

found = tune(
    X,
    {"sex": sex},
    limit=0.65,
    n_components=3,
    attack="standard",
    dithers=(0.0, 0.3),
    searched=[
        {"constraint": "mean"},
        {"constraint": "mean", "screen": 2},
        {"constraint": "all", "n_unfair": 1},
    ],
)
print(*found.summary(), sep="\n")

# %%
# Every candidate, and the best for each price.

found.to_frame()

# %%
figure = found.plot()

# %%
# ``found.estimator`` is fitted and ready: ``found.estimator.subspace_.save("model.safetensors")``.
