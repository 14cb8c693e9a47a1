"""Fair streaming PCA: one pass, as much variance as possible, no direction that gives a group away."""

from fairstream import _starting as _starting  # first: Ctrl-C may come during the other imports
from fairstream._version import __version__
from fairstream.data import open_source
from fairstream.data.blocks import Block, BlockSource
from fairstream.data.groups import GroupColumn, encode_groups
from fairstream.errors import FairstreamFileError, FairstreamWarning, NotEnoughGroupsError
from fairstream.estimators.images import FairImagePCA
from fairstream.estimators.pca import FairStreamingPCA
from fairstream.files.format import load
from fairstream.moments import GroupMoments
from fairstream.power import FairPowerMethod
from fairstream.streaming.fit import collect_moments, fit_source
from fairstream.subspace.channels import ChannelSubspaces
from fairstream.subspace.components import fair_components, solve
from fairstream.subspace.frontier import FrontierPoint, frontier
from fairstream.subspace.model import FairSubspace
from fairstream.subspace.unfair import unfair_basis

__all__ = [
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
]
