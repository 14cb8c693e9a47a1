"""The public namespace, pinned in both directions."""

import fairstream

PUBLIC = {
    "Block",
    "BlockSource",
    "ChannelSubspaces",
    "FairImagePCA",
    "FairPowerMethod",
    "FairStreamingPCA",
    "FairSubspace",
    "FairstreamFileError",
    "FairstreamWarning",
    "FrontierPoint",
    "GroupColumn",
    "GroupMoments",
    "NotEnoughGroupsError",
    "__version__",
    "collect_moments",
    "encode_groups",
    "fair_components",
    "fit_source",
    "frontier",
    "load",
    "open_source",
    "solve",
    "unfair_basis",
}


def test_the_public_names_are_exactly_these():
    assert set(fairstream.__all__) == PUBLIC
    assert all(hasattr(fairstream, name) for name in PUBLIC)


def test_nothing_else_looks_public():
    import types

    others = {
        name
        for name, value in vars(fairstream).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert others <= PUBLIC
