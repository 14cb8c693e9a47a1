"""The tasks of a test file, each with the code that is tested: what the site and its tests show of them.

A task is a test function. Its heading is its name in words, its code what stands between the comments "begin"
and "end" (or the whole of it). Calls of `shell("...")` are shown as what a user types. A comment that is a
ruled line begins a section.
"""

from __future__ import annotations

import ast
import re
import textwrap
from typing import NamedTuple


class Task(NamedTuple):
    """One task: the section it is in, the name of its test, and what is shown."""

    section: str
    name: str
    heading: str
    language: str
    code: str


def tasks_of(text: str) -> list[Task]:
    """Return the tasks of a test file; tests without marks are none if others have them."""
    lines = text.splitlines()
    rules = [
        (number, found[1])
        for number, line in enumerate(lines)
        if (found := re.match(r"# (.+?) -{5,}$", line))
    ]
    marked = any(re.match(r"\s*# begin\b", line) for line in lines)
    tasks = []
    for node in ast.parse(text).body:
        if not isinstance(node, ast.FunctionDef) or not node.name.startswith("test_"):
            continue
        code = _between_marks(lines[node.lineno : node.end_lineno]) if marked else _body(node, lines)
        if code is None:
            continue
        section = next((name for number, name in reversed(rules) if number < node.lineno), "")
        typed = _typed(node, code)
        shown = ("python", code) if typed is None else ("sh", typed)
        tasks.append(Task(section, node.name, _heading(node), *shown))
    return tasks


def _between_marks(lines: list[str]) -> str | None:
    begin = next((i for i, line in enumerate(lines) if re.match(r"\s*# begin\b", line)), None)
    end = next((i for i, line in enumerate(lines) if re.match(r"\s*# end\b", line)), None)
    return None if begin is None else textwrap.dedent("\n".join(lines[begin + 1 : end])).strip("\n")


def _body(node: ast.FunctionDef, lines: list[str]) -> str:
    first = node.body[1] if ast.get_docstring(node) and len(node.body) > 1 else node.body[0]
    return textwrap.dedent("\n".join(lines[first.lineno - 1 : node.end_lineno]))


def _heading(node: ast.FunctionDef) -> str:
    said = ast.get_docstring(node)
    if said:
        return said.splitlines()[0].rstrip(".")
    words = node.name.removeprefix("test_").split("_")
    named = " ".join(word.upper() if word in {"csv", "json", "onnx"} else word for word in words)
    return named[:1].upper() + named[1:]


def _typed(node: ast.FunctionDef, code: str) -> str | None:
    """Return the lines that a user types if the code is nothing but calls of `shell`, else None."""
    known = {
        one.targets[0].id: one.value.value
        for one in node.body
        if isinstance(one, ast.Assign)
        and isinstance(one.targets[0], ast.Name)
        and isinstance(one.value, ast.Constant)
        and isinstance(one.value.value, str)
    }
    typed = []
    for one in ast.parse(code).body:
        if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) in known:
            continue
        call = one.value if isinstance(one, ast.Expr) else None
        if not isinstance(call, ast.Call) or ast.unparse(call.func) != "shell":
            return None
        try:
            typed.append(
                eval(compile(ast.Expression(call.args[0]), "task", "eval"), {"__builtins__": {}}, known)
            )
        except NameError:
            return None
    return "\n".join(typed) or None
