"""
Ten tasks, ten lines each
=========================

What people ask for most, to be copied. Each block is one of :doc:`the tasks </howto/tasks>` word for word, and is tested
there; here they run one after the other on made-up people: ten numbers, sex, race, and whether they were hired.
"""

# %%
# The people, as a frame and as files.

import os
import tempfile

import numpy as np
import pandas as pd

rng = np.random.default_rng(0)
sex, race = rng.choice(["f", "m"], 1000), rng.choice(["a", "b"], 1000)
numbers = rng.normal(size=(1000, 10)) * np.linspace(3, 1, 10)
numbers[:, 0] += 4 * (sex == "m")
numbers[:, 1] *= np.where(race == "a", 2, 1)
hired = (numbers[:, 2] + numbers[:, 0] + rng.normal(size=1000) > 2).astype(int)
everybody = pd.DataFrame(numbers, columns=[f"x{j}" for j in range(10)]).assign(
    sex=sex, race=race, hired=hired
)
people, unseen = everybody[:600], everybody[600:]
folder = tempfile.mkdtemp()
os.chdir(folder)
people.to_csv("people.csv", index=False)
people.to_parquet("people.parquet", index=False)
people.head(3)

# %%
# Reduce a matrix without telling the sex. Means of the two groups agree in every column of ``Z``.

X, sex = people[[f"x{j}" for j in range(10)]].to_numpy(), people["sex"].to_numpy()

from fairstream import FairStreamingPCA

pca = FairStreamingPCA(n_components=3, n_unfair=2)
Z = pca.fit_transform(X, sensitive_features=sex)

# %%
# Drop the sensitive column and fit in a pipeline. Predictions need no labels.

from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from fairstream import FairStreamingPCA

X, y = people.drop(columns=["hired", "race"]), people["hired"]
pca = FairStreamingPCA(n_components=4, sensitive_columns=["sex"])
model = make_pipeline(pca, LogisticRegression()).fit(X, y)
predicted = model.predict(X.drop(columns="sex"))

# %%
# Erase the attribute before any model: all columns stay.

from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.pipeline import make_pipeline

from fairstream import FairEraser

X, y = people.drop(columns=["hired", "race"]), people["hired"]
model = make_pipeline(FairEraser(sensitive_columns=["sex"]), HistGradientBoostingClassifier(max_iter=20))
predicted = model.fit(X, y).predict(X)

# %%
# Hide several attributes at once.

from fairstream import FairStreamingPCA

pca = FairStreamingPCA(3, n_unfair={"sex": 1, "race": 2}, sensitive_columns=["sex", "race"])
Z = pca.fit_transform(people.drop(columns="hired"))

# %%
# See what fairness costs, without reading the data again.

os.chdir(folder)

from fairstream import FairStreamingPCA

pca = FairStreamingPCA(3, sensitive_columns=["sex"]).fit(X)
points = pca.frontier(range(6))
print(points.to_frame())
points.plot().savefig("frontier.png")

# %%
# Save a model and use it elsewhere. The file holds no row.

os.chdir(folder)

from fairstream import FairStreamingPCA, load

FairStreamingPCA(3, sensitive_columns=["sex"]).fit(X).subspace_.save("model.safetensors")
model = load("model.safetensors")
Z = model.embed(X.drop(columns="sex"))

# %%
# Learn from blocks that arrive one by one.

blocks = [people[start : start + 100] for start in range(0, 600, 100)]

from fairstream import FairStreamingPCA

pca = FairStreamingPCA(3)
for block in blocks:
    X = block.drop(columns=["sex", "race", "hired"])
    pca.partial_fit(X, sensitive_features=block["sex"])
Z = pca.transform(X)

# %%
# Fit on a Parquet file that does not fit in memory.

os.chdir(folder)

from fairstream import fit_source, open_source

columns = ["x0", "x1", "x2", "x3", "x4"]
source = open_source("people.parquet", sensitive_features=["sex"], features=columns)
pca = fit_source(source, n_components=2)
pca.subspace_.save("model.safetensors")

# %%
# Audit a model against a limit, on rows it has not seen.

os.chdir(folder)

from fairstream import FairStreamingPCA, audit

columns = people.columns.drop(["hired", "race", "sex"])
pca = FairStreamingPCA(3).fit(people[columns], sensitive_features=people[["sex"]])
report = audit(pca, unseen[columns], unseen[["sex"]], unseen["hired"], limit=0.65)
print(*report.summary(), sep="\n")
report.to_html("report.html")

# %%
# A frame in, a frame out.

os.chdir(folder)

import pandas as pd

from fairstream import FairStreamingPCA

people = pd.read_csv("people.csv").drop(columns=["race", "hired"])
Z = FairStreamingPCA(3, sensitive_columns=["sex"]).fit_transform(people)
Z.head(3)
