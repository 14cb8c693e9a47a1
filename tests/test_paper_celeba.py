"""The CelebA experiment: solves in the sketch's coordinates are the library's, and the quick run works."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fairstream import GroupMoments, solve
from fairstream.linalg import principal_angles

ROOT = Path(__file__).parents[1]
PAPER = ROOT / "paper"
DATA = Path(os.environ.get("FAIRSTREAM_DATA", ROOT.parent / "shared" / "data"))

if not (PAPER / "celeba.py").exists():
    pytest.skip("the experiments are not part of this copy", allow_module_level=True)
sys.path.insert(0, str(PAPER))
pytest.importorskip("PIL", reason="figures need Pillow")

from celeba_fits import Coordinates  # noqa: E402
from celeba_probes import PROBES, probe_auc  # noqa: E402


@pytest.fixture(scope="module")
def moments() -> GroupMoments:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 60)) * np.linspace(3, 0.3, 60)
    smile, hat = rng.random(600) < 0.5, rng.random(600) < 0.2
    X[:, :5] += 0.8 * smile[:, None]
    X[hat, 3:9] *= 2
    return GroupMoments(60, rank=20).update(X, {"smile": smile, "hat": hat})


@pytest.mark.parametrize("attribute", ["smile", "hat"])
@pytest.mark.parametrize(
    ("m", "constraint", "directions"),
    [(0, "none", "absolute"), (0, "all", "absolute"), (2, "all", "absolute"), (2, "all", "relative")],
)
def test_solves_in_coordinates_are_those_of_the_library(moments, attribute, m, constraint, directions):
    coordinates = Coordinates.of(moments)
    U, V = (coordinates.directions.T @ C for C in coordinates.solve(attribute, 4, m, constraint, directions))
    direct = solve(moments.restricted({attribute: (False, True)}), 4, m, constraint, directions)
    # Single vectors outside the sketch are known to 1e-4 of the mean gap there.
    assert principal_angles(V, direct.components.T)[0] < 1e-3
    if U.shape[1]:
        assert principal_angles(U, direct.unfair_basis.T)[0] < 1e-3


def test_coordinates_of_another_attribute_differ(moments):
    coordinates = Coordinates.of(moments)
    _, V = coordinates.solve("smile", 4, 2)
    other = solve(moments.restricted({"hat": (False, True)}), 4, 2).components.T
    assert principal_angles(coordinates.directions.T @ V, other)[0] > 0.1


@pytest.mark.parametrize("kind", [*PROBES])
def test_probes_see_what_is_there_and_nothing_else(kind):
    rng = np.random.default_rng(0)
    labels, true = rng.random(600) < 0.3, rng.random(400) < 0.3
    nothing = rng.normal(size=(600, 5)), rng.normal(size=(400, 5))
    value, error = probe_auc(kind, nothing[0], labels, nothing[1], true)
    assert abs(value - 0.5) < 4 * error
    # A spread that depends on the group for the quadratic probe, a shift for the others.
    if kind == "quadratic":
        telling = nothing[0] * (1 + 2 * labels[:, None]), nothing[1] * (1 + 2 * true[:, None])
    else:
        telling = nothing[0] + 1.5 * labels[:, None], nothing[1] + 1.5 * true[:, None]
    assert probe_auc(kind, telling[0], labels, telling[1], true)[0] > 0.9


@pytest.mark.slow
def test_quick_run_writes_tables_plots_and_no_face(tmp_path):
    if not (DATA / "celeba").is_dir():
        pytest.skip("no CelebA: set FAIRSTREAM_DATA to the folder that holds celeba/")
    pytest.importorskip("matplotlib")
    page = tmp_path / "celeba.md"
    command = [sys.executable, str(PAPER / "celeba.py"), "--quick", "--output", str(tmp_path)]
    one_thread = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "FAIRSTREAM_DATA": str(DATA)}
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, **one_thread})
    text = page.read_text()
    for part in ("The mean constraint alone", "Checks on the training stream", "One pass, forty attributes"):
        assert part in text
    written = {path.name for path in tmp_path.rglob("*.png")}
    names = ("eyeglasses", "mouth_slightly_open", "goatee")
    assert written == {f"celeba-{kind}-{name}.png" for kind in ("frontier", "subspaces") for name in names}
