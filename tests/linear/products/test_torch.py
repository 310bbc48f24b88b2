"""The torch program gives the operator's products, of arrays and of tensors."""

import sys
from operator import methodcaller

import numpy as np
import pytest
from numpy.testing import assert_allclose
from onnx import helper

import onnxjac as oj
from check_operator import TIGHT, check_operator
from faults.models import CNN, point_of
from onnxjac.jacobians import Dense
from onnxjac.jacobians.errors import InputError
from onnxjac.modes.linear.products.compiled import Compiled, record_product
from onnxjac.modes.model.programs import program

from ...jacobians.convolutions import GEOMETRIES, PAIRS, convolution
from ...jacobians.examples import EXAMPLES, Draw

torch = pytest.importorskip("torch")
from onnxjac.modes.model.programs import torch as engine  # noqa: E402
from onnxjac.modes.model.programs.numpy import Call, in_line  # noqa: E402
from onnxjac.ops.torch import bound, tensors  # noqa: E402
from onnxjac.ops.torch.table import host, tensor  # noqa: E402

pytestmark = pytest.mark.peers


def check_compiled(J, dense, device):
    """Products with arrays and tensors, which belong to the caller."""
    check_operator(Compiled(J, f"torch:{device}"), dense)
    C, V = Compiled(J, "torch"), Draw(5).normal(J.shape[1], 2)
    for _ in range(2):
        y = C @ tensor(V, device)
        assert y.device.type == torch.device(device).type
        assert_allclose(host(y), dense @ V, **TIGHT)
        y += 1
    U = tensor(Draw(6).normal(J.shape[0]), device)
    assert_allclose(host(C.T @ U), dense.T @ host(U), **TIGHT)


@pytest.mark.parametrize("name", EXAMPLES)
def test_operator(name, device):
    check_compiled(*EXAMPLES[name][1](Draw(1)), device)


@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize("pair", PAIRS, ids=" to ".join)
def test_convolution(name, pair, device):
    check_compiled(*convolution(Draw(3), *pair, GEOMETRIES[name]), device)


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
    with pytest.raises(InputError, match="cannot use the device 'cloud'"):
        Compiled(Dense(np.ones((3, 4))), "torch:cloud") @ np.ones(4)
    with pytest.raises(InputError, match="not one of"):
        program.compiler("numpy:cuda")


def test_without_torch_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(InputError, match=r"onnxjac\[torch\]"):
        program.compiler("torch")


SUMS = {"c + ab": (True, torch.add, (2, 3)), "ab + c": (True, torch.add, (3, 2)),
        "c - ab": (True, torch.sub, (2, 3)), "ab - c": (False, torch.sub, (3, 2)),
        "ab + ab": (False, torch.add, (3, 3))}  # fmt: skip


@pytest.mark.parametrize("shape", [(), (3,), (1, 3), (3, 3), (2, 3, 3)], ids=str)
@pytest.mark.parametrize("kernel", [torch.mul, torch.mm], ids=["mul", "mm"])
@pytest.mark.parametrize("name", SUMS)
def test_a_product_in_a_sum_is_one_kernel(name, kernel, shape, monkeypatch, device):
    """Where the product has no other use and the shape of the sum."""
    fuses, outer, operands = SUMS[name]
    programs = []

    def spied(calls, *told):
        programs.append(calls)
        return in_line(calls, *told)

    monkeypatch.setattr(engine, "in_line", spied)
    a, b, c = (tensor(Draw(7).normal(*s), device) for s in ((3, 3), (3, 3), shape))
    made = torch.broadcast_shapes((3, 3), shape if operands != (3, 3) else ())
    calls = [Call(kernel, (0, 1), (3,), (3, 3)), Call(outer, operands, (4,), tuple(made))]
    (y,) = engine.fused_in_line(calls, (0, 1, 2), (4,), {})(a, b, c)
    values = {2: c, 3: kernel(a, b)}
    assert_allclose(host(y), host(outer(*(values[n] for n in operands))), **TIGHT)
    assert len(programs[0]) == 2 - (fuses and len(shape) < 3)
    kept = engine.fused_in_line(calls, (0, 1, 2), (4, 3), {})(a, b, c)
    assert_allclose(host(kept[1]), host(values[3]), **TIGHT)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"])
def test_a_comparison_is_written_as_numbers(name, dtype, monkeypatch, device):
    """1 where it holds and 0 elsewhere, as it is for NaN."""
    programs = []

    def spied(calls, *told):
        programs.append(calls)
        return in_line(calls, *told)

    monkeypatch.setattr(engine, "in_line", spied)
    x = np.array([[-1, 0, 1], [2, np.nan, np.inf]], dtype)
    a, b = (tensor(y, device) for y in (x, np.array([0, 1, 1], dtype)))
    truth, to = getattr(tensors, name)(a, b), helper.np_dtype_to_tensor_dtype(x.dtype)
    steps = [(name, (a, b), (0, 1), {}), ("Cast", (truth,), (2,), {"to": to})]
    calls = [
        Call(bound(op, given, [None] * len(given), attrs, (2, 3))[0], places, (k + 2,), (2, 3))
        for k, (op, given, places, attrs) in enumerate(steps)
    ]
    (y,) = engine.fused_in_line(calls, (0, 1), (3,), {})(a, b)
    assert len(programs[0]) == 1
    assert y.dtype == a.dtype
    assert host(y).tolist() == host(truth).astype(dtype).tolist()
    kept = engine.fused_in_line(calls, (0, 1), (2, 3), {})(a, b)
    assert all(map(torch.equal, kept, (truth, y)))


def test_a_transpose_is_copied_once_for_all_its_shapes(device):
    """From the first new shape, the others are views."""
    x = tensor(Draw(8).normal(2, 3, 4), device)
    calls = [Call(lambda x: x.mT, (0,), (1,), (2, 4, 3))]
    shapes = [(8, 3), (24,), (2, 12)]
    calls += [Call(methodcaller("reshape", s), (1,), (k + 2,), s) for k, s in enumerate(shapes)]
    made = engine.fused_in_line(calls, (0,), (2, 3, 4), {})(x)
    assert [tuple(y.shape) for y in made] == shapes
    assert all(torch.equal(y, x.mT.reshape(y.shape)) for y in made)
    assert len({y.data_ptr() for y in made}) == 1
