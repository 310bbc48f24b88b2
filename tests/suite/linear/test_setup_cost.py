"""The cost of linearisation from the second point on: counted, not timed.

At the first point every rule is called with all values; then the plan has a template: one run of
the engine gives the residuals only, and no rule is called.
"""

import sys
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from onnx import numpy_helper, parser

import onnxjac as oj
from networks.stored import MODELS, below, loaded
from onnxjac.modes.linear.derivatives import derivative, route
from onnxjac.modes.linear.derivatives.derivative import leaves
from onnxjac.modes.linear.derivatives.trace import trace_model
from onnxjac.modes.linear.derivatives.unroll import shaped_as_here
from onnxjac.modes.model.programs import onnxruntime

RNG = np.random.default_rng(0)
W, V = RNG.standard_normal((2, 3, 3))
X = RNG.standard_normal((2, 3))
LAYERS = "h = MatMul(x, w) z = Add(h, b) t = Tanh(z) y = MatMul(t, v)"


def model(body, signature="(double[2,3] x) => (double[2,3] y)", **weights):
    """A loaded model in ONNX's text format, with initializers."""
    proto = parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 21]> g {signature} {{ {body} }}'
    )
    proto.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in weights.items())
    return oj.load(proto)


def chain(depth):
    """hₖ₊₁ = tanh(hₖ) · c."""
    steps = [f"t{k} = Tanh(h{k}) h{k + 1} = Mul(t{k}, c)" for k in range(depth)]
    return model(f"h0 = Neg(x) {' '.join(steps)} y = Neg(h{depth})", c=np.array(0.9))


def thrice(m, points, **options):
    """The Jacobians at three points, the last two built from a template."""
    J = oj.linearize(m, points[0], **options)
    K = J.relinearize(points[1])
    return J, K, K.relinearize(points[2])


def fetched(monkeypatch):
    """A list of the tensors requested from the engine."""
    asked, evaluate = [], route.evaluate

    def watching(model, inputs, wanted, **options):
        held = {*model.constants, *inputs}
        asked.append([name for name in wanted if name not in held])
        return evaluate(model, inputs, wanted, **options)

    for module in (route, derivative):
        monkeypatch.setattr(module, "evaluate", watching)
    return asked


@pytest.mark.parametrize("engine", ["numpy", None])
def test_only_the_outputs_and_what_the_operators_hold_are_fetched(monkeypatch, engine):
    """Of h, z, t and 1 - t², the operators hold t and 1 - t²."""
    m = model(LAYERS, w=W, v=V, b=np.ones(3))
    asked = fetched(monkeypatch)
    J, _, again = thrice(m, [{"x": X}] * 3, wrt=["x", "w", "v", "b"], engine=engine)
    assert asked[0] == ["h", "z", "t", "y"]
    assert asked[1] == asked[2]
    assert {"y", "t"} < set(asked[2])
    assert len(asked[2]) == 3
    assert_allclose(again.toarray(), J.toarray(), rtol=1e-12)


def test_no_session_is_made_from_the_third_point_on(monkeypatch):
    pytest.importorskip("onnxruntime")
    m = model(LAYERS, w=W, v=V, b=np.ones(3))
    J = thrice(m, [{"x": X}] * 3)[-1]
    monkeypatch.setattr(onnxruntime, "new_session", None)
    assert_allclose(J.relinearize({"x": X}).toarray(), oj.linearize(m, {"x": X}).toarray())


def test_linearize_makes_a_template_after_some_calls(monkeypatch):
    m = model(LAYERS, w=W, v=V, b=np.ones(3))
    found = (oj.linearize(m, {"x": k * X}) for k in range(route.POINTS_READ + 2))
    made = [J.at.derivative is not None for J in found]
    assert made == [False] * route.POINTS_READ + [True] * 2


def test_a_jacobian_that_moves_makes_the_template_at_once():
    m = model(LAYERS, w=W, v=V, b=np.ones(3))
    J = oj.linearize(m, {"x": X})
    assert J.at.derivative is None
    assert J.relinearize({"x": 2 * X}).at.derivative is not None


def test_a_step_that_holds_no_residual_has_one_entry_for_all_points():
    m = model(LAYERS, w=W, v=V, b=np.ones(3))
    _, J, K = thrice(m, [{"x": s * X} for s in (1, 2, 3)])
    pairs = zip(J.entries, K.entries, strict=True)
    assert [a.step.op_type for a, b in pairs if a is b] == ["MatMul", "Add", "MatMul"]


def calls(function):
    """The number of calls of Python functions."""
    counted = []
    sys.setprofile(lambda frame, event, argument: event == "call" and counted.append(1))
    try:
        function()
    finally:
        sys.setprofile(None)
    return len(counted)


@pytest.mark.parametrize("task", ["linearize", "relinearize"])
def test_python_calls_per_node_are_few_and_grow_linearly(task):
    def per_node(depth):
        m = chain(depth)
        J = thrice(m, [{"x": X}] * 3)[-1]
        again = {
            "linearize": lambda: oj.linearize(m, {"x": X}),
            "relinearize": lambda: J.relinearize({"x": X + 1}),
        }[task]
        return calls(again) / len(m.steps)

    few, many = per_node(50), per_node(200)
    assert many < 40
    assert many < 1.1 * few


def test_a_recurrent_network_is_unrolled_once(monkeypatch):
    weights = {"w": RNG.standard_normal((1, 12, 3)), "r": RNG.standard_normal((1, 12, 3))}
    m = model('s, y = LSTM<hidden_size: int = 3>(x, w, r)',
              "(double[4,2,3] x) => (double[1,2,3] y)", **weights)  # fmt: skip
    points = [{"x": RNG.standard_normal((4, 2, 3))} for _ in range(3)]
    J = oj.linearize(m, points[0], wrt=["x", "w"])
    monkeypatch.setattr(route, "unrolled", None)
    again = J.relinearize(points[1]).relinearize(points[2])
    monkeypatch.undo()
    fresh = oj.linearize(oj.load(m.ir), points[2], wrt=["x", "w"])
    assert_allclose(again.toarray(), fresh.toarray(), rtol=1e-12)


@pytest.mark.parametrize("file", MODELS)
def test_the_third_point_gives_what_the_first_gives(file):
    m, point, values = loaded(file)
    wrt = tuple(below("tangent", values))
    points = [{k: x * s if x.dtype.kind == "f" else x for k, x in point.items()}
              for s in (0.9, 1.1, 1)]  # fmt: skip
    J = thrice(m, points, wrt=wrt)[-1]
    fresh = oj.linearize(loaded(file)[0], point, wrt=wrt)
    v, u = RNG.standard_normal(J.shape[1]), RNG.standard_normal(J.shape[0])
    assert_allclose(J @ v, fresh @ v, rtol=1e-6, atol=1e-9 * np.abs(fresh @ v).max())
    assert_allclose(J.T @ u, fresh.T @ u, rtol=1e-6, atol=1e-9 * np.abs(fresh.T @ u).max())


# -- values a template must not assume constant ---------------------------------------------------


def test_a_shape_that_the_numbers_decide():
    """y holds all positive entries."""
    body = "c = Greater(x, o) i = NonZero(c) p = Transpose(i) y = GatherND(x, p)"
    m = model(body, "(double[2,3] x) => (double[N] y)", o=np.array(0.0))
    points = [{"x": X}, {"x": np.abs(X)}, {"x": -np.abs(X)}, {"x": X}]
    J = oj.linearize(m, points[0])
    for point in points[1:]:
        J = J.relinearize(point)
        assert_array_equal(J.toarray(), np.eye(6)[point["x"].ravel() > 0])


def test_an_index_that_the_numbers_decide():
    """y = x[argmax x]."""
    body = "i = ArgMax<axis: int = 1>(x) y = GatherElements<axis: int = 1>(x, i)"
    m = model(body, "(double[2,3] x) => (double[2,1] y)")
    for J in thrice(m, [{"x": X}, {"x": -X}, {"x": X[:, ::-1].copy()}]):
        best = J.point["x"].argmax(axis=1)
        assert_array_equal(J.toarray(), np.eye(6)[[best[0], 3 + best[1]]])


def test_a_bound_of_a_slice_that_is_an_input():
    signature = "(double[2,3] x, int64[1] i) => (double[1,3] y)"
    m = model("e = Add(i, one) y = Slice(x, i, e)", signature, one=np.array([1]))
    for J in thrice(m, [{"x": X, "i": np.array([k])} for k in (0, 1, 0)]):
        first = 3 * int(J.point["i"][0])
        assert_array_equal(J.toarray(), np.eye(6)[first : first + 3])


def test_a_row_of_a_softmax_that_is_masked_as_a_whole():
    """Whether a row is NaN depends on the point; its derivative counts as 0."""
    m = model("m = Add(x, b) y = Softmax(m)", b=np.zeros((2, 3)))
    masked = np.array([[-np.inf] * 3, [0.0] * 3])
    points = [{"x": X, "b": b} for b in (np.zeros((2, 3)), np.zeros((2, 3)), masked)]
    with pytest.warns(oj.OnnxJacWarning, match="not finite"):
        J = thrice(m, points)[-1]
    assert np.isfinite(J.toarray()).all()
    assert not J.toarray()[:3].any()


def test_another_weight_and_a_given_intermediate():
    m = model(LAYERS, w=W, v=V, b=np.ones(3))
    points = [{"x": X, "w": s * W, "t": s * X} for s in (1, 2, 3)]
    for J in thrice(m, points, wrt=["t", "v"]):
        assert_allclose(J["y", "t"].toarray(), np.kron(np.eye(2), V.T))
        assert_allclose(J["y", "v"].toarray(), np.kron(J.point["t"], np.eye(3)))


def test_a_weight_that_the_point_replaces_is_no_constant():
    m = model(LAYERS, w=W, v=V, b=np.ones(3))
    point = {"x": X, "w": 2 * W}
    values = leaves(trace_model(m, point, ["y"], given=["w"], symbols=shaped_as_here(m)))
    assert values["w"].const_value is None
    assert_array_equal(values["v"], V)


# -- loops: what is recorded does not grow with the turns ------------------------------------------

TURN = "p{0} = MatMul(s{0}, w) q{0} = Tanh(p{0}) r{0} = Mul(q{0}, s{0}) s{1} = Add(r{0}, c)"


def loop(turns, nodes, limit="n"):
    """A loop with so many nodes in a turn; `limit` is its trip count, or "stop" where data tell."""
    parts = " ".join(TURN.format(k, k + 1) for k in range(nodes // 4))
    go = "t = Less(i, last) go = Identity(t)" if limit == "stop" else "go = Identity(g)"
    signature = f"(double[2,3] x{', int64 k' * (limit == 'k')}) => (double[2,3] y, double loss)"
    body = (f"y = Loop({'' if limit == 'stop' else limit}, yes, x) <body = turn (int64 i, bool g,"
            f" double[2,3] s0) => (bool go, double[2,3] out) {{ {parts} out ="
            f" Identity(s{nodes // 4}) {go} }}> loss = ReduceSumSquare<keepdims=0>(y)")  # fmt: skip
    m = model(body, signature, w=W / 9, c=V[0] / 9, n=np.array(turns), yes=np.array(True),
              last=np.array(turns - 1))  # fmt: skip
    return m, {"k": np.array(turns)} if limit == "k" else {}


def recorded(inside, function):
    """The number of nodes that are recorded."""
    with inside.nodes_recorded() as nodes:
        function()
    return len(nodes)


@pytest.mark.parametrize("limit", ["n", "k", "stop"])
def test_a_loop_is_kept_from_some_nodes_and_turns_on(limit, inside):
    """What data stop is unrolled as far as the number of nodes that a loop may have."""

    def costs(turns):
        m, rest = loop(turns, 60, limit)
        point = {"x": X, **rest}
        tasks = partial(oj.linearize, of="y"), partial(oj.hessian, of="loss")
        return [recorded(inside, lambda: task(m, point, wrt="x")) for task in tasks]  # noqa: B023

    few, many = costs(18), costs(200)
    assert few == many
    wasted = route.UNROLLED_NODES * (limit == "stop")
    assert few[0] < 6 * 60 + wasted
    assert few[1] < 28 * 60 + 2 * wasted


def test_python_calls_for_a_kept_loop_are_few_for_each_node():
    def per_node(nodes):
        m, _ = loop(18, nodes)
        return calls(lambda: oj.linearize(m, {"x": X}, of="y")) / nodes

    per_node(80)
    few, many = per_node(80), per_node(320)
    assert many < 3300
    assert many < 1.1 * few


@pytest.mark.parametrize(("turns", "limit"), [(30, "n"), (30, "k"), (70, "n")])
def test_a_hessian_of_a_loop_is_recorded_once(limit, turns, inside):
    """Where the trip count is an input, the loop is read at every point, and not the gradient."""
    m, rest = loop(turns, 40, limit)
    costs, made = [], []
    for scale in (1, 1.1, 1.2):
        point = {"x": scale * X, **rest}
        costs.append(recorded(
            inside, lambda p=point: made.append(oj.hessian(m, p, of="loss", wrt="x"))))
    assert costs[1] < costs[0]
    assert costs[2] < (8 * 40 if limit == "k" else 1)
    fresh = oj.hessian(loop(turns, 40, limit)[0], point, of="loss", wrt="x")
    assert_allclose(made[2].toarray(), fresh.toarray(), rtol=1e-10)


HOLDING = [
    "t = Softmax(s)", "t = Div(s, d)", "e = Exp(s) t = Log(e)", "t = Max(s, c)", "t = Identity(s)",
    "m = ReduceMax(s) t = Sub(s, m)", "t = LayerNormalization(s, c)", "p = Mul(s, s) t = Sin(p)",
    "a = Transpose(s) b = MatMul(s, a) t = MatMul(b, s)", "a = Exp(s) t = Pow(a, d)",
    "f = Cast<to=1>(i) t = Add(s, c)", "q = Greater(s, c) t = Where(q, s, d)", "t = Gather(s, j)",
    "m = ReduceMean(s) r = Sub(s, m) v = ReduceL2(r) t = Div(r, v)", "t = CumSum(s, j0)",
    "t = Clip(s, l, u)", "a = SoftmaxCrossEntropyLoss(s, j) t = Mul(s, a)",
    "q = Less(i, three) t = If(q) <then_branch = a () => (double[2,3] o) { o = Sin(s) },"
    " else_branch = b () => (double[2,3] o2) { o2 = Mul(s, s) }>",
]  # fmt: skip


@pytest.mark.parametrize("body", HOLDING)
def test_a_kept_loop_reads_what_its_operators_hold(body, monkeypatch):
    """The same products as of the loop turn by turn, at the first point and where it moves."""
    text = (f"y, rows = Loop(n, yes, x) <body = turn (int64 i, bool g, double[2,3] s) => (bool go,"
            f" double[2,3] z, double[2,3] z2) {{ {body} h = Mul(t, w) z = Tanh(h)"
            f" z2 = Identity(z) go = Identity(g) }}>")  # fmt: skip
    weights = {"n": np.array(6), "yes": np.array(True), "w": W[:2], "d": 1 + V[:2] ** 2,
               "c": V[0], "l": np.array(-0.5), "u": np.array(0.5), "j": np.array([1, 0]),
               "j0": np.array(1), "three": np.array(3)}  # fmt: skip

    def products():
        m = model(text, "(double[2,3] x) => (double[2,3] y, double[N,2,3] rows)", **weights)
        J = oj.linearize(m, {"x": X}, wrt=["x", "w", "c"])
        v, u = np.ones(J.shape[1]), np.arange(J.shape[0])
        moved = J.relinearize({"x": np.cos(X)})
        return [f for K in (J, moved) for f in (K @ v, K.T @ u)], len(J.dag.edges)

    monkeypatch.setattr(route, "UNROLLED_NODES", 10**6)
    wanted, flat = products()
    monkeypatch.setattr(route, "UNROLLED_NODES", 1)
    found, kept = products()
    assert kept < 20 < flat or body == "t = Identity(s)"
    for a, b in zip(found, wanted, strict=True):
        assert_allclose(a, b, rtol=1e-9, atol=1e-9 * np.abs(b).max())
