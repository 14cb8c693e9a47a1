"""What an embedding keeps: recovered and explained variance and reconstruction error, from exact moments."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairstream.auditing.measure.embeddings import EmbeddingMoments
from fairstream.auditing.report import GroupNumbers
from fairstream.auditing.subjects import Subject
from fairstream.linalg import lapack
from fairstream.moments import GroupMoments

FloatArray = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class KeptVariance:
    """The moments of the audited rows and of their embeddings, side by side. No rows are needed here.

    `trust` says of each feature how far its variance can be trusted, as in `fairstream.subspace.guard`.
    """

    whole: GroupMoments
    embedded: EmbeddingMoments
    groups: Mapping[str, tuple[Hashable, ...]]
    trust: FloatArray

    def recovered(self, subject: Subject) -> float | None:
        """Return the share of the variance that a linear map recovers from it, as `tune` counts it.

        With C the covariance of the coordinates, B that of features and coordinates, A that of the features
        and T the trust in each: tr(T B C^-1 B') / tr(T A). Noise that the embedding adds is in C, and counts
        as loss.
        """
        B, variances = self.embedded.with_features[subject.name], self.embedded.variances
        trusted = float(self.trust @ variances)
        if not trusted > 0:
            return None
        C = self.embedded.moments[subject.name].covariance().to_dense()
        recovered = np.einsum("ij,ij->i", B, lapack(np.linalg.lstsq, C, B.T, rcond=None)[0].T)
        return float(self.trust @ recovered) / trusted

    def explained(self, subject: Subject) -> float | None:
        """Return tr(V'AV) / tr(A), None for an embedding that is not linear.

        Of an embedding with noise N, it is the share that is left after the best linear removal of the noise:
        with C = V'AV, tr(C (C + N)^-1 C) / tr(A).
        """
        if subject.components is None or self.whole.total_variance == 0:
            return None
        if subject.noise is not None:
            C = self.whole.covariance().compress(subject.components.T.copy())
            recovered = C @ lapack(np.linalg.solve, C + np.diag(subject.noise**2), C)
            return float(np.trace(recovered) / self.whole.total_variance)
        return float(self.embedded.moments[subject.name].total_variance / self.whole.total_variance)

    def reconstruction_error(self, subject: Subject) -> float | None:
        """Return E|x - c|^2 - E|z|^2: the mean squared residual about the embedding's own mean c."""
        if subject.mean is None or not subject.orthonormal:
            return None
        z = self.embedded.moments[subject.name]
        before = self.whole.total_variance + _squared(self.whole.mean() - subject.mean)
        return max(before - z.total_variance - _squared(z.mean()), 0.0)

    def by_group(self, subject: Subject) -> tuple[GroupNumbers, ...]:
        """Return both numbers for every reported group."""
        return tuple(
            GroupNumbers(
                attribute,
                str(group),
                self._explained_in(subject, attribute, group),
                self._reconstruction_error_in(subject, attribute, group),
            )
            for attribute, groups in self.groups.items()
            for group in groups
        )

    def _explained_in(self, subject: Subject, attribute: str, group: Hashable) -> float | None:
        if subject.components is None or subject.noise is not None:
            return None
        offset = self.whole.mean(attribute, group) - self.whole.mean()
        total = self._mean_square(attribute, group) - _squared(offset)
        z = self.embedded.moments[subject.name]
        second, _ = z.second_moments(attribute, group)
        kept = float(second.trace()) - _squared(z.mean(attribute, group) - z.mean())
        return kept / total if total > 0 else None

    def _reconstruction_error_in(self, subject: Subject, attribute: str, group: Hashable) -> float | None:
        if subject.mean is None or not subject.orthonormal:
            return None
        shift = self.whole.mean() - subject.mean
        offset = self.whole.mean(attribute, group) - self.whole.mean()
        before = self._mean_square(attribute, group) + 2 * float(offset @ shift) + _squared(shift)
        z = self.embedded.moments[subject.name]
        second, _ = z.second_moments(attribute, group)
        centre, own = z.mean(), z.mean(attribute, group)
        after = float(second.trace()) + 2 * float((own - centre) @ centre) + _squared(centre)
        return max(before - after, 0.0)

    def _mean_square(self, attribute: str, group: Hashable) -> float:
        """Return E|x - mu|^2 in the group, mu the mean of all rows."""
        return self.embedded.squares[attribute, group] / self.whole.count(attribute, group)


def _squared(v: FloatArray) -> float:
    return float(v @ v)
