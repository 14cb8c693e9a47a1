"""Hive partitions: the keys in folders named "key=value", as columns."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

try:
    import pyarrow as pa
except ModuleNotFoundError:  # `open_source` names the extra before anything here is called
    pa = None

_NO_KEY = "__HIVE_DEFAULT_PARTITION__"
_INTEGER = re.compile(r"-?[0-9]+")


def hive_keys(folders: Sequence[str], held: Sequence[str]) -> tuple[Any, list[dict[str, Any]]]:
    """Return the schema of the keys in the folders of each file, and their values for every file.

    A key is a number if all its values are whole numbers of 32 bits, else text. One that is also a column of
    the files is left out: the column is read instead.

    Examples
    --------
    >>> keys, values = hive_keys(["year=2025/sex=f", "year=2026/sex=m"], held=["age"])
    >>> keys.names, values
    (['year', 'sex'], [{'year': 2025, 'sex': 'f'}, {'year': 2026, 'sex': 'm'}])
    """
    texts = [_key_texts(path) for path in folders]
    names = [name for name in dict.fromkeys(itertools.chain(*texts)) if name not in held]
    fields, values = [], [dict[str, Any].fromkeys(names) for _ in folders]
    for name in names:
        column = [text.get(name) for text in texts]
        whole = all(text is None or _fits(text) for text in column)
        fields.append(pa.field(name, pa.int32() if whole else pa.string()))
        for row, text in zip(values, column, strict=True):
            row[name] = int(text) if whole and text is not None else text
    return pa.schema(fields), values


def _key_texts(folders: str) -> dict[str, str | None]:
    pairs = (folder.partition("=") for folder in folders.split("/"))
    return {
        unquote(name): None if value == _NO_KEY else unquote(value)
        for name, equals, value in pairs
        if equals and name
    }


def _fits(text: str) -> bool:
    return _INTEGER.fullmatch(text) is not None and -(2**31) <= int(text) < 2**31
