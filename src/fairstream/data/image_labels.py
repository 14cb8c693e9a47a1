"""Attribute tables of images: the official CelebA text format, CSV, Parquet, or a frame."""

from __future__ import annotations

import os
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairstream.data.groups import GroupColumn, encode_groups
from fairstream.errors import missing_extra


def read_labels(
    attributes: Any, sensitive_features: Sequence[str], name_column: str | None, known: Container[str]
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
            names, columns, without_image = read_celeba(path, known)
            for name in sensitive_features:
                if name not in columns:
                    raise ValueError(
                        f"sensitive_features names {name!r}, {path} has {', '.join(columns)}: name one"
                    )
            return (
                names,
                encode_groups({name: columns[name] for name in sensitive_features}, len(names)),
                without_image,
            )
    return _read_table(attributes, sensitive_features, name_column, known)


def read_celeba(
    path: Path, known: Container[str] | None = None
) -> tuple[list[str], dict[str, NDArray[np.bool_]], int]:
    """Return the names of known images (None: all), their attributes, and how many other rows there are.

    The official format is a count, a line of attribute names, then a name and -1 or 1 per attribute.
    """
    names, digits, n_rows = [], [], 0
    try:
        with open(path, encoding="utf-8") as file:
            count, header = file.readline().strip(), file.readline().split()
            if not count.isdigit() or not header:
                raise ValueError(
                    f"{path} is not in the CelebA format: line 1 holds a count, line 2 the names"
                )
            for number, line in enumerate(file, start=3):
                name, *values = line.split(maxsplit=1) or [""]
                n_rows += bool(name)
                if not name or (known is not None and name not in known):
                    continue
                row = _as_digits("".join(values))
                if len(row) != len(header):
                    raise ValueError(
                        f"{path} line {number} is not an image name and {len(header)} values of 1 or -1, as "
                        "the header says: download the file again"
                    )
                names.append(name)
                digits.append(row)
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not a text file: download it again") from None
    if n_rows != int(count):
        raise ValueError(f"{path} says {count} images and lists {n_rows}: it was cut off, download it again")
    # All rows have one digit per attribute: eight million values are one array.
    table = np.frombuffer("".join(digits).encode("ascii"), dtype=np.uint8) == ord("1")
    by_attribute = np.ascontiguousarray(table.reshape(len(names), len(header)).T)
    return names, dict(zip(header, by_attribute, strict=True)), n_rows - len(names)


def _as_digits(values: str) -> str:
    """Return "1" for 1 and "0" for -1, nothing at all if there is any other value."""
    digits = values.rstrip().replace(" ", "").replace("\t", "")
    return digits.replace("-1", "0") if not digits.strip("-1") and "--" not in digits else ""


def _read_table(
    attributes: Any, sensitive_features: Sequence[str], name_column: str | None, known: Container[str]
) -> tuple[list[str], dict[str, GroupColumn], int]:
    try:
        import pyarrow as pa

        from fairstream.data.arrow_columns import encode_labels
        from fairstream.data.tables import check_columns, table_reader
    except ImportError:
        raise missing_extra("pyarrow", "tables", "reading an attribute table") from None
    reader = table_reader(attributes)
    name_column = name_column or reader.schema.names[0]
    check_columns(reader, sensitive_features=sensitive_features, name_column=[name_column])
    if name_column in sensitive_features:
        raise ValueError(
            f"sensitive_features names {name_column!r}, the column of image names: say which it "
            "is with name_column"
        )
    columns = [name_column, *sensitive_features]
    table = pa.Table.from_batches(list(reader.batches(columns, [])))
    names = [str(name) for name in table.column(name_column).to_pylist()]
    rows = np.array([row for row, name in enumerate(names) if name in known], dtype=np.intp)
    groups = {name: encode_labels(name, table.column(name)).take(rows) for name in sensitive_features}
    return [names[row] for row in rows], groups, len(names) - len(rows)
