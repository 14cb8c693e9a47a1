"""The paper's ten train and test splits of Adult, COMPAS and German credit, as standardised arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairstream.data.groups import GroupColumn
from fairstream.datasets.tables import (
    Table,
    compas_analysed,
    complete_rows,
    is_label,
    read_table,
    take,
)

N_SPLITS = 10
TRAIN_SHARE = 0.7
ADULT_TRAINING_ROWS = 32_561


class PaperSplit(NamedTuple):
    """One split: features standardised by the training part, labels and groups as 0 and 1.

    Parameters
    ----------
    X_train, X_test : array (n, d)
        Features of the two parts.
    y_train, y_test : array (n,)
        The target.
    groups_train, groups_test : array (n,)
        The sensitive attribute.
    feature_names : tuple of str
        The columns of X.
    """

    X_train: NDArray[np.float64]
    y_train: NDArray[np.int64]
    groups_train: NDArray[np.int64]
    X_test: NDArray[np.float64]
    y_test: NDArray[np.int64]
    groups_test: NDArray[np.int64]
    feature_names: tuple[str, ...]


@dataclass(frozen=True)
class _Recipe:
    """How one table becomes numbers: the columns used, in order, the sensitive one, group and label."""

    columns: tuple[str, ...]
    sensitive: str
    in_group: Callable[[Table], NDArray[np.bool_]]
    label: Callable[[Table], NDArray[np.bool_]]
    rows: Callable[[Table], NDArray[np.intp]]


def _adult_rows(table: Table) -> NDArray[np.intp]:
    # The paper's tables were made with UCI's test part in front.
    return np.roll(np.arange(len(table["age"])), -ADULT_TRAINING_ROWS)


_RECIPES = {
    "adult": _Recipe(
        columns=(
            *("age", "workclass", "education", "education-num", "marital-status", "occupation"),
            *("relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week"),
            "native-country",
        ),
        sensitive="sex",
        in_group=lambda table: is_label(table["sex"], "Male"),
        label=lambda table: is_label(table["income"], ">50K"),
        rows=_adult_rows,
    ),
    "compas": _Recipe(
        columns=(
            *("sex", "age", "age_cat", "race", "juv_fel_count", "juv_misd_count", "juv_other_count"),
            *("priors_count", "c_charge_degree", "c_charge_desc"),
        ),
        sensitive="race",
        in_group=lambda table: is_label(table["race"], "Caucasian"),
        label=lambda table: np.asarray(table["two_year_recid"]) == 1,
        rows=lambda table: np.flatnonzero(compas_analysed(table)),
    ),
    "german": _Recipe(
        columns=(
            *("status", "month", "credit_history", "purpose", "credit_amount", "savings", "employment"),
            *("investment_as_income_percentage", "other_debtors", "residence_since", "property", "age"),
            *("installment_plans", "housing", "number_of_credits", "skill_level", "people_liable_for"),
            *("telephone", "foreign_worker", "sex"),
        ),
        sensitive="age",
        in_group=lambda table: np.asarray(table["age"]) >= 25,
        label=lambda table: np.asarray(table["credit"]) == 2,
        rows=lambda table: np.arange(len(table["age"])),
    ),
}


def paper_split(name: str, split: int) -> PaperSplit:
    """Return one of the paper's ten splits: 70 % train, 30 % test, standardised by the training part.

    Rows with a missing value are left out, text columns are one-hot, and the sensitive column stays inside
    the features as 0 and 1, as in the paper's experiments. A column that is constant in the training part
    is centred only.

    Parameters
    ----------
    name : {"adult", "compas", "german"}
        Adult: d = 102, group 1 = men, label 1 = income above 50K. COMPAS: d = 402, group 1 = Caucasian,
        label 1 = arrested again within two years. German: d = 59, group 1 = 25 years or older, label 1 = bad.
    split : int
        0 to 9; the seed of the shuffle.

    Returns
    -------
    PaperSplit
        `X_train, y_train, groups_train, X_test, y_test, groups_test, feature_names`; X is float64,
        C-contiguous, n x d.

    Examples
    --------
    >>> german = paper_split("german", 0)
    >>> german.X_train.shape, german.X_test.shape
    ((700, 59), (300, 59))
    >>> german.feature_names[6:9]
    ('people_liable_for', 'status=A11', 'status=A12')
    """
    if name not in _RECIPES:
        raise ValueError(f"name is {name!r}: choose one of {', '.join(map(repr, _RECIPES))}")
    if isinstance(split, bool) or not isinstance(split, int | np.integer) or not 0 <= split < N_SPLITS:
        raise ValueError(f"split is {split!r}: the paper has splits 0 to {N_SPLITS - 1}")
    table = _rows_used(name)
    recipe = _RECIPES[name]
    X, feature_names = _design_matrix(table, recipe)
    y, groups = recipe.label(table).astype(np.int64), recipe.in_group(table).astype(np.int64)
    # The legacy generator, because the paper's splits were drawn with it.
    order = np.random.RandomState(split).permutation(len(X))
    train, test = np.split(order, [int(TRAIN_SHARE * len(X))])
    X_train, X_test = X[train], X[test]
    mean, scale = X_train.mean(axis=0), X_train.std(axis=0)
    scale[scale == 0] = 1
    for part in (X_train, X_test):
        part -= mean
        part /= scale
    return PaperSplit(X_train, y[train], groups[train], X_test, y[test], groups[test], feature_names)


@cache
def _rows_used(name: str) -> Table:
    table = read_table(name)
    table = take(table, _RECIPES[name].rows(table))
    return take(table, complete_rows(table))


def _design_matrix(table: Table, recipe: _Recipe) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Numeric columns in order, the sensitive one as 0 and 1 among them, then every text column one-hot."""
    columns = {name: table[name] for name in recipe.columns}
    columns[recipe.sensitive] = recipe.in_group(table)
    numeric = {name: column for name, column in columns.items() if not isinstance(column, GroupColumn)}
    text = {name: column for name, column in columns.items() if isinstance(column, GroupColumn)}
    parts = [np.column_stack(list(numeric.values())).astype(np.float64)]
    names = list(numeric)
    for name, column in text.items():
        # Only the labels that occur: dropping rows can leave one without any.
        present, codes = np.unique(column.codes, return_inverse=True)
        parts.append(np.eye(len(present))[codes])
        names += [f"{name}={column.labels[code]}" for code in present]
    return np.hstack(parts), tuple(names)
