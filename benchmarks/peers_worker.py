"""One contender on one workload, in a process of its own: seconds, peak memory and quality, as JSON.

Started by peers.py, which watches the process and ends it when it takes too long or too much memory.
"""

from __future__ import annotations

import json
import resource
import statistics
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from peers_data import TinyData, Workload, WorkloadData
from peers_fits import BY_NAME, Embed

REPEATS, REPEAT_SECONDS = 7, 3.0  # short fits are timed several times, the median counts
STATUS = Path("/proc/self/status")


def main(job: dict[str, Any]) -> None:
    tell = Path(job["stage"]).write_text
    tell("importing")
    contender = BY_NAME[job["contender"]]
    contender.load_modules()
    workload = Workload(**job["workload"])
    data = WorkloadData(workload, Path(job["folder"]), job["limit"], job["several"])
    k, m = workload.n_components, workload.n_unfair
    warm_up(contender.fit, data)
    densified = watch_densification(workload.n_features) if data.sparse else [0]
    before = memory_now()
    tell("fitting")
    clocks = {"wall": time.perf_counter, "processor": time.process_time}
    times: dict[str, list[float]] = {name: [] for name in clocks}
    while not times["wall"] or (len(times["wall"]) < REPEATS and sum(times["wall"]) < REPEAT_SECONDS):
        started = {name: clock() for name, clock in clocks.items()}
        embed = contender.fit(data, k, m)
        for name, clock in clocks.items():
            times[name].append(clock() - started[name])
        if len(times["wall"]) == 1:
            peak = memory_peak() - before
    most_densified = max(densified)
    tell("measuring")
    result: dict[str, Any] = {
        "seconds": statistics.median(times[job["clock"]]),
        "wall_seconds": statistics.median(times["wall"]),
        "processor_seconds": statistics.median(times["processor"]),
        "repeats": len(times["wall"]),
        "peak_mb": peak / 2**20,
    }
    if data.sparse:
        result["densified_share"] = most_densified / (data.n_rows * workload.n_features)
    if job["quality"]:
        result |= quality(embed, *data.held_out(), job["facts"])
    Path(job["result"]).write_text(json.dumps(result))


def warm_up(fit: Any, data: WorkloadData) -> None:
    """Fit a few rows first: what is imported or compiled on first use is not the data's share."""
    dtype = np.float64 if data.workload.kind == "table" else np.float32
    try:
        fit(TinyData.of(data.sparse, dtype), 3, 1)
    except Exception as error:  # the same will be said, and reported, about the real rows
        print(f"warm-up: {type(error).__name__}: {error}", file=sys.stderr)


def quality(embed: Embed, X: Any, groups: np.ndarray, facts: dict[str, float]) -> dict[str, float]:
    """Measure an embedding of rows nobody has seen; gaps as shares of the gaps of the rows themselves."""
    from fairstream.auditing.measure.gap_noise import gap_noise
    from fairstream.auditing.measure.probes import probe

    Z = np.asarray(embed(X, groups), dtype=float)
    auc = probe(Z, groups, "linear").auc
    means, second_moments = (found.observed for found in gap_noise(Z, groups, n_permutations=1))
    return {
        "explained_variance": float(Z.var(axis=0).sum() / facts["variance"]),
        "mean_gap": means / facts["mean_gap"],
        "second_moment_gap": second_moments / facts["second_moment_gap"],
        "auc": auc.value,
        "auc_low": auc.low,
        "auc_high": auc.high,
    }


def watch_densification(n_features: int) -> list[int]:
    """Record the size of every sparse matrix with all features that is made dense from here on."""
    sizes = [0]

    def watched(original: Any) -> Any:
        def toarray(self: Any, *arguments: Any, **options: Any) -> Any:
            if n_features in self.shape and min(self.shape) > 1:
                sizes.append(int(np.prod(self.shape)))
            return original(self, *arguments, **options)

        return toarray

    for kind in (sp.csr_matrix, sp.csr_array, sp.csc_matrix, sp.csc_array, sp.coo_matrix, sp.coo_array):
        kind.toarray = watched(kind.toarray)
    return sizes


def memory_now() -> int:
    """Return the memory held, and forget the peak so far where the system can."""
    if not STATUS.exists():
        return memory_peak()
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def memory_peak() -> int:
    if not STATUS.exists():
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return _status("VmHWM")


def _status(field: str) -> int:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(field))
    return 1024 * int(line.split()[1])


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(json.loads(Path(sys.argv[1]).read_text()))
