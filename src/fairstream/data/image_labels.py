"""Attribute tables of images: the official CelebA text format, CSV, Parquet, or a frame."""

from __future__ import annotations

import os
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fairstream.data.groups import GroupColumn, encode_groups
from fairstream.errors import missing_extra


def read_labels(
    attributes: Any, sensitive: Sequence[str], name_column: str | None, known: Container[str]
) -> tuple[list[str], dict[str, GroupColumn], int]:
    """Return the names of known images, their encoded attributes, and how many rows had no known image.

    CelebA's -1 and 1 become False and True; other tables keep their values. The table's order is kept.
    """
    if isinstance(attributes, str | os.PathLike):
        if not os.fspath(attributes):
            raise ValueError("attributes is an empty path: name a file")
        path = Path(attributes)
        if not path.exists():
            raise FileNotFoundError(f"attributes: {path} does not exist: check the path")
        if path.suffix.lower() == ".txt":
            if name_column is not None:
                raise ValueError("name_column does not apply to a CelebA attribute file: leave it out")
            return read_celeba(path, sensitive, known)
    return _read_table(attributes, sensitive, name_column, known)


def read_celeba(
    path: Path, sensitive: Sequence[str], known: Container[str]
) -> tuple[list[str], dict[str, GroupColumn], int]:
    """Read the official format: a count, a line of attribute names, then a name and -1 or 1 for each."""
    with open(path, encoding="utf-8") as file:
        count, header = file.readline().strip(), file.readline().split()
        if not count.isdigit() or not header:
            raise ValueError(f"{path} is not in the CelebA format: line 1 holds a count, line 2 the names")
        for name in sensitive:
            if name not in header:
                raise ValueError(f"sensitive names {name!r}, {path} has {', '.join(header)}: name one")
        wanted = [header.index(name) + 1 for name in sensitive]
        names, values, n_lines = [], [], 0
        for line in file:
            name = line.partition(" ")[0].strip()
            n_lines += bool(name)
            if name not in known:
                continue
            cells = line.split()
            if len(cells) != len(header) + 1:
                raise ValueError(
                    f"{path} has {len(cells) - 1} values for {name} and {len(header)} attributes: "
                    "download it again"
                )
            names.append(name)
            values.append([cells[j] for j in wanted])
    if n_lines != int(count):
        raise ValueError(f"{path} says {count} images and lists {n_lines}: it was cut off, download it again")
    table = np.array(values, dtype="U8").reshape(len(names), len(wanted))
    if not np.isin(table, ("1", "-1")).all():
        raise ValueError(f"{path} holds values other than -1 and 1: pass a CSV or Parquet table instead")
    columns = {name: table[:, j] == "1" for j, name in enumerate(sensitive)}
    return names, encode_groups(columns, len(names)), n_lines - len(names)


def _read_table(
    attributes: Any, sensitive: Sequence[str], name_column: str | None, known: Container[str]
) -> tuple[list[str], dict[str, GroupColumn], int]:
    try:
        import pyarrow as pa

        from fairstream.data.table_encoding import encode_labels
        from fairstream.data.tables import check_columns, table_reader
    except ImportError:
        raise missing_extra("pyarrow", "tables", "reading an attribute table") from None
    reader = table_reader(attributes)
    name_column = name_column or reader.schema.names[0]
    check_columns(reader, sensitive=sensitive, name_column=[name_column])
    if name_column in sensitive:
        raise ValueError(
            f"sensitive names {name_column!r}, the column of image names: say which it is with name_column"
        )
    columns = [name_column, *sensitive]
    table = pa.Table.from_batches(list(reader.batches(columns, [])))
    names = [str(name) for name in table.column(name_column).to_pylist()]
    rows = np.array([row for row, name in enumerate(names) if name in known], dtype=np.intp)
    groups = {name: encode_labels(name, table.column(name)).take(rows) for name in sensitive}
    return [names[row] for row in rows], groups, len(names) - len(rows)
