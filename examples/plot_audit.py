"""
An audit for a regulator
========================

An audit attacks an embedding on rows that the model has not seen, and says what it found in sentences, as a page, and as
data. Here is one from start to end.
"""

# %%
# Two thirds of the rows are for the model, the rest for the audit. That is the first question a regulator asks.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

from fairstream import FairStreamingPCA, audit, fit_source, open_like, open_source
from fairstream.datasets import load_adult

adult = (
    load_adult(drop_missing=True)
    .drop(columns=["fnlwgt", "relationship", "native-country"])
    .sample(4_500, random_state=0)
)
seen, unseen = adult.iloc[:3_000], adult.iloc[3_000:]

source = open_source(seen, sensitive_features=["sex"], target="income", standardize=True)
model = fit_source(source, FairStreamingPCA(n_components=6, constraint="mean", screen=2))
rows = open_like(model.subspace_, unseen, sensitive_features=["sex"], target="income")

# %%
# ``limit`` is the promise to be tested: no attacker may tell women from men better than this. 0.5 is a coin, 1 is
# certainty. ``train`` gives the attackers rows to learn from.

report = audit(
    model,
    rows,
    train=(open_like(model.subspace_, seen, sensitive_features=["sex"], target="income"),),
    limit=0.75,
    attackers=["linear", "boosting", "forest"],
    title="Embedding of census records",
)
print(*report.summary(), sep="\n")

# %%
# The verdict, and what it rests on. "Does not hold" is an honest answer: the promise was too bold for this model.

leak = report.models[0].leaks[0]
print(report.models[0].answer)
print(leak.verdict.sentence)
print(leak.attack.curve.sentence)

# %%
# What the attackers reach with more and more rows. A curve that still rises means: an attacker with more rows would
# find more, and the audit says so instead of passing the model.

curve = leak.attack.curve.points
figure, axis = plt.subplots(figsize=(6, 3.6))
axis.plot([point.n_rows for point in curve], [point.auc.value for point in curve], "o-")
axis.fill_between(
    [point.n_rows for point in curve],
    [point.auc.low for point in curve],
    [point.auc.high for point in curve],
    alpha=0.2,
)
axis.axhline(0.75, color="tab:red", label="the limit")
axis.axhline(0.5, color="grey", label="guessing")
axis.set(xlabel="rows the attacker learned from", ylabel="AUC for sex", xscale="log")
axis.legend()
figure.tight_layout()
plt.show()

# %%
# The page is one file that asks nothing of the network; the JSON has a schema. Neither holds a row of the data.

with tempfile.TemporaryDirectory() as folder:
    page = Path(folder) / "report.html"
    report.to_html(page)
    print(f"{page.stat().st_size // 1000} kB")
