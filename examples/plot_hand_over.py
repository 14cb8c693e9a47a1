"""
Hand the model to others: files, ONNX, torch
============================================

A fitted model is a mean and a few directions. It travels as one small file without any row of the data, as ONNX for other
languages, or as a module of a network.
"""

# %%

import importlib.util
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import fairstream
from fairstream import FairStreamingPCA

rng = np.random.default_rng(0)
sex = rng.choice(["f", "m"], 2_000)
X = (rng.normal(size=(2_000, 16)) * np.linspace(2, 1, 16)).astype(np.float32)
X[:, :2] += 1.5 * (sex == "m")[:, None]
pca = FairStreamingPCA(n_components=2).fit(X, sensitive_features={"sex": sex})
folder = Path(tempfile.mkdtemp())

# %%
# **As a file.** ``inspect`` on the command line says what is in it; nothing is ever unpickled.

pca.subspace_.save(folder / "model.safetensors")
model = fairstream.load(folder / "model.safetensors")
embedded = model.embed(X)
print((folder / "model.safetensors").stat().st_size // 1000, "kB;", model.group_counts)

# %%
# **As ONNX**, for runtimes that know nothing of Python or fairstream.

import onnxruntime

pca.subspace_.to_onnx(folder / "model.onnx")
session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
(by_onnx,) = session.run(None, {session.get_inputs()[0].name: X})
print(f"ONNX: largest difference {np.abs(by_onnx - embedded).max():.0e}")

# %%
# **As a module of torch**, if torch is installed (it is large, so the extra ``all`` leaves it out). Gradients pass
# through, ``state_dict`` holds the model, and no optimiser changes it.

if importlib.util.find_spec("torch"):
    import torch

    module = pca.subspace_.to_torch()
    by_torch = module(torch.from_numpy(X)).numpy()
    print("torch agrees to 1e-4:", bool(np.allclose(by_torch, embedded, atol=1e-4)))

# %%
figure, axes = plt.subplots(1, 2, figsize=(9, 4), sharex=True, sharey=True)
for axis, (title, scores) in zip(axes, [("here", embedded), ("there, by ONNX", by_onnx)], strict=True):
    for value in ["f", "m"]:
        axis.plot(*scores[sex == value].T, ".", markersize=3, alpha=0.5, label=value)
    axis.set(title=title, xlabel="first score")
axes[0].set_ylabel("second score")
axes[0].legend()
figure.tight_layout()
plt.show()

# %%
import shutil

shutil.rmtree(folder)
