"""Audit a Parquet file far larger than the memory the audit needs.

    python benchmarks/audit_stream.py                      # 1,000,000 rows x 256 features
    python benchmarks/audit_stream.py --rows 100000        # a quick look

Writes the file into a temporary folder, fits on other rows, audits the file in a process of its own and
prints one JSON line: seconds, peak memory, and the peak as a share of the data held as float64.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROW_GROUP = 20_000


def draw_rows(rng: np.random.Generator, n_rows: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw rows whose groups differ in mean and in spread along two features each."""
    sex = rng.integers(0, 2, size=n_rows)
    X = rng.standard_normal((n_rows, d), dtype=np.float32) * np.linspace(3, 1, d, dtype=np.float32)
    X[:, :2] += 3 * sex[:, None]
    X[:, 2:4] *= np.where(sex, 2.0, 1.0)[:, None].astype(np.float32)
    return X, sex


def write_parquet(path: Path, n_rows: int, d: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(1)
    schema = pa.schema([*((f"x{j}", pa.float32()) for j in range(d)), ("sex", pa.string())])
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=["sex"]) as writer:
        for start in range(0, n_rows, ROW_GROUP):
            X, sex = draw_rows(rng, min(ROW_GROUP, n_rows - start), d)
            columns = [pa.array(np.ascontiguousarray(X[:, j])) for j in range(d)]
            writer.write_table(pa.table([*columns, pa.array(np.array(["f", "m"])[sex])], schema=schema))


def audit_file(path: Path, d: int, strength: str) -> dict[str, float]:
    from fairstream import FairStreamingPCA
    from fairstream.auditing import audit
    from fairstream.data import open_source

    X, sex = draw_rows(np.random.default_rng(0), 20_000, d)
    model = FairStreamingPCA(10, n_unfair=4).fit(X, sensitive_features={"sex": np.array(["f", "m"])[sex]})
    del X
    started = time.perf_counter()
    report = audit(model, open_source(path, sensitive_features=["sex"]), attack=strength)
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"rows": report.data.n_rows, "seconds": round(seconds, 1), "peak_megabytes": round(peak / 1e6)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=256)
    parser.add_argument("--attack", default="standard")
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.file:
        print(json.dumps(audit_file(arguments.file, arguments.features, arguments.attack)))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        write_parquet(path, arguments.rows, arguments.features)
        # A process of its own: the writer's memory must not count.
        shape = ["--features", str(arguments.features), "--attack", arguments.attack]
        command = [sys.executable, __file__, "--file", str(path), *shape]
        result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    whole = arguments.rows * arguments.features * 8 / 1e6
    result["data_megabytes"] = round(whole)
    result["peak_over_data"] = round(result["peak_megabytes"] / whole, 3)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
