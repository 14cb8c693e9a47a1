"""
Guard and dither: against attackers that are not linear
=======================================================

Equal means and equal variances are not equal distributions. A guard chooses components that a nonlinear attacker
cannot read; dither adds a little noise, always the same for the same row, that blurs what is left.
"""

# %%
# Women and men have the same mean and the same variance in the first feature, and quite another shape.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import roc_auc_score

from fairstream import FairStreamingPCA

rng = np.random.default_rng(0)
n = 4_000
sex = rng.integers(0, 2, n)
X = rng.normal(size=(n, 8)) * [3, 2.2, 2, 1.5, 1, 1, 1, 1]
X[sex == 1, 0] = 3 * rng.choice([-1.0, 1.0], (sex == 1).sum())
X[:, 5] += 0.6 * sex
seen, unseen = slice(0, 2_500), slice(2_500, None)


def leak(scores):
    """Read the sex from scores with a forest, on rows that it has not seen."""
    forest = RandomForestClassifier(50, min_samples_leaf=5, random_state=0).fit(scores[seen], sex[seen])
    return roc_auc_score(sex[unseen], forest.predict_proba(scores[unseen])[:, 1])


# %%
# The paper's method sees nothing to null in the first feature, and keeps it. The guard leaves it out.

moments = FairStreamingPCA(2, sample=500).fit(X[seen], sensitive_features=sex[seen])
guarded = FairStreamingPCA(2, constraint="none", guard=2.0, sample=500).fit(
    X[seen], sensitive_features=sex[seen]
)

figure, axes = plt.subplots(1, 2, figsize=(9, 4), sharex=True, sharey=True)
for axis, (title, model) in zip(axes, [("moments", moments), ("guard", guarded)], strict=True):
    scores = model.transform(X)
    for value, colour in [(0, "tab:blue"), (1, "tab:orange")]:
        axis.plot(*scores[unseen][sex[unseen] == value].T, ".", markersize=3, alpha=0.5, color=colour)
    axis.set(title=f"{title}: a forest reads the sex at AUC {leak(scores):.2f}", xlabel="first score")
axes[0].set_ylabel("second score")
figure.tight_layout()
plt.show()

# %%
# Dither: the more noise, the less can be read, and the less variance is left of the signal. The key is taken from the
# environment variable ``FAIRSTREAM_DITHER_KEY``, and is stored nowhere; whoever has it can take the noise off.

import os

os.environ.setdefault("FAIRSTREAM_DITHER_KEY", "not a secret, only an example")
shares = [0.0, 0.2, 0.4, 0.8]
read = [leak(moments.subspace_.embed(X, dither=share)) for share in shares]
kept = [1 / (1 + share**2) for share in shares]

figure, axis = plt.subplots(figsize=(6, 3.6))
axis.plot(kept, read, "o-")
for share, x, y in zip(shares, kept, read, strict=True):
    axis.annotate(f"dither {share}", (x, y), xytext=(4, 4), textcoords="offset points")
axis.axhline(0.5, color="grey", linewidth=1)
axis.invert_xaxis()
axis.set(xlabel="share of the scores' variance that is signal", ylabel="AUC of a forest for sex")
figure.tight_layout()
plt.show()
