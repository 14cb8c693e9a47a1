"""The directive `user-tasks`: the tasks of a test file, each with the code that is tested.

A task is a function of the file. Its heading is the first line of its docstring, or else its name; its code
is the rest of the function, read from the file when the site is built: page and test cannot differ.
"""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

TASKS = Path(__file__).parents[2] / "tests" / "test_user_tasks.py"


def tasks_of(text: str) -> list[tuple[str, str, str]]:
    """Return (name, heading, code) of every task of a test file."""
    lines = text.splitlines()
    found = []
    for node in ast.parse(text).body:
        if not isinstance(node, ast.FunctionDef) or not node.name.startswith("test_"):
            continue
        said = ast.get_docstring(node)
        named = node.name.removeprefix("test_").replace("_", " ").capitalize()
        heading = said.splitlines()[0].rstrip(".") if said else named
        first = node.body[1] if said and len(node.body) > 1 else node.body[0]
        code = textwrap.dedent("\n".join(lines[first.lineno - 1 : node.end_lineno]))
        found.append((node.name, heading, code))
    return found


class UserTasks(SphinxDirective):
    """The tasks of tests/test_user_tasks.py."""

    has_content = False

    def run(self) -> list[nodes.Node]:
        """Build a section for every task."""
        if not TASKS.exists():
            return [nodes.paragraph("", "The tasks are in tests/test_user_tasks.py, which is not here.")]
        self.env.note_dependency(str(TASKS))
        sections: list[nodes.Node] = []
        for name, heading, code in tasks_of(TASKS.read_text(encoding="utf-8")):
            section = nodes.section(ids=[name.removeprefix("test_").replace("_", "-")])
            section += nodes.title("", heading)
            block = StringList(
                [".. code-block:: python", "", *textwrap.indent(code, "   ").splitlines()], name
            )
            self.state.nested_parse(block, 0, section)
            sections.append(section)
        return sections


def setup(app: Any) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("user-tasks", UserTasks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
