"""The function that a long run calls to report progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = Callable[[int, int | None], object]
"""Called after every block with the rows done and, if known, the rows there are."""
