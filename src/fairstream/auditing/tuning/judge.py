"""The judge: what attackers read from a candidate on rows it was not fitted on, and what it keeps."""

from __future__ import annotations

import secrets
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.metrics import roc_auc_score

from fairstream.auditing.measure.attack import LEAST_ROWS, attack
from fairstream.auditing.measure.auc import auc_with_variance
from fairstream.auditing.measure.fitting import one_thread, side_by_side
from fairstream.auditing.measure.floors import floors
from fairstream.auditing.measure.probes import PROBES
from fairstream.auditing.measure.task import target_scores
from fairstream.auditing.measure.verdict import bound_above, reach, readings
from fairstream.auditing.report import AttackResult, Floors
from fairstream.auditing.tuning.candidates import Candidate
from fairstream.auditing.tuning.division import PARTS, Division, repeated
from fairstream.linalg import lapack
from fairstream.subspace.guard import trust_in
from fairstream.subspace.model import FairSubspace

MOST_COLUMNS = 200  # of rows that a good score for the target is learned from, else of their embedding
LEAST_ODDS = 1e-3  # of a class, so that one tree that is sure does not outvote all others


class Judge:
    """Scores candidates on rows they were not fitted on.

    Parameters
    ----------
    division : Division
    confidence : float
        Of the verdict on the winner.
    compared : int
        Settings that are compared: upper bounds are corrected for their number.
    seed : int
        Of the attackers.
    ids : bool
        Embed every row with a number of its own, so that equal rows get different noise.
    """

    def __init__(
        self, division: Division, *, confidence: float, seed: int, compared: int = 1, ids: bool = False
    ) -> None:
        self._division = division.one_by_one() if ids else division
        self._seed, self._confidence = seed, confidence
        self._z = float(ndtri(1 - (1 - confidence) / compared))
        self._told: dict[FairSubspace, float] = {}  # by identity
        self._ids: dict[str, NDArray[np.intp] | None] = dict.fromkeys(self._division.parts)
        first = 0
        for name, part in self._division.parts.items() if ids else ():
            self._ids[name] = np.arange(first, first + len(part.weights))
            first += len(part.weights)
        self._key = secrets.token_bytes(32)  # of the dither that is judged; users have their own

    def recovered_variance(self, subspace: FairSubspace, dither: float) -> float:
        """Return the share of X's variance that a linear map recovers from noisy scores.

        Variance that a handful of rows carry counts less, as it does for a guard: new rows do not have it.
        That tells what new rows keep more precisely than the few rows that judge would. Noise of a share t of
        each deviation makes the variances of uncorrelated scores 1 + t^2 times as large.
        """
        if subspace not in self._told:
            self._told[subspace] = self._told_by(subspace)
        return self._told[subspace] / (1 + dither**2)

    def _told_by(self, subspace: FairSubspace) -> float:
        inner: Any = 0.0
        outer: Any = 0.0
        total: Any = 0.0
        for rows in self._division.parts.values():
            X = np.asarray(rows.X, dtype=np.float64) - subspace.mean
            Z = X @ subspace.components.T
            weighted = Z * rows.weights[:, None]
            inner, outer = inner + weighted.T @ Z, outer + weighted.T @ X
            total = total + rows.weights @ (X * X)
        recovered = np.sum(outer * lapack(np.linalg.lstsq, inner, outer, rcond=None)[0], axis=0)
        trusted = float(self._trust @ total)
        return float(self._trust @ recovered) / trusted if trusted else 0.0

    @cached_property
    def _trust(self) -> NDArray[np.float64]:
        rows, moments = self._division.parts["fit"], self._division.moments
        X = np.asarray(rows.X, dtype=np.float64) - moments.mean()
        return trust_in(X, rows.weights, moments.covariance().diagonal(), moments.n_rows)

    def judged(self, subspace: FairSubspace, dither: float) -> Candidate:
        """Return a candidate with its scores.

        The quick attackers are a forest and boosted trees together, which gain most from many rows, and
        logistic regression on products, which reads more if rows are few. They are fitted on all fitting
        rows. All families attack the winner.
        """
        Z_fit, Z = (self._embedded(subspace, name, dither) for name in ("fit", "judge"))
        found = [self._quick(Z_fit, Z, name) for name in self._division.attributes]
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
            leak=max(auc for auc, _, _ in found),
            leak_bound=max(bound for _, bound, _ in found),
            target=self._target_score(Z_fit, Z),
            best_read=max(found)[2],
        )

    def attacked(self, subspace: FairSubspace, judged: Candidate, strength: str) -> Candidate:
        """Return a judged candidate with the leak of the strongest attacker of all families."""
        attacks = self.attacks(subspace, judged.dither, "judge", strength)
        most_rows = self._division.n_rows
        read, ahead = [], []
        for attribute, result in attacks.items():
            for group, (auc, error) in readings(result).items():
                read.append((auc, error, self._whose(attribute, group)))
            ahead += reach(result, confidence=self._confidence, most_rows=most_rows)
        bound = max(bound_above(auc, error, self._z) for auc, error, _ in read)
        leak, _, best_read = max(read)
        return replace(
            judged, leak=leak, leak_bound=bound, leak_ahead=max(bound, *ahead), best_read=best_read
        )

    def attacks(
        self, subspace: FairSubspace, dither: float, scored: str, strength: str
    ) -> dict[str, AttackResult]:
        """Attack one part of the rows with attackers fitted on those that come before it.

        So the attackers of the last part know rows that no guard has seen, as attackers elsewhere do.
        """
        names = [*PARTS]
        known = names[: names.index(scored)]
        parts = self._division.parts
        Z = {name: repeated(self._embedded(subspace, name, dither), parts[name]) for name in (*known, scored)}
        found = {}
        for attribute in self._division.attributes:
            codes = {name: repeated(c, parts[name]) for name, c in self._division.codes(attribute).items()}
            found[attribute] = attack(
                Z[scored],
                codes[scored],
                fit=(np.concatenate([Z[p] for p in known]), np.concatenate([codes[p] for p in known])),
                strength=strength,
                seed=self._seed,
                names=[str(label) for label in self._division.judged_groups(attribute)],
            )
        return found

    def floors(self, subspace: FairSubspace) -> tuple[Floors, ...]:
        """Return what a good score for the target tells of each attribute; nothing without a target.

        The score is learned from the fitting rows themselves, or from their embedding if they are wide.
        """
        parts = {name: self._division.parts[name] for name in ("fit", "judge")}
        if any(rows.target is None or len(np.unique(rows.target)) != 2 for rows in parts.values()):
            return ()
        narrow = parts["fit"].X.shape[1] <= MOST_COLUMNS
        seen = {n: np.asarray(p.X) if narrow else self._embedded(subspace, n, 0.0) for n, p in parts.items()}
        X = {name: repeated(seen[name], rows) for name, rows in parts.items()}
        y = {name: repeated(rows.target, rows) for name, rows in parts.items()}
        if min(np.unique(y["judge"], return_counts=True)[1]) < LEAST_ROWS:
            return ()
        scores = target_scores(X["judge"], y["judge"], (X["fit"], y["fit"]), seed=self._seed)
        codes = {
            name: repeated(self._division.codes(name)["judge"], parts["judge"])
            for name in self._division.attributes
        }
        return tuple(
            floors(y["judge"], codes[name], scores, attribute=name, seed=self._seed) for name in codes
        )

    def _quick(self, Z_fit: NDArray[Any], Z: NDArray[Any], attribute: str) -> tuple[float, float, str]:
        fit, rows = (self._division.parts[name] for name in ("fit", "judge"))
        codes = self._division.codes(attribute)
        known, scored = np.flatnonzero(codes["fit"] >= 0), np.flatnonzero(codes["judge"] >= 0)
        Z_fit, Z, weights = Z_fit[known], Z[scored], fit.weights[known]
        labels = self._division.judged_groups(attribute)
        products = PROBES["quadratic"](len(Z_fit), Z_fit.shape[1], len(labels), self._seed)
        models = (
            (RandomForestClassifier(100, min_samples_leaf=3, random_state=self._seed), "sample_weight"),
            (HistGradientBoostingClassifier(max_iter=120, random_state=self._seed), "sample_weight"),
            (products, f"{products.steps[-1][0]}__sample_weight"),
        )

        def read(model: Any, weighed: str) -> NDArray[Any]:
            model.fit(Z_fit, codes["fit"][known], **{weighed: weights})
            return np.log(np.clip(model.predict_proba(Z), LEAST_ODDS, 1.0))

        forest, boosted, logistic = side_by_side([(read, *model) for model in models])
        kept = rows.taken(scored)
        true = repeated(codes["judge"][scored], kept)
        found: dict[int, tuple[float, float]] = {}  # by group, of the attackers that read it best
        for odds in (repeated(forest + boosted, kept), repeated(logistic, kept)):
            groups = {1: odds[:, 1] - odds[:, 0]} if odds.shape[1] == 2 else dict(enumerate(odds.T))
            for group, scores in groups.items():
                read_at = auc_with_variance(scores, (true == group).astype(int))
                found[group] = max(read_at, found.get(group, (0.0, 0.0)))
        best = max(found, key=lambda group: found[group][0])
        bound = max(bound_above(auc, variance**0.5, self._z) for auc, variance in found.values())
        return found[best][0], bound, self._whose(attribute, str(labels[best]) if len(found) > 1 else "")

    def _embedded(self, subspace: FairSubspace, part: str, dither: float) -> NDArray[Any]:
        rows = self._division.parts[part].X
        # A guard reckons with some dither before one is chosen: that of the candidate may be less.
        subspace = replace(subspace, parameters={**subspace.parameters, "dither": dither})
        return np.asarray(subspace.embed(rows, dither=dither, key=self._key, ids=self._ids[part]))

    def _target_score(self, Z_fit: NDArray[Any], Z: NDArray[Any]) -> float | None:
        fit, rows = (self._division.parts[name] for name in ("fit", "judge"))
        if fit.target is None or rows.target is None or len(np.unique(fit.target)) != 2:
            return None
        model = HistGradientBoostingClassifier(random_state=self._seed)
        with one_thread():
            scores = model.fit(Z_fit, fit.target, sample_weight=fit.weights).predict_proba(Z)[:, 1]
        return float(roc_auc_score(rows.target == fit.target.max(), scores, sample_weight=rows.weights))

    def _whose(self, attribute: str, group: str) -> str:
        """Name one of several groups and attributes; of two groups, reading one is reading the other."""
        if group:
            return f"{attribute}={group}"
        return attribute if len(self._division.attributes) > 1 else ""
