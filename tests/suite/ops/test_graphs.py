"""The graphs reading: recorded derivatives equal the numbers reading, in every engine."""

import ast

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import onnxjac as oj
from house import ROOT
from onnxjac.modes.hessian import hessian
from onnxjac.modes.model.flow.control import CONTROL
from onnxjac.modes.recording.derive import jvp_graph, vjp_graph
from onnxjac.ops import find
from onnxjac.ops.formulas import CALLS
from onnxjac.ops.graphs import infer

from .cases import few_of_each, moved, onnx_cases, skip_where_nothing_is_smooth

pytestmark = pytest.mark.filterwarnings("ignore::onnxjac.OnnxJacWarning")


def pytest_generate_tests(metafunc):
    if "case" in metafunc.fixturenames:
        every = metafunc.config.getoption("--whole")
        cases = onnx_cases() if every else few_of_each()
        metafunc.parametrize("case", cases, ids=lambda case: case.name)


def test_recorded_products_equal_the_numbers(case):
    model, point = loaded(case, "float64")
    for graph, given, expected in recorded(model, point, "numpy"):
        plain = [step for step in graph.steps if step.op_type not in CONTROL]
        assert [str(step) for step in plain if not find(step.op_type, step.domain)] == []
        outputs = graph.run(given, engine="numpy")
        for name, y in expected.items():
            assert_near(outputs[name], y, 1e-12)


@pytest.mark.sampled(0.5)
def test_recorded_products_run_in_onnx_runtime(case):
    runtime = pytest.importorskip("onnxruntime")
    model, point = loaded(case)
    try:
        model.run(point, engine="onnxruntime")
    except oj.OnnxJacError as error:
        pytest.skip(str(error))
    for graph, given, expected in recorded(model, point, None):
        proto = ir.to_proto(graph.ir)
        onnx.checker.check_model(proto, full_check=True)
        for name, y in check_types(runtime, graph, proto, given).items():
            if name in expected:
                assert_near(y, expected[name], 200 * np.finfo(y.dtype).eps)


@pytest.mark.sampled(0.3)
def test_the_hessian_is_symmetric_and_the_slope_of_the_gradient(case):
    model, point = loaded(case, "float64")
    skip_where_nothing_is_smooth(model, point)
    wrt = [name for name, spec in model.inputs.items() if is_float(spec)]
    rng = np.random.default_rng(1)
    for of in (name for name, spec in model.outputs.items() if is_float(spec)):
        weights = rng.standard_normal(model.run(point, engine="numpy")[of].shape)
        settings = {"of": of, "wrt": wrt, "engine": "numpy"}
        H = hessian(model, point, weights=weights, **settings)
        u, v = rng.standard_normal((2, H.shape[0]))
        Hu, Hv = H @ u, H @ v
        assert abs(u @ Hv - v @ Hu) <= 1e-10 * max(1, np.linalg.norm(u) * np.linalg.norm(Hv))

        def gradient(point, weights=weights, settings=settings):
            return oj.linearize(model, point, **settings).T @ weights.ravel()

        errors = [error(Hv, slope(gradient, point, wrt, v, h)) for h in (1e-4, 1e-5, 1e-3, 1e-7)]
        assert min(errors) < 1e-6


def test_recorded_operators_have_declarations():
    """Every `op.Name` in the sources, and every name in a formula, has a declaration."""
    folders = (ROOT / floor for floor in ("jacobians", "ops", "ops/rules", "ops/graphs"))
    called = {node.attr for node in nodes_of(folders, "*.py", ast.Attribute)} | {*CALLS.values()}
    texts = {node.value for node in nodes_of([ROOT / "ops/symbols"], "formulas.py", ast.Constant)}
    names = (str(name) for name in called | texts)
    emitted = {name for name in names if name[:1].isupper() and onnx.defs.has(name)}
    assert {"MatMul", "ScatterND", "Where", "Erf", "Div"} <= emitted
    assert {name for name in emitted if find(name) is None} == set()


def nodes_of(folders, pattern, kind):
    """The nodes of a kind in the syntax trees of some files."""
    trees = (ast.parse(p.read_text("utf-8")) for folder in folders for p in folder.glob(pattern))
    return (node for tree in trees for node in ast.walk(tree) if isinstance(node, kind))


def loaded(case, dtype=None):
    """The model of a case and a point of its dtypes."""
    model = oj.load(case.model, dtype=dtype)
    values = moved(case, 0).items()
    return model, {name: np.asarray(x).astype(model.inputs[name].dtype) for name, x in values}


def recorded(model, point, engine):
    """The recorded JVP and VJP, each with its inputs and its expected last outputs."""
    J = oj.linearize(model, point, engine=engine)
    of, wrt = (tuple(spec.name for spec in side) for side in (J.codomain, J.domain))
    rng = np.random.default_rng(0)
    for make, K, kind in ((jvp_graph, J, "tangent"), (vjp_graph, J.T, "cotangent")):
        seeds = {s.name: np.asarray(rng.standard_normal(s.shape)).astype(s.dtype) for s in K.domain}
        given = point | {f"{name}_{kind}": seed for name, seed in seeds.items()}
        expected = {f"{name}_{kind}": y for name, y in K.apply(seeds).items()}
        yield make(model, point, of, wrt, engine).model(kind), given, expected


def check_types(runtime, graph, proto, given):
    """Every value has the shape and dtype that it was recorded with; returns the values."""
    values = {v.name: v for node in graph.ir.graph for v in node.outputs if v.name}
    named = {value.name for value in proto.graph.output}
    proto.graph.output.extend(onnx.ValueInfoProto(name=n) for n in values if n not in named)
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    session = runtime.InferenceSession(proto.SerializeToString(), options)
    names = [value.name for value in session.get_outputs()]
    results = session.run(names, {value.name: given[value.name] for value in session.get_inputs()})
    for name, y in zip(names, results, strict=True):
        value = values[name]
        assert (name, y.shape, y.dtype) == (name, tuple(value.shape), value.dtype.numpy())
    return dict(zip(names, results, strict=True))


def slope(gradient, point, wrt, v, h):
    """The derivative of the gradient along v, by fourth-order differences."""

    def along(t):
        ends = np.cumsum([point[name].size for name in wrt])[:-1]
        parts = dict(zip(wrt, np.split(t * v, ends), strict=True))
        moved = {name: part.reshape(point[name].shape) for name, part in parts.items()}
        return gradient(point | {name: point[name] + part for name, part in moved.items()})

    return (8 * (along(h) - along(-h)) - (along(2 * h) - along(-2 * h))) / (12 * h)


def error(found, expected):
    return np.linalg.norm(found - expected) / max(1, np.linalg.norm(expected))


def assert_near(found, expected, rtol):
    """Equal up to rounding, relative to the greatest entry where that exceeds 1."""
    assert found.shape == expected.shape
    found, expected = found.astype(float), expected.astype(float)
    finite = expected[np.isfinite(expected)]
    scale = max(1.0, np.abs(finite).max(initial=0))
    np.testing.assert_allclose(found, expected, rtol=0, atol=rtol * scale)


def is_float(spec):
    return spec.dtype is not None and spec.dtype.kind == "f"


@pytest.mark.parametrize(("length", "kept"), [(7, 1), (10_000, 0)])
def test_types_are_remembered_but_no_long_index(length, kept):
    index = np.zeros(length, np.int64)
    real, whole = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
    kinds = infer.Kind(real, (5,)), infer.Kind(whole, index.shape)
    infer._inferred.cache_clear()
    for _ in range(2):
        (y,) = infer.inferred("Gather", "", 13, {"axis": 0}, kinds, [None, index], 1)
        assert y == infer.Kind(real, (length,))
    assert infer._inferred.cache_info().currsize == kept == infer._inferred.cache_info().hits
