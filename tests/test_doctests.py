"""Every formula and every shape that a docstring or the README states is executed."""

import doctest
import importlib

import pytest

from house import ROOT, modules

TESTS = ("models.light", "test_layers")  # parts of the tests that have doctests of their own


@pytest.mark.parametrize("module", [*modules(), *TESTS])
def test_docstrings(module):
    failed, _ = doctest.testmod(importlib.import_module(module))
    assert not failed


def test_readme(monkeypatch):
    monkeypatch.chdir(ROOT)
    failed, run = doctest.testfile(str(ROOT / "README.md"), module_relative=False, encoding="utf-8")
    assert run
    assert not failed
