"""Exported derivatives: checked, run in ONNX Runtime and onnx.reference, differentiated again."""

import re
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

import onnxjac as oj
from onnxjac.modes.exports.export import identifier
from onnxjac.modes.model.save import save

FLOAT = ir.TensorType(ir.DataType.FLOAT)
ROOT = Path(__file__).parents[3]
FILES = {
    "mlp": ROOT / "tests/models/mlp.onnx",
    "cnn": ROOT / "tests/models/cnn.onnx",
    "encoder": ROOT / "tests/models/encoder.onnx",
    "digits": ROOT / "notebooks/models/digits.onnx",
}


def point_of(model, batch, seed=0):
    """A random input of the given batch size, or of the model's fixed one."""
    rng = np.random.default_rng(seed)
    shapes = {
        n: [batch if isinstance(d, str) else d for d in s.shape] for n, s in model.inputs.items()
    }
    return {n: rng.standard_normal(shape).astype(np.float32) for n, shape in shapes.items()}


def floating_weights(model):
    return [n for n, s in model.initializers.items() if s.dtype.kind == "f" and "running" not in n]


def vectors(specs, seed=1):
    rng = np.random.default_rng(seed)
    return {s.name: rng.standard_normal(s.shape).astype(np.float32) for s in specs}


def run(proto, feeds):
    """The outputs by name, in ONNX Runtime."""
    onnx.checker.check_model(proto, full_check=True)
    ort = pytest.importorskip("onnxruntime")
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(None, feeds), strict=True))


def close(found, wanted, tolerance=2e-5):
    scale = max(float(np.abs(wanted).max(initial=0)), 1e-6)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance * scale)


def batches(model):
    free = any(isinstance(d, str) for s in model.inputs.values() for d in s.shape)
    return (3, 1, 6) if free else (None,)


@pytest.fixture(params=FILES, scope="module")
def model(request):
    return oj.load(FILES[request.param])


def sides(model):
    """Inputs and weights, and their names as C identifiers."""
    wrt = [*model.inputs, *floating_weights(model)]
    return wrt, {name: identifier(name) for name in wrt}


def test_the_jvp_agrees_with_the_operator(model):
    wrt, names = sides(model)
    proto = oj.export(model, "jvp", point_of(model, 3), wrt=wrt)
    for batch in batches(model):
        point = point_of(model, batch, seed=2)
        J = oj.linearize(model, point, wrt=wrt)
        tangents = vectors(J.domain)
        feeds = {names[n]: x for n, x in point.items()}
        found = run(proto, {**feeds, **{f"{names[n]}_tangent": t for n, t in tangents.items()}})
        for name, wanted in J.apply(tangents).items():
            close(found[f"{name}_tangent"], wanted)
            close(found[name], J.primal[name])


def test_the_vjp_agrees_with_the_operator(model):
    wrt, names = sides(model)
    proto = oj.export(model, "vjp", point_of(model, 3), wrt=wrt)
    for batch in batches(model):
        point = point_of(model, batch, seed=2)
        J = oj.linearize(model, point, wrt=wrt)
        cotangents = vectors(J.codomain)
        feeds = {names[n]: x for n, x in point.items()}
        found = run(proto, {**feeds, **{f"{n}_cotangent": u for n, u in cotangents.items()}})
        for name, wanted in J.T.apply(cotangents).items():
            close(found[f"{names[name]}_cotangent"], wanted)


def test_the_dense_jacobian_is_per_sample_where_samples_are_independent(model):
    (x,) = model.inputs
    proto = oj.export(model, "jacobian", point_of(model, 3))
    for batch in batches(model):
        point = point_of(model, batch, seed=2)
        J = oj.linearize(model, point)
        shape = J.codomain[0].shape + J.domain[0].shape
        dense = J.toarray().reshape(shape)
        if batch is not None:
            rank = len(J.codomain[0].shape)
            dense = np.stack([np.take(dense[i], i, axis=rank - 1) for i in range(batch)])
        close(run(proto, point)[f"logits_{x}_jacobian"], dense)


STATISTICS = "float[3] s, float[3] b, double[3] m, double[3] v"
WIDTHS = {
    "Pow": ("double[3] x, float[3] e", "double[3] y", "y = Pow(x, e)"),
    "Pow of a float": ("float[3] x, double[3] e", "float[3] y", "y = Pow(x, e)"),
    "Resize": ("double[3] x, float[1] r", "double[4] y",
               'y = Resize<mode = "linear">(x, , r)'),
    "BatchNormalization": (f"float[2,3] x, {STATISTICS}", "float[2,3] y",
                           "y = BatchNormalization(x, s, b, m, v)"),
    "LayerNormalization": ("double[2,3] x, double[3] s",
                           "double[2,3] h, float[2,1] m, float[2,1] y",
                           "h, m, y = LayerNormalization(x, s)"),
    "Cast": ("double[3] x", "float[3] y", "h = Exp(x) c = Cast<to = 1>(h) y = Mul(c, c)"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::onnxjac.OnnxJacWarning")
@pytest.mark.parametrize("case", WIDTHS)
def test_tensors_of_two_widths(case):
    inputs, outputs, body = WIDTHS[case]
    proto = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 21]> g ({inputs}) => ({outputs}) {{ {body} }}'
    )
    model, rng = oj.load(proto), np.random.default_rng(0)
    point = {n: rng.uniform(1.4, 1.6, s.shape).astype(s.dtype) for n, s in model.inputs.items()}
    J = oj.linearize(model, point)

    def by_numpy(mode, feeds):  # ONNX Runtime has few of these kernels
        made = oj.export(model, mode, point)
        onnx.checker.check_model(made, full_check=True)
        return oj.load(made).run(feeds, engine="numpy")

    for mode, K, suffix in (("jvp", J, "_tangent"), ("vjp", J.T, "_cotangent")):
        v = {s.name: np.ones(s.shape, s.dtype) for s in K.domain}
        found = by_numpy(mode, point | {n + suffix: x for n, x in v.items()})
        for name, wanted in K.apply(v).items():
            close(found[name + suffix], wanted)
    found = by_numpy("jacobian", point)
    for o in J.codomain:
        for x in J.domain:
            block = found[f"{o.name}_{x.name}_jacobian"]
            close(block.ravel(), J[o.name, x.name].toarray().ravel())
    H = oj.hessian(model, point, of="y", weights=np.ones(model.outputs["y"].shape))
    close(H.toarray(), H.T.toarray())


@pytest.mark.parametrize(("kind", "raised", "of"), [
    *((kind, None, of) for kind in ("float", "double") for of in "ymi"), ("float", "float64", "y"),
])  # fmt: skip
def test_statistics_that_onnx_types_apart(kind, raised, of):
    """ONNX has them in float32 whatever the type of x; in double, nothing may read them."""
    model = oj.load(onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 21]> g ({kind}[2,3] x) => '
        f"({kind}[2,3] y, float[2,1] m, float[2,1] i) <{kind}[3] s = {{1, 2, 3}}> "
        "{ y, m, i = LayerNormalization<epsilon = 0.1>(x, s) }"
    ), dtype=raised)  # fmt: skip
    pytest.importorskip("torch")
    point = {"x": np.array([[1, 2, 4], [0, 3, 1]], model.inputs["x"].dtype)}
    values = {e: model.run(point, engine=e) for e in ("numpy", "torch", None)}
    for name, spec in model.outputs.items():
        assert {y[name].dtype for y in values.values()} == {spec.dtype}
    J = oj.linearize(model, point, of=of)
    for mode, K, suffix in (("jvp", J, "_tangent"), ("vjp", J.T, "_cotangent")):
        v = {s.name: np.ones(s.shape, s.dtype) for s in K.domain}
        feeds = point | {n + suffix: x for n, x in v.items()}
        found = run(oj.export(model, mode, point, of=of), feeds)
        close(found[of], values["numpy"][of])
        for name, wanted in K.apply(v).items():
            close(found[name + suffix], wanted)


WINDOWED = {"Conv": "(x, w)", "MaxPool": "(x)", "AveragePool": "(x)", "LpPool": "(x)"}
SIZES = [("7", 1, 2), ("7", 2, 2), ("n", 1, 2), ("7", 4, 1)]


@pytest.mark.filterwarnings("ignore::onnxjac.OnnxJacWarning")
@pytest.mark.parametrize(("size", "stride", "dilation"), SIZES)
@pytest.mark.parametrize("padding", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("op_type", WINDOWED)
def test_windows_that_onnx_runtime_misreads(op_type, padding, size, stride, dilation):
    """It pads dilated windows too little, or refuses them: exports state the pads."""
    proto = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 21]> g (float[1,2,{size}] x, float[2,2,3] w) => '
        f'(float[1,2,k] y) {{ y = {op_type}<auto_pad = "{padding}", kernel_shape = [3], '
        f"dilations = [{dilation}], strides = [{stride}]>{WINDOWED[op_type]} }}"
    )
    rng = np.random.default_rng(0)
    point = {"x": rng.random((1, 2, 7), np.float32), "w": rng.random((2, 2, 3), np.float32)}
    J = oj.linearize(oj.load(proto), point, wrt="x", engine="numpy")
    made = oj.export(oj.load(proto), "vjp", point, wrt="x", engine="numpy")
    u = rng.random(J.codomain[0].shape, np.float32)
    feeds, asked = {**point, "y_cotangent": u}, {x.name for x in made.graph.input}
    found = run(made, {name: feeds[name] for name in asked})
    close(found["y"], J.primal["y"])
    close(found["x_cotangent"].ravel(), J.T @ u.ravel())


def test_names_are_c_identifiers_and_the_domain_is_onnx(model):
    proto = oj.export(model, "vjp", point_of(model, 3), wrt=sides(model)[0])
    graph = proto.graph
    made = [name for node in graph.node for name in node.output]
    names = [v.name for v in (*graph.input, *graph.output)] + made
    assert all(re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) for name in names)
    assert {node.domain for node in graph.node} == {""}
    assert {i.name for i in graph.initializer} <= {n for node in graph.node for n in node.input} | {
        *model.initializers
    }


def test_onnx_reference_runs_it_too(model):
    point = point_of(model, 2)
    proto = oj.export(model, "jvp", point)
    (x,) = model.inputs
    tangent = vectors([model.inputs[x]._replace(shape=point[x].shape)])[x]
    found = ReferenceEvaluator(proto).run(None, {x: point[x], f"{x}_tangent": tangent})
    J = oj.linearize(model, point)
    close(found[1], J.apply({x: tangent})["logits"], 1e-4)


def squared_error():
    """loss = mean((tanh(x W) - t)²)."""
    text = """
    <ir_version: 10, opset_import: ["" : 21]>
    fit (float[batch, 4] x, float[batch, 2] t) => (float loss)
    <float[4, 2] W = {0.1, 0.2, -0.3, 0.4, 0.5, -0.6, 0.7, 0.8}>
    { z = MatMul(x, W)  y = Tanh(z)  e = Sub(y, t)  s = Mul(e, e)
      loss = ReduceMean<keepdims = 0>(s) }
    """
    return oj.load(onnx.parser.parse_model(text))


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_gradient_and_hessian_product_of_a_mean_over_any_batch(batch):
    model = squared_error()
    first = {"x": np.ones((3, 4), np.float32), "t": np.zeros((3, 2), np.float32)}
    point = {n: a[:batch] for n, a in point_of(model, 5).items()}
    tangent = np.arange(8, dtype=np.float32).reshape(4, 2)
    slopes, H = (
        oj.grad(model, point, of="loss", wrt="W"),
        oj.hessian(model, point, of="loss", wrt="W"),
    )

    found = run(oj.export(model, "grad", first, wrt="W"), point)
    close(found["W_grad"], slopes["W"])
    found = run(oj.export(model, "hvp", first, wrt="W"), {**point, "W_tangent": tangent})
    close(found["W_grad"], slopes["W"])
    close(found["W_hvp"], H.apply({"W": tangent})["W"])


def test_export_of_an_export_is_the_third_derivative():
    model = squared_error()
    point = point_of(model, 3)
    tangent = np.arange(8, dtype=np.float32).reshape(4, 2) / 8
    once = oj.load(oj.export(model, "hvp", point, wrt="W"))
    twice = oj.export(once, "jvp", {**point, "W_tangent": tangent}, of="W_hvp", wrt="W")
    found = run(twice, {**point, "W_tangent": tangent, "W_tangent_1": tangent})
    double = oj.load(onnx.load_from_string(as_proto(model)), dtype="float64")

    def product(step):
        moved = {**point, "W": double.constants["W"] + step * tangent}
        return oj.hessian(double, moved, of="loss", wrt="W").apply({"W": tangent})["W"]

    close(found["W_hvp_tangent"], (product(1e-4) - product(-1e-4)) / 2e-4, 1e-4)


def as_proto(model):
    return ir.to_proto(model.ir).SerializeToString()


def test_samples_that_are_sorted_into_a_table():
    """The model runs at even batch sizes only."""
    text = """
    <ir_version: 10, opset_import: ["" : 21]>
    sorted (float[batch, 3] x) => (float[two, three] y)
    <int64[2] shape = {-1, 2}>
    { z = Reshape(x, shape)  y = Tanh(z) }
    """
    model = oj.load(onnx.parser.parse_model(text))
    proto = oj.export(model, "jvp", {"x": np.ones((2, 3), np.float32)})
    for n in (2, 4, 10):
        x, v = (np.full((n, 3), k, np.float32) for k in (0.5, 1))
        found = run(proto, {"x": x, "x_tangent": v})["y_tangent"]
        np.testing.assert_allclose(found, np.full((3 * n // 2, 2), 1 - np.tanh(0.5) ** 2), 1e-5)


def test_a_mode_or_an_output_that_does_not_fit_is_refused():
    model = squared_error()
    with pytest.raises(oj.InputError, match="'jvp', 'vjp'"):
        oj.export(model, "forward", point_of(model, 2))
    with pytest.raises(oj.InputError, match="one scalar output"):
        oj.export(oj.load(FILES["mlp"]), "grad", point_of(oj.load(FILES["mlp"]), 2))


@pytest.mark.parametrize("mode", ["jvp", "vjp", "grad", "jacobian"])
def test_export_warns_of_cut_paths(mode):
    """As `linearize` and `grad` do: a derivative of 0 is not written in silence."""
    text = """g (float[3] x, float[3] w) => (float z) <float s = {0.1}, int8 o = {0}>
        { q = QuantizeLinear(x, s, o) d = DequantizeLinear(q, s, o) p = Add(d, PATH) c = Mul(p, w)
          z = ReduceSum<keepdims=0>(c) }"""
    point = {name: np.ones(3, np.float32) for name in ("x", "w")}
    head = '<ir_version: 10, opset_import: ["": 21]>\n'
    for path, told in (("w", "'z' does not depend differentiably on 'x' .cut by QuantizeLinear"),
                       ("x", "of other paths alone, as rounding cuts some at QuantizeLinear")):
        proto = onnx.parser.parse_model(head + text.replace("PATH", path))
        with pytest.warns(oj.OnnxJacWarning, match=told):
            oj.export(proto, mode, point)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            oj.export(proto, mode, point, straight_through=True)


def large(megabytes, count=5):
    """y = sin(2ᶜ x), with `count` weights of the given total size; onnx-ir has no size limit."""
    n = int((megabytes * 2**18 / count) ** 0.5)
    x, y = (ir.Value(name=name, shape=ir.Shape([1, n]), type=FLOAT) for name in "xy")
    weights, nodes, z = [], [], x
    for k in range(count):
        tensor = ir.tensor(np.diag(np.full(n, 2, np.float32)), name=f"W{k}")
        weights.append(ir.Value(name=f"W{k}", shape=tensor.shape, type=FLOAT, const_value=tensor))
        nodes.append(ir.Node("", "MatMul", [z, weights[-1]]))
        z = nodes[-1].outputs[0]
        z.name = f"z{k}"
    nodes.append(ir.Node("", "Sin", [z], outputs=[y]))
    graph = ir.Graph(
        [x], [y], nodes=nodes, initializers=weights, opset_imports={"": 21}, name="large"
    )
    return ir.Model(graph, ir_version=10)


def round_trip(tmp_path, megabytes, **options):
    """Export, save, load, differentiate again."""
    model = oj.load(large(megabytes))
    point = {"x": np.full(model.inputs["x"].shape, 0.5 / 32, np.float32)}
    save(oj.export(model, "jvp", point), tmp_path / "jvp.onnx", **options)
    again = oj.load(tmp_path / "jvp.onnx")
    ones = np.ones_like(point["x"])
    J = oj.linearize(again, {**point, "x_tangent": ones}, of="y_tangent", wrt="x")
    found = J.apply({"x": ones})["y_tangent"]
    np.testing.assert_allclose(found, -(32**2) * np.sin(0.5) * ones, rtol=1e-5)
    return sorted(re.sub(r"\.[0-9a-f]{16}\.", ".", path.name) for path in tmp_path.iterdir())


def test_large_weights_go_beside_the_file(tmp_path):
    assert round_trip(tmp_path, 4, limit=2**20) == ["jvp.onnx", "jvp.onnx.data"]


def test_a_small_model_is_one_file(tmp_path):
    assert round_trip(tmp_path, 1) == ["jvp.onnx"]


def test_an_export_of_more_than_two_gigabytes_is_read_back(tmp_path, request):
    if not request.config.getoption("--whole"):
        pytest.skip("takes 10 GB of memory: --whole")
    assert round_trip(tmp_path, 2100) == ["jvp.onnx", "jvp.onnx.data"]
