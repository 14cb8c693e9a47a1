"""Fits on many machines with Dask: summaries are made where the rows are, merged in a fixed order."""

from fairstream.streaming.dask.fit import fit_dask

__all__ = ["fit_dask"]
