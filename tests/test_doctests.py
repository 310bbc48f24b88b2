"""Every formula and every shape that a docstring states is executed."""

import doctest
import importlib

import pytest

from house import modules

TESTS = ("models.light", "test_layers")  # parts of the tests that have doctests of their own


@pytest.mark.parametrize("module", [*modules(), *TESTS])
def test_docstrings(module):
    failed, _ = doctest.testmod(importlib.import_module(module))
    assert not failed
