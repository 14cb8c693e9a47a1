"""What one pass through a sketch of rank 60 loses against exact moments, as ratios sketch / exact.

    python benchmarks/sketch_quality.py [--seeds 5] [--first 0]

d=200, p=0.2, m=5, k=10, 20,000 rows in blocks of 1,000; eigenvalues j^-0.5 and j^-1; rows mixed, sorted by
group, with the minority only in the last third, and split over summaries that are merged.
"""

from __future__ import annotations

import argparse

import numpy as np

from fairstream import GroupMoments, fair_components, unfair_basis
from fairstream.datasets import benchmark_stream

N, BLOCK, M, K, RANK = 20_000, 1_000, 5, 10, 60
CASES = [("random", 1), ("sorted", 1), ("group_late", 1), ("random", 2), ("random", 7)]


def score(moments: GroupMoments, truth) -> tuple[float, float]:
    """Return the fairness violation |Pi_U V| and the variance kept, both against the population."""
    V, _ = fair_components(moments, unfair_basis(moments, M), K)
    return float(np.linalg.norm(truth.U.T @ V, 2)), float(np.trace(V.T @ truth.covariance @ V))


def ratios(decay: float, order: str, parts: int, seed: int) -> tuple[float, float, float]:
    late = {"late_row": 2 * N // 3} if order == "group_late" else {}
    options = {"order": order, "n_rows": N, "block_size": BLOCK, "seed": seed, **late}
    stream = benchmark_stream(decay, random_state=seed, **options)
    truth = stream.population(K, M)
    exact = GroupMoments(stream.n_features)
    sketches = [GroupMoments(stream.n_features, rank=RANK) for _ in range(parts)]
    for index, block in enumerate(stream):
        exact.update(block.X, block.groups)
        sketches[index * parts * BLOCK // N].update(block.X, block.groups)
    for other in sketches[1:]:
        sketches[0].merge(other)
    (unfair, kept), (unfair_exact, kept_exact) = score(sketches[0], truth), score(exact, truth)
    return unfair_exact, unfair / unfair_exact, kept / kept_exact


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    args = parser.parse_args()
    seeds = range(args.first, args.first + args.seeds)
    print("decay  order       parts   exact |Pi_U V|   ratio mean (max)   variance ratio mean (min)")
    for decay in (0.5, 1.0):
        for order, parts in CASES:
            found = np.array([ratios(decay, order, parts, seed) for seed in seeds])
            (exact, unfair, kept), worst, least = found.mean(axis=0), found[:, 1].max(), found[:, 2].min()
            print(
                f"{decay:<7}{order:<12}{parts:<8}{exact:<17.3f}{unfair:.3f} ({worst:.3f})      "
                f"{kept:.4f} ({least:.4f})",
                flush=True,
            )


if __name__ == "__main__":
    main()
