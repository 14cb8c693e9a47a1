"""What the figures were measured on: processor, memory, versions of everything that took part."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info

PACKAGES = (
    *("fairstream", "numpy", "scipy", "scikit-learn", "fairlearn", "dask", "dask-ml", "torch"),
    *("torch-incremental-pca", "concept-erasure"),
)


def machine() -> dict[str, Any]:
    """Return the processor, its cores, the memory, the system and the versions of all packages."""
    np.ones((2, 2)) @ np.ones((2, 2))  # loads the library that is asked about next
    blas = {
        f"{pool['internal_api']} {pool['version']}"
        for pool in threadpool_info()
        if pool["user_api"] == "blas"
    }
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "blas": ", ".join(sorted(blas)),
        "packages": {name: _version(name) for name in PACKAGES},
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
