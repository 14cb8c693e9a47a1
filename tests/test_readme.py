"""The documents: every Python block runs as pasted, and what they name exists."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WHOLE = (ROOT / "docs").is_dir()  # a source distribution has the readme alone
BUILT = ("_build", "auto_examples", "generated")  # what `make docs` writes
DOCS = [page for page in sorted((ROOT / "docs").rglob("*.md")) if not {*page.parts} & {*BUILT}]
PAGES = [ROOT / "README.md", *([ROOT / "CONTRIBUTING.md", *DOCS] if WHOLE else [])]
PYTHON = re.compile(
    r"(?:^<!-- not run: (?P<reason>.+) -->\n)?^```python\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)

# What stands before the first block of a page: the files and objects that a reader already has.
ALREADY_THERE = {
    "images.md": """
import io, zipfile
import numpy as np
from PIL import Image

rng = np.random.default_rng(0)
lines = ["200", "Eyeglasses Smiling"]
with zipfile.ZipFile("img_align_celeba.zip", "w") as archive:
    for i in range(200):
        stream = io.BytesIO()
        Image.fromarray(rng.integers(0, 255, (12, 11, 3), dtype=np.uint8)).save(stream, "png")
        archive.writestr(f"{i:06}.png", stream.getvalue())
        lines.append(f"{i:06}.png {rng.choice([-1, 1])} {rng.choice([-1, 1])}")
with open("list_attr_celeba.txt", "w") as table:
    table.write("\\n".join(lines) + "\\n")
""",
    "files.md": """
import numpy as np
import fairstream

rng = np.random.default_rng(0)
X, sex = rng.normal(size=(400, 24)), rng.choice(["f", "m"], 400)
source = fairstream.open_source(X, sensitive_features={"sex": sex})
pca = fairstream.FairStreamingPCA(2).fit(X, sensitive_features=sex)
faces = fairstream.FairImagePCA(2).fit(X, sensitive_features=sex)
moments, subspace = pca.moments_, pca.subspace_
""",
}


def blocks_of(page):
    """The blocks of a page as (code, reason why it is not run or None)."""
    return [(found["code"], found["reason"]) for found in PYTHON.finditer(page.read_text(encoding="utf-8"))]


README = [code for code, _ in blocks_of(PAGES[0])]
START = ROOT / "docs" / "start" / "index.md"  # with its shell commands in tests/test_docs_pages.py
WITH_CODE = [page for page in PAGES if page != START and any(reason is None for _, reason in blocks_of(page))]


def run_as_pasted(code, folder):
    command = [sys.executable, "-W", "error::UserWarning", "-c", code]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def test_the_readme_has_a_python_block():
    assert README
    assert "FairStreamingPCA" in README[0]


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_python_blocks_of_a_page_run_one_after_the_other(page, tmp_path):
    code = [code for code, reason in blocks_of(page) if reason is None]
    run_as_pasted("\n".join([ALREADY_THERE.get(page.name, ""), *code]), tmp_path)


@pytest.mark.slow
def test_a_block_that_does_not_run_is_seen(tmp_path):
    with pytest.raises(AssertionError, match="ImportError"):
        run_as_pasted("from fairstream import FairStreamingCPA", tmp_path)


def test_code_is_marked_as_python_wherever_it_is():
    """An indented block would not be run."""
    for page in PAGES:
        indented = re.findall(
            r"^    (?:from \S+ import|import \w|\w+ = |\w+\()", PYTHON.sub("", page.read_text()), re.M
        )
        assert not indented, page.name


def test_every_block_that_is_not_run_says_why():
    reasons = {page.name: reason for page in PAGES for _, reason in blocks_of(page) if reason}
    assert set(reasons) <= {"estimators.md", "scaling.md", "sources.md"}


def test_the_first_block_nulls_what_it_says():
    """Plain PCA of the same rows is the control: its group means differ."""
    pasted: dict = {}
    exec(README[0], pasted)
    X, sex, fair = pasted["X"], pasted["sex"], pasted["pca"]

    def mean_gap(model):
        Z = model.transform(X)
        return float(abs(Z[sex == "f"].mean(axis=0) - Z[sex == "m"].mean(axis=0)).max())

    assert mean_gap(fair) < 0.3 < 0.6 < mean_gap(fair.resolve(constraint="none"))


# What the documents name ---------------------------------------------------------------------------


def exists(name):
    """Whether a dotted name is a module, or something in one."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[length:]:
            found = getattr(found, attribute, None)
        return found is not None
    return False


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_names_of_the_package_exist(page):
    names = set(re.findall(r"\bfairstream(?:\.[a-zA-Z_]\w*)+", page.read_text(encoding="utf-8")))
    assert not [name for name in sorted(names) if not exists(name)]


@pytest.mark.skipif(not WHOLE, reason="docs/ is not part of this copy")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_of_the_project_exist(page):
    """Paths from the root, from the page, or from the package."""
    text = page.read_text(encoding="utf-8")
    paths = set(re.findall(r"(?:[\w.-]+/)+[\w-]+\.(?:py|md)\b", text)) | set(
        re.findall(r"\]\(([^):#]+)\)", text)
    )
    # Pages of the gallery are made from the examples.
    made = re.compile(r"(?:\.\./)*auto_examples/(\w+)\.rst")
    paths = {made.sub(lambda found: f"examples/{found[1]}.py", path) for path in paths}
    paths.discard("examples/index.py")
    places = (ROOT, page.parent, ROOT / "src" / "fairstream")
    assert not [path for path in sorted(paths) if not any((place / path).exists() for place in places)]


def test_names_and_files_that_are_not_there_are_seen():
    assert exists("fairstream.streaming.sinks.open_sink")
    assert not exists("fairstream.streaming.sinks.open_drain")
    assert not exists("fairstream.distributed.fit_dask")
