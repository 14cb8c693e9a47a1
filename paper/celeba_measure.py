"""What an embedding of the faces keeps and leaks, measured on images that no model was fitted on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from celeba_data import Faces, kept
from celeba_fits import ROWS_AT_A_TIME, Coordinates, embed, total_variance
from celeba_probes import probe_auc


@dataclass
class Embedded:
    """The held-back and the validation images, per channel."""

    probe: list[np.ndarray]
    valid: list[np.ndarray]

    @classmethod
    def by(
        cls, faces: Faces, mode: str, bases: Sequence[np.ndarray], means: Sequence[np.ndarray]
    ) -> Embedded:
        return cls(*(embed(faces, mode, rows, bases, means) for rows in (faces.probe, faces.valid)))

    def times(self, matrices: Sequence[np.ndarray]) -> Embedded:
        """Return the same images in other coordinates, by one small matrix per channel."""
        small = [matrix.astype(np.float32) for matrix in matrices]
        return Embedded(
            [Z @ C for Z, C in zip(self.probe, small, strict=True)],
            [Z @ C for Z, C in zip(self.valid, small, strict=True)],
        )


def measure(
    faces: Faces, mode: str, attribute: str, embedded: Embedded, total: float, kinds: Sequence[str]
) -> dict[str, Any]:
    """Return explained variance, gaps and probe AUCs, all on validation images.

    `total` is the variance of the validation images about the training mean, all channels together.
    """
    true = faces.labels(attribute, faces.valid)
    gaps, covariance_gaps, variance = [], [], 0.0
    for Z in embedded.valid:
        inside, outside = Z[true].astype(np.float64), Z[~true].astype(np.float64)
        gaps.append(inside.mean(axis=0) - outside.mean(axis=0))
        covariance_gaps.append(np.linalg.norm(np.cov(inside.T) - np.cov(outside.T), 2))
        variance += float(np.einsum("ij,ij->", Z, Z, dtype=np.float64)) / len(Z)
    result: dict[str, Any] = {
        "explained variance": variance / total,
        "mean gap": float(np.linalg.norm(np.concatenate(gaps))),
        "covariance gap": float(max(covariance_gaps)),
    }
    for kind in kinds:
        # A quadratic probe has k^2 unknowns, trees look at every column: both see the leading ones.
        columns = faces.plan.probe_columns // len(embedded.valid) if kind in ("quadratic", "trees") else None
        Z_fit, Z_score = (
            np.hstack([Z[:, :columns] for Z in part]) for part in (embedded.probe, embedded.valid)
        )
        auc, error = probe_auc(kind, Z_fit, faces.labels(attribute, faces.probe), Z_score, true)
        result[kind], result[f"{kind} error"] = auc, error
    return result


def validation_variance(faces: Faces, mode: str, means: Sequence[np.ndarray]) -> float:
    path = faces.cache / mode / "validation variance.json"
    return float(sum(kept(path, lambda: total_variance(faces, mode, faces.valid, means))))


@dataclass
class SketchedFaces:
    """One pass over the fit part: all solves of it, and the unseen images in its coordinates."""

    faces: Faces
    mode: str
    coordinates: list[Coordinates]
    images: Embedded

    @classmethod
    def of(cls, faces: Faces, mode: str, moments: Sequence[Any]) -> SketchedFaces:
        coordinates = [Coordinates.of(summary) for summary in moments]
        bases, means = [c.directions.T for c in coordinates], [c.mean for c in coordinates]
        return cls(faces, mode, coordinates, Embedded.by(faces, mode, bases, means))

    def measure(
        self, attribute: str, m: int, constraint: str, directions: str, kinds: Sequence[str]
    ) -> dict[str, Any]:
        k = self.faces.plan.k_of(self.mode)
        V = [c.solve(attribute, k, m, constraint, directions)[1] for c in self.coordinates]
        total = validation_variance(self.faces, self.mode, [c.mean for c in self.coordinates])
        return measure(self.faces, self.mode, attribute, self.images.times(V), total, kinds)


# Checks on the training stream ------------------------------------------------------------------------


def mean_gap(faces: Faces, mode: str, attribute: str, rows: np.ndarray) -> list[np.ndarray]:
    """Return the difference of the group means over these images, per channel, in float64."""
    sums, inside = np.zeros((2, faces.pixels(mode).shape[1])), faces.labels(attribute, rows)
    for some, pixels in faces.blocks(mode, rows, ROWS_AT_A_TIME):
        member = faces.labels(attribute, some)
        for group in (0, 1):
            sums[group] += pixels[member == group].sum(axis=0, dtype=np.uint64)
    gap = sums[1] / inside.sum() - sums[0] / (~inside).sum()
    return [gap[channel] for channel in faces.channels(mode)]


def checks(U: Sequence[np.ndarray], V: Sequence[np.ndarray], gaps: Sequence[np.ndarray]) -> dict[str, Any]:
    """Return, per channel, how far U is from orthonormal, V from U, and what V leaves of the mean gap."""
    return {
        "U'U - I": [float(np.linalg.norm(u.T @ u - np.eye(u.shape[1]), 2)) for u in U],
        "U'V": [float(np.linalg.norm(u.T @ v, 2)) for u, v in zip(U, V, strict=True)],
        "mean gap left": [
            float(np.linalg.norm(gap @ v) / np.linalg.norm(gap)) for gap, v in zip(gaps, V, strict=True)
        ],
    }
