"""Whatever takes a model takes a path in its place, and says so in its signature."""

import inspect

import numpy as np
import onnx
import onnx.parser
import pytest

import onnxjac as oj

NET = """<ir_version: 10, opset_import: ["": 21]>
net (double[2, 2] x) => (double[2, 2] y, double loss) <double[2, 2] W = {1.0, 2.0, 0.5, -1.0}> {
    h = MatMul(x, W) y = Tanh(h) loss = ReduceSumSquare<keepdims = 0>(y) }"""

IMAGES = """<ir_version: 10, opset_import: ["": 21]>
net (double[1, 1, 4, 4] x) => (double[1, 2] y) <double[2, 1, 3, 3] W = {
    1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 8, 7, 6, 5, 4, 3, 2, 1}> {
    h = Conv(x, W) r = Relu(h) p = GlobalAveragePool(r) y = Flatten(p) }"""

X = {"x": np.array([[0.3, -0.2], [0.1, 0.4]])}
IMAGE = {"x": np.linspace(0, 1, 16).reshape(1, 1, 4, 4)}
BATCHES = [X, {"x": -X["x"]}]
GAUSSIAN = {"at": "y", "wrt": "W", "likelihood": "gaussian"}

CALLS = {
    "as_scipy": ((X,), {"of": "y"}),
    "derivative": ((X,), {"of": "y", "wrt": ["x[0]", "x[1]"]}),
    "ekfac": ((X,), GAUSSIAN),
    "empirical_fisher": ((X,), {"of": "loss", "at": "y", "wrt": "W"}),
    "euler_residual": ((X,), {"of": "y"}),
    "export": (("jvp", X), {"of": "y"}),
    "fisher": ((X,), GAUSSIAN),
    "gauss_newton": ((X,), {"of": "loss", "at": "y"}),
    "grad": ((X,), {"of": "loss"}),
    "grad_cam": ((IMAGE,), {"of": "y[0,1]"}),
    "gradient_times_input": ((X,), {"of": "loss"}),
    "gram": ((X,), {"of": "y"}),
    "hessian": ((X,), {"of": "loss"}),
    "hvp": ((X, X), {"of": "loss"}),
    "implicit_euler": ((X,), {"of": "y", "step": 0.1, "steps": 2}),
    "influence": ((BATCHES, BATCHES), {"of": "loss", "at": "y", "wrt": "W"}),
    "integrated_gradients": ((X,), {"of": "loss"}),
    "jet": ((X, {"x": [X["x"]]}), {"of": "y"}),
    "jvp": ((X, X), {"of": "y"}),
    "kfac": ((X,), GAUSSIAN),
    "laplacian": ((X,), {"of": "y"}),
    "levenberg_marquardt": ((X,), {"of": "y"}),
    "linearize": ((X,), {"of": "y"}),
    "logdet_and_grad": ((), {"of": "loss", "wrt": "W"}),
    "natural_gradient": ((X,), {"of": "loss", "at": "y", "wrt": "W", "maxiter": 1}),
    "nearest_gradients": ((BATCHES, BATCHES), {"of": "loss", "at": "y", "wrt": "W"}),
    "newton_cg": ((X,), {"of": "loss"}),
    "newton_krylov": ((X,), {"of": "y"}),
    "ntk": ((X,), {"of": "y"}),
    "pseudo_transient": ((X,), {"of": "y", "step": 0.1}),
    "root": ((X,), {"of": "y", "x": "x", "wrt": "W"}),
    "saliency": ((X,), {"of": "loss"}),
    "sensitivities": ((BATCHES,), {"of": "loss", "at": "y", "reduction": "sum"}),
    "shampoo": ((X,), {"of": "loss", "at": "y", "wrt": "W"}),
    "solve_ivp": ((X, (0, 1)), {"of": "y"}),
    "smoothgrad": ((X,), {"of": "loss"}),
    "trace_and_grad": ((np.exp, np.exp), {"of": "loss", "wrt": "W"}),
    "trajectory": ((X,), {"of": "y", "x": "x", "wrt": "W", "step": 0.1, "steps": 2}),
    "training_model": (("loss",), {}),
    "value_and_grad": ((), {"of": "loss"}),
    "vjp": ((X,), {"of": "y"}),
    "with_loss": (("mse",), {"at": "y", "name": "error"}),
    "with_residual": (("2 * y",), {}),
}
"""A public function -> its other arguments."""

ELSEWHERE = {
    "export_casadi", "lower_gradients", "symbolic", "to_jax", "to_openmdao", "to_pytensor",
    "to_torch",
}  # fmt: skip
"""Functions of files before they are loaded, and functions that write files or need a library."""


def takes_a_model(name):
    function = getattr(oj, name)
    parameters = inspect.signature(function).parameters if inspect.isfunction(function) else ()
    return next(iter(parameters), None) == "model"


def test_each_function_is_tried():
    assert {name for name in oj.__all__ if takes_a_model(name)} == CALLS.keys() | ELSEWHERE


@pytest.mark.parametrize("name", CALLS)
def test_a_path_is_a_model(name, tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(IMAGES if name == "grad_cam" else NET), path)
    args, options = CALLS[name]
    for given in (path, str(path)):
        assert getattr(oj, name)(given, *args, **options) is not None
    first = next(iter(inspect.signature(getattr(oj, name)).parameters.values()))
    assert first.annotation == "ModelLike"
