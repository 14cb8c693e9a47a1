"""Every public name says what it does, what it takes and how it is called."""

from __future__ import annotations

import inspect
import re

import pytest

import fairstream
from fairstream import auditing, baselines, datasets, theory

pytest.importorskip("numpydoc", reason="numpydoc reads the docstrings: pip install 'fairstream[docs]'")
from numpydoc.docscrape import ClassDoc, FunctionDoc

ROOMS = (auditing, baselines, datasets, theory)
NAMES = {
    **{f"fairstream.{name}": getattr(fairstream, name) for name in fairstream.__all__ if name[0] != "_"},
    **{f"{room.__name__}.{name}": getattr(room, name) for room in ROOMS for name in room.__all__},
}
NAMES = {name: value for name, value in NAMES.items() if callable(value)}
# What is raised or warned of, and results that only fairstream builds, are not called by users.
CALLED = [
    name
    for name, value in NAMES.items()
    if name.count(".") == 1 and not (isinstance(value, type) and issubclass(value, BaseException))
]
# How estimators, files and whoever reads rows for them talk to each other: not for users, not on the site.
INSIDE = {
    "adopt", "check_source", "empty_learner", "from_state", "new_learner", "roles", "settings",
    "stored_learner", "to_state", "with_intersections",
}  # fmt: skip


def documented(value):
    """Return {parameter: text} of the numpydoc sections of a class or function."""
    text = inspect.getdoc(value) or ""
    doc = ClassDoc(value) if inspect.isclass(value) else FunctionDoc(value, doc=text)
    sections = [*doc["Parameters"], *doc["Other Parameters"], *doc["Attributes"]]
    found = {}
    for entry in sections:
        for name in re.split(r",\s*", entry.name.replace("\\", " ")):
            said = " ".join(entry.desc).strip()
            found[name.strip().lstrip("*")] = found.get(name.strip().lstrip("*")) or said
    return found


def parameters_of(value):
    try:
        signature = inspect.signature(value)
    except ValueError:  # an exception that takes what all of them take
        return []
    if getattr(value, "_is_protocol", False):
        return []
    return [name for name in signature.parameters if name not in ("self", "cls")]


def referred(text, owner):
    """Return what a docstring refers to for its parameters: "as in `FairSubspace.embed`", "as in `fit`"."""
    names = re.findall(r"[Pp]arameters[^.]*?as\s+in\s+`([\w.]+)`", text)
    return [resolved(name, owner) for name in names]


def resolved(name, owner):
    found = fairstream if owner is None or "." in name or hasattr(fairstream, name) else owner
    for part in name.split("."):
        found = getattr(found, part, None)
        if found is None:
            return None
    return found


def described_in(value, owner):
    """Return the parameters that a docstring, or one that it refers to, says something about."""
    found = {name for name, said in documented(value).items() if said}
    for other in referred(inspect.getdoc(value) or "", owner):
        if other is not None and other is not value:
            found |= described_in(other, owner)
    return found


def undescribed(value, *, by_name, owner=None):
    """Return the parameters that a docstring leaves out or names without a word about them.

    `by_name`: a sentence that names the parameter will do, as for a method of one argument.
    """
    text = inspect.getdoc(value) or ""
    described = described_in(value, owner)
    named = set(re.findall(r"\w+", text)) if by_name else set()
    return [name for name in parameters_of(value) if name not in described | named]


def methods_of(kind):
    for name, value in inspect.getmembers(kind):
        if (
            name.startswith("_")
            or name in INSIDE
            or not (inspect.isfunction(value) or inspect.ismethod(value))
        ):
            continue
        if (value.__module__ or "").startswith("fairstream"):
            yield name, value


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_of_a_public_name_is_described(name):
    assert not undescribed(NAMES[name], by_name=False)


@pytest.mark.parametrize("name", [name for name, value in NAMES.items() if inspect.isclass(value)])
def test_every_public_method_says_what_it_takes(name):
    silent = {
        method: missing
        for method, value in methods_of(NAMES[name])
        if (missing := undescribed(value, by_name=True, owner=NAMES[name])) or not inspect.getdoc(value)
    }
    assert not silent


@pytest.mark.parametrize("name", CALLED)
def test_every_public_name_has_an_example(name):
    assert ">>>" in (inspect.getdoc(NAMES[name]) or "")


def test_a_parameter_without_a_description_is_seen():
    """The controls: left out, listed without a word, and said well."""

    def left_out(rows, columns):
        """Return what.

        Parameters
        ----------
        rows : int
            How many.
        """

    def without_a_word(rows):
        """Return what.

        Parameters
        ----------
        rows : int
        """

    def in_a_sentence(rows):
        """Return as many as there are `rows`."""

    assert undescribed(left_out, by_name=False) == ["columns"]
    assert undescribed(without_a_word, by_name=False) == ["rows"]
    assert undescribed(in_a_sentence, by_name=False) == ["rows"]
    assert undescribed(in_a_sentence, by_name=True) == []
