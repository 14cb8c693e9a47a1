"""
All rivals on your own data, in one call
========================================

Which method hides most and costs least depends on the data. ``audit`` takes a dictionary of fitted models, attacks all of
them alike, and returns one report. Put your own ``X`` and labels here.
"""

# %%
# Two groups that differ in mean and in spread.

import matplotlib.pyplot as plt
import numpy as np

from fairstream import FairStreamingPCA, audit
from fairstream.baselines import INLP, KleindessnerFairPCA, LeacePCA, MbFPCA, SamadiFairPCA

rng = np.random.default_rng(0)
n, d, k = 1_600, 12, 3
group = rng.choice(["a", "b"], n)
X = rng.normal(size=(n, d)) * np.linspace(2.5, 1, d)
X[group == "b", 0] += 2
X[group == "b", 1:3] *= 2.2
X = X @ np.linalg.qr(rng.normal(size=(d, d)))[0]
seen, unseen = slice(0, 800), slice(800, None)

# %%
# Every method is a scikit-learn transformer that takes ``sensitive_features``.

methods = {
    "fairstream, means": FairStreamingPCA(k, constraint="mean"),
    "fairstream, m = 2": FairStreamingPCA(k, n_unfair=2),
    "fairstream, relative": FairStreamingPCA(k, n_unfair=2, directions="relative"),
    "fairstream, guard": FairStreamingPCA(k, constraint="none", guard=5.0),
    "Kleindessner et al.": KleindessnerFairPCA(k),
    "Samadi et al.": SamadiFairPCA(k),
    "MbF-PCA": MbFPCA(k, random_state=0),
    "INLP": INLP(k),
    "LEACE": LeacePCA(k),
}
fitted = {name: method.fit(X[seen], sensitive_features=group[seen]) for name, method in methods.items()}
report = audit(
    fitted,
    X[unseen],
    {"group": group[unseen]},
    train=(X[seen], {"group": group[seen]}),
    attackers=["linear", "quadratic", "forest"],
    n_permutations=0,
)

# %%
# One line for each method; plain PCA is always among them.

rows = [(one.name, one.explained_variance, one.leaks[0].attack.strongest.auc.value) for one in report.models]
for name, kept, auc in sorted(rows, key=lambda row: row[2]):
    print(f"{name:22} keeps {kept:.0%} of the variance, an attacker reads the group at AUC {auc:.2f}")

# %%
figure, axis = plt.subplots(figsize=(7.5, 4.2))
for name, kept, auc in rows:
    ours = name.startswith("fairstream")
    axis.plot(auc, kept, "o" if ours else "s", color="tab:blue" if ours else "tab:grey")
    axis.annotate(name, (auc, kept), xytext=(5, 3), textcoords="offset points", fontsize=8)
axis.axvline(0.5, color="grey", linewidth=1)
axis.set(
    xlabel="strongest attacker's AUC (left is better)",
    ylabel="variance kept (up is better)",
    xlim=(0.45, 1.05),
)
figure.tight_layout()
plt.show()
