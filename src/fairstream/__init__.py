"""Fair streaming PCA: one pass, as much variance as possible, no direction that gives a group away."""

import typing

from fairstream import _starting as _starting  # first: Ctrl-C may come during the other imports
from fairstream._version import __version__

__all__ = [
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
]

if typing.TYPE_CHECKING:
    from fairstream.auditing import audit, tune
    from fairstream.data import open_source
    from fairstream.data.blocks import Block, BlockSource
    from fairstream.data.groups import GroupColumn, encode_groups
    from fairstream.data.quantiles import quantile_groups
    from fairstream.data.schema import Schema
    from fairstream.errors import FairstreamFileError, FairstreamWarning, NotEnoughGroupsError
    from fairstream.estimators.eraser import FairEraser
    from fairstream.estimators.images import FairImagePCA
    from fairstream.estimators.pca import FairStreamingPCA
    from fairstream.files.format import load
    from fairstream.linalg.engine import backend
    from fairstream.moments import GroupMoments
    from fairstream.power import FairPowerMethod
    from fairstream.streaming.embed import embed_source, erase_source, open_like
    from fairstream.streaming.fit import collect_moments, fit_source
    from fairstream.streaming.signals import FitInterrupted
    from fairstream.subspace.channels import ChannelSubspaces
    from fairstream.subspace.components import fair_components, solve
    from fairstream.subspace.frontier import Frontier, FrontierPoint, frontier
    from fairstream.subspace.guard import Adversary, RandomFeatureAdversary
    from fairstream.subspace.model import FairSubspace
    from fairstream.subspace.unfair import unfair_basis
else:
    # A name is imported when it is first used: scikit-learn and SciPy take a second that not every use needs.
    _NAMES = {
        "auditing": ("audit", "tune"),
        "data": ("open_source",),
        "data.blocks": ("Block", "BlockSource"),
        "data.groups": ("GroupColumn", "encode_groups"),
        "data.quantiles": ("quantile_groups",),
        "data.schema": ("Schema",),
        "errors": ("FairstreamFileError", "FairstreamWarning", "NotEnoughGroupsError"),
        "estimators.eraser": ("FairEraser",),
        "estimators.images": ("FairImagePCA",),
        "estimators.pca": ("FairStreamingPCA",),
        "files.format": ("load",),
        "linalg.engine": ("backend",),
        "moments": ("GroupMoments",),
        "power": ("FairPowerMethod",),
        "streaming.embed": ("embed_source", "erase_source", "open_like"),
        "streaming.fit": ("collect_moments", "fit_source"),
        "streaming.signals": ("FitInterrupted",),
        "subspace.channels": ("ChannelSubspaces",),
        "subspace.components": ("fair_components", "solve"),
        "subspace.frontier": ("Frontier", "FrontierPoint", "frontier"),
        "subspace.guard": ("Adversary", "RandomFeatureAdversary"),
        "subspace.model": ("FairSubspace",),
        "subspace.unfair": ("unfair_basis",),
    }
    _HOMES = {name: module for module, names in _NAMES.items() for name in names}
    _ROOMS = {
        *("auditing", "baselines", "cli", "data", "datasets", "errors", "estimators", "files", "linalg"),
        *("moments", "power", "streaming", "subspace", "testing", "theory"),
    }

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name in _ROOMS:
            return import_module(f"fairstream.{name}")
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"fairstream.{_HOMES[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
