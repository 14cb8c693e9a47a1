"""Fair streaming PCA: one pass, as much variance as possible, no direction that gives a group away."""

import typing

from fairstream import _starting as _starting  # first: Ctrl-C may come during the other imports
from fairstream._version import __version__
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
from fairstream.moments import GroupMoments
from fairstream.power import FairPowerMethod
from fairstream.streaming.embed import embed_source, erase_source, open_like
from fairstream.streaming.fit import collect_moments, fit_source
from fairstream.streaming.signals import FitInterrupted
from fairstream.subspace.channels import ChannelSubspaces
from fairstream.subspace.components import fair_components, solve
from fairstream.subspace.frontier import Frontier, FrontierPoint, frontier
from fairstream.subspace.model import FairSubspace
from fairstream.subspace.unfair import unfair_basis

__all__ = [
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
    "Schema",
    "__version__",
    "audit",
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
else:

    def __getattr__(name: str) -> object:
        # An audit imports scikit-learn's classifiers, a third of a second that no fit should wait for.
        if name in ("audit", "tune"):
            from fairstream import auditing

            return getattr(auditing, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
