"""Attribute tables of images: the official CelebA text format, CSV, Parquet, or a frame."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fairstream.blocks import GroupColumn, encode_groups
from fairstream.errors import missing_extra


def read_labels(
    attributes: Any, sensitive: Sequence[str], name_column: str | None
) -> tuple[list[str], dict[str, GroupColumn]]:
    """Return the image names and the encoded attributes of a table, in its order.

    CelebA's -1 and 1 become False and True; other tables keep their values.
    """
    if isinstance(attributes, str | os.PathLike):
        path = Path(attributes)
        if not path.exists():
            raise FileNotFoundError(f"attributes: {path} does not exist: check the path")
        if path.suffix.lower() == ".txt":
            if name_column is not None:
                raise ValueError("name_column does not apply to a CelebA attribute file: leave it out")
            return read_celeba(path, sensitive)
    return _read_table(attributes, sensitive, name_column)


def read_celeba(path: Path, sensitive: Sequence[str]) -> tuple[list[str], dict[str, GroupColumn]]:
    """Read the official format: a count, a line of attribute names, then a name and -1 or 1 for each."""
    with open(path, encoding="utf-8") as file:
        count, header = file.readline().strip(), file.readline().split()
        if not count.isdigit() or not header:
            raise ValueError(
                f"{path} is not in the CelebA format: line 1 must hold a count, line 2 the names"
            )
        for name in sensitive:
            if name not in header:
                raise ValueError(
                    f"sensitive names {name!r}, {path} has {', '.join(header)}: name one of these"
                )
        wanted = [header.index(name) + 1 for name in sensitive]
        names: list[str] = []
        values: list[list[str]] = []
        for number, line in enumerate(file, start=3):
            cells = line.split()
            if not cells:
                continue
            if len(cells) != len(header) + 1:
                raise ValueError(
                    f"{path} has {len(cells) - 1} values in line {number}, {len(header)} attributes"
                )
            names.append(cells[0])
            values.append([cells[j] for j in wanted])
    if len(names) != int(count):
        raise ValueError(
            f"{path} says {count} images and lists {len(names)}: it was cut off, download it again"
        )
    table = np.array(values, dtype="U2").reshape(len(names), len(wanted))
    if not np.isin(table, ("1", "-1")).all():
        raise ValueError(f"{path} holds values other than -1 and 1: pass a CSV or Parquet table instead")
    columns = {name: table[:, j] == "1" for j, name in enumerate(sensitive)}
    return names, encode_groups(columns, len(names))


def _read_table(
    attributes: Any, sensitive: Sequence[str], name_column: str | None
) -> tuple[list[str], dict[str, GroupColumn]]:
    try:
        import pyarrow as pa

        from fairstream.sources.encoding import encode_labels
        from fairstream.sources.tables import check_columns, table_reader
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
    return names, {name: encode_labels(name, table.column(name)) for name in sensitive}
