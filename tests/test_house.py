"""How the source is laid out: modules keep to their own private names, and every module has its layer."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import numpy as np
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
    assert shown - {"src/fairstream"} == {name for name in members(SOURCE) if not name.startswith("_")}


def files_called(arguments):
    """The files of the package in the order in which a command first calls a function of theirs."""
    from fairstream.cli import main

    called = {}

    def note(frame, event, _):  # at every call, so as little as possible is done here
        if event == "call" and frame.f_code.co_name != "<module>":
            called[frame.f_code.co_filename] = None

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        main([str(argument) for argument in arguments], standalone_mode=False)
    finally:
        sys.setprofile(before)
    files = [Path(file) for file in called]
    return [file.relative_to(SOURCE).as_posix() for file in files if SOURCE in file.parents]


def steps_of_the_walk():
    """The files that each numbered step of the guide's walk names."""
    _, _, walk = GUIDE.read_text(encoding="utf-8").partition("## A block, from a Parquet file to a report")
    steps = re.split(r"^\d+\. ", walk.partition("\n## ")[0].partition("`tests/")[0], flags=re.MULTILINE)[1:]
    return [re.findall(r"`(\w+/[\w/]+\.py)`", step) for step in steps]


@pytest.mark.slow
@pytest.mark.skipif(not GUIDE.exists(), reason="CONTRIBUTING.md is not part of this copy")
def test_the_walk_from_a_parquet_file_to_a_report_is_that_of_a_real_run(tmp_path, rng):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    data, model, page = (tmp_path / name for name in ("rows.parquet", "model.safetensors", "page.html"))
    columns = {f"x{j}": rng.normal(size=400) for j in range(4)}
    columns |= {"sex": np.tile(["f", "m"], 200), "hired": np.repeat([0, 1], 200)}
    pq.write_table(pa.table(columns), data)
    described = ["-s", "sex", "--target", "hired"]
    fitted = files_called(["fit", data, *described, "-k", 2, "-o", model])
    audited = files_called(["audit", model, data, *described, "--probe", "linear", "--html", page])

    steps = steps_of_the_walk()
    audit_from = next(number for number, step in enumerate(steps) if step[0] == "cli/auditing.py")
    for called, walk in ((fitted, steps[:audit_from]), (audited, steps[audit_from:])):
        assert not {file for step in walk for file in step} - {*called}
        places = [called.index(step[0]) for step in walk]
        assert places == sorted(places)


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
