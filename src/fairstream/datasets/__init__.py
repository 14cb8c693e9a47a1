"""Data to try things on: Adult, COMPAS and German credit (embedded), the paper's splits, CelebA on disk."""

from fairstream.datasets.celeba import CelebA, CelebASelection
from fairstream.datasets.splits import PaperSplit, paper_split
from fairstream.datasets.synthetic import Population, SyntheticStream, benchmark_stream, synthetic_stream
from fairstream.datasets.tables import load_adult, load_compas, load_german

__all__ = [
    "CelebA",
    "CelebASelection",
    "PaperSplit",
    "Population",
    "SyntheticStream",
    "benchmark_stream",
    "load_adult",
    "load_compas",
    "load_german",
    "paper_split",
    "synthetic_stream",
]
