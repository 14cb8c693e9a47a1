"""Whether what is about to be allocated fits in the memory that is free."""

from __future__ import annotations

from pathlib import Path

_MEMINFO = Path("/proc/meminfo")


def free_bytes() -> int | None:
    """Return how much memory can be had without swapping; None if the system does not say."""
    if not _MEMINFO.exists():
        return None
    lines = dict(line.split(":", 1) for line in _MEMINFO.read_text().splitlines() if ":" in line)
    return 1024 * int(lines["MemAvailable"].split()[0]) if "MemAvailable" in lines else None


def refuse_beyond_memory(needed: int, what: str, way_out: str) -> None:
    """Raise MemoryError if `needed` bytes are not free: `what` takes them, `way_out` says what to do.

    Examples
    --------
    >>> refuse_beyond_memory(1000, "a small array", "take a smaller one")
    """
    free = free_bytes()
    if free is not None and needed > free:
        raise MemoryError(f"{what} takes {needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free: {way_out}")
