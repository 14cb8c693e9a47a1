"""What is needed to run the same audit again: date, call, inputs with their digests, versions and seeds."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fairstream._version import __version__
from fairstream.auditing.report import InputFile, Reproduction
from fairstream.auditing.survey import Survey

LIBRARIES = ("numpy", "scipy", "scikit-learn")


def reproduction(options: Mapping[str, Any], inputs: Sequence[InputFile], *, has_train: bool) -> Reproduction:
    """Describe a run of `audit`.

    Examples
    --------
    >>> print(reproduction({"limit": 0.65, "random_state": 0}, [], has_train=False).call)
    audit(
        models, X, sensitive_features, y,
        limit=0.65,
        random_state=0,
    )
    """
    train = ["    train=(X_train, sensitive_train, y_train),"] if has_train else []
    written = [f"    {name}={value!r}," for name, value in options.items()]
    return Reproduction(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        call="\n".join(["audit(", "    models, X, sensitive_features, y,", *train, *written, ")"]),
        command=None,
        inputs=tuple(inputs),
        versions={
            "fairstream": __version__,
            "python": platform.python_version(),
            **{name: version(name) for name in LIBRARIES},
        },
        seeds={"random_state": int(options["random_state"])},
    )


def input_file(role: str, data: Any, found: Survey) -> InputFile:
    """Describe data that went in; a path by the name of its file."""
    name = Path(data).name if isinstance(data, str | Path) else None
    return InputFile(role, name, found.digest, found.moments.n_features)


def as_commanded(found: Reproduction, command: str, names: Mapping[str, str]) -> Reproduction:
    """Add the command line, and the names of the files by role."""
    inputs = tuple(replace(item, name=names.get(item.role, item.name)) for item in found.inputs)
    return replace(found, command=command, inputs=inputs)
