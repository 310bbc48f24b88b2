"""Every rule, read over tensors of PyTorch, and its operators over tensors, against NumPy's."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose

from models.one_node import one_node
from onnxjac.jacobians import dtype_of, shape_of, size
from onnxjac.jacobians.errors import OnnxJacWarning
from onnxjac.modes.linearize import linearize
from onnxjac.modes.model.loading.load import load

from .cases import moved, onnx_cases
from .extra_cases import EXTRA

torch = pytest.importorskip("torch")
from onnxjac.ops.torch.table import host, tensor  # noqa: E402

pytestmark = pytest.mark.peers


def close(found, expected):
    """Equal up to rounding of double precision."""
    scale = np.abs(expected[np.isfinite(expected)]).max(initial=1)
    assert_allclose(host(found), expected, rtol=1e-12, atol=1e-12 * scale)


def check_readings(model, feeds, device):
    """J over NumPy arrays, over the same arrays as tensors, and with residuals made by PyTorch."""
    kinds = {name: model.inputs[name].dtype for name in feeds}
    feeds = {n: np.asarray(x).astype(kinds[n]) if kinds[n] else x for n, x in feeds.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OnnxJacWarning)  # about zero blocks
        J = linearize(model, feeds, engine="numpy")
        K = linearize(model, feeds, engine=f"torch:{device}")
    floats = [a for a in K.arrays() if dtype_of(a).kind == "f" and size(shape_of(a)) > 1]
    assert all(isinstance(a, torch.Tensor) for a in floats)
    for name, y in J.primal.items():
        close(K.primal[name], y)
    rng = np.random.default_rng(0)
    for A, B in ((J, K), (J.T, K.T)):
        V = rng.standard_normal((A.shape[1], 3))
        expected = A @ V
        for found in (A @ tensor(V, device), B @ tensor(V, device)):
            assert isinstance(found, torch.Tensor)
            close(found, expected)
        close(B @ V, expected)


@pytest.mark.parametrize("case", EXTRA, ids=str)
def test_rule_at_our_cases(case, device):
    feeds = {f"x{i}": np.asarray(x) for i, x in enumerate(case.inputs) if x is not None}
    graph = one_node(case.op_type, case.inputs, case.attrs or {}, case.outputs, case.opset)
    check_readings(load(graph, dtype="float64"), feeds, device)


@pytest.mark.sampled(0.4)
@pytest.mark.parametrize("case", onnx_cases(), ids=str)
def test_rule_at_cases_of_onnx(case, device):
    check_readings(load(case.model, dtype="float64"), moved(case, 0), device)
