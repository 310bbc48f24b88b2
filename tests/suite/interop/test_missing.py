"""Missing libraries are reported with the extra that installs them; none is imported early."""

import importlib
import subprocess
import sys

import numpy as np
import pytest

import onnxjac as oj
from interop.operators import MODEL, linearization
from onnxjac.modes.interop import openmdao, pyomo, pytensor, torch
from solvers.programs import hock_schittkowski

LIBRARIES = ("torch", "jax", "jax2onnx", "lineax", "pylops", "onnxscript", "casadi", "nlopt",
             "cyipopt", "pyomo", "openmdao", "sksundae", "petsc4py", "pytensor")  # fmt: skip


@pytest.fixture
def bare(monkeypatch):
    """As if none of the libraries were installed."""
    real = importlib.import_module

    def missing(name, *package):
        if name.partition(".")[0] in LIBRARIES:
            raise ModuleNotFoundError(name)
        return real(name, *package)

    monkeypatch.setattr(importlib, "import_module", missing)
    made = (torch.autograd_function, openmdao.components, pyomo.box_class,
            pytensor.operator_class)  # fmt: skip
    for classes in made:
        classes.cache_clear()
    yield
    for classes in made:
        classes.cache_clear()


@pytest.mark.parametrize(
    ("call", "extra"),
    [
        (lambda: linearization().to_torch(), "torch"),
        (lambda: MODEL.to_torch(), "torch"),
        (lambda: linearization().to_jax(), "jax"),
        (lambda: MODEL.to_jax(), "jax"),
        (lambda: linearization().to_lineax(), "lineax"),
        (lambda: linearization().to_pylops(), "pylops"),
        (lambda: MODEL.to_casadi(), "casadi"),
        (lambda: hock_schittkowski().to_casadi(), "casadi"),
        (lambda: hock_schittkowski().to_nlopt(), "nlopt"),
        (lambda: hock_schittkowski().to_pynumero(), "pyomo"),
        (lambda: oj.to_openmdao(MODEL, {}), "openmdao"),
        (lambda: oj.to_pytensor(MODEL), "pytensor"),
        (lambda: oj.to_pyomo(None), "pyomo"),
        (lambda: oj.to_sundials(None), "sundials"),
        (lambda: oj.to_petsc(linearization()), "petsc"),
        (lambda: oj.load(np.sin, example_inputs=1.0), "jax2onnx"),
        (lambda: oj.load(lambda x: x, example_inputs=1.0), "jax2onnx"),
    ],
)
def test_the_extra_is_named(bare, call, extra):
    with pytest.raises(oj.OnnxJacError, match=rf"`pip install 'onnxjac\[{extra}\]'`"):
        call()


def test_importing_the_package_imports_none_of_them():
    code = f"import onnxjac, sys; print(*set(sys.modules) & {set(LIBRARIES)})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not done.stdout.strip()


def test_examples_are_for_modules_and_functions():
    with pytest.raises(oj.LoadError, match="not for a str"):
        oj.load("model.onnx", example_inputs=(1.0,))
