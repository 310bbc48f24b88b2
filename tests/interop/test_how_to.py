"""Every example of the how-to page runs as it stands."""

import doctest

import pytest

from house import ROOT

pytestmark = pytest.mark.peers


def test_the_page(monkeypatch):
    for module in ("torch", "onnxscript", "jax", "pylops"):
        pytest.importorskip(module)
    monkeypatch.chdir(ROOT)
    page = str(ROOT / "docs" / "how-to" / "interop.md")
    failed, run = doctest.testfile(page, module_relative=False, encoding="utf-8")
    assert run
    assert not failed
