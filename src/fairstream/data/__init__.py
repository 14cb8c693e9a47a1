"""Sources of blocks; `open_source` is the one door."""

from fairstream.data.open import open_source

__all__ = ["open_source"]
