"""Fair streaming PCA: one pass, as much variance as possible, no direction that gives a group away."""

from fairstream import _starting as _starting  # first: Ctrl-C may come during the other imports
from fairstream._version import __version__
from fairstream.blocks import Block, BlockSource, GroupColumn, encode_groups
from fairstream.channels import FairImagePCA
from fairstream.channels_model import ChannelSubspaces
from fairstream.errors import FairstreamFileError, FairstreamWarning, NotEnoughGroupsError
from fairstream.estimator import FairStreamingPCA
from fairstream.fitting import collect_moments, fit_source
from fairstream.model import FairSubspace
from fairstream.moments import GroupMoments
from fairstream.persist import load
from fairstream.power import FairPowerMethod
from fairstream.solve import FrontierPoint, fair_components, frontier, solve
from fairstream.sources import open_source
from fairstream.unfair import unfair_basis

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
