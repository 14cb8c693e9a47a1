"""How fast tables are read, beside pyarrow alone on the same files.

    python benchmarks/sources.py [csv parquet arrow] [--rows 300000] [--columns 60] [--repeat 5]

Writes one table of float64 columns and a group label as CSV, Parquet and Arrow. For CSV it compares a pass
over the blocks with `pyarrow.csv.open_csv` reading the same file in batches; for Parquet and Arrow a
collection of moments with pyarrow reading the file plus the same algebra on rows in memory. A ratio of 1
means that the source costs nothing. What is compared runs in turn, `--repeat` times; each figure is a
median, and a ratio the median of the ratios of single rounds. Processor time, of all threads together, is
given beside the time on the clock: other programs change it less. Files in `--folder` stay there, and are
used again. Exits with 1 if a ratio of times on the clock misses its target.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet
from numpy.typing import NDArray

from fairstream import collect_moments
from fairstream.data import open_source

TARGETS = {"csv": 0.5, "parquet": 0.7, "arrow": 0.7}


def write(folder: Path, n_rows: int, n_columns: int) -> dict[str, Path]:
    """Write the same rows in every format, a part at a time."""
    paths = {kind: folder / f"{n_rows}x{n_columns}.{kind}" for kind in TARGETS}
    if all(path.exists() for path in paths.values()):
        return paths
    schema = pa.schema([*((f"x{j}", pa.float64()) for j in range(n_columns)), ("sex", pa.string())])
    rng = np.random.default_rng(0)
    with (
        pa.csv.CSVWriter(paths["csv"], schema) as csv,
        pa.parquet.ParquetWriter(paths["parquet"], schema) as parquet,
        pa.ipc.new_file(paths["arrow"], schema) as arrow,
    ):
        for start in range(0, n_rows, 65_536):
            n = min(65_536, n_rows - start)
            numbers = rng.normal(size=(n_columns, n))
            part = pa.table([*map(pa.array, numbers), pa.array(rng.choice(["f", "m"], n))], schema=schema)
            for writer in (csv, parquet, arrow):
                writer.write_table(part)
    return paths


def read_alone(kind: str, path: Path) -> int:
    """Read a file with pyarrow alone, batch by batch, and count the rows."""
    if kind == "csv":
        with pa.csv.open_csv(path) as reader:
            return sum(batch.num_rows for batch in reader)
    if kind == "parquet":
        file = pa.parquet.ParquetFile(path)
        return sum(batch.num_rows for batch in file.iter_batches(65_536))
    # A mapped file is not read before its values are looked at.
    with pa.OSFile(str(path)) as handle, pa.ipc.open_file(handle) as file:
        return sum(file.get_batch(number).num_rows for number in range(file.num_record_batches))


def read_blocks(path: Path) -> int:
    return sum(block.n_rows for block in open_source(path, sensitive_features=["sex"]))


def read_moments(path: Path) -> object:
    return collect_moments(open_source(path, sensitive_features=["sex"]))


def seconds(action: Callable[[], object]) -> NDArray[np.float64]:
    """Return the time of a call on the clock, and that of the processors."""
    started = np.array([time.perf_counter(), time.process_time()])
    action()
    return np.array([time.perf_counter(), time.process_time()]) - started


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kinds", nargs="*", help=f"of {', '.join(TARGETS)} (default: all)")
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--columns", type=int, default=60)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=None, help="where the files stay")
    arguments = parser.parse_args()
    rows, columns = arguments.rows, arguments.columns
    missed = []
    with tempfile.TemporaryDirectory() as name:
        paths = write(arguments.folder or Path(name), rows, columns)
        size = min(65_536, max(64, 2**23 // (8 * columns)))
        rng = np.random.default_rng(0)
        block = rng.normal(size=(size, columns))
        labels = {"sex": rng.choice(["f", "m"], size)}
        n_blocks = -(-rows // size)

        def algebra() -> object:
            source = open_source([(block, labels)] * n_blocks)
            return collect_moments(source)

        print(f"{rows:,} x {columns}, medians of {arguments.repeat}: on the clock / of the processors")
        for kind in arguments.kinds or TARGETS:
            path = paths[kind]
            action = {"csv": read_blocks}.get(kind, read_moments)
            rounds = []
            for _ in range(arguments.repeat):
                alone = seconds(partial(read_alone, kind, path))
                ours = seconds(partial(action, path))
                sums = seconds(algebra) if kind != "csv" else np.zeros(2)
                rounds.append([alone, sums, ours, (alone + sums) / ours])
            alone, sums, ours, ratio = np.median(rounds, axis=0)
            if ratio[0] < TARGETS[kind]:
                missed.append(kind)
            plus = f" + algebra {sums[0]:.2f} / {sums[1]:.2f} s" if kind != "csv" else ""
            print(
                f"  {kind:8} {path.stat().st_size / 1e6:7,.0f} MB: pyarrow {alone[0]:.2f} / {alone[1]:.2f} s"
                f"{plus}, fairstream {ours[0]:.2f} / {ours[1]:.2f} s: "
                f"{ratio[0]:.2f} / {ratio[1]:.2f} of the speed (target {TARGETS[kind]})"
            )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
