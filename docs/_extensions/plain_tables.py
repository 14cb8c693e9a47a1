"""Wide tables and long lines scroll inside their own frame, so that a page never scrolls sideways."""

from __future__ import annotations

from typing import Any

from docutils import nodes


class ScrollingFrame(nodes.container):
    """A table in a frame of its own."""


def frame_tables(app: Any, tree: nodes.document, docname: str) -> None:
    """Put every table into a frame that can be scrolled with the keyboard as well."""
    for table in list(tree.findall(nodes.table)):
        if isinstance(table.parent, ScrollingFrame):
            continue
        frame = ScrollingFrame()
        table.replace_self(frame)
        frame += table


def open_frame(writer: Any, node: nodes.Node) -> None:
    """Open the frame."""
    writer.body.append('<div class="table-frame" tabindex="0" role="region" aria-label="table">')


def close_frame(writer: Any, node: nodes.Node) -> None:
    """Close the frame."""
    writer.body.append("</div>")


def setup(app: Any) -> dict[str, bool]:
    """Register the frame."""
    app.add_node(ScrollingFrame, html=(open_frame, close_frame))
    app.connect("doctree-resolved", frame_tables)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
