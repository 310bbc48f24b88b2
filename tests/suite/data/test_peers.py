"""Curvature over uneven batches, against curvlinops, which also accepts lists of batches."""

import numpy as np
import onnx.parser
import pytest
from numpy.testing import assert_allclose
from onnx import numpy_helper

import onnxjac as oj
from data.regressions import UNEVEN
from onnxjac.modes.curvature.gauss_newton import gauss_newton
from onnxjac.modes.data.adapter import takes_data

pytestmark = pytest.mark.peers

TEXT = """<ir_version: 10, opset_import: ["" : 21]>
g (double[n, 4] x, int64[n] y) => (double loss, double[n, 3] logits) {
    h = Gemm<transB = 1>(x, W0)
    a = Tanh(h)
    logits = Gemm<transB = 1>(a, W1)
    loss = SoftmaxCrossEntropyLoss<reduction = "R">(logits, y)
}"""
WEIGHTS = [np.random.default_rng(5).standard_normal(shape) for shape in ((6, 4), (3, 6))]


def ours(reduction):
    proto = onnx.parser.parse_model(TEXT.replace('"R"', f'"{reduction}"'))
    for k, weights in enumerate(WEIGHTS):
        proto.graph.initializer.append(numpy_helper.from_array(weights, f"W{k}"))
    return oj.load(proto)


def theirs(kind, reduction):
    curvlinops = pytest.importorskip("curvlinops")
    torch = pytest.importorskip("torch")
    layers = [torch.nn.Linear(w.shape[1], w.shape[0], bias=False).double() for w in WEIGHTS]
    for layer, weights in zip(layers, WEIGHTS, strict=True):
        layer.weight.data = torch.from_numpy(weights)
    network = torch.nn.Sequential(layers[0], torch.nn.Tanh(), layers[1])
    data = [(torch.from_numpy(b["x"]), torch.from_numpy(b["y"])) for b in UNEVEN]
    loss = torch.nn.CrossEntropyLoss(reduction=reduction)
    C = getattr(curvlinops, kind)(network, loss, list(network.parameters()), data)
    return (C @ torch.eye(C.shape[1], dtype=torch.float64)).numpy()


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize(
    ("function", "kind", "options"),
    [
        (oj.hessian, "HessianLinearOperator", {}),
        (gauss_newton, "GGNLinearOperator", {"at": "logits"}),
    ],
)
def test_curvature_over_uneven_batches(function, kind, options, reduction):
    C = takes_data()(function)(
        ours(reduction), UNEVEN, of="loss", wrt=["W0", "W1"], reduction=reduction, **options
    )
    assert_allclose(C.toarray(), theirs(kind, reduction), rtol=1e-9, atol=1e-9)
