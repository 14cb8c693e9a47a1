"""The readme: every Python block of it runs as pasted."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)


def test_the_readme_has_a_python_block():
    assert BLOCKS
    assert "FairStreamingPCA" in BLOCKS[0]


@pytest.mark.parametrize("block", BLOCKS, ids=[f"block{number}" for number in range(1, len(BLOCKS) + 1)])
def test_every_python_block_runs_as_pasted(block, tmp_path):
    command = [sys.executable, "-W", "error::UserWarning", "-c", block]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def test_the_first_block_nulls_what_it_says():
    """Plain PCA of the same rows is the control: its group means differ."""
    pasted: dict = {}
    exec(BLOCKS[0], pasted)
    X, sex, fair = pasted["X"], pasted["sex"], pasted["pca"]

    def mean_gap(model):
        Z = model.transform(X)
        return float(abs(Z[sex == "f"].mean(axis=0) - Z[sex == "m"].mean(axis=0)).max())

    assert mean_gap(fair) < 0.3 < 0.6 < mean_gap(fair.resolve(constraint="none"))
