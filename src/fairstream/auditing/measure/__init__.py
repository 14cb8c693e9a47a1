"""Numbers of an audit: leaks, gaps, variance, tasks."""
