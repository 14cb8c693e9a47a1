"""Print the lowest declared version of every dependency in pyproject.toml, as constraints for pip."""

import re
import sys
import tomllib
from pathlib import Path

_FLOOR = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(\[[^]]*\])?>=(?P<version>[0-9.]+)")
# What only the benchmarks and the site need has no tests to pass at its floor.
_WITHOUT = {"bench", "docs"}


def floors(pyproject: Path) -> dict[str, str]:
    """Return {package: lowest version} of the dependencies and of the extras that the tests use."""
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    declared = [*project["dependencies"], *(one for name in extras.keys() - _WITHOUT for one in extras[name])]
    found: dict[str, str] = {}
    for requirement in sorted(set(declared)):
        if requirement.startswith(f"{project['name']}["):
            continue
        floor = _FLOOR.fullmatch(requirement)
        if floor is None:
            raise SystemExit(f"pyproject.toml: {requirement!r} has no plain floor: write it as name>=version")
        found[floor["name"]] = floor["version"]
    return found


if __name__ == "__main__":
    for name, version in floors(Path(__file__).parents[1] / "pyproject.toml").items():
        sys.stdout.write(f"{name}=={version}\n")
