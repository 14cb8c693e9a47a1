"""The JSON Schema of a report, made from its classes; `report.schema.json` beside this file holds it.

python -m fairstream.auditing.schema > src/fairstream/auditing/report.schema.json
"""

from __future__ import annotations

import dataclasses
import json
import sys
import types
import typing
from pathlib import Path
from typing import Any

from fairstream.auditing.report import FORMAT, FORMAT_VERSION, Report

SCHEMA_FILE = Path(__file__).with_name("report.schema.json")
_PLAIN: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": ["number", "null"]},  # a number that is not one is null
    types.NoneType: {"type": "null"},
    Any: {},
}


def report_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of `Report.to_dict`.

    Examples
    --------
    >>> report_schema()["properties"]["headline"]
    {'type': 'string'}
    """
    definitions: dict[str, Any] = {}
    root = _object(Report, definitions)
    head = {"format": {"const": FORMAT}, "format_version": {"const": FORMAT_VERSION}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Report of a fairstream audit, version {FORMAT_VERSION}",
        **root,
        "properties": {**head, **root["properties"]},
        "required": [*head, *root["required"]],
        "$defs": dict(sorted(definitions.items())),
    }


def _object(node: type, definitions: dict[str, Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(node)
    names = [field.name for field in dataclasses.fields(node)]
    return {
        "description": " ".join((node.__doc__ or "").split()),
        "type": "object",
        "properties": {name: _of(hints[name], definitions) for name in names},
        "required": names,
        "additionalProperties": False,
    }


def _of(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a type; that of a class goes to the definitions."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint):
        name = str(hint.__name__)  # type: ignore[union-attr]
        if name not in definitions:
            definitions[name] = {}  # its own place, if a class holds itself
            definitions[name] = _object(typing.cast("type", hint), definitions)
        return {"$ref": f"#/$defs/{name}"}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_of(argument, definitions) for argument in arguments]}
    if origin is tuple and arguments[-1] is Ellipsis:
        return {"type": "array", "items": _of(arguments[0], definitions)}
    if origin is tuple:
        parts = [_of(argument, definitions) for argument in arguments]
        return {"type": "array", "prefixItems": parts, "minItems": len(parts), "maxItems": len(parts)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _of(arguments[1], definitions)}
    return dict(_PLAIN[hint])


if __name__ == "__main__":
    sys.stdout.write(json.dumps(report_schema(), indent=1) + "\n")
