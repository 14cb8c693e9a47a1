"""How near the hot loops come to what the machine can do: every figure a ratio of two rates of one run.

    python benchmarks/limit.py                     all of it, about ten minutes
    python benchmarks/limit.py power sketch        some of it: exact fit power steps read sketch bare threads
                                                   load images rivals growth memory
    python benchmarks/limit.py --quick             fewer repeats and rows, nothing stored

What is counted (d = 38,804 features, one grey CelebA image; b rows; float32 products):

- exact: the time of an update of exact moments over that of `X.T @ X` in the same precision; one attribute of
  two groups, and three of 2, 5 and 8.
- fit: the time of a whole exact fit (k = 10, m = 1) over that of scikit-learn's PCA with whichever of its
  solvers "covariance_eigh", "auto" and "randomized" is the quickest.
- power: a whole step, its orthonormalisation included, is 4 b d k + 2 d k^2 useful flops: the two products
  with the block, and the cheapest orthonormalisation (Gram matrix, triangular solve). What else is done
  (casting, means, principal axes, a second orthonormalisation for safety) is time and not counted.
- steps: the same at k = 50, 500 and 1,000, blocks of 2k and 8k rows.
- read: a step of the first phase at m = 5, bytes of X over its time, against `X.sum()` as numpy does it.
  Beside it the same for bare products: of the rows with m columns and back, and the sum of their squares.
- sketch: a step with b rows at rank L, which keeps w directions (`SketchedScatter.width`), is 6 b d w useful
  flops: the rows times the old basis, times what that gives, times the new basis. Orthonormalisation,
  repeated steps, casting and group sums are time and not counted. New rows of a decaying spectrum in every
  update, after some, as on all but the first rows of a stream.
- bare: the time of a power fit (20,000 x 4,096 float32 rows, k = 10, m = 5, ten steps of 2,000 rows) over
  that of two bare products and a QR factorisation a step in torch, on as many threads; and over the same with
  groups apart and their means, as plain code of the method has it. Ours with NumPy, and with torch.
- threads: the time with the threads of BLAS over that with threads of our own, which share rows or features;
  alone and beside two busy processes. Small LAPACK runs on one thread in both. Ours stay as long as any of
  these times grows by more than a tenth without them.
- load: how many times as long each path takes beside two busy processes as without them, over the same number
  for a plain product X @ Y.
- images: fitting from the JPEG archive over the slower of its two halves, each alone with all processors: the
  decoder with its default threads, and the same updates from blocks in memory. Where the halves share the
  processors, 1 / (1/decoder + 1/algebra) is all that can be had; the ratio to that is shown too.
- rivals: scikit-learn's IncrementalPCA (k = 50, float32 rows, cast before the clock starts) and
  FairStreamingPCA (k = 50, m = 1) on the same images in the same blocks, each in a process of its own.
- growth: 1, 2, 4, 8 times the rows; slope of log time over log rows, largest over smallest peak memory.
- memory: peak of a power fit at k = 1,000, m = 5 over the formula in `fairstream.power.method`.

The rate of a plain 4096 x 4096 x 4096 sgemm (or of the plain read) is taken right before and right after
every measurement, so that what others do on the machine meets both sides. Medians and spread are reported.
On a machine that others use, `--processor-time` compares the processor time of one thread instead.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import power_memory
from busy import busy_processes
from ratios import Ratio, Ratios, machine, rows_of_table, save, table, write_page
from threadpoolctl import threadpool_limits

import fairstream
from fairstream import FairStreamingPCA, GroupMoments
from fairstream.data import open_source
from fairstream.datasets import paper_split
from fairstream.linalg import blas_threads, in_threads, shares, small_lapack
from fairstream.linalg import threads as linalg_threads
from fairstream.linalg.gemm import flat_product, tall_product
from fairstream.linalg.threads import row_squares
from fairstream.power import FairPowerMethod

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "limit.json"
D, K, M = 38_804, 1_000, 5
SIDE = 4_096
SECONDS = 8.0  # for the repeats of one ratio
PAUSE = 0.2  # seconds: for so long BLAS's threads keep a processor busy after their last product
PROCESSOR_TIME = "FAIRSTREAM_LIMIT_PROCESSOR_TIME"


# Clocks ---------------------------------------------------------------------------------------------


clock = time.perf_counter


def seconds(work: Callable[[], object]) -> float:
    started = clock()
    work()
    return clock() - started


def rested(measured: Callable[[], float]) -> float:
    """Measure once BLAS's threads have stopped waiting for more."""
    time.sleep(PAUSE)
    return measured()


def use_processor_time() -> None:
    global clock
    clock = time.process_time
    threadpool_limits(1)


def paired(plain: Callable[[], float], work: Callable[[], float], repeats: int) -> tuple[list[float], float]:
    """Return the rates of `work` over those of `plain` right before and after it, and plain's median rate.

    Three times at least, and not more often once that has taken SECONDS.
    """
    ratios, before = [], rested(plain)
    rates, started = [before], time.perf_counter()
    for repeat in range(repeats):
        if repeat >= 3 and time.perf_counter() - started > SECONDS:
            break
        rate, after = rested(work), rested(plain)
        ratios.append(rate / ((before + after) / 2))
        rates.append(after)
        before = after
    return ratios, statistics.median(rates)


def sgemm() -> Callable[[], float]:
    """Return a function that measures the flop rate of one large product."""
    rng = np.random.default_rng(0)
    A, B = (rng.random((SIDE, SIDE), dtype=np.float32) for _ in range(2))
    out = np.empty_like(A)
    return lambda: 2 * SIDE**3 / seconds(lambda: np.matmul(A, B, out=out))


def rows_of(dtype: str, n_rows: int, d: int = D) -> np.ndarray:
    X = np.random.default_rng(1).integers(0, 256, (n_rows, d), dtype=np.uint8)
    return X.astype(dtype, copy=False)


def halves(n_rows: int) -> dict[str, np.ndarray]:
    return {"group": np.arange(n_rows) % 2}


# The ratios -----------------------------------------------------------------------------------------


def exact(quick: bool) -> Ratios:
    answer = []
    for d, n in ((256, 60_000), (1_024, 60_000), (2_000, 30_000)):
        rng = np.random.default_rng(0)
        X = rng.standard_normal((n // 2 if quick else n, d), dtype=np.float32)
        three = {name: rng.integers(0, size, len(X)) for name, size in (("a", 2), ("b", 5), ("c", 8))}
        for what, groups, most in (
            ("one attribute", {"a": three["a"]}, 1.25),
            ("attributes of 2, 5 and 8 groups", three, 3.5),
        ):
            update = lambda: 1 / seconds(lambda: GroupMoments(d, None, np.float32).update(X, groups))  # noqa: E731, B023
            product = lambda: 1 / seconds(lambda: X.T @ X)  # noqa: E731, B023
            product(), update()
            seen, plain_rate = paired(product, update, 3 if quick else 7)
            note = f"{len(X):,} rows; X.T @ X {1 / plain_rate:.3f} s"
            times = [1 / ratio for ratio in seen]
            answer.append(
                Ratio(f"exact moments, d={d:,}, {what}: time over X.T @ X", times, most=most, note=note)
            )
    return answer


def fit(quick: bool) -> Ratios:
    from sklearn.decomposition import PCA

    rng, answer = np.random.default_rng(0), []
    adult = paper_split("adult", 0)
    problems = [("Adult", adult.X_train, adult.groups_train)]
    for n, d in ((100_000, 1_024), (20_000, 2_000)):
        n = n // 4 if quick else n
        X = rng.standard_normal((n, 40), dtype=np.float32) @ rng.standard_normal((40, d), dtype=np.float32)
        X += rng.standard_normal((n, d), dtype=np.float32)
        problems.append((f"{n:,} x {d:,}", X, rng.integers(0, 2, n)))
    for name, X, sex in problems:
        theirs = {
            solver: seconds(lambda: PCA(10, svd_solver=solver).fit(X))  # noqa: B023
            for solver in ("randomized", "auto", "covariance_eigh")
        }
        quickest = min(theirs, key=lambda solver: theirs[solver])
        pca = lambda: 1 / seconds(lambda: PCA(10, svd_solver=quickest).fit(X))  # noqa: E731, B023

        def ours(X: Any = X, sex: Any = sex) -> float:
            model = FairStreamingPCA(10, solver="exact")
            return 1 / seconds(lambda: model.fit(X, sensitive_features=sex))

        ours()
        seen, plain_rate = paired(pca, ours, 3 if quick else 7)
        product = statistics.median(seconds(lambda: X.T @ X) for _ in range(3))  # noqa: B023
        note = f"PCA's {quickest} {1 / plain_rate:.3f} s, X.T @ X alone {product:.3f} s"
        times = [1 / ratio for ratio in seen]
        answer.append(Ratio(f"exact fit, {name}: time over PCA's quickest", times, most=1.3, note=note))
    return answer


def steps(quick: bool) -> Ratios:
    answer, plain = [], sgemm()
    for k, least in ((50, None), (500, 0.65), (1_000, 0.8)):
        for times in (2,) if quick else (2, 8):
            b = times * k
            X, groups = rows_of("float32", min(b, 2_000)), halves(min(b, 2_000))
            pieces = b // len(X)
            method = FairPowerMethod(
                D, k, n_unfair=M, step_rows=(64, b), power_steps=(1, 999), random_state=0, dtype=np.float32
            )
            method.update(X[:64], {"group": groups["group"][:64]})

            def step() -> float:
                flops = 4.0 * b * D * k + 2.0 * D * k**2  # noqa: B023
                return flops / seconds(lambda: [method.update(X, groups) for _ in range(pieces)])  # noqa: B023

            step()
            seen, plain_rate = paired(plain, step, 2 if quick else 3)
            note = f"sgemm {plain_rate / 1e9:.0f} Gflop/s"
            name = f"power step, k={k:,}, b={times}k: flops over sgemm"
            answer.append(Ratio(name, seen, least=least if times == 2 else None, note=note))
    return answer


def load(quick: bool) -> Ratios:
    """Each path alone, then beside two busy processes, and the product of matrices that all of them need."""
    rng = np.random.default_rng(0)
    X, sex = rng.standard_normal((20_000, 1_024), dtype=np.float32), rng.integers(0, 2, 20_000)
    Y = rng.random((4_096, 4_096), dtype=np.float32)
    exactly = FairStreamingPCA(10, solver="exact")
    three = {name: rng.integers(0, size, 20_000) for name, size in (("a", 2), ("b", 5), ("c", 8))}
    wide, groups = rng.standard_normal((1_000, 8_192), dtype=np.float32), halves(1_000)
    method = FairPowerMethod(
        8_192, 100, step_rows=1_000, power_steps=(1, 9_999), random_state=0, dtype=np.float32
    ).update(wide, groups)
    sketched = GroupMoments(8_192, 64, np.float32)
    paths = {
        "X @ Y": lambda: Y @ Y,
        "exact fit, 20,000 x 1,024": lambda: exactly.fit(X, sensitive_features=sex),
        "exact moments, 20,000 x 1,024, attributes of 2, 5 and 8 groups": lambda: GroupMoments(
            1_024, None, np.float32
        ).update(X, three),
        "power step, 1,000 x 8,192, k=100": lambda: method.update(wide, groups),
        "sketch update, 1,000 x 8,192, rank 64": lambda: sketched.update(wide, groups),
    }
    repeats = 3 if quick else 7
    for work in paths.values():
        work()
    alone = {name: [seconds(work) for _ in range(repeats)] for name, work in paths.items()}
    with busy_processes(2):
        beside = {name: [seconds(work) for _ in range(repeats)] for name, work in paths.items()}
    slower = {name: statistics.median(beside[name]) / statistics.median(alone[name]) for name in paths}
    answer = []
    for name in paths:
        idle = statistics.median(alone[name])
        times = [took / idle for took in beside[name]]
        if name == "X @ Y":
            answer.append(Ratio(f"{name}: time beside two busy processes over alone", times))
            continue
        note = f"{statistics.median(times):.2f} times as long as alone, X @ Y {slower['X @ Y']:.2f}"
        relative = [ratio / slower["X @ Y"] for ratio in times]
        answer.append(Ratio(f"{name}: slower under load than X @ Y", relative, most=1.2, note=note))
    return answer


def power(quick: bool) -> Ratios:
    piece, pieces = 1_600, 2 if quick else 5
    b = piece * pieces  # 8,000 rows a step, one of the paper's block sizes
    answer, plain = [], sgemm()
    for dtype in ("uint8", "float32"):
        X, groups = rows_of(dtype, piece), halves(piece)
        method = FairPowerMethod(
            D, K, n_unfair=M, step_rows=(64, b), power_steps=(1, 99), random_state=0, dtype=np.float32
        )
        method.update(X[:64], {"group": groups["group"][:64]})

        def step(method: Any = method, X: Any = X, groups: Any = groups) -> float:
            flops = 4.0 * b * D * K + 2.0 * D * K**2
            return flops / seconds(lambda: [method.update(X, groups) for _ in range(pieces)])

        step()  # the first use of every routine, and the only step from a random start
        seen, plain_rate = paired(plain, step, 2 if quick else 3)
        note = f"steps of {b:,} rows; sgemm {plain_rate / 1e9:.0f} Gflop/s"
        answer.append(Ratio(f"power step, k={K:,}, {dtype}: flops over sgemm", seen, least=0.85, note=note))
    return answer


def read(quick: bool) -> Ratios:
    b, answer = 2_048, []
    for dtype in ("uint8", "float32"):
        X, groups = rows_of(dtype, b), halves(b)
        method = FairPowerMethod(
            D, M, n_unfair=M, step_rows=b, power_steps=99, random_state=0, dtype=np.float32
        )
        method.update(X, groups)
        plain = lambda: X.nbytes / seconds(lambda: X.sum())  # noqa: E731, B023
        rate = lambda: X.nbytes / seconds(lambda: method.update(X, groups))  # noqa: E731, B023
        seen, plain_rate = paired(plain, rate, 7 if quick else 15)
        note = f"steps of {b:,} rows; plain read {plain_rate / 1e9:.1f} GB/s"
        if dtype == "float32":
            bare = statistics.median(X.nbytes / seconds(lambda: bare_products(X)) for _ in range(7))  # noqa: B023
            note += f", its products alone {bare / plain_rate:.2f} of that"
        answer.append(
            Ratio(f"power step, m={M}, {dtype}: bytes of X over one read", seen, least=0.6, note=note)
        )
    return answer


def bare_products(X: np.ndarray) -> None:
    """Multiply rows with M columns and back, and sum their squares, in threads: the least a step can do."""
    Q, T = np.ones((X.shape[1], M), dtype=X.dtype, order="F"), np.ones((M, 32), dtype=X.dtype)

    def share(rows: slice) -> None:
        out, added = np.zeros((2, M, X.shape[1]), dtype=X.dtype)
        for start in range(rows.start, rows.stop, len(T[0])):
            Z = X[start : min(start + len(T[0]), rows.stop)]
            row_squares(Z)
            tall_product(Z.T, Q)
            flat_product(T[:, : len(Z)], Z, out)
            added += out

    with small_lapack():
        in_threads(share, shares(len(X), X.size))


def sketch(quick: bool) -> Ratios:
    """Updates with rows never seen before: a second look at the same rows finds noise that stays."""
    answer, plain = [], sgemm()
    for d, rank, dtype in (
        (4_096, 64, "float32"),
        (4_096, 256, "float32"),
        (D, 64, "float32"),
        (D, 256, "float32"),
        (D, 256, "uint8"),
    ):
        moments = GroupMoments(d, rank, np.float32)
        scatter: Any = moments._scatter
        scatter.steps = 100  # the first steps of a stream take fewer rows
        b, w = scatter.slice_rows(np.zeros((1, d))), scatter.width
        slices = 2
        rows, groups = fresh_rows(slices * b, d, dtype), halves(slices * b)
        for _ in range(2 if quick else 4):  # then the basis has settled, as on all but the first rows
            moments.update(next(rows), groups)
        flops = 6.0 * slices * b * d * w

        def rate(
            rows: Any = rows, moments: Any = moments, groups: Any = groups, flops: float = flops
        ) -> float:
            X = next(rows)
            return flops / seconds(lambda: moments.update(X, groups))

        seen, plain_rate = paired(plain, rate, 3 if quick else 9)
        note = f"steps of {b:,} rows, {w} directions; sgemm {plain_rate / 1e9:.0f} Gflop/s"
        name = f"sketch update, d={d:,}, rank {rank}, {dtype}: flops over sgemm"
        answer.append(Ratio(name, seen, least=0.6, note=note))
    return answer


def fresh_rows(n_rows: int, d: int, dtype: str) -> Iterator[np.ndarray]:
    """Yield blocks of new rows: 300 directions of variance 1 / j in noise of a fifth of the energy."""
    rng, sizes = np.random.default_rng(1), np.arange(1, 301) ** -0.5
    directions = rng.standard_normal((300, d), dtype=np.float32) * sizes[:, None].astype(np.float32)
    level = np.sqrt(12 * 0.25 * (sizes**2).sum()) / 255
    while True:
        X = rng.standard_normal((n_rows, 300), dtype=np.float32) @ directions
        X += np.float32(level) * rng.integers(0, 256, X.shape, dtype=np.uint8)
        if dtype == "uint8":
            X *= 24
            X += 128 - 24 * 127.5 * level
            np.clip(X, 0, 255, out=X)
        yield X.astype(dtype, copy=False)


def bare(quick: bool) -> Ratios:
    """Ours against the products alone, and against plain code, in torch."""
    try:
        import torch
    except ModuleNotFoundError:
        print("bare: left out, torch is not installed")
        return []
    torch.set_num_threads(blas_threads())
    d, k, m, b, steps = 4_096, 10, M, 2_000, 5
    rng = np.random.default_rng(0)
    X, sex = rng.standard_normal((2 * steps * b, d), dtype=np.float32), rng.integers(0, 2, 2 * steps * b)
    blocks = [torch.from_numpy(X[start : start + b]) for start in range(0, len(X), b)]
    women = [torch.from_numpy(sex[start : start + b] == 0) for start in range(0, len(X), b)]

    def ours(engine: str) -> None:
        with fairstream.backend(engine):
            FairPowerMethod(
                d, k, n_unfair=m, step_rows=b, power_steps=steps, random_state=0, dtype=np.float32
            ).update(X, sex)

    def products() -> None:
        for columns, part in ((m, blocks[:steps]), (k, blocks[steps:])):
            Q = torch.randn(d, columns)
            for B in part:
                Q = torch.linalg.qr(B.T @ (B @ Q))[0]

    def plainly() -> None:
        W, V = torch.randn(d, m), torch.randn(d, k)
        means = torch.zeros(2, d)
        for B, inside in zip(blocks[:steps], women, strict=False):
            parts = [B[inside], B[~inside]]
            means += torch.stack([part.mean(0) for part in parts])
            sums = [part.T @ (part @ W) / len(part) for part in parts]
            W = torch.linalg.qr(sums[0] - sums[1])[0]
        for B in blocks[steps:]:
            V = V - W @ (W.T @ V)
            P = B.T @ (B @ V)
            V = torch.linalg.qr(P - W @ (W.T @ P))[0]

    answer = []
    for engine, least_plainly in (("numpy", None), ("torch", 1 / 1.3)):
        for what, work, most in (
            ("two bare products and a QR in torch", products, 1.0),
            ("plain code of the method in torch", plainly, least_plainly),
        ):
            theirs = lambda: 1 / seconds(work)  # noqa: E731, B023
            mine = lambda: 1 / seconds(lambda: ours(engine))  # noqa: E731, B023
            theirs(), mine()
            seen, rate = paired(theirs, mine, 3 if quick else 9)
            note = f"20,000 x 4,096, k = 10, m = 5; {1 / rate:.3f} s"
            times = [1 / ratio for ratio in seen]
            answer.append(Ratio(f"power fit with {engine}: time over {what}", times, most=most, note=note))
    return answer


def threads(quick: bool) -> Ratios:
    """Every path with the threads of BLAS, then with our own, in turns."""
    rng = np.random.default_rng(0)
    wide, narrow = rng.standard_normal((1_000, 8_192), dtype=np.float32), rng.standard_normal((20_000, 1_024))
    groups, many = halves(1_000), halves(20_000)
    sketched = GroupMoments(8_192, 64, np.float32)
    paths: dict[str, Callable[[], object]] = {
        "sketch update, 1,000 x 8,192, rank 64": lambda: sketched.update(wide, groups),
        "exact moments, 20,000 x 1,024": lambda: GroupMoments(1_024).update(narrow, many),
    }
    for k in (5, 50, 500):
        method = FairPowerMethod(
            8_192, k, step_rows=1_000, power_steps=(1, 9_999), random_state=0, dtype=np.float32
        ).update(wide, groups)
        paths[f"power step, 1,000 x 8,192, k={k}"] = lambda method=method: method.update(wide, groups)
    answer = []
    for what, others in (("alone", 0), ("beside two busy processes", 2)):
        with busy_processes(others):
            for name, work in paths.items():
                work()
                times = []
                for _ in range(3 if quick else 5):
                    ours = rested(lambda work=work: seconds(work))
                    with threads_of_blas():
                        times.append(rested(lambda work=work: seconds(work)) / ours)
                name = f"{name}, {what}: time with threads of BLAS over threads of our own"
                note = f"{blas_threads()} threads; load of the machine {os.getloadavg()[0]:.0f}"
                answer.append(Ratio(name, times, note=note))
    return answer


@contextmanager
def threads_of_blas() -> Iterator[None]:
    """Let nothing be shared out, and limit BLAS to one thread only in small LAPACK."""
    limited = linalg_threads.small_lapack
    rooms = [module for name, module in sys.modules.items() if name.startswith("fairstream.")]
    changed = {"shares": lambda total, work, most=None: [slice(0, total)], "small_lapack": nullcontext}
    before = [(room, name, getattr(room, name)) for room in rooms for name in changed if name in vars(room)]
    lapack_threads = linalg_threads.lapack_threads
    for room, name, _ in before:
        setattr(room, name, changed[name])
    linalg_threads.lapack_threads = lambda size: nullcontext() if size >= linalg_threads.LARGE else limited()
    try:
        yield
    finally:
        linalg_threads.lapack_threads = lapack_threads
        for room, name, value in before:
            setattr(room, name, value)


def images(quick: bool) -> Ratios:
    """Three settings: the paper's colour fit, and two whose algebra is no slower than the decoder."""
    archive = celeba()
    if archive is None:
        print("images: left out, FAIRSTREAM_DATA or ../shared/data holds no celeba/img_align_celeba.zip")
        return []
    settings = [
        ("power, k=1,000, RGB", "rgb", 512, {"solver": "power", "n_components": K, "n_unfair": 2}, 0.85),
        ("power, k=50, grey", "grey", 512, {"solver": "power", "n_components": 50}, None),
        ("sketch, k=50, grey", "grey", 512, {"solver": "sketch", "n_components": 50}, None),
    ]
    answer = []
    for name, mode, block_size, options, least in settings[1 if quick else 0 :]:  # the first takes a minute
        n = 512 if quick or options["n_components"] == K else 2_048
        if options["solver"] == "power":
            options |= {"step_rows": (n // 4, n // 4), "power_steps": (1, 2), "random_state": 0}
        source = open_source(archive, names=celeba_names(archive, n), mode=mode, block_size=block_size)
        labels = halves(n)["group"]
        blocks = [block.X for block in source]

        def fit(rows: Any, mode: str = mode, options: Any = options, labels: Any = labels) -> None:
            channels = 3 if mode == "rgb" else 1
            models = [FairStreamingPCA(**options) for _ in range(channels)]
            start = 0
            for X in rows:
                for c, model in enumerate(models):
                    part = X[:, c * D : (c + 1) * D]
                    model.partial_fit(part, sensitive_features={"group": labels[start : start + len(X)]})
                start += len(X)

        together, bound = [], []
        for _ in range(1 if K in options.values() else 3):
            decoder = n / seconds(lambda source=source: [None for _ in source])
            algebra = n / seconds(lambda fit=fit, blocks=blocks: fit(blocks))
            both = n / seconds(lambda fit=fit, source=source: fit(block.X for block in source))
            together.append(both / min(decoder, algebra))
            bound.append(both * (1 / decoder + 1 / algebra))
        note = f"decoder {decoder:.0f}, algebra {algebra:.0f}, together {both:.0f} images/s"
        answer.append(Ratio(f"{name}: together over the slower half", together, least=least, note=note))
        answer.append(Ratio(f"{name}: together over what shared processors allow", bound))
    return answer


def rivals(quick: bool) -> Ratios:
    n, block, k = 1_024, 512, 50
    answer = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        archive = celeba()
        if archive is None:
            np.save(path, rows_of("uint8", n))
        else:
            source = open_source(archive, names=celeba_names(archive, n), mode="grey", block_size=block)
            np.save(path, np.concatenate([blk.X for blk in source]))
        found: dict[str, list[dict[str, float]]] = {"incremental": [], "power": [], "sketch": []}
        for _ in range(1 if quick else 2):
            for name in found:  # in one process the time, in another the peak: what measures it takes time
                task = ("contender", name, str(path), str(block), str(k))
                took = inside(*task, give_back=False)["seconds"]
                found[name].append({**inside(*task), "seconds": took})
    what = f"{n:,} {'random' if archive is None else 'CelebA'} rows in blocks of {block}"
    for name, least in (("power", 30.0), ("sketch", 10.0)):
        both = list(zip(found["incremental"], found[name], strict=True))
        times = [theirs["seconds"] / ours["seconds"] for theirs, ours in both]
        peaks = [ours["peak"] / theirs["peak"] for theirs, ours in both]
        note = f"{what}; {both[-1][0]['seconds']:.1f} s against {both[-1][1]['seconds']:.2f} s"
        answer.append(Ratio(f"IncrementalPCA's time over {name}'s, k={k}", times, least=least, note=note))
        note = f"{both[-1][0]['peak'] / 1e6:.0f} MB against {both[-1][1]['peak'] / 1e6:.0f} MB"
        answer.append(Ratio(f"{name}'s peak memory over IncrementalPCA's", peaks, most=1 / 3, note=note))
    return answer


def growth(quick: bool) -> Ratios:
    answer = []
    for name in ("power", "sketch"):
        slopes, flatness = [], []
        for _ in range(1 if quick else 2):
            runs = [inside("growing", name, str(times * (1 if quick else 2))) for times in (1, 2, 4, 8)]
            log_rows = np.log([1, 2, 4, 8])
            slopes.append(float(np.polyfit(log_rows, np.log([run["seconds"] for run in runs]), 1)[0]))
            peaks = [run["peak"] for run in runs]
            flatness.append(max(peaks) / min(peaks))
        note = ", ".join(f"{run['seconds']:.2f}" for run in runs) + " s for 1, 2, 4, 8 times the rows"
        answer.append(Ratio(f"{name}: exponent of time over rows", slopes, 0.95, 1.05, note))
        note = f"{peaks[0] / 1e6:.0f} to {peaks[-1] / 1e6:.0f} MB"
        answer.append(
            Ratio(
                f"{name}: largest over smallest peak, 1 to 8 times the rows", flatness, most=1.05, note=note
            )
        )
    return answer


def memory(quick: bool) -> Ratios:
    arguments = ["--features", str(D), "--components", str(K), "--unfair", str(M), "--block-rows", "1024"]
    finished = run_script("power_memory.py", [*arguments, "--inside"])
    expected = power_memory.formula_bytes(D, K, M, "float32")
    note = f"{json.loads(finished)['peak'] / 1e6:.0f} MB, formula {expected / 1e6:.0f} MB"
    ratio = json.loads(finished)["peak"] / expected
    return [Ratio(f"peak of a power fit, k={K:,}, m={M}, over the formula", [ratio], most=1.25, note=note)]


PARTS = {
    part.__name__: part
    for part in (exact, fit, power, steps, read, sketch, bare, threads, load, images, rivals, growth, memory)
}


# In processes of their own ----------------------------------------------------------------------------


def contender(name: str, path: str, block: int, k: int) -> dict[str, float]:
    """Fit the rows of a file, return the time and the peak above what was there before."""
    X = np.load(path)
    labels = (X[:, D // 2] > np.median(X[:, D // 2])).astype(int)
    blocks = [slice(start, start + block) for start in range(0, len(X), block)]
    if name == "incremental":
        from sklearn.decomposition import IncrementalPCA

        X = X.astype(np.float32)
        model: Any = IncrementalPCA(k)
        IncrementalPCA(2).partial_fit(X[:8])
        learn = lambda rows: model.partial_fit(X[rows])  # noqa: E731
    else:
        options = {} if name == "sketch" else {"step_rows": len(X) // 4, "power_steps": (1, 3)}
        model = FairStreamingPCA(k, solver=name, random_state=0, **options)
        learn = lambda rows: model.partial_fit(X[rows], sensitive_features=labels[rows])  # noqa: E731
        warm = {"step_rows": 4, "power_steps": 1} if name == "power" else {"rank": 4}
        FairStreamingPCA(2, solver=name, **warm).partial_fit(X[:8], sensitive_features=np.arange(8) % 2)

    def fit() -> None:
        for rows in blocks:
            learn(rows)
        assert model.components_.shape == (k, D)

    return measured(fit)


def growing(name: str, times: int) -> dict[str, float]:
    """Fit `times` times 1,024 rows, taken again and again from the same place."""
    X, groups = rows_of("uint8", 512), halves(512)
    learner: Any = (
        FairPowerMethod(D, 50, step_rows=512, power_steps=(1, 999), random_state=0, dtype=np.float32)
        if name == "power"
        else GroupMoments(D, 64, np.float32)
    )
    for _ in range(3):
        learner.update(X, groups)

    def fit() -> None:
        for _ in range(2 * times):
            learner.update(X, groups)

    return measured(fit)


def measured(fit: Callable[[], None]) -> dict[str, float]:
    power_memory.forget_peak()
    before = power_memory.resident_bytes("VmRSS")
    took = seconds(fit)
    return {"seconds": took, "peak": power_memory.resident_bytes("VmHWM") - before}


def inside(task: str, *arguments: str, give_back: bool = True) -> dict[str, float]:
    written = run_script(Path(__file__).name, ["--inside", task, *arguments], give_back=give_back)
    answer: dict[str, float] = json.loads(written)
    return answer


def run_script(name: str, arguments: list[str], *, give_back: bool = True) -> str:
    """Run a script in a process of its own; with `give_back`, freed megabytes go to the system at once."""
    environment = {**os.environ, **({"MALLOC_MMAP_THRESHOLD_": "1000000"} if give_back else {})}
    if clock is time.process_time:
        environment |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", PROCESSOR_TIME: "1"}
    command = [sys.executable, str(HERE / name), *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout


def run_inside(task: str, *arguments: str) -> None:
    if PROCESSOR_TIME in os.environ:
        use_processor_time()
    numbers = [int(a) if a.isdigit() else a for a in arguments]
    print(json.dumps({"contender": contender, "growing": growing}[task](*numbers)))  # type: ignore[operator]


# Where the images are, what the machine is, and the answer --------------------------------------------


def celeba() -> Path | None:
    place = Path(os.environ.get("FAIRSTREAM_DATA", HERE.parent.parent / "shared" / "data"))
    archive = place / "celeba" / "img_align_celeba.zip"
    return archive if archive.exists() else None


def celeba_names(archive: Path, n: int) -> list[str]:
    return list(open_source(archive, mode="grey").names[:n])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", help=f"some of: {' '.join(PARTS)}")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path, default=RESULTS)
    parser.add_argument("--processor-time", action="store_true", help="one thread, on a busy machine")
    args = parser.parse_args()
    if args.processor_time:
        use_processor_time()
    unknown = [part for part in args.parts if part not in PARTS]
    if unknown:
        parser.error(f"{unknown[0]!r} is none of {', '.join(PARTS)}")
    facts = {
        "clock": "processor time, one thread" if args.processor_time else "wall",
        "quick": args.quick,
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        **machine(),
        "load before": os.getloadavg()[0],
    }
    ratios: Ratios = []
    keep_others = bool(args.parts)
    for part in args.parts or PARTS:
        started = time.perf_counter()
        found = PARTS[part](args.quick)
        if args.processor_time:
            found = [replace(r, note=f"{r.note}; processor time of one thread".lstrip("; ")) for r in found]
        ratios += found
        print(f"{part}: {time.perf_counter() - started:.0f} s", *rows_of_table(found), sep="\n", flush=True)
        facts["load after"] = os.getloadavg()[0]
        if args.json != RESULTS or not args.quick:  # a quick run leaves the stored results alone
            save(args.json, facts, found, keep_others=keep_others)
        keep_others = True
    print("\n".join(f"{name}: {value}" for name, value in facts.items()), table(ratios), sep="\n\n")
    if args.json == RESULTS and not args.quick:
        write_page(
            HERE.parent / "docs" / "evidence" / "speed.md", RESULTS, __doc__.partition("What is counted ")[2]
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        run_inside(*sys.argv[2:])
    else:
        main()
