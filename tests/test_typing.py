"""A user's code, checked by mypy: right uses have precise types, mistakes are reported."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

HEAD = """
import numpy as np
import onnxjac as oj
from onnxjac.jacobians import Jacobian

m = oj.load("model.onnx")
x = {"x": np.ones(3)}
v = np.ones(3)
J = oj.linearize(m, x)
"""

RIGHT = {
    "oj.load('model.onnx', dtype='float64')": "onnxjac.modes.primal.model.Model",
    "oj.linearize(m, x, of='y', wrt=['x', 'w'], straight_through=True)":
        "onnxjac.modes.linearization.Linearization",
    "oj.linearize(m, [x, x], wrt='w')": "onnxjac.jacobians.base.Jacobian",
    "J.T": "onnxjac.modes.linearization.Linearization",
    "J @ v": "numpy.ndarray[tuple[Any, ...], numpy.dtype[Any]]",
    "J @ J.T": "onnxjac.jacobians.base.Jacobian",
    "J.shape": "tuple[int, int]",
    "oj.jvp(m, x, x, of='y', engine='numpy')[1]":
        "dict[str, numpy.ndarray[tuple[Any, ...], numpy.dtype[Any]]]",
    "oj.vjp(m, x, checkpoint=2)[1]": "onnxjac.modes.reverse.Pullback",
    "oj.hessian(m, x, of='loss', wrt='w')": "onnxjac.modes.symmetric.Curvature",
    "oj.gauss_newton(m, x, of='loss', at='z')": "onnxjac.modes.symmetric.Symmetric",
    "oj.hessian(m, x, of='loss', reduction='mean', batch_size=8)":
        "onnxjac.jacobians.base.Jacobian",
    "oj.kfac(m, x, at='z', likelihood='gaussian')":
        "onnxjac.modes.curvature.kronecker.KroneckerFactored",
    "oj.inverse(J.T @ J)": "onnxjac.jacobians.base.Jacobian",
    "oj.export(m, 'vjp', x)": "onnx.onnx_ml_pb2.ModelProto",
    "oj.prove('Tanh')": "onnxjac.modes.verify.proof.Proof",
}  # fmt: skip
"""An expression -> its type."""

WRONG = (
    "oj.load()",
    "oj.load('model.onnx', type='float64')",
    "oj.linearize(m)",
    "oj.linearize(x, m)",
    "oj.linearize('model.onnx', x)",
    "oj.linearize(m, x, off='y')",
    "oj.linearize(m, x, wrt=3)",
    "oj.linearize(m, x, straight_through='yes')",
    "oj.linearize(m, [x], batchsize=3)",
    "oj.jvp(m, x)",
    "oj.jvp(m, x, x, engin='numpy')",
    "oj.vjp(m, x, chekpoint=True)",
    "oj.grad(m, x, of=['y', 'z'])",
    "oj.grad(m, x, straight=True)",
    "oj.hessian(m, x, off='loss')",
    "oj.fisher(m, x, likelyhood='gaussian')",
    "oj.kfac(m, x, likelyhood='gaussian')",
    "oj.shampoo(m, x, power='half')",
    "oj.ntk(m, x, batchsize=3)",
    "oj.export(m, x)",
    "oj.inverse(J, solvr='cg')",
    "oj.inverse(m)",
    "oj.to_torch(m, of=1)",
    "m.run(v)",
    "m.to_torch(off='y')",
    "oj.hvp(m, x, of='loss')",
    "oj.linearise(m, x)",
)


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What mypy says of each line of the file, in one run."""
    file = tmp_path_factory.mktemp("typing") / "user.py"
    lines = [*HEAD.splitlines(), *(f"reveal_type({each})" for each in RIGHT), *WRONG]
    file.write_text("\n".join(lines))
    command = [sys.executable, "-m", "mypy", "--config-file", ROOT / "pyproject.toml", file]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    found = {line: [] for line in lines}
    for at, kind, text in re.findall(r"user\.py:(\d+): (error|note): (.*)", run.stdout):
        found[lines[int(at) - 1]].append((kind, text))
    assert found["reveal_type(J.T)"], run.stdout + run.stderr
    return found


@pytest.mark.parametrize("expression", RIGHT)
def test_a_right_use_has_its_type(said, expression):
    revealed = f'Revealed type is "{RIGHT[expression]}"'
    assert said[f"reveal_type({expression})"] == [("note", revealed)]


@pytest.mark.parametrize("line", WRONG)
def test_a_mistake_is_reported(said, line):
    assert "error" in {kind for kind, _ in said[line]}


def test_the_head_is_right(said):
    assert not any(said[line] for line in HEAD.splitlines())
