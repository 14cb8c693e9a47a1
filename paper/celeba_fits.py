"""Fair subspaces of the faces: one sketch pass and many solves of it, and the paper's power method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from celeba_data import MODES, Faces, Stopwatch, kept

from fairstream import FairPowerMethod, GroupMoments, fair_components, load, unfair_basis

ROWS_AT_A_TIME = 2_048


# One sketch pass, all attributes ----------------------------------------------------------------------


def sketch(faces: Faces, mode: str, attributes: Sequence[str], name: str) -> list[GroupMoments]:
    """Return every channel's moments of the fit part, from their files or from one pass over the images."""
    files = [faces.cache / f"{name}-{mode}-{c}.moments" for c in range(MODES[mode])]
    if not all(file.exists() for file in files):
        _sketch_pass(faces, mode, attributes, name, files)
    return [load(file) for file in files]


def _sketch_pass(faces: Faces, mode: str, attributes: Sequence[str], name: str, files: list) -> None:
    channels = faces.channels(mode)
    width, rank = channels[0].stop, faces.plan.rank_of(mode)
    moments = [GroupMoments(width, rank, np.float32) for _ in channels]
    with Stopwatch() as watch:
        # Blocks of the size that a sketch of this rank takes in at once.
        for rows, pixels in faces.blocks(mode, faces.fit, 2 * rank + 128):
            groups = {attribute: faces.labels(attribute, rows) for attribute in attributes}
            for channel, summary in zip(channels, moments, strict=True):
                summary.update(pixels[:, channel], groups)
    for file, summary in zip(files, moments, strict=True):
        summary.save(file)
    about = {
        "rows": len(faces.fit),
        "attributes": len(attributes),
        "rank": rank,
        "channels": len(channels),
        "features": width,
        **watch.times,
        "lost energy": [summary.lost_energy for summary in moments],
        "file megabytes": sum(file.stat().st_size for file in files) / 1e6,
    }
    path = faces.cache / "passes" / f"{name}-{mode}.json"
    path.unlink(missing_ok=True)
    kept(path, lambda: about)


@dataclass
class Coordinates:
    """A sketched summary in the coordinates of its own directions: exact moments of a few hundred features.

    Every basis that `unfair_basis` and `fair_components` return lies in the span of the sketch's directions
    and the group means. So all solves of one summary can be done in these coordinates, and the images are
    multiplied with d-sized matrices once, not once per solve.
    """

    directions: np.ndarray  # w x d, orthonormal rows
    moments: GroupMoments  # exact, of w features, about the total mean
    mean: np.ndarray
    total_variance: float

    @classmethod
    def of(cls, moments: GroupMoments) -> Coordinates:
        header, arrays = moments.to_state()
        basis, means = arrays["basis"], arrays["means"]
        offsets = means - means[0]
        rest = offsets - (offsets @ basis.T) @ basis
        _, sizes, rows = np.linalg.svd(rest, full_matrices=False)
        extra = rows[sizes > 1e-4 * np.linalg.norm(offsets, axis=1).max()]
        directions = np.concatenate([basis, extra.astype(basis.dtype)])
        width = len(directions)
        cores = np.zeros((len(means), width, width))
        cores[:, : len(basis), : len(basis)] = arrays["cores"]
        small = {"weights": arrays["weights"], "means": offsets @ directions.T, "cores": cores}
        about = {**header, "n_features": width, "rank": None, "dtype": "float64", "cuts": None}
        return cls(directions, GroupMoments.from_state(about, small), means[0], moments.total_variance)

    def solve(self, attribute: str, k: int, m: int, constraint: str = "all", directions: str = "absolute"):
        """Return (U, V) in coordinates, as columns."""
        moments = self.moments.restricted({attribute: (False, True)})
        U = unfair_basis(moments, m, constraint, directions, k)
        return U, fair_components(moments, U, k)[0]


def embed(faces: Faces, mode: str, rows: np.ndarray, bases: Sequence[np.ndarray], means: Sequence) -> list:
    """Return, per channel, the rows about the mean times the basis (d x j)."""
    channels = faces.channels(mode)
    embedded = [np.empty((len(rows), basis.shape[1]), dtype=np.float32) for basis in bases]
    start = 0
    for some, pixels in faces.blocks(mode, rows, ROWS_AT_A_TIME):
        for c, channel in enumerate(channels):
            shift = means[c].astype(np.float32) @ bases[c]
            embedded[c][start : start + len(some)] = pixels[:, channel].astype(np.float32) @ bases[c] - shift
        start += len(some)
    return embedded


def total_variance(faces: Faces, mode: str, rows: np.ndarray, means: Sequence[np.ndarray]) -> list[float]:
    """Return the mean squared distance of the rows from the mean, per channel."""
    sums = np.zeros(len(means))
    for _, pixels in faces.blocks(mode, rows, ROWS_AT_A_TIME):
        for c, channel in enumerate(faces.channels(mode)):
            centred = pixels[:, channel] - means[c].astype(np.float32)
            sums[c] += float(np.einsum("ij,ij->", centred, centred, dtype=np.float64))
    return [float(total / len(rows)) for total in sums]


# The paper's power method -----------------------------------------------------------------------------


@dataclass(frozen=True)
class PowerFit:
    """U and V of every channel, as d-sized columns."""

    U: list[np.ndarray]
    V: list[np.ndarray]
    means: list[np.ndarray]
    times: dict[str, float]


def power(faces: Faces, mode: str, attribute: str, m: int, b: int, *, passes: int = 1) -> PowerFit:
    """Fit as the paper does: stage 1 in blocks of b, stage 2 from the first image again, in five blocks.

    Every stage reads the fit part once, `passes` times in stage 1 if asked for.
    """
    n, k = len(faces.fit), faces.plan.k_of(mode)
    B, steps = n // 5, (passes * (n // b), 5)
    read = np.concatenate([*[faces.fit[: n // b * b]] * passes, faces.fit[: 5 * B]])
    channels = faces.channels(mode)
    methods = [
        FairPowerMethod(
            channel.stop - channel.start,
            k,
            n_unfair=m,
            step_rows=(b, B),
            power_steps=steps,
            groups={attribute: (False, True)},
            on_empty_group="zero",
            random_state=0,
            dtype=np.float32,
        )
        for channel in channels
    ]
    with Stopwatch() as watch:
        for rows, pixels in faces.blocks(mode, read, ROWS_AT_A_TIME):
            for channel, method in zip(channels, methods, strict=True):
                method.update(pixels[:, channel], {attribute: faces.labels(attribute, rows)})
    return PowerFit(
        [method.unfair_basis.T for method in methods],
        [method.components.T for method in methods],
        [method.mean for method in methods],
        watch.times,
    )
