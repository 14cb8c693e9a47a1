"""Sources of blocks; `open_source` is the one door."""

from fairstream.sources.opening import open_source

__all__ = ["open_source"]
