"""What a model, moments or checkpoint file holds, as plain data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fairstream.files.format import PathLike, build, read_file


def inspect_file(path: PathLike) -> dict[str, Any]:
    """Return what a file says about itself: kind, parameters, rows, groups, versions; check it first.

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
    if "checkpoint" in about["state"]:
        record = about["state"]["checkpoint"]
        facts["checkpoint"] = {name: value for name, value in record.items() if name != "digest"}
    return facts
