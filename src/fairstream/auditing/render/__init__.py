"""A report as text, figures and a page."""
