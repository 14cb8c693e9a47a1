"""The five workloads: written once to a folder, then opened by every contender in the same way."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, eigsh

from fairstream.data import open_source
from fairstream.data.blocks import Block
from fairstream.data.cutting import cut_block
from fairstream.datasets import CelebA, paper_split
from fairstream.datasets.synthetic import SyntheticStream

ROOT = Path(__file__).parents[1]
ATTRIBUTE = "group"
IMAGE_ATTRIBUTE = "Male"
TOPICS, TOPIC_COLUMNS, GROUP_TOPICS = 30, 500, 10


@dataclass(frozen=True)
class Workload:
    """What is fitted: how many rows are learned from and held back, and what is asked for."""

    name: str
    title: str
    kind: str  # "table", "stream", "images" or "sparse"
    n_rows: int
    n_held_out: int
    n_features: int
    n_components: int
    n_unfair: int


FULL = (
    Workload("adult", "Adult, d = 102, float64", "table", 31_655, 13_567, 102, 10, 2),
    Workload("stream-256", "1,000,000 x 256, float32 on disk", "stream", 1_000_000, 20_000, 256, 10, 3),
    Workload("stream-4096", "100,000 x 4,096, float32 on disk", "stream", 100_000, 5_000, 4_096, 50, 3),
    Workload("images", "grey CelebA, d = 38,804, JPEG in a zip", "images", 8_000, 2_000, 38_804, 50, 2),
    Workload("sparse", "200,000 x 50,000 CSR, density 1e-3", "sparse", 200_000, 10_000, 50_000, 10, 2),
)
QUICK_ROWS = {"stream-256": 100_000, "stream-4096": 6_000, "images": 800, "sparse": 20_000}


class UnavailableError(Exception):
    """The data of a workload are not on this machine."""


def write(workload: Workload, folder: Path) -> dict[str, Any]:
    """Write a workload's rows, unless they are there, and return what is known about them."""
    about = folder / "about.json"
    if about.exists() and json.loads(about.read_text())["workload"] == asdict(workload):
        return json.loads(about.read_text())
    folder.mkdir(parents=True, exist_ok=True)
    about.unlink(missing_ok=True)
    {"table": _write_adult, "stream": _write_stream, "images": _write_images, "sparse": _write_sparse}[
        workload.kind
    ](workload, folder)
    data = WorkloadData(workload, folder)
    X, groups = data.held_out()
    facts = {"workload": asdict(workload), **gaps_of(X, groups), "file_mb": data.file_bytes() / 2**20}
    about.write_text(json.dumps(facts))
    return facts


@dataclass(frozen=True)
class WorkloadData:
    """One workload's rows as contenders get them.

    `limit` gives the first rows only, `several` two more attributes, of 5 and 8 groups drawn at random.
    """

    workload: Workload
    folder: Path
    limit: int | None = None
    several: bool = False

    @property
    def n_rows(self) -> int:
        return min(self.workload.n_rows, self.limit or self.workload.n_rows)

    @property
    def sparse(self) -> bool:
        return self.workload.kind == "sparse"

    @property
    def is_array_file(self) -> bool:
        """Whether `read` can read any rows."""
        return self.workload.kind in ("table", "stream")

    def source(self, block_size: int | None = None) -> Any:
        """Return the rows as a block source, as a user would open them."""
        if self.workload.kind == "images":
            groups = np.load(self.folder / "groups.npy")
            return open_images(self._names()[: self.n_rows], groups[: self.n_rows], block_size)
        path = self.folder / ("X.npz" if self.sparse else "X.npy")
        labels = {ATTRIBUTE: np.load(self.folder / "groups.npy")}
        if self.several:
            draw = np.random.default_rng(0).integers
            labels |= {f"of {size}": draw(0, size, len(labels[ATTRIBUTE])) for size in (5, 8)}
        return FirstRows(open_source(path, sensitive_features=labels, block_size=block_size), self.n_rows)

    def blocks(self, block_size: int) -> Iterator[tuple[Any, np.ndarray]]:
        """Yield the rows and groups in floating point, for peers that take arrays."""
        for block in self.source(block_size):
            yield as_float(block.X), next(iter(block.groups.values())).codes

    def load(self) -> tuple[Any, np.ndarray]:
        """Return all rows at once, in floating point."""
        if self.workload.kind == "images":
            X = np.empty((self.n_rows, self.workload.n_features), np.float32)
            groups, start = np.empty(self.n_rows, np.intp), 0
            for block, codes in self.blocks(256):
                X[start : start + len(block)], groups[start : start + len(block)] = block, codes
                start += len(block)
            return X, groups
        groups = np.load(self.folder / "groups.npy")[: self.n_rows]
        if self.sparse:
            return sp.load_npz(self.folder / "X.npz")[: self.n_rows], groups
        return np.load(self.folder / "X.npy")[: self.n_rows], groups

    def read(self, start: int, stop: int) -> np.ndarray:
        """Read some rows of a .npy file without mapping it: mapped pages would count as memory."""
        with open(self.folder / "X.npy", "rb") as file:
            np.lib.format.read_magic(file)
            (_, d), _, dtype = np.lib.format.read_array_header_1_0(file)
            file.seek(start * d * dtype.itemsize, os.SEEK_CUR)
            return np.fromfile(file, dtype, (stop - start) * d).reshape(stop - start, d)

    def held_out(self) -> tuple[Any, np.ndarray]:
        """Return the rows that nobody is fitted on."""
        groups = np.load(self.folder / "groups_held_out.npy")
        if self.workload.kind == "images":
            blocks = open_images(self._names()[self.workload.n_rows :], groups, None)
            return np.concatenate([as_float(block.X) for block in blocks]), groups
        if self.sparse:
            return sp.load_npz(self.folder / "held_out.npz"), groups
        return np.load(self.folder / "held_out.npy"), groups

    def file_bytes(self) -> int:
        """Bytes of the rows as they are stored."""
        if self.workload.kind == "images":
            return self.workload.n_rows * self.workload.n_features
        return (self.folder / ("X.npz" if self.sparse else "X.npy")).stat().st_size

    def _names(self) -> list[str]:
        return json.loads((self.folder / "names.json").read_text())


@dataclass(frozen=True)
class TinyData:
    """A few rows in memory with the same interface: the first fit of a process loads what is lazy."""

    X: Any
    groups: np.ndarray

    @classmethod
    def of(cls, sparse: bool, dtype: Any) -> TinyData:
        rng = np.random.default_rng(0)
        groups = np.arange(400) % 2
        X = (rng.standard_normal((400, 40)) * np.linspace(2, 1, 40) + groups[:, None]).astype(dtype)
        return cls(sp.csr_matrix(X) if sparse else X, groups)

    @property
    def n_rows(self) -> int:
        return len(self.groups)

    @property
    def sparse(self) -> bool:
        return sp.issparse(self.X)

    @property
    def is_array_file(self) -> bool:
        return not self.sparse

    def source(self, block_size: int | None = None) -> Any:
        return open_source(self.X, sensitive_features={ATTRIBUTE: self.groups}, block_size=block_size)

    def blocks(self, block_size: int) -> Iterator[tuple[Any, np.ndarray]]:
        yield self.X, self.groups

    def load(self) -> tuple[Any, np.ndarray]:
        return self.X, self.groups

    def read(self, start: int, stop: int) -> np.ndarray:
        return self.X[start:stop]


class FirstRows:
    """The first rows of a source, for fits that show how memory grows with the rows."""

    def __init__(self, source: Any, n_rows: int) -> None:
        self._source, self.n_rows = source, n_rows
        self.n_features, self.feature_names = source.n_features, source.feature_names
        self.block_size = source.block_size

    def __iter__(self) -> Iterator[Block]:
        left = self.n_rows
        for block in self._source:
            yield block if block.n_rows <= left else cut_block(block, 0, left)
            left -= min(left, block.n_rows)
            if not left:
                return


def as_float(X: Any) -> Any:
    """Return rows as floating point numbers: pixels as float32, the rest as they are."""
    return X.astype(np.float32) if X.dtype.kind in "iub" else X


def open_images(names: list[str], groups: np.ndarray, block_size: int | None) -> Any:
    folder = _celeba_folder()
    images = folder / "img_align_celeba"
    return open_source(
        images if images.is_dir() else images.with_suffix(".zip"),
        sensitive_features={ATTRIBUTE: groups},
        names=names,
        mode="grey",
        block_size=block_size,
    )


def gaps_of(X: Any, groups: np.ndarray) -> dict[str, float]:
    """Return total variance, length of the mean gap and norm of the second-moment gap of some rows."""
    n, d = X.shape
    mean = np.asarray(X.mean(axis=0, dtype=np.float64)).ravel()
    squares = X.multiply(X).sum(dtype=np.float64) if sp.issparse(X) else np.square(X, dtype=np.float64).sum()
    parts = [X[groups == code] for code in (0, 1)]
    means = [np.asarray(part.mean(axis=0, dtype=np.float64)).ravel() for part in parts]

    def gap(v: np.ndarray) -> np.ndarray:
        v = v.ravel()
        products = []
        for part in parts:
            scores = part @ v.astype(X.dtype) - mean @ v
            products.append((part.T @ scores.astype(X.dtype)) / part.shape[0] - mean * scores.mean())
        return products[1] - products[0]

    start = np.random.default_rng(0).standard_normal(d)
    operator = LinearOperator((d, d), matvec=gap, dtype=np.float64)
    largest = eigsh(operator, 1, which="LM", tol=1e-3, v0=start, return_eigenvectors=False)
    return {
        "variance": float(squares / n - mean @ mean),
        "mean_gap": float(np.linalg.norm(means[1] - means[0])),
        "second_moment_gap": float(abs(largest[0])),
    }


def _write_adult(workload: Workload, folder: Path) -> None:
    split = paper_split("adult", 0)
    np.save(folder / "X.npy", split.X_train[: workload.n_rows])
    np.save(folder / "groups.npy", split.groups_train[: workload.n_rows])
    np.save(folder / "held_out.npy", split.X_test[: workload.n_held_out])
    np.save(folder / "groups_held_out.npy", split.groups_test[: workload.n_held_out])


def planted_stream(d: int) -> SyntheticStream:
    """Return two groups: eigenvalues 1/j, three of them four times as large in group 1, and a mean gap.

    One direction of the mean gap is a leading component, which plain PCA keeps.
    """
    rng = np.random.default_rng(d)
    Q, R = np.linalg.qr(rng.standard_normal((d, d)))
    Q *= np.sign(np.diag(R))
    spectra = np.tile(1.0 / np.arange(1, d + 1), (2, 1))
    spectra[1, [1, 4, 7]] *= 4.0
    direction = Q[:, 2] + 0.3 * rng.standard_normal(d) / np.sqrt(d)
    return SyntheticStream(
        np.stack([Q, Q]),
        spectra,
        0.8 * direction / np.linalg.norm(direction),
        p=0.3,
        seed=1,
        dtype=np.float32,
    )


def _write_stream(workload: Workload, folder: Path) -> None:
    sizes = {"X": workload.n_rows, "held_out": workload.n_held_out}
    blocks = planted_stream(workload.n_features).blocks(4_096, sum(sizes.values()))
    block, used = next(blocks), 0
    for name, n_rows in sizes.items():
        groups = np.empty(n_rows, np.int8)
        with open(folder / f"{name}.npy", "wb") as file:
            header = {"descr": "<f4", "fortran_order": False, "shape": (n_rows, workload.n_features)}
            np.lib.format.write_array_header_1_0(file, header)
            done = 0
            while done < n_rows:
                if used == block.n_rows:
                    block, used = next(blocks), 0
                take = min(block.n_rows - used, n_rows - done)
                file.write(np.ascontiguousarray(block.X[used : used + take]).data)
                groups[done : done + take] = block.groups["group"].codes[used : used + take]
                used, done = used + take, done + take
        np.save(folder / ("groups.npy" if name == "X" else "groups_held_out.npy"), groups)


def _write_images(workload: Workload, folder: Path) -> None:
    faces = CelebA(_celeba_folder())
    wanted = workload.n_rows + workload.n_held_out
    if len(faces) < wanted:
        raise UnavailableError(f"CelebA here has {len(faces):,} images, {wanted:,} are needed")
    chosen = np.random.default_rng(0).permutation(len(faces))[:wanted]
    groups = faces.attributes[IMAGE_ATTRIBUTE][chosen].astype(np.int8)
    np.save(folder / "groups.npy", groups[: workload.n_rows])
    np.save(folder / "groups_held_out.npy", groups[workload.n_rows :])
    (folder / "names.json").write_text(json.dumps([faces.names[row] for row in chosen]))


def _celeba_folder() -> Path:
    place = Path(os.environ.get("FAIRSTREAM_DATA", ROOT.parent / "shared" / "data")) / "celeba"
    if not (place / "img_align_celeba.zip").exists() and not (place / "img_align_celeba").exists():
        raise UnavailableError(
            "CelebA is not on this machine: set FAIRSTREAM_DATA to the folder that has celeba/"
        )
    return place


def _write_sparse(workload: Workload, folder: Path) -> None:
    rng = np.random.default_rng(2)
    popularity = np.cumsum(1.0 / np.arange(1, workload.n_features + 1))
    popularity /= popularity[-1]
    columns_of = rng.integers(0, workload.n_features, (TOPICS, min(TOPIC_COLUMNS, workload.n_features)))
    for name, n_rows in (("X", workload.n_rows), ("held_out", workload.n_held_out)):
        parts = [
            _documents(rng, min(20_000, n_rows - i), popularity, columns_of) for i in range(0, n_rows, 20_000)
        ]
        labels = "groups.npy" if name == "X" else "groups_held_out.npy"
        np.save(folder / labels, np.concatenate([groups for _, groups in parts]).astype(np.int8))
        sp.save_npz(folder / f"{name}.npz", sp.vstack([X for X, _ in parts], format="csr"), compressed=False)


def _documents(
    rng: np.random.Generator, n: int, popularity: np.ndarray, columns_of: np.ndarray
) -> tuple[sp.csr_matrix, np.ndarray]:
    """Draw word counts: popular words and one topic's words; topics and their weight depend on the group."""
    d, words = len(popularity), max(len(popularity) // 1_000, 5)
    groups = (rng.random(n) < 0.4).astype(np.intp)
    topics = rng.integers(0, TOPICS, n)
    # Group 1 mostly avoids the first topics and says popular words louder (a mean gap); in it topic 20 varies
    # more (a second-moment gap).
    moved = (groups == 1) & (topics < GROUP_TOPICS) & (rng.random(n) < 0.8)
    topics[moved] = rng.integers(GROUP_TOPICS, TOPICS, int(moved.sum()))
    columns = np.searchsorted(popularity, rng.random((n, words)))
    from_topic = rng.random((n, words)) < 0.4
    own = columns_of[topics[:, None], rng.integers(0, columns_of.shape[1], (n, words))]
    columns = np.where(from_topic, own, columns).astype(np.int32)
    weight = rng.lognormal(0.0, 0.3, (n, 1)) * np.where((groups == 1) & (topics == 20), 3.0, 1.0)[:, None]
    weight = weight * np.where(from_topic, 1.5, np.where(groups == 1, 1.4, 1.0)[:, None])
    values = (1.0 + rng.random((n, words))) * weight
    X = sp.csr_matrix(
        (values.astype(np.float32).ravel(), columns.ravel(), np.arange(0, n * words + 1, words)), shape=(n, d)
    )
    X.sum_duplicates()
    return X, groups
