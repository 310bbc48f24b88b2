"""Every example of the how-to page runs as it stands."""

import doctest

import pytest

from house import ROOT

pytestmark = pytest.mark.peers


PAGES = {"interop": ("torch", "onnxscript", "jax", "pylops"),
         "engineers": ("openmdao", "sksundae", "pytensor", "pyomo"),
         "jax": ("jax", "diffrax", "lineax", "optimistix"), "torch": ("torch",),
         "roots": ("torch",),
         "nonlinear-programs": ("casadi", "cyipopt", "nlopt", "skl2onnx", "torch")}  # fmt: skip
"""page -> the libraries that it needs."""


@pytest.mark.parametrize("name", PAGES)
def test_every_example_of_the_page_runs(name, monkeypatch):
    for module in PAGES[name]:
        pytest.importorskip(module)
    monkeypatch.chdir(ROOT)
    page = str(ROOT / "docs" / "how-to" / f"{name}.md")
    failed, run = doctest.testfile(page, module_relative=False, encoding="utf-8")
    assert run
    assert not failed
