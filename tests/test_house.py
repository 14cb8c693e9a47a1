"""How the source is laid out: modules keep to their own private names, and every module has its layer."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "fairstream"
MODULES = sorted(SOURCE.rglob("*.py"))
# What Python documents for everyone in spite of the underscore.
DOCUMENTED = {"_exit", "_replace", "_asdict", "_fields", "_make"}


def is_private(name):
    return name.startswith("_") and not name.startswith("__") and name not in DOCUMENTED


def names_of(tree):
    """The names that a file defines or assigns, its attributes of self and cls among them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_own(node.value):
            yield node.attr


def is_own(node):
    """Whether a node is self, cls or super()."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "super"
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def reached_into(text, package=SOURCE):
    """What a file touches of the private names of others, as (line, code)."""
    tree = ast.parse(text)
    own = set(names_of(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            if not is_own(node.value) and node.attr not in own:
                yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.ImportFrom):
            folder = package.parent.joinpath(*(node.module or "").split("."))
            for alias in node.names:
                # A module of the package itself, such as _version, is no name of another module.
                if is_private(alias.name) and not (folder / f"{alias.name}.py").exists():
                    yield node.lineno, f"from {node.module} import {alias.name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_module_reaches_into_the_private_names_of_another(path):
    assert not list(reached_into(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    "planted",
    [
        "from fairstream.data.open import _kind_of",
        "from fairstream.data import open as door\ndoor._kind_of('a.csv')",
        "def rows(moments):\n    return moments._scatter",
        "class Fit:\n    def rows(self):\n        return self.learner._rows",
        "def forget(moments):\n    moments._scatter = None",
    ],
)
def test_reaching_into_private_names_is_seen(planted):
    assert list(reached_into(planted))


@pytest.mark.parametrize(
    "harmless",
    [
        "from fairstream import _version",
        "from fairstream.data import __doc__",
        "import os\nos._exit(1)",
        "class Sum:\n    def __add__(self, other):\n        self._n = 1\n        return self._n + other._n",
        "class Fit(Base):\n    def rows(self):\n        return super()._rows() + self._count",
    ],
)
def test_a_class_may_use_its_own_private_names(harmless):
    assert not list(reached_into(harmless))


# Layers -------------------------------------------------------------------------------------------


def contracts():
    project = tomllib.loads((SOURCE.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    return project["tool"]["importlinter"]["contracts"]


def members(package):
    """The modules and packages directly in a package."""
    modules = {path.stem for path in package.glob("*.py")} - {"__init__"}
    return modules | {path.parent.name for path in package.glob("*/__init__.py")}


def packages_with_an_order():
    """The packages with more than one module: the order of these must be stated."""
    every = [path.parent for path in SOURCE.rglob("__init__.py")]
    found = [package for package in every if len(members(package)) > 1]
    return {".".join(("fairstream", *package.relative_to(SOURCE).parts)): package for package in found}


def test_every_package_has_a_contract_about_its_layers():
    stated = [container for contract in contracts() for container in contract["containers"]]
    assert sorted(stated) == sorted(packages_with_an_order())


@pytest.mark.parametrize("contract", contracts(), ids=lambda contract: contract["name"])
def test_a_contract_names_every_module_of_its_package_once(contract):
    (container,) = contract["containers"]
    listed = [name for layer in contract["layers"] for name in re.split(r"\s*[|:]\s*", layer)]
    assert sorted(listed) == sorted(members(packages_with_an_order()[container]))
    assert contract["exhaustive"]


GUIDE = SOURCE.parents[1] / "CONTRIBUTING.md"


@pytest.mark.skipif(not GUIDE.exists(), reason="CONTRIBUTING.md is not part of this copy")
def test_the_guide_for_contributors_shows_every_room():
    guide = GUIDE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[^|]+) \|", guide, flags=re.MULTILINE)
    shown = {
        name.removesuffix("/").removesuffix(".py") for row in rows for name in re.findall(r"`([^`]+)`", row)
    }
    assert shown - {"src/fairstream"} == {name for name in members(SOURCE) if not is_private(name)}


def shadowed_modules(package):
    """The modules of a package that its __init__ hides behind a function or class of the same name."""
    tree = ast.parse((package / "__init__.py").read_text(encoding="utf-8"))
    imported = {
        alias.asname or alias.name: (node.module or "").split(".")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    own = (
        package.relative_to(SOURCE.parent).parts if SOURCE in (package, *package.parents) else (package.name,)
    )
    bound = {name for name, origin in imported.items() if origin != list(own)}
    return members(package) & (bound | set(names_of(tree)))


@pytest.mark.parametrize("name", packages_with_an_order())
def test_no_module_hides_behind_a_function_of_its_name(name):
    assert not shadowed_modules(packages_with_an_order()[name])


def test_a_hidden_module_is_seen(tmp_path):
    (tmp_path / "audit.py").touch()
    (tmp_path / "__init__.py").write_text("from fairstream.audit.audit import audit\n")
    assert shadowed_modules(tmp_path) == {"audit"}
