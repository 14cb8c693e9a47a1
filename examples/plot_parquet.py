"""
A stream from Parquet files
===========================

The data is in many files, larger than memory. One pass over them leaves a summary of a few kilobytes, from which every
model is solved; a fit that is killed resumes where it was.
"""

# %%
# Write 8 files, as an export would. They are read in blocks; no more than a block is in memory.

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from fairstream import FairStreamingPCA, embed_source, fit_source, open_like, open_source

folder = Path(tempfile.mkdtemp())
rng = np.random.default_rng(0)
for part in range(8):
    sex = rng.choice(["f", "m"], 20_000)
    X = rng.normal(size=(20_000, 20)) * np.linspace(2, 1, 20)
    X[:, :2] += 0.8 * (sex == "m")[:, None]  # the groups differ in mean,
    X[sex == "f", 2:5] *= [1.5, 1.4, 1.3]  # and in three variances
    frame = pd.DataFrame(X.astype(np.float32), columns=[f"x{j}" for j in range(20)])
    frame.assign(sex=sex).to_parquet(folder / f"part-{part}.parquet")

# %%
# The whole folder is one source. ``checkpoint`` and ``every`` write down what has been learned.

source = open_source(folder / "*.parquet", sensitive_features=["sex"])
pca = fit_source(
    source,
    FairStreamingPCA(n_components=5, n_unfair=2),
    checkpoint=folder / "checkpoints",
    every=50_000,
)
print(pca.n_samples_seen_, "rows;", f"the summary takes {pca.moments_.nbytes // 1000} kB")

# %%
# The same fit again, as after a crash: it resumes from the newest checkpoint and ends with the same bits.

again = fit_source(
    source, FairStreamingPCA(n_components=5, n_unfair=2), checkpoint=folder / "checkpoints", resume=True
)
print(np.array_equal(again.components_, pca.components_))

# %%
# What every number of nulled directions would cost and leave, from the same summary: no further pass.

points = pca.frontier(range(5))
figure = points.plot()

# %%
# Embed all files into one, block by block.

embed_source(pca.subspace_, open_like(pca.subspace_, folder / "part-*.parquet"), folder / "embedded.parquet")
pd.read_parquet(folder / "embedded.parquet").head(3).round(2)

# %%
import shutil

shutil.rmtree(folder)
