"""Packaging: extras that are used, and files for other tools that agree with pyproject.toml."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

import fairstream

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.skipif(not (ROOT / "pyproject.toml").exists(), reason="not the whole project")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
FOR_USERS = [one for name, of in EXTRAS.items() if name not in ("bench", "docs", "all", "dev") for one in of]
# Packages that are imported under another name.
MODULES = {"scikit-learn": "sklearn", "pillow": "PIL"}
# Packages of the extra `dev` that are run, not imported.
PROGRAMS = {"pytest-xdist": "-n auto", "ruff": "/ruff ", "mypy": "/mypy ", "import-linter": "/lint-imports "}
# What src uses if it is there, and names in an error if it is not; and what comes with a dependency.
OPTIONAL, BROUGHT = {"polars", "pytest"}, {"markupsafe", "joblib"}


def module_of(requirement):
    name = re.match(r"[\w.-]+", requirement)[0]
    return name, MODULES.get(name, name.replace("-", "_"))


def imported_by(*folders):
    """The packages that files import, anywhere in them, or ask for with `importorskip`."""
    found = set()
    for path in (path for folder in folders for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found.add(node.module)
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.importorskip":
                found |= {one.value for one in node.args[:1] if isinstance(one, ast.Constant)}
    return {name.partition(".")[0] for name in found}


def unused(requirements, imported, makefile):
    """The required packages that nothing imports and, if they are programs, nothing runs."""
    names = [module_of(one) for one in requirements if not one.startswith("fairstream[")]
    return [
        name
        for name, module in names
        if module not in imported and not (name in PROGRAMS and PROGRAMS[name] in makefile)
    ]


@pytest.mark.skipif(not (ROOT / "paper").is_dir(), reason="paper/ and benchmarks/ are not part of this copy")
@pytest.mark.parametrize("extra", [*EXTRAS, None])
def test_every_package_that_is_asked_for_is_used(extra):
    required = PROJECT["dependencies"] if extra is None else EXTRAS[extra]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    imported = imported_by("src", "tests", "benchmarks", "paper") if extra else imported_by("src")
    if extra == "docs":
        imported |= set(re.findall(r"\w+", (ROOT / "docs" / "conf.py").read_text(encoding="utf-8")))
    assert unused(required, imported, makefile) == []


def test_a_package_that_nothing_uses_is_seen():
    assert unused(["pytest-cov>=5", "ruff>=0.8"], {"numpy"}, "$(BIN)/ruff check") == ["pytest-cov"]


def test_src_imports_only_what_pyproject_asks_for():
    known = {module_of(one)[1] for one in (*PROJECT["dependencies"], *FOR_USERS)} | {*sys.stdlib_module_names}
    assert imported_by("src") - known <= {"fairstream", *OPTIONAL, *BROUGHT}


def test_every_extra_but_those_of_developers_is_in_all():
    apart = {"bench", "docs", "all", "dev", "torch"}  # torch is large
    assert EXTRAS["all"] == [f"fairstream[{','.join(e for e in EXTRAS if e not in apart)}]"]


@pytest.mark.skipif(not (ROOT / "recipe").is_dir(), reason="recipe/ is not part of this copy")
def test_the_conda_recipe_asks_for_the_same_versions():
    text = (ROOT / "recipe" / "meta.yaml").read_text(encoding="utf-8")
    section = {
        name: re.search(rf"^  {name}:\n((?:    - .+\n)+)", text, re.MULTILINE)[1]
        for name in ("host", "run", "run_constrained")
    }
    asked = {name: re.findall(r"- (.+)", lines) for name, lines in section.items()}
    listed = {name: {one.replace(" ", "") for one in of} for name, of in asked.items()}
    assert listed["run"] == {*PROJECT["dependencies"], f"python{PROJECT['requires-python']}"}
    # As conda calls them:
    names = {"matplotlib>": "matplotlib-base>", "torch>": "pytorch>", "duckdb>": "python-duckdb>"}
    bounds = {re.sub(r"\[.*\]", "", one) for one in FOR_USERS}
    for name, of_conda in names.items():
        bounds = {one.replace(name, of_conda) for one in bounds}
    assert listed["run_constrained"] == bounds
    assert "hatchling>=1.25" in listed["host"]


@pytest.mark.skipif(not (ROOT / ".github").is_dir(), reason=".github/ is not part of this copy")
def test_workflows_and_hooks_call_targets_that_the_makefile_has():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    called = set()
    for path in (*(ROOT / ".github" / "workflows").glob("*.yml"), ROOT / ".pre-commit-config.yaml"):
        lines = re.findall(r"(?:run|entry): make (.+)", path.read_text(encoding="utf-8"))
        called |= {word for line in lines for word in line.split() if "=" not in word}
    assert called >= {"test", "test-floors", "smoke", "check", "wheel", "format"}
    assert called <= targets


@pytest.mark.skipif(not (ROOT / ".github").is_dir(), reason=".github/ is not part of this copy")
def test_workflows_run_every_python_that_the_package_claims():
    text = (ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8")
    claimed = [one.rpartition(" ")[2] for one in PROJECT["classifiers"] if re.search(r"3\.\d+$", one)]
    assert re.search(r"python: \[(.*)\]", text)[1] == ", ".join(f'"{version}"' for version in claimed)
    assert re.search(r"system: \[(.*)\]", text)[1] == "ubuntu-latest, macos-latest, windows-latest"


def test_the_citation_names_the_package_and_the_paper():
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(r"^cff-version: 1\.2\.0$", text, re.MULTILINE)
    for field in ("title: fairstream", f"license: {PROJECT['license']}", "type: software", "message: "):
        assert re.search(rf"^{field}", text, re.MULTILINE), field
    assert "Fair Streaming Principal Component Analysis" in text


def test_the_version_is_that_of_the_citation_and_of_the_newest_release_in_the_changelog():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    released = re.findall(r"^## \[([\d.]+)\] - (\d{4}-\d\d-\d\d)$", changes, flags=re.MULTILINE)
    assert released[0][0] == fairstream.__version__
    assert f"version: {released[0][0]}\ndate-released: {released[0][1]}\n" in citation
