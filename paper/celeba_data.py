"""The CelebA experiment's plan, its images decoded once, and who is fitted on, probed with and scored on."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fairstream import open_source
from fairstream.datasets import CelebA

ATTRIBUTES = ("Eyeglasses", "Mouth_Slightly_Open", "Goatee")
ROOT = Path(__file__).parents[1]
CACHE = Path(__file__).parent / "cache" / "celeba"
MODES = {"grey": 1, "rgb": 3}


@dataclass(frozen=True)
class Plan:
    """What is run. k and the sketch's rank are per channel."""

    resize: tuple[int, int] | None = None
    n_images: int | None = None  # of the train part; the validation part gives as large a share
    k: tuple[tuple[str, int], ...] = (("grey", 200), ("rgb", 1_000))
    rank: tuple[tuple[str, int], ...] = (("grey", 300), ("rgb", 1_100))
    frontier_m: tuple[int, ...] = (0, 2, 5, 10, 20)
    ablation_m: tuple[int, ...] = (1, 2, 5, 10)
    paper_blocks: tuple[int, ...] = (32_000, 8_000, 3_200, 1_600)
    paper_shares: tuple[int, ...] = (20, 100)  # two of the paper's blocks as parts of its 162,770 images
    main_block: int = 3_200
    main_m: int = 5
    figure_m: tuple[int, ...] = (2, 5)
    faces: int = 8
    probe_columns: int = 300  # of all channels: the quadratic and the tree probe see the leading ones only

    def k_of(self, mode: str) -> int:
        return dict(self.k)[mode]

    def rank_of(self, mode: str) -> int:
        return dict(self.rank)[mode]


QUICK = replace(
    Plan(),
    resize=(27, 22),
    n_images=450,
    k=(("grey", 12), ("rgb", 12)),
    rank=(("grey", 24), ("rgb", 24)),
    frontier_m=(0, 2),
    ablation_m=(2,),
    paper_blocks=(32_000, 100),
    paper_shares=(20,),
    main_block=100,
    main_m=2,
    figure_m=(2,),
    faces=3,
    probe_columns=36,
)


class Faces:
    """The images as memory-mapped uint8 rows, and the three parts they fall into.

    `fit` is two thirds of the official train part: models see nothing else. Probes are fitted on the third
    that was held back (`probe`) and scored on the official validation part (`valid`).
    """

    def __init__(self, plan: Plan, cache: Path, data: Path | None = None) -> None:
        self.plan, self.cache = plan, cache
        self.index = CelebA((data or data_folder()) / "celeba")
        train, valid = (np.flatnonzero(self.index.partition == part) for part in (0, 1))
        if plan.n_images is not None:
            valid = valid[: max(len(valid) * plan.n_images // len(train), 150)]
            train = train[: plan.n_images]
        self.rows = np.concatenate([train, valid])  # of the index, in the order of the decoded rows
        held_back = np.arange(len(train)) % 3 == 2
        self.fit = np.flatnonzero(~held_back)
        self.probe = np.flatnonzero(held_back)
        self.valid = len(train) + np.arange(len(valid))
        cache.mkdir(parents=True, exist_ok=True)

    def labels(self, attribute: str, rows: np.ndarray) -> np.ndarray:
        return self.index.attributes[attribute][self.rows[rows]]

    @cached_property
    def shape(self) -> tuple[int, int]:
        return self._source("grey").image_shape

    def pixels(self, mode: str) -> np.ndarray:
        """Return all images, one planar uint8 row each; decoded on first use."""
        path = self.cache / f"{mode}.npy"
        if not path.exists():
            source = self._source(mode)
            draft = path.with_suffix(".part.npy")
            shape = (len(self.rows), source.n_features)
            rows = np.lib.format.open_memmap(draft, mode="w+", dtype=np.uint8, shape=shape)
            start = 0
            for block in source:
                rows[start : start + block.n_rows] = block.X
                start += block.n_rows
            rows.flush()
            draft.replace(path)
        return np.load(path, mmap_mode="r")

    def channels(self, mode: str) -> list[slice]:
        size = self.shape[0] * self.shape[1]
        return [slice(c * size, (c + 1) * size) for c in range(MODES[mode])]

    def blocks(self, mode: str, rows: np.ndarray, size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield (which rows, their pixels), in memory, at most `size` rows at a time."""
        pixels = self.pixels(mode)
        for start in range(0, len(rows), size):
            some = rows[start : start + size]
            yield some, pixels[some]

    def _source(self, mode: str) -> Any:
        names = [self.index.names[row] for row in self.rows]
        return open_source(self.index.images, names=names, mode=mode, resize=self.plan.resize)


def data_folder() -> Path:
    return Path(os.environ.get("FAIRSTREAM_DATA", ROOT.parent / "shared" / "data"))


class Stopwatch:
    """Wall clock and processor time of a block: the latter tells more on a busy machine."""

    def __enter__(self) -> Stopwatch:
        self._started = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        wall, processor = self._started
        self.times = {
            "seconds": time.perf_counter() - wall,
            "processor seconds": time.process_time() - processor,
        }


class OutOfTimeError(Exception):
    """The time given to this run is over; a later one goes on."""


class Deadline:
    """When to begin nothing new."""

    at = math.inf

    @classmethod
    def set(cls, minutes: float) -> None:
        cls.at = time.monotonic() + 60 * minutes


def kept(path: Path, compute: Callable[[], Any]) -> Any:
    """Return the JSON value that an earlier run left, else compute and leave it."""
    if path.exists():
        return json.loads(path.read_text())
    if time.monotonic() > Deadline.at:
        raise OutOfTimeError(path.stem)
    value = compute()
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".part")
    draft.write_text(json.dumps(value, indent=1) + "\n")
    draft.replace(path)
    print(f"{path.parent.name}/{path.stem}", flush=True)
    return value
