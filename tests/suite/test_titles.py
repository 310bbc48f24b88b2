"""Titles of tests name a unit and what is expected of it; private attributes stay private."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from house import ROOT, modules

SUITE = ROOT / "tests" / "suite"

RIDDLE = re.compile(r"test_(what|it|they|this|that|these|those)_")

FIXTURE = SUITE / "conftest.py"
"""The one file that reads private attributes, in the fixture `inside`."""

PROTOCOLS = {"_apply", "_transpose", "_replace"}
"""What every operator writes, and may call of another one (docs/explanation/architecture.md), and
what every named tuple has.
"""


@cache
def trees() -> dict[Path, ast.Module]:
    """The files of the suite, parsed."""
    return {path: ast.parse(path.read_text()) for path in sorted(SUITE.rglob("*.py"))}


def titles(tree: ast.AST) -> Iterator[str]:
    """The names of tests."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield node.name


def is_private(name: str) -> bool:
    """One underscore before the name, and none of Jupyter's after it."""
    return name.startswith("_") and not name.endswith("_")


def written(tree: ast.AST) -> Iterator[str]:
    """The private names that classes give to their methods and attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for inner in ast.walk(node):
                if isinstance(inner, ast.FunctionDef):
                    yield inner.name
                if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store):
                    yield inner.attr


def is_own(node: ast.AST) -> bool:
    return ast.unparse(node) in ("self", "super()")


def read(tree: ast.AST) -> Iterator[str]:
    """The private attributes that are read, other than of `self`, by a dot or by a name in a
    string.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr) and not is_own(node.value):
            yield node.attr
        if isinstance(node, ast.Call) and len(node.args) > 1:
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in ("getattr", "setattr", "delattr") and isinstance(node.args[1], ast.Constant):
                yield str(node.args[1].value)


@cache
def ours() -> set[str]:
    """The private attributes of the classes of the package."""
    sources = (ast.parse(path.read_text()) for path in modules().values())
    return {name for tree in sources for name in written(tree) if is_private(name)} - PROTOCOLS


def test_titles_are_no_riddles():
    found = [title for tree in trees().values() for title in titles(tree) if RIDDLE.match(title)]
    assert not found


def test_private_attributes_are_read_in_one_fixture_only():
    found = {
        str(path.relative_to(SUITE)): names for path, tree in trees().items()
        if path != FIXTURE and (names := sorted(ours().intersection(read(tree))))
    }  # fmt: skip
    assert not found


def test_the_reader_finds_titles_and_attributes():
    text = "def test_what_is(): J._dag; self._own; setattr(J, '_made', 1); J._repr_html_()"
    tree = ast.parse(text)
    assert RIDDLE.match(*titles(tree))
    assert {name for name in read(tree) if is_private(name)} == {"_dag", "_made"}
    assert ours() >= {"_dag", "_shared"}
