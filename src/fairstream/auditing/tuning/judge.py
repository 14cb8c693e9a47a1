"""The judge: what attackers read from a candidate on rows it was not fitted on, and what it keeps."""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.metrics import roc_auc_score

from fairstream.auditing.measure.attack import attack
from fairstream.auditing.measure.probes import auc_with_variance
from fairstream.auditing.report import AttackResult
from fairstream.auditing.tuning.candidates import Candidate
from fairstream.auditing.tuning.division import Division, repeated
from fairstream.linalg import lapack
from fairstream.moments.sample import SampledRows
from fairstream.subspace.model import FairSubspace

LEAST_ODDS = 1e-3  # of a class, so that one tree that is sure does not outvote all others


class Judge:
    """Scores candidates on rows they were not fitted on.

    Parameters
    ----------
    division : Division
    confidence : float
        Of each upper bound on an AUC.
    seed : int
        Of the attackers.
    ids : bool
        Embed every row with a number of its own, so that equal rows get different noise.
    """

    def __init__(self, division: Division, *, confidence: float, seed: int, ids: bool = False) -> None:
        self._division = division.one_by_one() if ids else division
        self._seed, self._z = seed, float(ndtri(confidence))
        self._told: dict[FairSubspace, float] = {}  # by identity
        self._ids: dict[str, NDArray[np.intp] | None] = dict.fromkeys(self._division.parts)
        first = 0
        for name, part in self._division.parts.items() if ids else ():
            self._ids[name] = np.arange(first, first + len(part.weights))
            first += len(part.weights)
        self._key = secrets.token_bytes(32)  # of the dither that is judged; users have their own

    def recovered_variance(self, subspace: FairSubspace, dither: float) -> float:
        """Return the share of the judging rows' variance that a linear map recovers from noisy scores.

        The map is learned on the fitting rows: a variance that few rows carry is none for new ones. Noise of
        a share t of each deviation makes the variances of uncorrelated scores 1 + t^2 times as large.
        """
        if subspace not in self._told:
            self._told[subspace] = self._told_by(subspace)
        return self._told[subspace] / (1 + dither**2)

    def _told_by(self, subspace: FairSubspace) -> float:
        fit, rows = (self._division.parts[name] for name in ("fit", "judge"))
        mean = subspace.mean
        inner, outer = self._products(subspace, fit, mean)
        B = lapack(np.linalg.lstsq, inner, outer, rcond=None)[0]
        inner, outer = self._products(subspace, rows, mean)
        X = np.asarray(rows.X, dtype=np.float64) - mean
        total = float(rows.weights @ np.einsum("ij,ij->i", X, X))
        return float(2 * np.vdot(B, outer) - np.vdot(B, inner @ B)) / total if total else 0.0

    def _products(self, subspace: FairSubspace, rows: SampledRows, mean: Any) -> tuple[Any, Any]:
        """Return Z'Z and Z'X of the rows, weighted, about the mean."""
        X = np.asarray(rows.X, dtype=np.float64) - mean
        Z = X @ subspace.components.T
        weighted = Z * rows.weights[:, None]
        return weighted.T @ Z, weighted.T @ X

    def judged(self, subspace: FairSubspace, dither: float) -> Candidate:
        """Return a candidate with its scores.

        The attackers are a forest and boosted trees together, fitted on all fitting rows: they gain most from
        many rows. All families attack the winner.
        """
        found = [self._quick(subspace, dither, name) for name in self._division.attributes]
        leak, bound = max(auc for auc, _ in found), max(bound for _, bound in found)
        return self._candidate(subspace, dither, leak, bound)

    def attacked(self, subspace: FairSubspace, dither: float, strength: str) -> Candidate:
        """Return a candidate whose leak is that of the strongest attacker of all families."""
        found = self.attacks(subspace, dither, "judge", strength).values()
        leak = max(result.strongest.auc.value for result in found)
        bound = max(r.strongest.auc.value + self._z * r.strongest.standard_error for r in found)
        return self._candidate(subspace, dither, leak, bound)

    def attacks(
        self, subspace: FairSubspace, dither: float, scored: str, strength: str
    ) -> dict[str, AttackResult]:
        """Attack one part of the rows with attackers fitted on the fitting rows."""
        fit, rows = (self._division.parts[name] for name in ("fit", scored))
        Z_fit, Z = (self._embedded(subspace, name, dither) for name in ("fit", scored))
        found = {}
        for name in self._division.attributes:
            codes = self._division.codes(name)
            found[name] = attack(
                repeated(Z, rows),
                repeated(codes[scored], rows),
                fit=(repeated(Z_fit, fit), repeated(codes["fit"], fit)),
                strength=strength,
                seed=self._seed,
            )
        return found

    def _candidate(self, subspace: FairSubspace, dither: float, leak: float, bound: float) -> Candidate:
        asked = subspace.parameters
        return Candidate(
            n_components=subspace.n_components,
            constraint=asked["constraint"],
            directions=asked["directions"],
            n_unfair=asked["n_unfair"],
            screen=asked.get("n_screened", 0),
            guard=asked["guard"],
            keep_target=asked["keep_target"],
            dither=dither,
            variance=self.recovered_variance(subspace, dither),
            leak=leak,
            leak_bound=bound,
            target=self._target_score(subspace, dither),
        )

    def _quick(self, subspace: FairSubspace, dither: float, attribute: str) -> tuple[float, float]:
        fit, rows = (self._division.parts[name] for name in ("fit", "judge"))
        codes = self._division.codes(attribute)
        known, scored = np.flatnonzero(codes["fit"] >= 0), np.flatnonzero(codes["judge"] >= 0)
        Z_fit = self._embedded(subspace, "fit", dither)[known]
        Z = self._embedded(subspace, "judge", dither)[scored]
        odds: Any = 0.0
        for model in (
            RandomForestClassifier(100, min_samples_leaf=3, n_jobs=-1, random_state=self._seed),
            HistGradientBoostingClassifier(max_iter=120, random_state=self._seed),
        ):
            model.fit(Z_fit, codes["fit"][known], sample_weight=fit.weights[known])
            odds = odds + np.log(np.clip(model.predict_proba(Z), LEAST_ODDS, 1.0))
        scores = odds[:, 1] - odds[:, 0] if odds.shape[1] == 2 else odds
        kept = rows.taken(scored)
        auc, variance = auc_with_variance(repeated(scores, kept), repeated(codes["judge"][scored], kept))
        return auc, auc + self._z * float(np.sqrt(variance))

    def _embedded(self, subspace: FairSubspace, part: str, dither: float) -> NDArray[Any]:
        rows = self._division.parts[part].X
        return np.asarray(subspace.embed(rows, dither=dither, key=self._key, ids=self._ids[part]))

    def _target_score(self, subspace: FairSubspace, dither: float) -> float | None:
        fit, rows = (self._division.parts[name] for name in ("fit", "judge"))
        if fit.target is None or rows.target is None or len(np.unique(fit.target)) != 2:
            return None
        model = HistGradientBoostingClassifier(random_state=self._seed)
        model.fit(self._embedded(subspace, "fit", dither), fit.target, sample_weight=fit.weights)
        scores = model.predict_proba(self._embedded(subspace, "judge", dither))[:, 1]
        return float(roc_auc_score(rows.target == fit.target.max(), scores, sample_weight=rows.weights))
