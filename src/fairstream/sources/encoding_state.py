"""How table columns became features, as plain values: stored with a model, it encodes new rows alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fairstream.persist import label_from_json, label_to_json
from fairstream.sources.encoding import CategoryColumn, NumberColumn, TableEncoder


def describe(encoder: TableEncoder) -> dict[str, Any]:
    """Return JSON values that say how every column is encoded: categories, means, spreads."""
    return {"columns": [_describe_column(column) for column in encoder.columns]}


def rebuild(encoding: Mapping[str, Any], schema: Any) -> TableEncoder:
    """Return the encoder that `describe` described, for a table with this Arrow schema."""
    columns: list[NumberColumn | CategoryColumn] = []
    for saved in encoding["columns"]:
        name = saved["name"]
        if name not in schema.names:
            raise ValueError(f"the table has no column {name!r}, which the model was fitted with: add it")
        columns.append(_rebuild_column(saved, schema.field(name).type))
    encoder = TableEncoder(columns)
    encoder.learned = True
    return encoder


def feature_columns(encoding: Mapping[str, Any]) -> list[str]:
    """Return the names of the table's columns that make the features, in order."""
    return [saved["name"] for saved in encoding["columns"]]


def _describe_column(column: NumberColumn | CategoryColumn) -> dict[str, Any]:
    if isinstance(column, CategoryColumn):
        return {
            "name": column.name,
            "categories": [label_to_json(column.name, category) for category in column._counts],
            "counts": list(column._counts.values()) if column._impute else None,
        }
    learned = {
        "mean": column._mean.tolist(),
        "scatter": column._scatter.tolist(),
        "count": column._count.tolist(),
    }
    return {
        "name": column.name,
        "width": column.width,
        "standardize": column._standardize,
        "impute": column._impute,
        "learned": learned if column.needs_pass else None,
    }


def _rebuild_column(saved: Mapping[str, Any], arrow_type: Any) -> NumberColumn | CategoryColumn:
    name = saved["name"]
    if "categories" in saved:
        categories = [label_from_json(category) for category in saved["categories"]]
        column = CategoryColumn(name, categories, impute=saved["counts"] is not None)
        if saved["counts"] is not None:
            column._counts = dict(zip(categories, saved["counts"], strict=True))
        return column
    number = NumberColumn(name, arrow_type, standardize=saved["standardize"], impute=saved["impute"])
    if number.width != saved["width"]:
        raise ValueError(
            f"column {name!r} holds {number.width} numbers a row, the model was fitted with {saved['width']}"
        )
    if saved["learned"] is not None:
        number._mean = np.array(saved["learned"]["mean"])
        number._scatter = np.array(saved["learned"]["scatter"])
        number._count = np.array(saved["learned"]["count"])
    return number
