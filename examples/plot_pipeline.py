"""
A pipeline, and a search over it
================================

A fair embedding is one step of a scikit-learn pipeline. The sensitive column stays in the frame: the step takes it
out by name, so that cross-validation and searches need nothing special.
"""

# %%
# The data: 4,000 people of the Adult census, their numeric columns, and the column to be hidden.

import matplotlib.pyplot as plt
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fairstream import FairStreamingPCA
from fairstream.datasets import load_adult

adult = load_adult().sample(4_000, random_state=0)
numbers = adult.select_dtypes("number").columns
people = adult[[*numbers, "sex"]]
rich = adult["income"] == ">50K"
people.head(3)

# %%
# Scale first, then embed. The scaler must leave the column ``sex`` alone, so it works on the numbers only.

from sklearn.compose import ColumnTransformer

scale = ColumnTransformer(
    [("scaled", StandardScaler(), list(numbers))], remainder="passthrough", verbose_feature_names_out=False
).set_output(transform="pandas")
fair = FairStreamingPCA(n_components=3, constraint="mean", sensitive_columns=["sex"])
pipeline = make_pipeline(scale, fair, LogisticRegression())
fitted = pipeline.fit(people, rich)

# %%
# Which number of components predicts best? The search tries five. It also tries two constraints, to show what protection
# costs. Read the second one with care: ``constraint="none"`` is plain PCA and protects nothing. A search for accuracy alone
# tends to pick it, because what tells the sex also helps to predict the income.

search = GridSearchCV(
    pipeline,
    {
        "fairstreamingpca__n_components": [1, 2, 3, 4, 5],
        "fairstreamingpca__constraint": ["none", "mean"],
    },
    scoring="roc_auc",
    cv=3,
).fit(people, rich)
search.best_params_

# %%
# If it says ``"none"``, do not use that model. In your own work fix the protection first, with ``tune`` or an audit, and search the
# rest. With several groups, nulling takes many directions: start with ``constraint="none", guard=1.0``. It is the guard
# that protects, not the constraint.
#
# How well an attacker reads the sex from the same embeddings, by logistic regression: that is what ``"mean"`` takes away.

female = people["sex"] == "Female"
leaks = {
    constraint: [
        cross_val_score(
            make_pipeline(scale, FairStreamingPCA(k, constraint=constraint, sensitive_columns=["sex"]), LogisticRegression()),
            people,
            female,
            scoring="roc_auc",
            cv=3,
        ).mean()
        for k in [1, 2, 3, 4, 5]
    ]
    for constraint in ["none", "mean"]
}  # fmt: skip

results = search.cv_results_
figure, (task, leak) = plt.subplots(1, 2, figsize=(9, 3.6), sharex=True)
for constraint, mark in [("none", "o--"), ("mean", "s-")]:
    chosen = [c == constraint for c in results["param_fairstreamingpca__constraint"]]
    task.plot([1, 2, 3, 4, 5], results["mean_test_score"][chosen], mark, label=f'constraint="{constraint}"')
    leak.plot([1, 2, 3, 4, 5], leaks[constraint], mark, label=f'constraint="{constraint}"')
task.set(title="income, as it should be", xlabel="components", ylabel="AUC")
leak.set(title="sex, as it should not be", xlabel="components")
leak.axhline(0.5, color="grey", linewidth=1)
task.legend()
figure.tight_layout()
plt.show()

# %%
# A linear attacker is at chance. Others are not: :ref:`sphx_glr_auto_examples_plot_audit.py` attacks harder.
