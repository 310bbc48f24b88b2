"""The primal: any tensor by name, the same from both engines, and no more memory than it needs."""

import tracemalloc

import numpy as np
import onnx
import pytest
from numpy.testing import assert_allclose
from onnx import numpy_helper, parser
from onnx.backend.test.case.node import collect_testcases

from models.light import NAMES, draw, light
from onnxjac.jacobians.errors import InputError, OnnxJacError, OnnxJacWarning, UnknownTensor
from onnxjac.modes.exports.export import export
from onnxjac.modes.model.flow.contents import nodes
from onnxjac.modes.model.loading.load import load
from onnxjac.modes.model.primal.evaluate import evaluate
from onnxjac.modes.model.primal.inputs import check_inputs
from onnxjac.modes.model.primal.model import Model
from onnxjac.modes.model.programs.onnxruntime import GUARD, cut_graph, new_session, serialized
from onnxjac.ops import Recorder, Twin, build
from onnxjac.ops.graphs.build import simplify_graph
from onnxjac.ops.graphs.simplify import RUNTIME

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 3)).astype(np.float32)
ENGINES = ["onnxruntime", "numpy"]
both = pytest.mark.parametrize("engine", ENGINES)


def model(body, signature="(float[2,3] x) => (float[2,3] y)", opset=21, dtype=None, **weights):
    """A model in ONNX's text format, with initializers."""
    header = f'<ir_version: 10, opset_import: ["": {opset}]>'
    proto = parser.parse_model(f"{header} g {signature} {{ {body} }}")
    for name, array in weights.items():
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    return load(proto, dtype=dtype)


def cut(model, given, names):
    """A part of a model as the runtime reads it, and the weights outside it."""
    return serialized(simplify_graph(cut_graph(model, frozenset(given), names), RUNTIME))


CHAIN = "a = Mul(x, w) b = Tanh(a) c, d = Split<axis=1, num_outputs=2>(b) y = Concat<axis=1>(d, c)"
W = np.array([1, 2, 3], np.float32)


def chain():
    return model(CHAIN, w=W)


@both
def test_any_tensor_can_be_wanted(engine):
    values = evaluate(chain(), {"x": X}, ["b", "x", "w", "c", "y"], engine=engine)
    assert list(values) == ["b", "x", "w", "c", "y"]
    np.testing.assert_allclose(values["b"], np.tanh(X * W), rtol=1e-5)
    np.testing.assert_array_equal(values["c"], values["b"][:, :2])
    assert values["x"] is X


@both
def test_a_weight_can_be_replaced_for_one_run(engine):
    loaded = chain()
    b = evaluate(loaded, {"x": X, "w": 2 * W}, ["b"], engine=engine)["b"]
    np.testing.assert_allclose(b, np.tanh(2 * X * W), rtol=1e-5)
    b = evaluate(loaded, {"x": X}, ["b"], engine=engine)["b"]
    np.testing.assert_allclose(b, np.tanh(X * W), rtol=1e-5)


@both
def test_an_intermediate_can_be_given_and_cuts_the_model_there(engine):
    d = np.zeros((2, 1), np.float32)
    values = evaluate(chain(), {"x": X, "d": d}, ["y"], engine=engine)
    np.testing.assert_array_equal(values["y"][:, 0], 0)
    np.testing.assert_allclose(values["y"][:, 1:], np.tanh(X * W)[:, :2], rtol=1e-5)
    a = evaluate(chain(), {"a": X}, ["b"], engine=engine)["b"]
    np.testing.assert_allclose(a, np.tanh(X), rtol=1e-5)


@both
def test_run_does_not_write_to_its_inputs(engine):
    x = X.copy()
    x.flags.writeable = False
    chain().run({"x": x}, engine=engine)
    np.testing.assert_array_equal(x, X)


def test_few_sessions_are_kept():
    loaded = chain()
    for names in ("a", "b", "c", "d", "y", "ab", "bc", "cd", "dy", "ay"):
        evaluate(loaded, {"x": X}, names, engine="onnxruntime")
    assert len(loaded.sessions) == loaded.sessions.most


def test_numpy_drops_a_value_after_its_last_use():
    body = "a0 = Neg(x) " + " ".join(f"a{i + 1} = Abs(a{i})" for i in range(30)) + " y = Neg(a30)"
    loaded = model(body, "(float[N] x) => (float[N] y)")
    x = np.ones(100_000, np.float32)
    loaded.run({"x": x}, engine="numpy")
    tracemalloc.start()
    loaded.run({"x": x}, engine="numpy")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5 * x.nbytes


def test_only_the_steps_that_are_needed_run():
    loaded = model("a = Neg(x) y = Reshape(a, s)", s=np.array([4, 4]))
    np.testing.assert_array_equal(evaluate(loaded, {"x": X}, ["a"], engine="numpy")["a"], -X)
    with pytest.raises(OnnxJacError):
        loaded.run({"x": X}, engine="numpy")


CONTROL = {
    "If": """p = ReduceSum<keepdims=0>(x) z = Sub(p, p) c = Greater(p, z) y = If(c) <
        then_branch = yes () => (float[2,3] a) { a = Neg(x) },
        else_branch = no () => (float[2,3] b) { b = Exp(x) } >""",
    "Loop": """n = Constant<value = int64 {3}>() t = Constant<value = bool {1}>()
        y, rows = Loop(n, t, x) < body = step (int64 i, bool c, float[2,3] s)
            => (bool d, float[2,3] r, float[2,3] row)
            { d = Identity(c) f = Cast<to=1>(i) a = Add(s, f) r = Mul(a, w) row = Identity(r) } >
        total = ReduceSum<keepdims=0>(rows)""",
    "While": """n = Constant<value = int64 {100}>() t = Constant<value = bool {1}>()
        y = Loop(n, t, x) < body = step (int64 i, bool c, float[2,3] s) => (bool d, float[2,3] r)
            { k = Constant<value = int64 {4}>() d = Less(i, k) r = Add(s, w) } >""",
    "Scan": """z = Constant<value = float[3] {0,0,0}>()
        last, y = Scan(z, x) <num_scan_inputs = 1, scan_input_directions = [1],
            scan_output_directions = [1], body = step (float[3] s, float[3] row)
            => (float[3] r, float[3] out) { r = Add(s, row) out = Mul(r, w) } >""",
}


@pytest.mark.parametrize("name", CONTROL)
def test_control_flow_runs_in_both_engines(name):
    loaded = model(CONTROL[name], w=W)
    by = [loaded.run({"x": X}, engine=engine)["y"] for engine in ENGINES]
    np.testing.assert_allclose(*by, rtol=1e-5)


def test_a_missing_kernel_falls_back_to_numpy():
    body = "h = Conv<kernel_shape=[2]>(x, w) y = Relu(h)"
    w = RNG.standard_normal((4, 3, 2))
    loaded = model(body, "(double[1,3,8] x) => (double[1,4,7] y)", w=w)
    x = RNG.standard_normal((1, 3, 8))
    expected = np.einsum("ncwk,ock->now", np.stack([x[..., :-1], x[..., 1:]], -1), w)
    np.testing.assert_allclose(loaded.run({"x": x})["y"], np.maximum(expected, 0), rtol=1e-12)
    with pytest.raises(OnnxJacError, match=r"Conv \(node 'Conv_0', opset 21\) in float64"):
        loaded.run({"x": x}, engine="onnxruntime")


def test_a_new_opset_with_old_operators_runs_in_onnxruntime():
    loaded = model("y = Relu(x)", opset=28)
    np.testing.assert_array_equal(loaded.run({"x": X}, engine="onnxruntime")["y"], X * (X > 0))


def test_a_failing_kernel_names_node_shapes_and_what_to_do():
    loaded = model("y = Reshape(x, s)", s=np.array([4, 4]))
    with pytest.raises(OnnxJacError, match=r"Reshape \(node 'Reshape_0', opset 21\)") as caught:
        loaded.run({"x": X}, engine="numpy")
    for part in ("x float32[2, 3]", "s int64[2]", "engine='onnxruntime'"):
        assert part in str(caught.value)


@pytest.mark.parametrize("op", ["Log", "Sqrt"])
def test_a_point_that_is_not_finite_warns_once_and_names_the_node(op):
    loaded = model(f"a = Neg(x) b = {op}(a) c = Add(b, x) y = Neg(c)")
    with pytest.warns(OnnxJacWarning, match=rf"{op} \(node '{op}_1', opset 21\)") as caught:
        loaded.run({"x": np.abs(X)})
    assert len(caught) == 1


def test_a_given_infinity_is_named_as_the_cause():
    with pytest.warns(OnnxJacWarning, match="'x' was given so"):
        model("y = Neg(x)").run({"x": np.full((2, 3), np.inf, np.float32)})


def test_a_name_that_is_not_there_and_an_engine_that_is_not():
    with pytest.raises(UnknownTensor, match=r"no tensor 'Q'\. There are: 'x', 'y', 'w'"):
        evaluate(chain(), {"x": X}, ["Q"])
    with pytest.raises(InputError, match="'onnxruntime', 'numpy'"):
        chain().run({"x": X}, engine="tensorrt")


@pytest.mark.parametrize("name", [name for name in NAMES if name != "vgg19"])  # 10 s to draw
def test_both_engines_agree_on_real_networks(name):
    """To single precision, at the output of every tenth node."""
    proto = light(name)
    loaded = load(proto)
    point = check_inputs(loaded, draw(proto))
    floats = [n for n, s in loaded.intermediates.items() if s.dtype == np.float32]
    names = [*floats[::10], *loaded.outputs]
    by = [evaluate(loaded, point, names, engine=engine) for engine in ENGINES]
    for tensor in names:
        x, y = by[0][tensor], by[1][tensor]
        np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-4 * np.abs(x).max(), err_msg=tensor)


@pytest.mark.parametrize("name", NAMES)
def test_the_light_models_compute_what_their_files_do(name):
    path = onnx.__path__[0] + f"/backend/test/data/light/light_{name}.onnx"
    loaded = load(path)
    rng = np.random.default_rng(0)
    point = {n: rng.random(s.shape, np.float32) for n, s in loaded.inputs.items()}
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    expected = session.run(None, point)[0]
    np.testing.assert_allclose(*[*loaded.run(point).values()], expected, rtol=1e-3, atol=1e-5)


def test_where_onnx_runtime_departs_from_onnx_numpy_runs():
    """MaxUnpool with an output_shape: the expected values are those of ONNX's own test case."""
    cases = {case.name: case for case in collect_testcases(None)}
    case = cases["test_maxunpool_export_with_output_shape"]
    model = load(case.model)
    (inputs, (expected,)) = case.data_sets[0]
    point = dict(zip(model.inputs, inputs, strict=True))
    (found,) = model.run(point).values()
    np.testing.assert_array_equal(found, expected)
    with pytest.raises(OnnxJacError, match="departs from ONNX in MaxUnpool"):
        model.run(point, engine="onnxruntime")


@pytest.mark.parametrize("opset", [13, 21])
def test_halves_do_not_depend_on_the_tensors_that_are_asked_for(opset):
    """Each step rounds its result, also in a loop, whichever other results are asked for."""
    body = """a = Cast<to = 10>(x) b = Neg(a) c = Exp(b) d = Cast<to = 11>(c)
    n = Constant<value_int = 3>()
    t = Constant<value_int = 1>() go = Cast<to = 9>(t) e = Loop(n, go, d) <body = turn (
        int64 k, bool g, double s) => (bool h, double r) {
        h = Identity(g) p = Cast<to = 10>(s) q = Neg(p) r = Cast<to = 11>(q) }>"""
    m = model(body, "(double[3] x) => (double[3] e)", opset)
    point = {"x": np.array([1.00001, 0.1, -0.7])}
    names = ("a", "b", "c", "d", "e")
    together = evaluate(m, point, names, engine="onnxruntime")
    half = point["x"].astype(np.float16)
    assert np.array_equal(together["b"], -half)
    assert_allclose(together["c"], np.exp(-half.astype(float)), rtol=2e-3)
    assert np.array_equal(together["e"], -together["d"])
    for name in names:
        alone = evaluate(m, point, (name,), engine="onnxruntime")[name]
        assert np.array_equal(alone, together[name]), name


def test_shrinking_doubles_is_exact():
    """ONNX Runtime computes Shrink of doubles in float32."""
    shrink = model("y = Shrink<bias=0.3, lambd=0.5>(x)", "(double[3] x) => (double[3] y)")
    x = {"x": np.array([0.7, -0.9, 1.2])}
    own = shrink.run(x, engine="numpy")["y"]
    np.testing.assert_allclose(shrink.run(x)["y"], own, rtol=1e-14)


def test_every_activation_of_an_lstm_clips():
    """ONNX Runtime does not clip the cell state before the last activation."""
    signature = "(float[1,1,1] x) => (float[1,1,1,1] y)"
    clips = model("y = LSTM<hidden_size=1, clip=0.5>(x, w, r)", signature,
                  w=np.full((1, 4, 1), 2, "f4"), r=np.zeros((1, 4, 1), "f4"))  # fmt: skip
    x = {"x": np.ones((1, 1, 1), "f4")}
    found = clips.run(x)["y"].item()
    gate, new = 1 / (1 + np.exp(-0.5)), np.tanh(0.5)
    np.testing.assert_allclose(found, gate * np.tanh(min(gate * new, 0.5)), rtol=1e-6)


@pytest.mark.parametrize(
    ("attributes", "meant"),
    [('activations=["Affine"]', 0.5), ('activations=["ThresholdedRelu"]', 0.0),
     ('activations=["ScaledTanh"], activation_alpha=[3.0]', 3 * np.tanh(0.5))],
)  # fmt: skip
def test_parameters_of_activations_that_are_left_out(attributes, meant):
    """ONNX Runtime takes 0 for them, also in an exported derivative."""
    signature = "(float[1,1,1] x) => (float[1,1,1,1] y)"
    cell = model(f"y = RNN<hidden_size=1, {attributes}>(x, w, r)", signature,
                 w=np.full((1, 1, 1), 0.5, "f4"), r=np.zeros((1, 1, 1), "f4"))  # fmt: skip
    x = {"x": np.ones((1, 1, 1), "f4")}
    np.testing.assert_allclose(cell.run(x)["y"].item(), meant, rtol=1e-6)
    made = load(export(cell, "jvp", x)).run({**x, "x_tangent": x["x"]})
    np.testing.assert_allclose(made["y"].item(), meant, rtol=1e-6)


@pytest.mark.parametrize("op", ["HannWindow", "HammingWindow", "BlackmanWindow"])
def test_windows_in_double_are_exact(op):
    """ONNX Runtime rounds the coefficients of windows to float32."""
    body = f"w = {op}<output_datatype=11>(n) y = Mul(x, w)"
    windowed = model(body, "(double[4] x) => (double[4] y)", n=np.array(4))
    x = {"x": np.ones(4)}
    own = windowed.run(x, engine="numpy")["y"]
    np.testing.assert_allclose(windowed.run(x)["y"], own, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("scales", [[2.0]])
def test_scales_that_do_not_fit_are_refused(scales):
    resize = model("y = Resize(x, , s)", s=np.float32(scales))
    with pytest.raises(OnnxJacError):
        resize.run({"x": X})


@pytest.mark.parametrize("node", ["Conv(x, w)", "MaxPool<kernel_shape=[7,7]>(x)"])
@pytest.mark.parametrize("engine", [None, "numpy", "onnxruntime"])
def test_an_input_smaller_than_the_window_is_said_to_be_too_small(node, engine):
    ends = "(float[1,1,a,b] x, float[1,1,7,7] w) => (float[1,1,c,d] y)"
    m = model(f"y = {node}", ends)
    point = {"x": np.ones((1, 1, 3, 4), np.float32), "w": np.ones((1, 1, 7, 7), np.float32)}
    with pytest.raises(InputError, match=r"input is too small, .* shape \[1, 1, -3, -2\]"):
        m.run(point, engine=engine)


@pytest.mark.parametrize(("kind", "guarded"), [("float", []), ("int16", []), ("int64", ["Div"])])
def test_divisions_that_cannot_trap_are_left_alone(kind, guarded):
    """By the types that the model declares or loading infers, in branches as well."""
    model = load(parser.parse_model(f"""<ir_version: 10, opset_import: ["": 21]>
    g ({kind}[3] x, {kind}[3] b, bool c) => ({kind}[3] y) {{
        q = Div(x, b)
        r = If(c) <then_branch = p () => ({kind}[3] t) {{ d = Div(q, b) t = Mul(d, d) }},
                   else_branch = o () => ({kind}[3] e) {{ e = Identity(q) }}>
        y = Div(q, r) }}"""))
    proto, _ = cut(model, {"x", "b", "c"}, ("y",))
    divisions = [node for node in nodes(proto) if node.op_type == "Div"]
    assert [function.name for function in proto.functions] == guarded
    assert len(divisions) == 3
    assert {node.domain for node in divisions} == ({GUARD} if guarded else {""})


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("axes", [[0], [0, 1], [-2, 0], [1], [0, 2], [0, 1, 2]])
def test_sums_over_leading_axes_are_products_with_ones(axes, keepdims):
    """Where the shape is certain: an input's is checked, another one may be declared wrongly."""
    m = load(parser.parse_model(f"""<ir_version: 10, opset_import: ["": 21]>
    g (float[8,16,32] x) => (float[a] y, float[b] z)
    <int64[{len(axes)}] axes = {{{str(axes)[1:-1]}}}, float[4,16,64] h> {{
        y = ReduceSum<keepdims = {keepdims}>(x, axes)
        h = Mul(x, x)
        z = ReduceSum<keepdims = {keepdims}>(h, axes) }}"""))
    x = np.random.default_rng(0).standard_normal((8, 16, 32)).astype(np.float32)
    proto, shared = cut(m, {"x"}, ("y", "z"))
    found = new_session(proto, shared).here.run(["y", "z"], {"x": x})
    for y, terms in zip(found, (x, x * x), strict=True):
        wanted = terms.astype(float).sum(tuple(axes), keepdims=bool(keepdims))
        assert y.shape == wanted.shape
        assert_allclose(y, wanted, rtol=1e-5, atol=1e-5)
    made = [node.op_type for node in proto.graph.node]
    leading = sorted(a % 3 for a in axes) in ([0], [0, 1])
    assert (made.count("MatMul"), made.count("ReduceSum")) == (leading, 2 - leading)


def test_the_shape_of_a_recorded_tensor_is_certain():
    op = Twin(Recorder({"": 21}))
    x = op.input(np.ones((64, 32), np.float32), "x")
    y = op.ReduceSum(op.Mul(x, x), (0,), keepdims=0)
    proto, _ = cut(Model(build(op.recorder, [x], {"y": y}, "sum")), {"x"}, ("y",))
    made = [node.op_type for node in proto.graph.node]
    assert "MatMul" in made
    assert "ReduceSum" not in made


@pytest.mark.parametrize("part", ["ones", "rows", "shape", "matrix", "vector"])
def test_products_with_ones_take_names_that_the_model_does_not_have(part):
    m = load(parser.parse_model(f"""<ir_version: 10, opset_import: ["": 21]>
    g (float[64,32] x, float[32] y_{part}) => (float[32] z) <int64[1] axes = {{0}}> {{
        y = ReduceSum<keepdims = 0>(x, axes)
        y_{part}_1 = Mul(y, y_{part})
        z = Add(y, y_{part}_1) }}"""))
    x = np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)
    given = {"x": x, f"y_{part}": np.full(32, 2, np.float32)}
    found = evaluate(m, given, ["z"], engine="onnxruntime")["z"]
    assert_allclose(found, 3 * x.astype(float).sum(0), rtol=1e-5, atol=1e-5)


def test_a_tensor_that_is_given_and_computed_too_may_have_any_name():
    m = load(parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
    g (float[4] x) => (float[2] y) {
        a, b = Split<num_outputs = 2>(x)
        a_computed = Mul(a, b)
        a_1 = Add(a, a_computed)
        y = Mul(a_1, b) }"""))
    given = {"x": np.arange(1, 5, dtype=np.float32), "a": np.array([10, 20], np.float32)}
    found = evaluate(m, given, ["y"], engine="onnxruntime")["y"]
    assert found.tolist() == [10 * 4 * 3, 20 * 5 * 4]


@pytest.mark.parametrize("axis", [2, -3])
def test_a_sum_over_an_axis_that_does_not_exist_stays_an_error(axis):
    m = load(parser.parse_model(f"""<ir_version: 10, opset_import: ["": 21]>
    g (float[64,32] x) => (float[a] y) <int64[1] axes = {{{axis}}}> {{
        y = ReduceSum<keepdims = 0>(x, axes) }}"""))
    with pytest.raises(OnnxJacError, match="axis"):
        evaluate(m, {"x": np.ones((64, 32), np.float32)}, ["y"], engine="onnxruntime")


def test_the_ones_of_many_rows_are_no_part_of_the_model_that_a_session_keeps():
    m = load(parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
    g (float[100000,2] x) => (float[2] y) <int64[1] axes = {0}> {
        y = ReduceSum<keepdims = 0>(x, axes) }"""))
    proto, shared = cut(m, {"x"}, ("y",))
    assert proto.ByteSize() < 1024
    assert [ones.shape for ones in shared.values()] == [(100000,)]
    session = new_session(proto, shared)
    (y,) = session.here.run(["y"], {"x": np.ones((100000, 2), np.float32)})
    assert y.tolist() == [1e5, 1e5]
