"""Fits on many machines with Dask: summaries are made where the rows are, merged in a fixed order."""
