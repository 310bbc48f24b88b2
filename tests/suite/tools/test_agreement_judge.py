"""Tests of the judge: ONNX's own cases, ONNX Runtime at old opsets, and central differences."""

import re
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

from house import ROOT

torch = pytest.importorskip("torch")
judge = pytest.importorskip("agreement.judge")

pytestmark = pytest.mark.peers

OTHERWISE = {
    # The reference resizes to a fractional length with align_corners; ONNX Runtime rounds it.
    "test_resize_downsample_scales_linear_align_corners",
    "test_resize_downsample_scales_cubic_align_corners",
    # Quotients that are halfway between two integers in float32 only.
    "test_dynamicquantizelinear",
    "test_dynamicquantizelinear_expanded",
}
KINKS = {"test_maxpool_3d_default"}  # central differences step over one
ROUNDING = {"Cast", "CastLike", "DynamicQuantizeLinear", "QuantizeLinear"}  # steps, no slopes
BODIES = {"Bernoulli", "CausalConvWithState", "LinearAttention", "SwiGLU"}
UNTRIED = {  # no node case begins with them
    "BitCast", "ConcatFromSequence", "GlobalLpPool", "MaxRoiPool", "Optional", "SequenceAt",
    "SequenceConstruct", "SequenceEmpty", "SequenceErase",
}  # fmt: skip


@cache
def families():
    """The node cases of ONNX, by their first operator."""
    from onnx.backend.test.case.node import collect_testcases

    found = {}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for case in collect_testcases(None):
            found.setdefault(case.model.graph.node[0].op_type, []).append(case)
    return found


def array(x):
    """A value of a case."""
    if isinstance(x, list | tuple):
        return [array(entry) for entry in x]
    if isinstance(x, onnx.TensorProto):
        return numpy_helper.to_array(x)
    return None if x is None else np.asarray(x)


def named(values, data):
    return {v.name: array(x) for v, x in zip(values, data, strict=False)}


def assert_same(got, want, rtol=1e-3, atol=1e-5):
    """Tensors, sequences and strings alike."""
    if want is None:
        assert got is None
    elif isinstance(want, list):
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            assert_same(g, w, rtol, atol)
    elif want.dtype.kind in "OUS":
        np.testing.assert_array_equal(got.astype(str), want.astype(str))
    else:
        assert tuple(got.shape) == want.shape
        atol = atol if want.dtype.itemsize >= 4 else 1e-2  # float16 and bfloat16
        want = want if want.dtype.kind == "c" else want.astype(np.float64)
        np.testing.assert_allclose(got.detach().numpy(), want, rtol, atol)


def test_most_operators_have_a_kernel():
    print(len(judge.COVERED), "operators:", *sorted(judge.COVERED))
    assert len(judge.COVERED) >= 185


@pytest.mark.parametrize("op_type", sorted(judge.COVERED - UNTRIED | BODIES))
@pytest.mark.filterwarnings("ignore")
def test_values_agree_with_onnx(op_type):
    tried = 0
    for case in families().get(op_type, []):
        for inputs, outputs in case.data_sets:
            try:
                values = judge.run(case.model, named(case.model.graph.input, inputs))
            except judge.NoKernel:
                continue
            tried += 1
            if case.name not in OTHERWISE:
                for name, want in named(case.model.graph.output, outputs).items():
                    assert_same(values[name], want)
    assert tried or op_type in {"Bernoulli"}


def read(folder, side, values):
    """Name and value of every tensor in the files of a shipped model."""
    readers = {
        "tensor_type": (onnx.TensorProto, numpy_helper.to_array),
        "sequence_type": (onnx.SequenceProto, numpy_helper.to_list),
        "optional_type": (onnx.OptionalProto, numpy_helper.to_optional),
    }
    for k, value in enumerate(values):
        proto, convert = readers[value.type.WhichOneof("value")]
        yield value.name, convert(proto.FromString((folder / f"{side}_{k}.pb").read_bytes()))


@pytest.mark.parametrize("kind", ["simple", "pytorch-operator", "pytorch-converted"])
def test_values_of_whole_models(kind):
    tried = 0
    for case in load_model_tests(kind=kind):
        model = onnx.load(Path(case.model_dir) / "model.onnx")
        folder = Path(case.model_dir) / "test_data_set_0"
        held = {tensor.name for tensor in model.graph.initializer}
        free = [value for value in model.graph.input if value.name not in held]
        try:
            values = judge.run(model, dict(read(folder, "input", free)))
        except judge.NoKernel:
            continue
        tried += 1
        for name, want in read(folder, "output", model.graph.output):
            assert_same(values[name], want, 1e-3, 1e-4)
    assert tried >= 15


OLD = (ROOT / "tests" / "agreement" / "opsets.txt").read_text().splitlines()
CONSTANT = {"{": "int64", "<": "float", "[": "bool"}


def written(line):
    """A line of opsets.txt as a model."""
    opset, inputs, outputs, nodes = (part.strip() for part in line.split("|", 3))
    held = []

    def hold(match):
        name, bracket, numbers = match.groups()
        size = numbers.count(",") + 1
        held.append(f"{CONSTANT[bracket]}[{size}] {name} = {{{numbers}}}")
        return ""

    nodes = re.sub(r"\b(\w)=([{<\[])([-\d.,]+)[}>\]](?= )", hold, nodes)
    inputs, nodes = (re.sub(r"\bf\[", "float[", text) for text in (inputs, nodes))
    made = ", ".join(f"float {name}" for name in outputs.split(","))
    old = int(opset) < 9  # ir version 3: initializers are inputs too
    model = onnx.parser.parse_model(
        f'<ir_version: {3 if old else 8}, opset_import: ["": {opset}]>'
        f"g ({inputs}) => ({made}) <{', '.join(held)}> {{ {nodes} }}"
    )
    for tensor in model.graph.initializer if old else ():
        model.graph.input.append(
            onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        )
    for output in model.graph.output:
        output.ClearField("type")
    return model


def point(model, dtype=np.float64):
    """Normal numbers for all inputs without an initializer."""
    rng = np.random.default_rng(0)
    held = {tensor.name for tensor in model.graph.initializer}
    return {
        i.name: rng.standard_normal([d.dim_value for d in i.type.tensor_type.shape.dim], dtype)
        for i in model.graph.input
        if i.name not in held
    }


@pytest.mark.parametrize("line", [line for line in OLD if line[0] != "#"])
def test_values_at_every_opset_agree_with_onnx_runtime(line):
    runtime = pytest.importorskip("onnxruntime")
    model = written(line)
    feeds = point(model, np.float32)
    session = runtime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    values = judge.run(model, feeds)
    for output, want in zip(model.graph.output, session.run(None, feeds), strict=True):
        assert_same(values[output.name], want, 1e-4, 1e-5)


def slopes(f, x, v):
    """⟨∇f, v⟩ and ⟨∇²f v, v⟩ by torch, and by central differences."""

    def along(step):
        moved = [(a + step * b).detach().requires_grad_() for a, b in zip(x, v, strict=True)]
        y = f(moved)
        if not y.requires_grad:
            return y.detach(), torch.zeros(()), torch.zeros(())
        gradient = torch.autograd.grad(y, moved, create_graph=True, materialize_grads=True)
        slope = sum((g * b).sum() for g, b in zip(gradient, v, strict=True))
        if not slope.requires_grad:
            return y.detach(), slope, torch.zeros(())
        second = torch.autograd.grad(slope, moved, materialize_grads=True)
        return y.detach(), slope.detach(), sum((g * b).sum() for g, b in zip(second, v))  # noqa: B905

    h = 1e-6
    (_, first, second), right, left = along(0), along(h), along(-h)
    return (first, second), tuple((a - b) / (2 * h) for a, b in zip(right[:2], left[:2])), right  # noqa: B905


def floating(x):
    return isinstance(x, np.ndarray) and x.dtype.name in ("float16", "float32", "float64")


@pytest.mark.parametrize("op_type", sorted(judge.COVERED - UNTRIED - ROUNDING))
@pytest.mark.filterwarnings("ignore")
def test_derivatives_are_the_slopes_of_the_values(op_type):
    rng = np.random.default_rng(0)
    for case in families().get(op_type, [])[:12]:
        feeds = named(case.model.graph.input, case.data_sets[0][0])
        names = [k for k, x in feeds.items() if floating(x) and k not in ("scales", "roi")]
        if not names or case.name in KINKS or "expanded" in case.name:
            continue
        x = [torch.tensor(feeds[k] + 1e-2 * rng.standard_normal(feeds[k].shape)) for k in names]
        v = [torch.tensor(rng.standard_normal(feeds[k].shape)) for k in names]
        weights = {}

        def total(x, case=case, feeds=feeds, names=names, weights=weights):
            values = judge.run(case.model, {**feeds, **dict(zip(names, x, strict=True))})
            result = torch.zeros((), dtype=torch.float64)
            for output in case.model.graph.output:
                y = values[output.name]
                for k, part in enumerate(y if isinstance(y, list) else [y]):
                    if isinstance(part, torch.Tensor) and part.dtype == torch.float64:
                        key = output.name, k
                        if key not in weights:
                            weights[key] = torch.tensor(rng.standard_normal(part.shape))
                        result = result + (part * weights[key]).sum()
            return result

        try:
            by_torch, by_differences, _ = slopes(total, x, v)
        except judge.NoKernel:
            continue
        if all(np.isfinite(float(s)) for s in by_differences):
            for got, want in zip(by_torch, by_differences, strict=True):
                assert float(got) == pytest.approx(float(want), rel=2e-5, abs=2e-5), case.name


HEAD = '<ir_version: 10, opset_import: ["": 21, "local": 1]>'


def test_wrt_a_tensor_and_what_is_computed_from_it():
    model = onnx.parser.parse_model(
        HEAD + "g (double[1] x) => (double[1] y) { t = Exp(x) y = Mul(t, x) }"
    )
    x, e = np.array([0.5]), np.exp(0.5)
    J = judge.jacobian(model, {"x": x}, ["t", "y", "x"], ["x", "t"])
    np.testing.assert_allclose(J, [[e, 1], [e * 0.5 + e, 0.5], [1, 0]])
    H = judge.hessian(model, {"x": x}, "y", ["x", "t"])
    np.testing.assert_allclose(H, [[2.5 * e, 1], [1, 0]])
    np.testing.assert_allclose(judge.hessian(model, {"x": x}, "y", ["x"], [2.0]), [[5 * e]])


def test_wrt_initializers_and_without_any_path():
    model = onnx.parser.parse_model(
        HEAD + "g (double[2] x) => (double[2] y, double[2] z)"
        " <double[2] w = {3, 4}> { y = Mul(x, w) z = Floor(w) }"
    )
    J = judge.jacobian(model, {"x": np.array([1.0, 2.0])}, ["z", "y"], ["w", "x"])
    np.testing.assert_array_equal(J, np.block([
        [np.zeros((2, 4))], [np.diag([1.0, 2.0]), np.diag([3.0, 4.0])]
    ]))  # fmt: skip


def test_functions_of_a_model_take_attributes():
    model = onnx.parser.parse_model(
        HEAD + """g (double[2] x) => (double[2] y) { y = local.f<a = 0.5>(x) }
        <domain: "local", opset_import: ["": 21]> f <a> (x) => (y) {
            h = LeakyRelu<alpha: float = @a>(x) y = Mul(h, h)
        }"""
    )
    J = judge.jacobian(model, {"x": np.array([-2.0, 3.0])}, ["y"], ["x"])
    np.testing.assert_allclose(J, np.diag([0.25 * -4, 6]))


def test_judge_names_an_operator_without_a_kernel():
    model = onnx.parser.parse_model(
        HEAD + "g (double[2] x) => (double[2] y) { y = RandomNormalLike(x) }"
    )
    with pytest.raises(judge.NoKernel, match="RandomNormalLike"):
        judge.run(model, {"x": np.zeros(2)})
