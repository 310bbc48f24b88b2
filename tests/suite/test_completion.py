"""What Jupyter and editors complete: all public names, and a call's parameters with their help.

Jupyter completes from live objects (`jedi.Interpreter`), an editor from the text (`jedi.Script`).
"""

import inspect

import pytest

import onnxjac as oj

jedi = pytest.importorskip("jedi")

FUNCTIONS = [
    "linearize",
    "jvp",
    "vjp",
    "grad",
    "hessian",
    "jet",
    "laplacian",
    "export",
    "load",
    "root",
]


def test_all_public_names_are_completed():
    shown = {found.name for found in jedi.Script("import onnxjac as oj\noj.").complete()}
    assert set(oj.__all__) <= shown


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_call_in_jupyter_shows_parameters_and_help(name):
    (found,) = jedi.Interpreter(f"oj.{name}(", [{"oj": oj}]).get_signatures()
    function = getattr(oj, name)
    assert [p.name for p in found.params] == [*inspect.signature(function).parameters]
    assert inspect.cleandoc(found.docstring(raw=True)) == inspect.getdoc(function)


def test_a_call_in_an_editor_shows_parameters():
    found = jedi.Script("import onnxjac as oj\noj.linearize(").get_signatures()
    assert ["model", "inputs"] in [[p.name for p in each.params][:2] for each in found]
