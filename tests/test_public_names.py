"""The public namespace, pinned in both directions."""

import subprocess
import sys
import types

import pytest

import fairstream

PUBLIC = {
    "Adversary",
    "Block",
    "BlockSource",
    "ChannelSubspaces",
    "FairEraser",
    "FairImagePCA",
    "FairPowerMethod",
    "FairStreamingPCA",
    "FairSubspace",
    "FairstreamFileError",
    "FairstreamWarning",
    "FitInterrupted",
    "Frontier",
    "FrontierPoint",
    "GroupColumn",
    "GroupMoments",
    "NotEnoughGroupsError",
    "RandomFeatureAdversary",
    "Schema",
    "__version__",
    "audit",
    "backend",
    "collect_moments",
    "embed_source",
    "encode_groups",
    "erase_source",
    "fair_components",
    "fit_source",
    "frontier",
    "load",
    "open_like",
    "open_source",
    "quantile_groups",
    "solve",
    "tune",
    "unfair_basis",
}


def test_the_public_names_are_exactly_these():
    assert set(fairstream.__all__) == PUBLIC
    assert all(hasattr(fairstream, name) for name in PUBLIC)


def test_nothing_else_looks_public():
    others = {
        name
        for name, value in vars(fairstream).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert others <= PUBLIC


def test_dir_lists_every_public_name():
    assert set(dir(fairstream)) >= PUBLIC


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'fairstream' has no attribute 'audits'"):
        fairstream.audits


def test_audit_is_the_function_however_it_is_imported():
    from fairstream import audit
    from fairstream.auditing import audit as same

    assert fairstream.audit is audit is same


@pytest.mark.slow
def test_importing_fairstream_imports_no_classifiers():
    """The control: an audit does."""
    command = (
        "import sys, fairstream; before = 'sklearn.ensemble' in sys.modules; fairstream.audit;"
        "print(before, 'sklearn.ensemble' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False", "True"]
