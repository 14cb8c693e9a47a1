"""The directive `user-tasks`: the tasks of a test file, so that page and test cannot differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective
from tested_tasks import tasks_of

TASKS = Path(__file__).parents[2] / "tests" / "test_user_tasks.py"


class UserTasks(SphinxDirective):
    """The tasks of tests/test_user_tasks.py."""

    has_content = False

    def run(self) -> list[nodes.Node]:
        """Build a section for every section of the file, with a part for every task."""
        if not TASKS.exists():
            logging.getLogger(__name__).info("%s is not here: the page has no tasks", TASKS)
            return [nodes.paragraph("", "The tests are not part of this copy.")]
        self.env.note_dependency(str(TASKS))
        sections: dict[str, nodes.Element] = {}
        result: list[nodes.Node] = []
        for task in tasks_of(TASKS.read_text(encoding="utf-8")):
            if task.section not in sections:
                section = nodes.section(ids=[nodes.make_id(f"tasks-{task.section}")])
                section += nodes.title("", task.section or "Tasks")
                sections[task.section] = section
                result.append(section)
            part = nodes.section(ids=[nodes.make_id(task.name.removeprefix("test_"))])
            part += nodes.title("", task.heading)
            part += nodes.literal_block(task.code, task.code, language=task.language)
            sections[task.section] += part
        return result


def setup(app: Any) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("user-tasks", UserTasks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
