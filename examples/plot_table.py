"""
Erase an attribute from a table
===============================

Sometimes the table itself is to be handed on, with all its columns, and only the trace of an attribute is to go.
``FairEraser`` returns the columns it was given, without the directions in which the groups differ.
"""

# %%
# Ages, hours and incomes of people; hours and capital gain differ by sex.

import matplotlib.pyplot as plt
import numpy as np

from fairstream import FairEraser
from fairstream.datasets import load_adult

adult = load_adult().sample(6_000, random_state=1)
columns = ["age", "education-num", "hours-per-week", "capital-gain"]
people = adult[[*columns, "sex"]].astype(dict.fromkeys(columns, float))
people["capital-gain"] = np.log1p(people["capital-gain"])
people.groupby("sex").mean().round(2)

# %%
# The eraser learns from the first half. ``constraint="mean"`` makes the means of the groups equal and touches nothing
# else; without it, the leading difference of the second moments goes too.

seen, new = people.iloc[:3_000], people.iloc[3_000:]
eraser = FairEraser(constraint="mean", sensitive_columns=["sex"]).fit(seen)
erased = eraser.transform(new)
erased.assign(sex=new["sex"]).groupby("sex").mean().round(2)

# %%
# The frame keeps its index and its columns. What changed is small: one direction of four is gone.

figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharex=True, sharey=True)
bins = np.arange(0, 100, 4)
for axis, (title, table) in zip(axes, [("before", new), ("after", erased)], strict=True):
    for sex in ["Female", "Male"]:
        axis.hist(
            table["hours-per-week"][new["sex"] == sex],
            bins,
            density=True,
            histtype="step",
            linewidth=2,
            label=sex,
        )
    axis.set(title=title, xlabel="hours per week")
axes[0].legend()
figure.tight_layout()
plt.show()

# %%
# The same from a shell, for files of any size::
#
#     fairstream fit people.csv --sensitive sex -k 3 --constraint mean -o model.safetensors
#     fairstream erase model.safetensors people.csv -o erased.csv
