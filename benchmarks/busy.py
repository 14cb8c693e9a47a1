"""A busy machine: other processes that use processors meanwhile, as users have it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# It ends with the process that started it, even if that one is killed.
BUSY = "import os, sys\nwhile os.getppid() == int(sys.argv[1]): pass"


@contextmanager
def busy_processes(number: int) -> Iterator[None]:
    """Keep some processors busy with other work."""
    others = [subprocess.Popen([sys.executable, "-c", BUSY, str(os.getpid())]) for _ in range(number)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()
