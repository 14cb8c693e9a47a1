"""
Let the library choose
======================

"No attacker may read the sex at an AUC above 0.65. Keep as much as you can." ``tune`` tries settings, judges each one on
rows that it was not fitted on, and confirms the winner once on rows that nothing else has seen.
"""

# %%
# A table with categories is the hard case: each category is a column of zeros and ones, so few distinct values occur, and trees can
# read them.

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
# Every candidate. ``kept`` is the variance kept, as a share of plain PCA's. ``leak`` is the AUC of the strongest attacker, and
# ``leak_bound`` its upper bound, which must stay below the limit. An AUC a little below 0.5 is luck: nothing is read.

table = found.to_frame().assign(kept=lambda tried: tried["variance"] / found.plain_variance)
table[["chosen", "constraint", "n_unfair", "screen", "dither", "kept", "leak", "leak_bound"]].round(3)

# %%
# The chosen candidate is the large dot; grey is guessing, red is the limit.

figure = found.plot()
axes = figure.axes[0]
axes.set_xlim(0.4, 0.8)
limit_line = axes.axvline(0.65, color="tab:red")

# %%
# ``found.estimator`` is fitted and ready: ``found.estimator.subspace_.save("model.safetensors")``.
