"""Every formula and every shape that a docstring or a page states is executed."""

import doctest
import importlib

import pytest

from house import ROOT, modules

TESTS = ("models.light", "test_layers")  # parts of the tests that have doctests of their own


@pytest.mark.usefixtures("clean_registry")
@pytest.mark.parametrize("module", [*modules(), *TESTS])
def test_every_example_of_a_docstring_runs(module):
    for library in ("torch", "jax"):
        if f".ops.{library}" in module:
            pytest.importorskip(library)
    failed, _ = doctest.testmod(importlib.import_module(module))
    assert not failed


ELSEWHERE = ("engineers", "interop", "jax", "nonlinear-programs", "roots", "torch")

PAGES = [
    ROOT / "README.md",
    *(p for p in sorted((ROOT / "docs").rglob("*.md")) if p.stem not in ELSEWHERE),
]
"""The pages that need no other library: tests/suite/interop has those that do."""


@pytest.mark.usefixtures("clean_registry")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_example_of_a_page_runs(page, monkeypatch):
    monkeypatch.chdir(ROOT)
    failed, _ = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    assert not failed


def test_pages_have_examples():
    """All of README, tutorial, how-to guides and explanations."""
    shown = [ROOT / "README.md", ROOT / "docs" / "tutorial.md"]
    shown += [page for page in PAGES if page.parent.name in ("how-to", "explanation")]
    parser = doctest.DocTestParser()
    assert all(parser.get_examples(page.read_text(encoding="utf-8")) for page in shown)
