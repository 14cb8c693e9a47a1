"""The order of the gallery: what most people want first."""

from __future__ import annotations

EXAMPLES = [
    "plot_tasks.py",
    "plot_pipeline.py",
    "plot_table.py",
    "plot_tune.py",
    "plot_audit.py",
    "plot_rivals.py",
    "plot_guard_and_dither.py",
    "plot_intersections.py",
    "plot_words.py",
    "plot_images.py",
    "plot_parquet.py",
    "plot_institutions.py",
    "plot_dask.py",
    "plot_hand_over.py",
]


class ByList:
    """Sorts files by their place in EXAMPLES; a file that is not there comes last."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, file: str) -> tuple[int, str]:
        """Return the place of a file."""
        return (EXAMPLES.index(file) if file in EXAMPLES else len(EXAMPLES), file)

    def __repr__(self) -> str:
        """Return what Sphinx compares with the build before: the same for every folder of memory."""
        return "ByList()"
