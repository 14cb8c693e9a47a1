"""The summary that one pass over the data leaves, exact or sketched."""

from fairstream.moments.summary import GroupMoments

__all__ = ["GroupMoments"]
