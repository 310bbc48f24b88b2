"""A result does not depend on which engine is installed: ONNX Runtime, NumPy and PyTorch differ by
rounding only, in values and in products with J, at ordinary inputs and at inputs up to ±20, ±50 and
±800, in the types of the case and in double.

Rounding is 16 ulp of the result's scale, and of what results change by where inputs do by 2 ulp.
"""

import numpy as np
import pytest
from onnx import parser

import onnxjac as oj
from onnxjac.modes.verify.cases import CASES
from onnxjac.ops.registry import traits_of

from .cases import node_cases

ULPS, OVER_STEPS = 16, 64
"""Of a result, and of a recurrent layer in float32, whose activations ONNX Runtime approximates."""

RECURRENT = {"GRU", "LSTM", "RNN"}

BY_DEFINITION = {"LinearAttention"}
"""Operators whose definition rounds doubles to float32 inside."""

FLOATS = np.float32, np.float64


def cases():
    """Name of a case -> the model and its inputs."""
    found = {c.name: (c.model, c.feeds) for c in node_cases() if "_expanded" not in c.name}
    for (op_type, domain), group in CASES.items():
        for k, c in enumerate(group):
            found[f"{domain}::{op_type}_{k}"] = c, c.point
    return {name: (model, feeds) for name, (model, feeds) in found.items()
            if any(getattr(x, "dtype", None) in FLOATS for x in feeds.values())}  # fmt: skip


CHOSEN = cases()


def scaled(point, size):
    """The floating inputs with this largest absolute value, if any."""
    def to_size(x):
        largest = np.abs(x).max(initial=0) if x.dtype in FLOATS else 0
        fits = size and largest and np.isfinite(largest)
        return (x * (size / largest)).astype(x.dtype) if fits else x

    return {name: to_size(x) for name, x in point.items()}


def nearby(point, seed):
    """The floating inputs, each entry off by an ulp."""
    rng = np.random.default_rng(seed)
    return {name: (x * (1 + np.finfo(x.dtype).eps * rng.choice([-1, 1], x.shape))).astype(x.dtype)
            if x.dtype in FLOATS else x for name, x in point.items()}  # fmt: skip


def results(model, point, engine):
    """Outputs by name, and a product with J of each; None where the engine cannot run the model."""
    try:
        made = dict(model.run(point, engine=engine))
    except oj.OnnxJacError:
        return None
    try:
        J = oj.linearize(model, point, engine=engine)
        made["J v"] = J @ np.cos(np.arange(J.shape[1])).astype(J.dtype)
    except oj.OnnxJacError:
        pass
    return {name: y for name, y in made.items() if getattr(y, "dtype", None) in FLOATS}


def slope_of(made, point):
    """The scale of J: of the results, by the inputs' scale."""
    rise, run = (max((np.abs(x[np.isfinite(x)]).max(initial=0) for x in arrays.values()
                      if x.dtype in FLOATS), default=0) for arrays in (made, point))  # fmt: skip
    return rise / max(run, np.finfo(np.float32).tiny)


def excess(y, expected, near, eps, least):
    """The difference in multiples of what rounding explains, on a scale that is at `least` this."""
    assert (y.shape, y.dtype) == (expected.shape, expected.dtype)
    y, expected, *near = (x.astype(float) for x in (y, expected, *near))
    whole = np.isfinite(expected)
    steady = [n for n in near if n.shape == y.shape and np.array_equal(np.isfinite(n), whole)]
    if len(steady) < len(near):
        return 0  # it lies at a jump, or where numbers overflow
    np.testing.assert_array_equal(y[~whole], expected[~whole])
    if not whole.any():
        return 0
    moved = max(np.abs(n[whole] - expected[whole]).max() for n in near)
    allowed = eps * max(np.abs(expected[whole]).max(), least) + 2 * moved
    return np.abs(y[whole] - expected[whole]).max() / max(allowed, np.finfo(float).tiny)


@pytest.mark.sampled(0.005)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CHOSEN)
def test_engines_agree(name):
    proto, feeds = CHOSEN[name]
    for dtype in (None, "float64"):
        check(getattr(proto, "proto", proto), feeds, dtype)


def check(proto, feeds, dtype):
    """Both other engines agree with NumPy, as the model is or in double."""
    if not all(isinstance(x, np.ndarray) for x in feeds.values()):
        return  # sequences
    model = oj.load(proto, dtype=dtype, limits=oj.Limits(bytes=2**26))
    if any(traits_of(step).random for step in model.steps):
        return
    single = not BY_DEFINITION.isdisjoint(node.op_type for node in proto.graph.node)
    most = ULPS if RECURRENT.isdisjoint(s.op_type for s in model.steps) else OVER_STEPS
    for size in (0, 20, 50, 800):
        point = scaled(feeds, size)
        if dtype:
            point = {n: x.astype(float) if x.dtype == np.float32 else x for n, x in point.items()}
        expected = results(model, point, "numpy")
        near = [results(model, nearby(point, seed), "numpy") for seed in range(3)]
        if expected is None or None in near:
            continue  # inputs of this size mean nothing here
        for engine in ("onnxruntime", "torch"):
            found = results(model, point, engine) or {}
            for key in found.keys() & expected.keys():
                eps = np.finfo(np.float32 if single else found[key].dtype).eps
                held = [n[key] for n in near if key in n]
                least = slope_of(expected, point) if key == "J v" else 0
                off = excess(found[key], expected[key], held, eps, least)
                assert off <= most, f"{key} by {engine} at {size or 'ordinary inputs'}: {off:.3g}"


STOOD_IN = {"Sigmoid": "", "Softplus": "", "Gelu": '<approximate = "tanh">'}
"""Elementwise operators that functions compute in ONNX Runtime, in double."""


@pytest.mark.parametrize("op_type", STOOD_IN)
def test_functions_in_double_agree_with_the_numpy_kernel(op_type):
    """ONNX Runtime is not refused, and within the rounding of NumPy's kernel."""
    pytest.importorskip("onnxruntime")
    model = oj.load(parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (double[n] x) => (double[n] y) '
        f"{{ y = {op_type}{STOOD_IN[op_type]}(x) }}"
    ))  # fmt: skip
    for size in (1e-300, 1, 8, 20, 50, 800, 1e150):
        point = {"x": np.linspace(-size, size, 101)}
        found, expected = (model.run(point, engine=e)["y"] for e in ("onnxruntime", "numpy"))
        near = [model.run(nearby(point, seed), engine="numpy")["y"] for seed in range(3)]
        moved = np.max([abs(y - expected) for y in near], axis=0)
        least = np.finfo(float).tiny * max(size, 1)  # 1 / exp(800) is 0
        allowed = ULPS * np.finfo(float).eps * abs(expected) + 2 * moved + least
        assert np.all(abs(found - expected) <= allowed)
