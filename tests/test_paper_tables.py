"""The paper's UCI tables: kept cells agree with the paper, and the code still gives the kept cells."""

import sys
from pathlib import Path

import pytest

PAPER = Path(__file__).parents[1] / "paper"
pytestmark = pytest.mark.skipif(not (PAPER / "uci.py").exists(), reason="paper/ is not part of this copy")
sys.path.insert(0, str(PAPER))

DETERMINISTIC = ("PCA", "Kleindessner (mean)", "Kleindessner (0.85)", "Kleindessner (0.5)", "Ours (offline")


@pytest.fixture(scope="module")
def compared():
    import uci_cells

    return uci_cells.compare(uci_cells.gathered())


def cells(compared, metric, prefixes):
    return {key: cell for key, cell in compared.items() if key[3] == metric and key[2].startswith(prefixes)}


def on_all_splits(found):
    """Cells that were run on all ten splits; the others say so in the tables."""
    return {key: cell for key, cell in found.items() if len(cell.ours) == 10}


def test_explained_variance_equals_the_paper_to_the_last_digit(compared):
    found = cells(compared, "var", DETERMINISTIC)
    assert len(found) == 3 * 2 * (4 + 3)
    wrong = {
        key: (cell.printed, cell.mean) for key, cell in found.items() if cell.judgement.verdict != "equal"
    }
    assert not wrong


def test_power_method_cells_are_within_what_a_random_start_moves(compared):
    for metric in ("var", "mmd2"):
        for key, cell in on_all_splits(cells(compared, metric, ("Ours (FNPM",))).items():
            assert cell.judgement.verdict in ("equal", "within tolerance", "paper cell invalid"), (key, cell)


def test_discrepancies_agree_with_the_paper_or_its_correction(compared):
    import uci_verdicts

    found = on_all_splits(cells(compared, "mmd2", (*DETERMINISTIC, "Ours (FNPM")))
    assert len(found) >= 40
    for key, cell in found.items():
        expected = uci_verdicts.CORRECTED.get(key[:3], cell.printed.mean)
        assert abs(cell.mean - expected) <= 0.0015 + 0.0005, (key, cell)


def test_every_cell_that_is_not_equal_has_a_reason(compared):
    for key, cell in compared.items():
        if cell.judgement.verdict not in ("equal", "not run", "no number in the paper"):
            assert cell.judgement.reason, (key, cell)


def test_the_twenty_invalid_cells_and_the_placeholders_are_known(compared):
    import uci_verdicts

    reasons = [uci_verdicts.invalid_reason(key, cell.printed) for key, cell in compared.items()]
    assert sum("older splits" in reason for reason in reasons) == 16
    assert sum("different V" in reason for reason in reasons) == 4
    assert sum("placeholder" in reason for reason in reasons) == 8


def test_the_verdicts_can_fail():
    """The control: a cell that is off by one in the last digit is not called equal."""
    from uci_verdicts import Printed, judge

    key, printed = ("Adult", 2, "PCA", "var"), Printed(6.88, 0.0)
    assert judge(key, printed, [6.88] * 10).verdict == "equal"
    assert judge(key, printed, [6.89] * 10).verdict == "differs"
    assert judge(key, printed, [6.88] * 3).verdict == "agrees on fewer splits"
    assert judge(key, printed, [7.0] * 3).verdict == "differs"
    assert judge(key, printed, []).verdict == "not run"
    fnpm = ("Adult", 2, "Ours (FNPM, mean)", "var")
    assert judge(fnpm, printed, [6.97] * 10).verdict == "within tolerance"
    assert judge(fnpm, printed, [7.0] * 10).verdict == "differs"


def test_written_tables_are_in_step_with_the_kept_cells(compared):
    import uci_cells
    import uci_tables

    text = uci_tables.markdown(compared, uci_cells.runs_of(uci_cells.gathered()))
    assert (PAPER / "results" / "uci.md").read_text() == text, "run: python paper/uci.py --tables"


def test_the_page_is_in_step_with_the_results():
    import uci_docs

    text, page = uci_docs.PAGE.read_text(), uci_docs.Page()
    assert uci_docs.filled(text, page) == text, "run: python paper/uci_docs.py"
    # The control: a number that has moved is seen.
    page.data["compas"]["n_features"] = 11
    assert uci_docs.filled(text, page) != text


@pytest.mark.parametrize("name", ["german", "compas", "adult"])
def test_recomputed_cells_have_not_moved(name):
    import uci_cells
    import uci_methods

    from fairstream.audit.metrics import explained_variance_ratio
    from fairstream.audit.mmd import mmd2
    from fairstream.datasets import paper_split

    kept = uci_cells.gathered()
    checked = 0
    for index in range(3 if name == "german" else 1):
        split = paper_split(name, index)
        for method, run in uci_methods.methods(name).items():
            if not method.startswith((*DETERMINISTIC, "Ours")):
                continue
            for k in (2, 10):
                cell = kept[name, index, method, k]
                embedded = run(split, k, 1.0)
                tolerance = 0.02 if "FNPM" in method or "sketch" in method else 1e-4
                variance = 100 * explained_variance_ratio(split.X_test, embedded.V.T)
                assert variance == pytest.approx(cell["var"], abs=tolerance), (method, k, index)
                if name == "german":
                    from uci_measure import bandwidth_of

                    discrepancy = mmd2(embedded.test, split.groups_test == 1, bandwidth_of(split, k))
                    assert discrepancy == pytest.approx(cell["mmd2"], abs=tolerance / 10), (method, k, index)
                checked += 1
    assert checked >= 30
