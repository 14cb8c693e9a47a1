"""Shows in the gallery the figures that the library returns, which pyplot does not know."""

from __future__ import annotations

from typing import Any

from sphinx_gallery.scrapers import figure_rst


def scrape(block: Any, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    """Save every new figure among the variables of an example that pyplot did not make."""
    from matplotlib.figure import Figure

    saved = []
    for value in block_vars["example_globals"].values():
        if not isinstance(value, Figure) or value.canvas.manager is not None:
            continue
        if getattr(value, "shown_in_gallery", False):
            continue
        value.shown_in_gallery = True  # type: ignore[attr-defined]
        path = next(block_vars["image_path_iterator"])
        value.savefig(path, format="png", dpi=100)
        saved.append(path)
    return figure_rst(saved, gallery_conf["src_dir"])
