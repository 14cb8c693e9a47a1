"""Fits on many machines with Dask: workers summarise their rows, summaries merge in a fixed order."""
