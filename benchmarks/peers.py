"""One table against every peer: speed, peak memory and quality on five workloads, in one run.

    python benchmarks/peers.py [--quick] [--workloads adult sparse] [--contenders PCA ...]   half an hour
    python benchmarks/peers.py --report            only write tables, plots and page from the stored results

Every contender fits every workload in a process of its own, from the same file and with all processors, under
a limit of time and one of memory. Results are gathered in benchmarks/results/peers.json: a run of some
workloads or contenders replaces their lines and keeps the rest. --quick takes fewer rows and a shorter limit,
prints the table and leaves the stored results alone. Peers come with `pip install 'fairstream[bench]'`; those
that are not installed are listed as such.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import peers_data  # noqa: E402
from busy import busy_processes  # noqa: E402
from peers_data import FULL, QUICK_ROWS, UnavailableError, Workload  # noqa: E402
from peers_fits import CONTENDERS, Contender  # noqa: E402
from peers_machine import machine  # noqa: E402
from peers_report import table_of, write_report  # noqa: E402

RESULTS = HERE / "results" / "peers.json"
OVERHEAD_SECONDS = 180.0  # for imports and quality, which are not timed
TRIAL_FROM = 5_000  # rows
AGAIN = 12  # a fit that took less than this part of the limit is measured in other settings too
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Limits:
    """What a fit may take."""

    seconds: float
    gigabytes: float
    threads: int = os.cpu_count() or 1
    clock: str = "wall"


def run_one(
    workload: Workload, contender: Contender, folder: Path, facts: dict[str, Any], limits: Limits
) -> dict[str, Any]:
    """Measure one contender; if it learns from a stream, also beside two busy processes.

    Ours also with half the rows, which tells how memory grows, and with three attributes. A peer first shows
    with a sixteenth of many rows that it is worth waiting for.
    """
    line: dict[str, Any] = {
        "workload": workload.name,
        "contender": contender.name,
        "family": contender.family,
        "streams": contender.streams,
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "load": round(os.getloadavg()[0], 2),
        "rows": workload.n_rows,
    }
    measure = partial(measured, workload, contender, folder, facts)
    if contender.family != "ours" and workload.n_rows >= TRIAL_FROM:
        trial = measure(replace(limits, seconds=limits.seconds / 8), limit=workload.n_rows // 16)
        if trial.get("failed") == "time":
            words = f"a sixteenth of the rows took over {limits.seconds / 8:g} s"
            return line | {"failed": "time", "error": words, "at_least": limits.seconds}
    line |= measure(limits)
    if "error" in line:
        return line
    if contender.streams and line["seconds"] < limits.seconds / AGAIN:
        with busy_processes(2):
            line["busy_seconds"] = measure(limits, limit=workload.n_rows).get("seconds")
    if contender.family == "ours":
        line["peak_mb_half"] = measure(limits, limit=workload.n_rows // 2).get("peak_mb")
        if workload.kind != "images" and line["seconds"] < limits.seconds / AGAIN:
            line["several_seconds"] = measure(limits, limit=workload.n_rows, several=True).get("seconds")
    return line


def measured(
    workload: Workload,
    contender: Contender,
    folder: Path,
    facts: dict[str, Any],
    limits: Limits,
    limit: int | None = None,
    several: bool = False,
) -> dict[str, Any]:
    """Start the worker, watch it, and return what it found or why it was ended."""
    with tempfile.TemporaryDirectory() as name:
        job = {
            "workload": asdict(workload),
            "contender": contender.name,
            "folder": str(folder),
            "facts": facts,
            "limit": limit,
            "several": several,
            "clock": limits.clock,
            "quality": limit is None,
            "stage": str(Path(name) / "stage"),
            "result": str(Path(name) / "result.json"),
        }
        (Path(name) / "job.json").write_text(json.dumps(job))
        # All processors for everybody, whatever the caller's environment says.
        environment = os.environ | dict.fromkeys(THREADS, str(limits.threads))
        with open(Path(name) / "stderr", "w+") as stderr:
            process = subprocess.Popen(
                [sys.executable, str(HERE / "peers_worker.py"), str(Path(name) / "job.json")],
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                env=environment,
            )
            try:
                ended = watch(process, Path(job["stage"]), limits)
            finally:
                process.kill()
                process.wait()
            stderr.seek(0)
            said = stderr.read()
        if ended is not None:
            return ended
        if process.returncode or not Path(job["result"]).exists():
            return {"error": _last_words(said, process.returncode), "failed": "error"}
        return json.loads(Path(job["result"]).read_text())


def watch(process: subprocess.Popen[bytes], stage: Path, limits: Limits) -> dict[str, Any] | None:
    """Wait for the worker; end it, and say why, once it goes beyond a limit."""
    clock = time.monotonic if limits.clock == "wall" else lambda: processor_time_of(process.pid)
    started = time.monotonic()
    fitting_since: float | None = None
    while process.poll() is None:
        time.sleep(0.02)
        at = stage.read_text() if stage.exists() else ""
        if at == "fitting" and fitting_since is None:
            fitting_since = clock()
        fitted_for = clock() - fitting_since if fitting_since is not None and at == "fitting" else 0.0
        if memory_of(process.pid) > limits.gigabytes * 2**30:
            return {
                "failed": "memory",
                "error": f"more than {limits.gigabytes:g} GB, ended after {fitted_for:.0f} s of fitting",
            }
        if fitted_for > limits.seconds:
            return {"failed": "time", "error": f"not done after {limits.seconds:g} s", "at_least": fitted_for}
        if time.monotonic() - started > 4 * limits.seconds + OVERHEAD_SECONDS:
            return {"failed": "time", "error": f"{at or 'starting'} took too long"}
    return None


def processor_time_of(pid: int) -> float:
    """Return the processor seconds of another process so far, 0 where the system does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_of(pid: int) -> int:
    """Return the resident memory of another process, 0 where the system does not tell."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(pages[1]) * os.sysconf("SC_PAGE_SIZE") if len(pages) > 1 else 0


def _last_words(said: str, code: int) -> str:
    """Return the error itself, without paths."""
    lines = [line for line in said.strip().splitlines() if line and not line.startswith((" ", "warm-up"))]
    words = lines[-1] if lines else f"the process ended with code {code}"
    words = re.sub(r"^(\w+\.)+_?(?=\w+(Error|Exception))", "", words)  # the class without its modules
    return words.replace(str(HERE.parent), ".")[:240]


def run(
    workloads: list[Workload],
    contenders: list[Contender],
    folder: Path,
    limits: Limits,
    known: list[dict[str, Any]],
    keep: Callable[[list[dict[str, Any]]], object],
) -> list[dict[str, Any]]:
    """Measure everything, workloads from small to large, and `keep` all lines after each new one.

    `known` are the lines of earlier runs.
    """
    lines = [dict(line) for line in known]
    for workload in workloads:
        place = folder / workload.name
        try:
            facts = peers_data.write(workload, place)
        except UnavailableError as reason:
            lines = [line for line in lines if line["workload"] != workload.name]
            lines.append({"workload": workload.name, "contender": None, "skipped": str(reason)})
            print(f"{workload.name}: {reason}", flush=True)
            continue
        for contender in contenders:
            line = _hopeless(workload, contender, lines) or run_one(workload, contender, place, facts, limits)
            line |= {"limits": asdict(limits), "facts": facts}
            same = (workload.name, contender.name)
            lines = [
                old for old in lines if (old["workload"], old["contender"]) not in (same, (same[0], None))
            ]
            lines.append(line)
            keep(lines)
            shown = (
                f"{line['seconds']:.2f} s, {line['peak_mb']:.0f} MB" if "seconds" in line else line["error"]
            )
            print(f"{workload.name}: {contender.name}: {shown}", flush=True)
    return lines


def _hopeless(workload: Workload, contender: Contender, lines: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Spare a rival that went beyond a limit on a smaller workload the larger one."""
    if contender.family != "rival":
        return None
    size = {w.name: w.n_rows * w.n_features for w in FULL}
    for line in lines:
        smaller = size.get(line["workload"], 0) < size[workload.name]
        if line["contender"] == contender.name and smaller and line.get("failed") in ("time", "memory"):
            return {
                "workload": workload.name,
                "contender": contender.name,
                "family": contender.family,
                "streams": contender.streams,
                "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
                "rows": workload.n_rows,
                "failed": "not started",
                "error": f"not started: beyond the limit of {line['failed']} on {line['workload']} already",
            }
    return None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer rows, shorter limit, nothing stored")
    parser.add_argument("--report", action="store_true", help="write the report from stored results")
    parser.add_argument("--workloads", nargs="+", choices=[w.name for w in FULL])
    parser.add_argument("--contenders", nargs="+", help="those whose name contains one of these")
    parser.add_argument("--seconds", type=float, help="limit of a fit (default 120, quick: 8)")
    parser.add_argument("--gigabytes", type=float, default=12.0, help="limit of a process (default 12)")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of every fit (default: all)")
    parser.add_argument(
        "--clock",
        choices=["wall", "processor"],
        default="wall",
        help="what seconds are: processor time, with --threads 1, where others use the machine meanwhile",
    )
    parser.add_argument("--rows", type=float, default=1.0, help="share of the rows (default 1)")
    parser.add_argument(
        "--folder", type=Path, help="where the data go and stay (default: a temporary folder)"
    )
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument(
        "--docs", type=Path, default=HERE.parent / "docs" / "evidence", help="folder of the page and plots"
    )
    options = parser.parse_args()
    if not options.report:
        known = [] if options.quick or not options.results.exists() else _stored(options.results)
        about = machine()

        def keep(lines: list[dict[str, Any]]) -> None:
            if not options.quick:
                options.results.parent.mkdir(parents=True, exist_ok=True)
                draft = options.results.with_suffix(".part")
                draft.write_text(json.dumps({"machine": about, "lines": lines}, indent=1) + "\n")
                draft.replace(options.results)

        with tempfile.TemporaryDirectory() as temporary:
            lines = run(
                [_sized(w, options) for w in FULL if not options.workloads or w.name in options.workloads],
                [c for c in CONTENDERS if _wanted(c, options.contenders, options.quick)],
                options.folder or Path(temporary),
                Limits(
                    options.seconds or (8.0 if options.quick else 120.0),
                    options.gigabytes,
                    options.threads,
                    options.clock,
                ),
                known,
                keep,
            )
        if options.quick:
            print(table_of({"machine": about, "lines": lines}))
            return
    write_report(json.loads(options.results.read_text()), options.docs)


def _stored(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text())["lines"]


def _sized(workload: Workload, options: argparse.Namespace) -> Workload:
    rows = QUICK_ROWS.get(workload.name, workload.n_rows) if options.quick else workload.n_rows
    held_out = min(workload.n_held_out, 2_000) if options.quick else workload.n_held_out
    return replace(
        workload,
        n_rows=max(int(rows * options.rows), 400),
        n_held_out=max(int(held_out * min(options.rows * 10, 1)), 200),
    )


def _wanted(contender: Contender, parts: list[str] | None, quick: bool) -> bool:
    if parts:
        return any(part.lower() in contender.name.lower() for part in parts)
    return not quick or contender.family != "rival"


if __name__ == "__main__":
    main()
