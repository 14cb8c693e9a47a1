"""What a model, moments or checkpoint file holds, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairstream.auditing.subjects import as_subjects
from fairstream.files.atomic import PathLike
from fairstream.files.format import build, read_file


def inspect_file(path: PathLike) -> dict[str, Any]:
    """Return what a file says about itself: kind, parameters, rows, groups, versions; check it first.

    Of a table that was fitted, `columns` are those that a table must have, with what makes numbers of them.
    `model_digest` is what the report of an audit calls the model's digest.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from pathlib import Path
    >>> from fairstream import GroupMoments
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     moments = GroupMoments(3).update(np.eye(60, 3), {"sex": ["f", "m", "m"] * 20})
    ...     moments.save(Path(folder, "a.moments"))
    ...     inspect_file(Path(folder, "a.moments"))["groups"]
    {'sex': {'f': 20, 'm': 40}}
    """
    about, arrays = read_file(path)
    held = build(path, about, arrays)
    facts = {
        "file": str(path),
        "bytes": Path(path).stat().st_size,
        "kind": about["kind"],
        "format_version": about["format_version"],
        "versions": about["versions"],
    }
    facts |= held.describe()
    schema = getattr(getattr(held, "learner_", held), "schema", None)
    facts |= {} if schema is None else schema.describe()
    if isinstance(getattr(held, "ids", None), str):
        facts["id_column"] = held.ids
    if hasattr(held, "embed") or hasattr(held, "components_"):
        facts["model_digest"] = as_subjects(held)[0].digest()
    if "checkpoint" in about["state"]:
        record = about["state"]["checkpoint"]
        facts["checkpoint"] = {name: value for name, value in record.items() if name != "digest"}
    return facts


def in_brief(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts for people: of every column its kind, not all its categories and numbers.

    Examples
    --------
    >>> in_brief({"columns": {"age": {"kind": "number", "scale": [9.0]}, "sex": {"categories": ["f", "m"]}}})
    {'columns': 'age (number, scaled), sex (2 categories)'}
    """
    if "columns" not in facts:
        return {**facts}
    told = [f"{name} ({_column_in_brief(column)})" for name, column in facts["columns"].items()]
    return {**facts, "columns": ", ".join(told)}


def _column_in_brief(column: Mapping[str, Any]) -> str:
    if "categories" in column:
        number = len(column["categories"])
        return "1 category" if number == 1 else f"{number:,} categories"
    width = column.get("width", 1)
    return ("number" if width == 1 else f"{width:,} numbers") + (", scaled" if "scale" in column else "")
