"""
On a Dask cluster
=================

A Dask array or frame is a source like any other. Workers summarise their partitions, and the summaries are merged in a
fixed order: the result does not depend on who was quick.
"""

# %%
# A cluster of two threads on this machine; ``Client("tcp://scheduler:8786")`` is one of many.

import dask.array as da
import matplotlib.pyplot as plt
import numpy as np
from distributed import Client

from fairstream import FairStreamingPCA, fit_source, open_source

client = Client(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None)

rng = np.random.default_rng(0)
sex = rng.choice(["f", "m"], 40_000)
rows = rng.normal(size=(40_000, 30)) * np.linspace(2, 1, 30)
rows[:, :3] += 0.7 * (sex == "m")[:, None]
X = da.from_array(rows, chunks=(5_000, 30))

# %%
source = open_source(X, sensitive_features={"sex": da.from_array(sex, chunks=5_000)})
pca = fit_source(source, FairStreamingPCA(n_components=5, n_unfair=2), client=client)
client.close()

# %%
# The same as on one machine, up to rounding.

alone = FairStreamingPCA(n_components=5, n_unfair=2).fit(rows, sensitive_features={"sex": sex})
angles = np.linalg.svd(pca.components_ @ alone.components_.T, compute_uv=False)
print(f"smallest cosine between the two subspaces: {angles.min():.12f}")

# %%
figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), sharey=True)
plain = alone.resolve(constraint="none")
for axis, (title, model) in zip(axes, [("plain PCA", plain), ("fitted on the cluster", pca)], strict=True):
    scores = model.transform(rows)[:, 0]
    for value in ["f", "m"]:
        axis.hist(scores[sex == value], 60, density=True, histtype="step", linewidth=2, label=value)
    axis.set(title=title, xlabel="first score")
axes[0].legend()
figure.tight_layout()
plt.show()
