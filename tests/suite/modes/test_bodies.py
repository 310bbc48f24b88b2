"""Bodies: a J with long loops travels, moves and is checkpointed; what stands in a branch or a turn
is exported as well as elsewhere. Judged by finite differences of the model's values.
"""

import pickle
import warnings

import numpy as np
import onnx
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj

TURN = "(int64 i, bool go, double[2] s) => (bool on, double[2] t"


def loop(turn, ends="n, , x", more=""):
    """A Loop of 60 turns."""
    given = ends.replace(", ,", ', "",')
    return f"Loop({given}) <body = b {TURN}{more}) {{ on = Identity(go) {turn} }}>"


LOOPS = {
    "a state": f"y = {loop('t = Sin(s)')}",
    "a captured tensor": f"y = {loop('p = Mul(s, x) t = Cos(p)')}",
    "rows": f"last, r = {loop('t = Sin(s) u = Mul(t, s)', more=', double[2] u')} "
            "y = ReduceMean<keepdims=0>(r, zeros)",
    **{f"rows that are read, {row}": f"last, r = {loop(row, more=', double[2] u')} "
                                     "y = ReduceMean<keepdims=0>(r, zeros)" for row in (
        "t = Sin(s) u = Mul(t, t)", "t = Sin(s) v = Cos(s) u = Mul(v, s)",
        "t = Mul(s, x) u = Exp(t)", "t = Sin(s) v = Exp(s) u = Mul(t, v)")},
    "two": f"a = {loop('t = Sin(s)')} y = {loop('p = Add(s, x) t = Cos(p)', 'n, , a')}",
    "constants alone": f"r = {loop('t = Cos(s)', 'n, , c')} y = Mul(x, r)",
    "constants alone, then more": f"r = {loop('t = Cos(s)', 'n, , c')} q = Exp(r) y = Mul(x, q)",
    "rows of constants": f"l, r = {loop('t = Cos(s) u = Exp(t)', 'n, , c', ', double[2] u')} "
                         "q = ReduceMean<keepdims=0>(r, zeros) p = Mul(x, q) y = Sin(p)",
    "constants and a state": f"r = {loop('t = Cos(s)', 'n, , c')} z = Mul(x, r) "
                             f"y = {loop('p = Mul(s, r) t = Sin(p)', 'n, , z')}",
    "integers": """k = Loop(n, "", zero) <body = b (int64 i, bool go, int64 s) => (bool on, int64 t)
        { on = Identity(go) t = Add(s, i) }> f = Cast<to=11>(k) g = Log(f) y = Mul(x, g)""",
    "a scan": """y, r = Scan<num_scan_inputs=1, body = b (double[2] s, double[2] w)
        => (double[2] t, double[2] u) { p = Mul(s, w) t = Sin(p) u = Cos(p) }>(x, long)""",
    "a branch": f"y = If(yes) <then_branch = a () => (double[2] u) {{ u = {loop('t = Sin(s)')} }}, "
                "else_branch = e () => (double[2] v) { v = Cos(x) }>",
    "until it stops": """y = Loop("", yes, x) <body = b (int64 i, bool go, double[2] s)
        => (bool on, double[2] t) { on = Less(i, n) t = Sin(s) }>""",
}  # fmt: skip

X = np.array([0.3, -0.8])
MOVED = np.array([-0.4, 0.9])


def model_of(body, signature="(double[2] x) => (double[2] y)", functions="", tensors=()):
    head = '<ir_version: 10, opset_import: ["": 21, "f": 1]>'
    constants = """<int64 n = {60}, int64 zero = {0}, int64[1] zeros = {0}, double[2] c = {1, 2},
        bool yes = {1}, int64 three = {3}, int64 many = {51}>"""
    proto = onnx.parser.parse_model(f"{head} g {signature} {constants} {{ {body} }} {functions}")
    long = 1 + np.arange(120).reshape(60, 2) / 100
    proto.graph.initializer.extend([onnx.numpy_helper.from_array(long, "long"), *tensors])
    return oj.load(proto)


def differences(model, point, name="y", step=1e-6):
    """The Jacobian by x, from central differences."""
    x, columns = point["x"], []
    for k in range(x.size):
        e = np.zeros(x.size)
        e[k] = step
        ends = [model.run({**point, "x": x + s * e.reshape(x.shape)})[name] for s in (1, -1)]
        columns.append((ends[0] - ends[1]).ravel() / (2 * step))
    return np.array(columns).T


def copied(J):
    return pickle.loads(pickle.dumps(J))


WAYS = {
    "copied": lambda m, x, z: copied(oj.linearize(m, z)),
    "copied after products": lambda m, x, z: copied(multiplied(oj.linearize(m, z))),
    "copied and transposed twice": lambda m, x, z: copied(copied(oj.linearize(m, z)).T).T,
    "moved": lambda m, x, z: oj.linearize(m, x).relinearize(z),
    "moved, copied": lambda m, x, z: copied(oj.linearize(m, x).relinearize(z)),
    "moved twice": lambda m, x, z: oj.linearize(m, z).relinearize(x).relinearize(z),
    "checkpointed": lambda m, x, z: oj.linearize(m, z, checkpoint=True),
    "checkpointed, copied": lambda m, x, z: copied(oj.linearize(m, z, checkpoint=2)),
    "checkpointed, moved": lambda m, x, z: oj.linearize(m, x, checkpoint=True).relinearize(z),
}


def multiplied(J):
    J @ np.ones(2)
    J.T @ np.ones(2)
    return J


@pytest.mark.filterwarnings("ignore::onnxjac.OnnxJacWarning")
@pytest.mark.parametrize("kind", LOOPS)
@pytest.mark.sampled(0.5)
def test_a_jacobian_with_long_loops_travels_and_moves(kind):
    model = model_of(LOOPS[kind])
    expected = differences(model, {"x": MOVED})
    for way, make in WAYS.items():
        J = make(model, {"x": X}, {"x": MOVED})
        for found in (J.toarray(), J.T.toarray().T):
            np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9, err_msg=way)


# -- exports ---------------------------------------------------------------------------------------


def check_exports(model, points, recorded=0, rtol=1e-6):
    """Exported at one point, the derivatives of y by x are right at all."""
    for mode in ("jvp", "vjp"):
        proto = oj.export(model, mode, points[recorded], of="y", wrt="x")
        onnx.checker.check_model(proto, full_check=True)
        made = oj.load(proto)
        for point in points:
            J = differences(model, point)
            seed = np.cos(np.arange(J.shape[mode == "jvp"]))
            name, like = ("x_tangent", point["x"].shape) if mode == "jvp" else (
                "y_cotangent", np.shape(model.run(point)["y"]))  # fmt: skip
            rows = made.inputs[name].shape
            like = (*like, *rows[1:]) if len(like) < len(rows) else like  # of no row
            found = made.run({**point, name: seed.reshape(like)})
            end = "y_tangent" if mode == "jvp" else "x_cotangent"
            wanted = J @ seed if mode == "jvp" else J.T @ seed
            np.testing.assert_allclose(found[end].ravel(), wanted, rtol=rtol, atol=1e-8)
            assert set(made.inputs) == {*point, name}


GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
LAYERS = "a = Mul(x, z)  q = f.Layer(a)  q2 = Add(q, z)"

PLACES = {
    "a branch": f"""y = If(yes) <
        then_branch = a () => (double[1,1,3] q2) {{ z = Cos(start) {LAYERS} }},
        else_branch = e () => (double[1,1,3] q3) {{ q3 = Sin(start) }}>""",
    "a branch that is unrolled": f"""y, e = If(yes) <
        then_branch = a () => (double[1,1,3] q2, seq(double[2,1,3]) e1)
        {{ z = Cos(start) {LAYERS} e1 = SequenceConstruct(a) }},
        else_branch = e () => (double[1,1,3] q3, seq(double[2,1,3]) e3)
        {{ q3 = Sin(start) e3 = SequenceConstruct(x) }}>""",
    "a turn": f"""y = Loop(three, "", start) <
        body = b (int64 i, bool go, double[1,1,3] z) => (bool on, double[1,1,3] q2)
        {{ on = Identity(go) {LAYERS} }}>""",
    "one of many turns": f"""y = Loop(many, "", start) <
        body = b (int64 i, bool go, double[1,1,3] z) => (bool on, double[1,1,3] q3)
        {{ on = Identity(go) {LAYERS} q3 = Sin(q2) }}>""",
    "a turn that is unrolled": f"""s = SequenceConstruct(x)  y, e = Loop(three, "", start, s) <
        body = b (int64 i, bool go, double[1,1,3] z, seq(double[2,1,3]) e0)
        => (bool on, double[1,1,3] q2, seq(double[2,1,3]) e1)
        {{ on = Identity(go) {LAYERS} e1 = SequenceInsert(e0, a) }}>""",
}


def layer(kind, outputs):
    weights = ", ".join(["0.1", "-0.2", "0.3"])
    gates = GATES[kind]
    return f"""<domain: "f", opset_import: ["": 21]> Layer (a) => (q) {{
        w = Constant<value = double[1,1,3] {{{weights}}}>()
        shape = Constant<value_ints = [1, {3 * gates}, 3]>()
        W = Expand(w, shape)
        {outputs} = {kind}<hidden_size=3>(a, W, W)
        }}"""


@pytest.mark.filterwarnings("ignore::onnxjac.OnnxJacWarning")
@pytest.mark.parametrize("outputs", ["Y, q", "Y, q, c", "_, q"])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", GATES)
@pytest.mark.sampled(0.12)
def test_recurrent_layers_in_bodies_are_exported(kind, place, outputs):
    """Outputs that nothing reads, too."""
    outputs = outputs if kind == "LSTM" else outputs.removesuffix(", c")
    outputs = outputs.replace("_", '""')
    ends = "(double[2,1,3] x) => (double[1,1,3] y)"
    start = "ends = Split<axis=0, num_outputs=2>(x)".replace("ends", "start, rest")
    model = model_of(f"{start} {PLACES[place]}", ends, layer(kind, outputs))
    points = [{"x": np.random.default_rng(k).standard_normal((2, 1, 3))} for k in range(2)]
    check_exports(model, points)
    J = oj.linearize(model, points[0]).toarray()
    np.testing.assert_allclose(J, differences(model, points[0]), rtol=1e-6, atol=1e-8)


COUNTED = {
    "a state": 'y = Loop(k, "", x) <body = b (i, go, s) => (on, t) '
               "{ on = Identity(go) t = Sin(s) }>",
    "rows": 'l, y = Loop(k, "", x) <body = b (i, go, s) => (on, t, u) '
            "{ on = Identity(go) t = Sin(s) u = Cos(s) }>",
    "rows alone": 'y = Loop(k, "") <body = b (i, go) => (on, u) { on = Identity(go) u = Cos(x) }>',
    "rows of two shapes": 'l, r, y = Loop(k, "", x) <body = b (i, go, s) => (on, t, u, v) '
            "{ on = Identity(go) t = Sin(s) u = Cos(s) v = ReduceSum<keepdims=0>(t) }>",
    "a sum of rows": 'l, r = Loop(k, "", x) <body = b (i, go, s) => (on, t, u) '
            "{ on = Identity(go) t = Sin(s) u = Cos(s) }> y = ReduceSum<keepdims=0>(r)",
    "no limit": 'more = Greater(k, zero) y = Loop("", more, x) <body = b (i, go, s) => (on, t) '
            "{ on = Less(i, k) t = Sin(s) }>",
}  # fmt: skip


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("recorded", [0, 1])
@pytest.mark.parametrize("kind", COUNTED)
def test_a_loop_recorded_without_a_turn_takes_any_number_of_turns(kind, recorded):
    model = model_of(COUNTED[kind], "(double[2] x, int64 k) => (y)")
    points = [{"x": x, "k": np.array(k)} for k, x in ((0, X), (3, X), (1, MOVED))]
    check_exports(model, points, recorded)


@pytest.mark.parametrize("kept", ["initializer", "constant", "constant of a branch"])
def test_strings_are_exported(kept):
    """With letters beyond ASCII."""
    words = onnx.helper.make_tensor("v", onnx.TensorProto.STRING, [3], ["a", "ö", ""])
    match = 'e = Equal(v, w) f = Cast<to=11>(e) p = ReduceSum<keepdims=0>(f)'
    if kept == "constant of a branch":
        match = f"""p = If(yes) <then_branch = a () => (double p1) {{ v = Constant<value_strings =
            ["a", "ö", ""]>() {match.replace("p =", "p1 =")} }},
            else_branch = o () => (double p2) {{ p2 = ReduceSum<keepdims=0>(x) }}>"""
    elif kept == "constant":
        match = f'v = Constant<value_strings = ["a", "ö", ""]>() {match}'
    body = f"""w = Constant<value_strings = ["a", "ö", "x"]>() {match}
        h = Mul(x, p) q = Sin(h) y = ReduceSum<keepdims=0>(q)"""
    model = model_of(body, "(double[2] x) => (double y)",
                     tensors=[words] if kept == "initializer" else [])  # fmt: skip
    points = [{"x": X}, {"x": MOVED}]
    check_exports(model, points)
    for mode in ("grad", "hvp", "jacobian"):
        onnx.checker.check_model(oj.export(model, mode, points[0], of="y", wrt="x"))


def test_a_block_reads_the_rows_that_all_blocks_share():
    """∂b/∂s alone reads the states before the turns, which follow from the rows after them."""
    text = """<ir_version: 8, opset_import: ["": 13]> g (double[6,2] x) => (double[6,2] b)
    { s = ReduceMean<axes=[0], keepdims=0>(x) t, b = Scan<num_scan_inputs=1, body = turn
      (double[] p, double[] q) => (double[] r, double[] y) {
        n = Constant<value = int64 {2}>() go = Constant<value = bool {1}>()
        r = Loop(n, go, p) <body = outer (int64 i, bool c, double[] u) => (bool d, double[] v) {
          d = Identity(c) m = Constant<value = int64 {3}>() on = Constant<value = bool {1}>()
          v, w = Loop(m, on, u) <body = inner (int64 k, bool e, double[] a) =>
            (bool f, double[] h, double[] z) { f = Identity(e) h = Identity(a) z = Identity(a) }> }>
        y = Mul(r, q) }>(s, x) }"""
    model = oj.load(onnx.parser.parse_model(text))
    J = oj.linearize(model, {"x": np.random.default_rng(0).standard_normal((6, 2))})
    assert_allclose(J.T.tosparse().toarray(), J.toarray().T, rtol=1e-12, atol=1e-14)


def test_a_loop_in_a_branch_in_a_turn_is_kept_in_second_derivatives():
    """Its constant trip count tells the sizes of its rows: nothing is unrolled for the point."""
    text = """<ir_version: 8, opset_import: ["": 21]> g (double[3] s, double[N,3] x) => (double f)
    { t, y = Scan<num_scan_inputs=1, body = turn (double[3] p, double[3] q) =>
      (double[3] r, double[3] z) { a = ReduceSum<keepdims=0>(p) l = Constant<value_float = -0.4>()
        e = CastLike(l, a) c = Less(a, e) w = Add(p, q)
        r = If(c) <then_branch = yes () => (double[3] u) { u = Sin(w) },
          else_branch = no () => (double[3] v) {
            n = Constant<value = int64 {1}>() go = Constant<value = bool {1}>()
            v = Loop(n, go, w) <body = deep (int64 i, bool on, double[3] b) =>
              (bool d, double[3] o) { d = Identity(on) o = Tanh(b) }> }>
        z = Identity(r) }>(s, x)
      h = Mul(y, y) f = ReduceSum<keepdims=0>(h) }"""
    model = oj.load(onnx.parser.parse_model(text))
    x, s = np.array([[1.4, -1.2, 0.3], [0.2, 0.1, -0.8]]), np.array([0.1, 0.2, 0.3])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = oj.load(oj.export(model, "hvp", {"x": x, "s": s}, of="f", wrt="x"))
    for at in (x, -x, x[:1], np.concatenate([x, -2 * x])):
        found = made.run({"x": at, "s": s, "x_tangent": np.ones_like(at)}, engine="numpy")
        ends = (at + d for k in (1e-6, -1e-6) for d in k * np.eye(at.size).reshape(-1, *at.shape))
        values = [model.run({"x": end, "s": s}, engine="numpy")["f"] for end in ends]
        slopes = np.subtract(values[: at.size], values[at.size :]) / 2e-6
        assert_allclose(found["x_grad"].ravel(), slopes, rtol=1e-6, atol=1e-8)
        H = oj.hessian(model, {"x": at, "s": s}, of="f", wrt="x")
        assert_allclose(found["x_hvp"].ravel(), H @ np.ones(at.size), rtol=1e-9, atol=1e-12)
