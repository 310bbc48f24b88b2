"""The programs of PyTorch: what they convolve, hold and refuse."""

import numpy as np
import onnx
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj
from check_operator import TIGHT
from faults.models import CNN, point_of
from interop.operators import MODEL, POINT
from onnxjac.jacobians import Dense
from onnxjac.jacobians.errors import InputError
from onnxjac.modes.linear.products.compiled import Compiled, record_product
from onnxjac.modes.model.programs import numpy as own
from onnxjac.modes.model.programs import program
from onnxjac.modes.model.programs import torch as by_torch

from ..jacobians.convolutions import GEOMETRIES, convolution
from ..jacobians.examples import Draw

torch = pytest.importorskip("torch")
from onnxjac.ops.torch.table import host, tensor  # noqa: E402

pytestmark = pytest.mark.peers


def test_a_correlation_gathers_no_patches(device):
    J, _ = convolution(Draw(3), "u", "w", GEOMETRIES["2-D, asymmetric"])
    recordings = [record_product(J, convolves_samples=convolves) for convolves in (True, False)]
    kinds = [{node.op_type for node in recording.nodes} for recording in recordings]
    assert ["Conv" in kind for kind in kinds] == [True, False]


@pytest.mark.parametrize("blocks", [None, "diagonal"])
def test_second_derivatives_of_convolutions(blocks, device):
    """The recorded gradient convolves over samples, and is linearised there."""
    model = oj.load(CNN)
    point = {n: x.astype(np.float64) for n, x in point_of(model).items()}
    options = {"of": next(iter(model.outputs)), "wrt": tuple(model.initializers), "blocks": blocks}
    options["weights"] = 1 + np.arange(model.run(point)[options["of"]].size).reshape(2, -1) / 10
    H = oj.hessian(model, point, engine="numpy", **options)
    there = {name: tensor(x, device) for name, x in point.items()}
    K = oj.hessian(model, there, engine=f"torch:{device}", **options)
    if blocks is None:
        convs = (sum(s.op_type == "Conv" for s in J.route.model.steps) for J in (H.J, K.J))
        assert next(convs) < next(convs)
    v = Draw(4).normal(H.shape[1])
    expected = H @ v
    assert_allclose(host(K @ tensor(v, device)), expected, rtol=1e-4, atol=1e-4)
    assert np.abs(expected).max() > 0.1


def test_other_engines_leave_tensors_to_the_operator(device):
    v = torch.ones(4, dtype=torch.float64, device=device)
    assert_allclose(host(Compiled(Dense(np.ones((3, 4))), "numpy") @ v), np.full(3, 4.0))


def test_a_device_is_named_after_a_colon():
    for use in (
        lambda: Compiled(Dense(np.ones((3, 4))), "torch:cloud") @ np.ones(4),
        lambda: oj.linearize(MODEL, POINT, of="logits", engine="torch:cloud"),
        lambda: Dense(np.ones((3, 4))).to("cloud"),
    ):
        with pytest.raises(InputError, match="cannot use the device 'cloud'"):
            use()
    for use in (
        lambda: program.compiler("numpy:cuda"), lambda: MODEL.run(POINT, engine="numpy:cuda"),
    ):  # fmt: skip
        with pytest.raises(InputError, match="not one of"):
            use()


OF_SHAPES = [
    "n = Shape(x) y = Expand(a, n)", "n = Shape(x) y = Reshape(a, n)",
    "n = Size(x) k = Cast<to = 11>(n) y = Div(a, k)",
    "n = Shape(x) ones = ConstantOfShape<value = double[1] {1.0}>(n) y = Mul(a, ones)",
]  # fmt: skip


@pytest.mark.parametrize("body", OF_SHAPES)
def test_numbers_of_a_shape_are_constants_of_the_program(body, monkeypatch):
    """After the first run no step is computed on its own."""
    head = '<ir_version: 10, opset_import: ["": 21]> g (double[N,3] x) => (double[N,3] y)'
    model = oj.load(onnx.parser.parse_model(f"{head} {{ a = Sin(x) {body} }}"))
    model.run({"x": torch.ones(2, 3, dtype=torch.float64)}, engine="torch")
    monkeypatch.setattr(own, "compute", None)
    for k in range(2):
        x = np.arange(6.0).reshape(2, 3) + k
        y = model.run({"x": torch.tensor(x)}, engine="torch")["y"]
        assert_allclose(host(y), np.sin(x) / (6 if "Size" in body else 1), **TIGHT)


def test_a_program_that_fails_alone_says_so_once_and_gives_way_to_the_steps(monkeypatch):
    head = '<ir_version: 10, opset_import: ["": 21]> g (double[3] x) => (double[3] y)'
    model = oj.load(onnx.parser.parse_model(f"{head} {{ y = Sin(x) }}"))
    x = torch.ones(3, dtype=torch.float64)
    model.run({"x": x}, engine="torch")
    monkeypatch.setattr(by_torch, "in_line", lambda *given: lambda *inputs: [][0])
    with pytest.warns(oj.OnnxJacWarning, match="defect of onnxjac: .*index out of range"):
        made = [model.run({"x": x}, engine="torch")["y"]]
    made.append(model.run({"x": x}, engine="torch")["y"])
    assert_allclose(np.stack([host(y) for y in made]), np.sin(np.ones((2, 3))), **TIGHT)
