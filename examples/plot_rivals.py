"""
All rivals on your own data, in one call
========================================

Which method hides most and costs least depends on the data. ``fit_all`` fits the rivals, ``audit`` takes a dictionary of
fitted models, attacks all of them alike, and returns one report. Put your own ``X`` and labels here, or a CSV file:
``fit_all("people.csv", ["sex"])`` takes whatever ``open_source`` opens.
"""

# %%
# Two groups that differ in mean and in spread.

import matplotlib.pyplot as plt
import numpy as np

from fairstream import FairStreamingPCA, audit
from fairstream.baselines import fit_all

rng = np.random.default_rng(0)
n, d, k = 1_600, 12, 3
group = rng.choice(["a", "b"], n)
X = rng.normal(size=(n, d)) * np.linspace(2.5, 1, d)
X[group == "b", 0] += 2
X[group == "b", 1:3] *= 2.2
X = X @ np.linalg.qr(rng.normal(size=(d, d)))[0]
seen, unseen = slice(0, 800), slice(800, None)

# %%
# Settings of your own beside the rivals, each of which has its defaults.

settings = {
    "fairstream, means": FairStreamingPCA(k, constraint="mean"),
    "fairstream, m = 2": FairStreamingPCA(k, n_unfair=2),
    "fairstream, relative": FairStreamingPCA(k, n_unfair=2, directions="relative"),
    "fairstream, guard": FairStreamingPCA(k, constraint="none", guard=5.0),
}
ours = {name: pca.fit(X[seen], sensitive_features={"group": group[seen]}) for name, pca in settings.items()}
rivals = fit_all(X[seen], {"group": group[seen]}, n_components=k)
report = audit(
    ours | rivals,
    X[unseen],
    {"group": group[unseen]},
    train=(X[seen], {"group": group[seen]}),
    attackers=["linear", "quadratic", "forest"],
    n_permutations=0,
)

# %%
# One line for each method; plain PCA is always among them.

rows = [(one.name, one.recovered_variance, one.leaks[0].attack.strongest.auc.value) for one in report.models]
for name, kept, auc in sorted(rows, key=lambda row: row[2]):
    print(f"{name:22} keeps {kept:.0%} of the variance, an attacker reads the group at AUC {auc:.2f}")

# %%
figure, axis = plt.subplots(figsize=(7.5, 4.2))
for name, kept, auc in rows:
    own = name in ours
    axis.plot(auc, kept, "o" if own else "s", color="tab:blue" if own else "tab:grey")
    axis.annotate(name, (auc, kept), xytext=(5, 3), textcoords="offset points", fontsize=8)
axis.axvline(0.5, color="grey", linewidth=1)
axis.set(
    xlabel="strongest attacker's AUC (left is better)",
    ylabel="variance kept (up is better)",
    xlim=(0.45, 1.05),
)
figure.tight_layout()
plt.show()
