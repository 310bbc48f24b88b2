"""`ai.onnx.preview.training.Gradient` becomes plain nodes that ONNX Runtime executes."""

import warnings

import numpy as np
import onnx
import pytest
from onnx import helper, parser
from onnx.backend.test.case.model import collect_testcases

import onnxjac as oj
from house import ROOT

ort = pytest.importorskip("onnxruntime")

TRAINING = "ai.onnx.preview.training"
HEAD = '<ir_version: 10, opset_import: ["": 21, "ai.onnx.preview.training": 1]>\n'
CASES = [case for case in collect_testcases() if "gradient" in case.name]


def model(text):
    """A model from its text, `G` standing for the Gradient operator."""
    return parser.parse_model(HEAD + text.replace(" G <", " ai.onnx.preview.training.Gradient <"))


def session(proto, **keywords):
    """The lowered model, checked to be plain, in ONNX Runtime."""
    lowered = oj.lower_gradients(proto, **keywords)
    onnx.checker.check_model(lowered, full_check=True)
    assert [entry.domain for entry in lowered.opset_import] == [""]
    return ort.InferenceSession(lowered.SerializeToString(), providers=["CPUExecutionProvider"])


def run(text, **feeds):
    """The outputs of a model text after lowering, by name."""
    s = session(model(text))
    names = [output.name for output in s.get_outputs()]
    return dict(zip(names, s.run(None, feeds), strict=True))


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_cases_of_onnx_give_their_gradients(case):
    s = session(case.model)
    for inputs, outputs in case.data_sets:
        names = [value.name for value in s.get_inputs()]
        for found, right in zip(
            s.run(None, dict(zip(names, inputs, strict=True))), outputs, strict=True
        ):
            np.testing.assert_allclose(found, right, rtol=1e-6)


def test_all_cases_of_onnx_are_here():
    assert [case.name for case in CASES] == ["test_gradient_of_add", "test_gradient_of_add_and_mul"]


def test_the_nested_example_of_the_documentation():
    # O = ‖W X − L‖²; dO/dW = 2 (W X − L) Xᵀ; the sum of its entries is differentiated again
    found = run("""nested (double[2,3] W, double[3,4] X, double[2,4] L)
        => (double[3,4] dX, double[2,3] dW, double[3,4] dWdX, double[2,3] dWdW) {
        Y = MatMul(W, X)
        D = Sub(Y, L)
        S = Mul(D, D)
        O = ReduceSum<keepdims = 0>(S)
        dX, dW = G <xs = ["X", "W"], zs = ["L"], y = "O"> (X, W, L)
        dWdX, dWdW = G <xs = ["X", "W"], zs = ["L"], y = "dW"> (X, W, L) }""",
        W=(W := normal(2, 3)), X=(X := normal(3, 4)), L=(L := normal(2, 4)))  # fmt: skip
    residual, ones = W @ X - L, np.ones((2, 3))
    np.testing.assert_allclose(found["dW"], 2 * residual @ X.T)
    np.testing.assert_allclose(found["dX"], 2 * W.T @ residual)
    np.testing.assert_allclose(found["dWdX"], 2 * (ones.T @ residual + W.T @ (ones @ X)))
    np.testing.assert_allclose(found["dWdW"], 2 * ones @ X @ X.T)


def test_the_second_derivative_of_a_linear_function_is_zero():
    found = run("""linear (double a, double b) => (double d2) {
        y = Add(a, b)
        d1 = G <xs = ["a"], zs = ["b"], y = "y"> (a, b)
        d2 = G <xs = ["a"], zs = ["b"], y = "d1"> (a, b) }""",
        a=np.array(1.0), b=np.array(2.0))  # fmt: skip
    assert found["d2"] == 0


def test_gradients_nest_to_any_depth():
    found = run("""tower (double x) => (double d4) {
        x2 = Mul(x, x)
        x4 = Mul(x2, x2)
        y = Mul(x4, x)
        d1 = G <xs = ["x"], y = "y"> (x)
        d2 = G <xs = ["x"], y = "d1"> (x)
        d3 = G <xs = ["x"], y = "d2"> (x)
        d4 = G <xs = ["x"], y = "d3"> (x) }""", x=np.array(1.5))  # fmt: skip
    np.testing.assert_allclose(found["d4"], 120 * 1.5)


def test_the_gradient_of_an_output_in_an_intermediate_tensor():
    found = run("""middle (double[3] x, double[3] z) => (double[3] dh, double[3] dz) {
        h = Exp(x)
        y = Mul(h, z)
        dh, dz = G <xs = ["h", "z"], y = "y"> (h, z) }""",
        x=normal(3), z=(z := normal(3, seed=1)))  # fmt: skip
    np.testing.assert_allclose(found["dh"], z)
    np.testing.assert_allclose(found["dz"], np.exp(normal(3)))


def test_other_values_are_substituted():
    # y = h³ z with h = eˣ, at values that are not those of h and z
    found = run("""other (double[3] x, double[3] z, double[3] h1) => (double[3] y, double[3] d) {
        h = Exp(x)
        h2 = Mul(h, h)
        h3 = Mul(h2, h)
        y = Mul(h3, z)
        d = G <xs = ["h"], zs = ["z"], y = "y"> (h1, x) }""",
        x=(x := normal(3)), z=(z := normal(3, seed=1)), h1=(h1 := normal(3, seed=2)))  # fmt: skip
    np.testing.assert_allclose(found["y"], np.exp(3 * x) * z)
    np.testing.assert_allclose(found["d"], 3 * h1**2 * x)


@pytest.mark.parametrize("given", ["v, v", "b, a", "v, w"])
def test_each_tensor_keeps_its_role_whatever_it_is_given(given):
    # the same value twice, the values exchanged, one value computed from the other
    found = run("""roles (double a, double b, double v) => (double da, double db) {
        w = Mul(v, v)
        aa = Mul(a, a)
        y = Mul(aa, b)
        da, db = G <xs = ["a", "b"], y = "y"> (""" + given + ") }",
        a=np.array(2.0), b=np.array(3.0), v=np.array(5.0))  # fmt: skip
    at = {"a": 2, "b": 3, "v": 5, "w": 25}
    a, b = (at[name.strip()] for name in given.split(","))
    np.testing.assert_allclose([found["da"], found["db"]], [2 * a * b, a * a])


def test_nothing_is_evaluated_twice_where_the_tensors_are_themselves():
    text = """once (float[2,2] x, float[2,2] w) => (float[2,2] dx, float[2,2] y) {
        h = MatMul(x, w)
        y = Tanh(h)
        dx = G <xs = ["x"], zs = ["w"], y = "y"> (x, w) }"""
    lowered = oj.lower_gradients(model(text))
    assert [node.op_type for node in lowered.graph.node].count("Tanh") == 1


def test_a_given_value_may_have_another_shape():
    found = run("""wider (double[2,3] x, double[5,3] x1) => (double[2,3] s, double[5,3] d) {
        s = Mul(x, x)
        y = ReduceMean<keepdims = 0>(s)
        d = G <xs = ["x"], y = "y"> (x1) }""", x=normal(2, 3), x1=(x1 := normal(5, 3)))  # fmt: skip
    np.testing.assert_allclose(found["d"], 2 * x1 / 15)


def test_outputs_are_optional():
    proto = model("""some (double a, double b) => (double db) {
        y = Mul(a, b)
        da, db = G <xs = ["a", "b"], y = "y"> (a, b) }""")
    proto.graph.node[1].output[0] = ""
    assert session(proto).run(None, {"a": np.array(2.0), "b": np.array(3.0)}) == [2.0]


def test_several_elements_are_summed():
    found = run("""sum (double[3] x) => (double[3] d) {
        y = Sin(x)
        d = G <xs = ["x"], y = "y"> (x) }""", x=(x := normal(3)))  # fmt: skip
    np.testing.assert_allclose(found["d"], np.cos(x))


def test_a_second_derivative_that_vanishes_almost_everywhere_is_zero():
    found = run("""kink (double[3] x) => (double[3] d2) {
        y = Relu(x)
        d1 = G <xs = ["x"], y = "y"> (x)
        d2 = G <xs = ["x"], y = "d1"> (x) }""", x=normal(3))  # fmt: skip
    np.testing.assert_array_equal(found["d2"], np.zeros(3))


PENALTY = """penalty (double[4,3] x, double[3,8] w1, double[8] b1, double[8,1] w2)
    => (double penalty, double[3,8] dw1, double[8,1] dw2, double[8] db1) {
    h = MatMul(x, w1)
    a = Add(h, b1)
    t = Tanh(a)
    critic = MatMul(t, w2)
    slope = G <xs = ["x"], zs = ["w1", "b1", "w2"], y = "critic"> (x, w1, b1, w2)
    axis = Constant<value_ints = [1]>()
    norm = ReduceL2<keepdims = 0>(slope, axis)
    one = Constant<value = double {1}>()
    off = Sub(norm, one)
    square = Mul(off, off)
    penalty = ReduceMean<keepdims = 0>(square)
    dw1, dw2, db1 = G <xs = ["w1", "w2", "b1"], zs = ["x"], y = "penalty"> (w1, w2, b1, x) }"""


@pytest.mark.peers
def test_the_gradient_penalty_of_a_wasserstein_gan():
    torch = pytest.importorskip("torch")
    feeds = {"x": normal(4, 3), "w1": normal(3, 8, seed=1), "b1": normal(8, seed=2)}
    feeds["w2"] = normal(8, 1, seed=3)
    found = run(PENALTY, **feeds)
    x, w1, b1, w2 = (torch.tensor(array, requires_grad=True) for array in feeds.values())
    critic = torch.tanh(x @ w1 + b1) @ w2
    (slope,) = torch.autograd.grad(critic.sum(), x, create_graph=True)
    penalty = ((slope.norm(dim=1) - 1) ** 2).mean()
    right = torch.autograd.grad(penalty, (w1, w2, b1))
    np.testing.assert_allclose(found["penalty"], penalty.item())
    for name, array in zip(("dw1", "dw2", "db1"), right, strict=True):
        np.testing.assert_allclose(found[name], array, rtol=1e-9, atol=1e-12)


def test_the_gradient_penalty_by_differences():
    feeds = {"x": normal(4, 3), "w1": normal(3, 8, seed=1), "b1": normal(8, seed=2)}
    feeds["w2"] = normal(8, 1, seed=3)
    s = session(model(PENALTY))
    step, way = 1e-6, normal(3, 8, seed=4)
    up, down = (
        s.run(["penalty"], {**feeds, "w1": feeds["w1"] + e * way})[0] for e in (step, -step)
    )
    (dw1,) = s.run(["dw1"], feeds)
    np.testing.assert_allclose(np.sum(dw1 * way), (up - down) / (2 * step), rtol=1e-6)


def test_a_gradient_inside_a_branch_agrees_with_its_side():
    text = """branches (bool wanted, double[3] x, double[3] w) => (double[3] d) {
        h = Mul(x, w)
        y = Sin(h)
        d = If (wanted) <
            then_branch = yes () => (double[3] g) {
                g = G <xs = ["w"], zs = ["x"], y = "y"> (w, x) },
            else_branch = no () => (double[3] z) {
                u = Exp(h)
                e = G <xs = ["h"], y = "u"> (x)
                z = Neg(e) }
        > }"""
    x, w = normal(3), normal(3, seed=1)
    then = run(text, wanted=np.array(True), x=x, w=w)["d"]
    other = run(text, wanted=np.array(False), x=x, w=w)["d"]
    np.testing.assert_allclose(then, np.cos(x * w) * x)
    np.testing.assert_allclose(other, -np.exp(x))


def test_a_gradient_inside_a_loop_descends():
    # gradient descent on Σ (w − x)², written as a Loop
    found = run("""descent (int64 n, double[3] x, double[3] start)
        => (double[3] end, double[k] losses) {
        go = Constant<value = bool {1}>()
        end, losses = Loop (n, go, start) <body = turn (int64 i, bool on, double[3] w)
            => (bool still, double[3] w_next, double loss) {
            still = Identity(on)
            off = Sub(w, x)
            square = Mul(off, off)
            loss = ReduceSum<keepdims = 0>(square)
            slope = G <xs = ["w"], zs = ["x"], y = "loss"> (w, x)
            rate = Constant<value = double {0.25}>()
            step = Mul(slope, rate)
            w_next = Sub(w, step) }> }""",
        n=np.array(5), x=(x := normal(3)), start=(w := normal(3, seed=1)))  # fmt: skip
    np.testing.assert_allclose(found["end"], x + (w - x) / 2**5)
    np.testing.assert_allclose(found["losses"], [np.sum((w - x) ** 2) / 4**k for k in range(5)])


def test_a_gradient_inside_a_scan_is_taken_for_each_row():
    # over rows r of x: the gradient of Σ r² w in r
    found = run("""rows (double[5,3] x, double[3] w) => (double[3] sum, double[5,3] slopes) {
        sum, slopes = Scan<num_scan_inputs = 1, body = row (double[3] before, double[3] r)
            => (double[3] after, double[3] slope) {
            square = Mul(r, r)
            y = Mul(square, w)
            slope = G <xs = ["r"], zs = ["w"], y = "y"> (r, w)
            after = Add(before, slope) }> (w, x) }""",
        x=(x := normal(5, 3)), w=(w := normal(3, seed=1)))  # fmt: skip
    np.testing.assert_allclose(found["slopes"], 2 * x * w)
    np.testing.assert_allclose(found["sum"], w + (2 * x * w).sum(0))


def test_the_turn_of_a_loop_is_not_mistaken_for_the_first():
    # row i of x, squared; the gradient is 2 x in row i only; iterations accumulate
    found = run("""rows (double[4,2] x) => (double[4,2] total) {
        go = Constant<value = bool {1}>()
        n = Constant<value = int64 {4}>()
        zero = Sub(x, x)
        total = Loop (n, go, zero) <body = turn (int64 i, bool on, double[4,2] sum)
            => (bool still, double[4,2] more) {
            still = Identity(on)
            row = Gather<axis = 0>(x, i)
            square = Mul(row, row)
            slope = G <xs = ["x"], zs = ["i"], y = "square"> (x, i)
            more = Add(sum, slope) }> }""", x=(x := normal(4, 2)))  # fmt: skip
    np.testing.assert_allclose(found["total"], 2 * x)


def test_a_symbolic_batch_stays_symbolic():
    text = """batch (double[n, 3] x, double[3, 2] w)
        => (double loss, double[3, 2] dw, double[n, 3] dx) {
        h = MatMul(x, w)
        a = Tanh(h)
        loss = ReduceMean<keepdims = 0>(a)
        dx, dw = G <xs = ["x", "w"], y = "loss"> (x, w) }"""
    with warnings.catch_warnings():
        warnings.simplefilter("error", oj.OnnxJacWarning)
        s = session(model(text))
    w = normal(3, 2, seed=1)
    for n in (1, 2, 5):
        x = normal(n, 3)
        slope = (1 - np.tanh(x @ w) ** 2) / (2 * n)
        _, dw, dx = s.run(None, {"x": x, "w": w})
        np.testing.assert_allclose(dw, x.T @ slope)
        np.testing.assert_allclose(dx, slope @ w.T)


def test_a_batch_of_one_that_follows_another_formula_is_named():
    # Squeeze takes the batch away where it is 1: then the sums run over the features
    proto = model("""f (double[batch,3] x) => (double[batch,3] d) <int64 first = {0}> {
        s = Squeeze(x)
        c = CumSum(s, first)
        q = Mul(c, s)
        y = ReduceSum<keepdims = 0>(q)
        d = G <xs = ["x"], y = "y"> (x) }""")
    with pytest.warns(oj.OnnxJacWarning, match=r"only where batch != 1 \(Squeeze"):
        lowered = oj.lower_gradients(proto)
    x = normal(5, 3)
    weights = x + x.sum(0) - np.cumsum(x, 0) + np.cumsum(x, 0)
    np.testing.assert_allclose(oj.load(lowered).run({"x": x})["d"], weights)


def test_a_symbolic_batch_inside_a_branch():
    text = """branch (bool wanted, double[n, 3] x) => (double[n, 3] d) {
        d = If (wanted) <
            then_branch = yes () => (double[n, 3] g) {
                s = Sin(x)
                y = ReduceMean<keepdims = 0>(s)
                g = G <xs = ["x"], y = "y"> (x) },
            else_branch = no () => (double[n, 3] z) { z = Neg(x) }
        > }"""
    s = session(model(text))
    for n in (1, 7):
        x = normal(n, 3)
        (d,) = s.run(None, {"wanted": np.array(True), "x": x})
        np.testing.assert_allclose(d, np.cos(x) / x.size)


def test_other_open_dimensions_stay_open():
    text = """wide (double[n, m] x) => (double[n, m] d) {
        s = Sin(x)
        y = ReduceMean<keepdims = 0>(s)
        d = G <xs = ["x"], y = "y"> (x) }"""
    for shape in ((3, 4), (1, 7)):
        (d,) = session(model(text)).run(None, {"x": (x := normal(*shape))})
        np.testing.assert_allclose(d, np.cos(x) / x.size)


@pytest.mark.parametrize("name", ["mlp", "cnn", "encoder"])
def test_a_gradient_node_in_a_file_of_pytorch_gives_its_vjp(name):
    # a Gradient node appended to a file of PyTorch's, against oj.vjp of that file
    proto = onnx.load(ROOT / "tests" / "models" / f"{name}.onnx")
    weights = [t.name for t in proto.graph.initializer if t.data_type == onnx.TensorProto.FLOAT]
    plain = oj.load(proto)
    x, y = next(iter(plain.inputs)), next(iter(plain.outputs))
    gradients = [f"grad_{k}" for k in range(len(weights))]
    node = helper.make_node(
        "Gradient", [*weights, x], gradients, domain=TRAINING, xs=weights, zs=[x], y=y
    )
    proto.graph.node.append(node)
    proto.graph.output.extend(
        helper.make_tensor_value_info(made, onnx.TensorProto.FLOAT, plain.constants[w].shape)
        for made, w in zip(gradients, weights, strict=True)
    )
    proto.opset_import.append(helper.make_opsetid(TRAINING, 1))
    with np.load(ROOT / "tests" / "models" / f"{name}.npz") as file:
        point = {x: file["x"].astype(np.float32)}
    found = session(proto).run(gradients, point)
    primal, pullback = oj.vjp(plain, point, of=[y], wrt=weights)
    right = pullback(np.ones_like(primal[y]))
    for w, array in zip(weights, found, strict=True):
        np.testing.assert_allclose(array, right[w], rtol=1e-3, atol=1e-4 * np.abs(right[w]).max())


START = (
    "broken (double[3] a, double[3] b, int64[3] k) => (double[3] d) { h = Mul(a, b)\n y = Sin(h)\n"
)
FLAWS = {
    "unknown x": ('G <xs = ["q"], y = "y"> (a)', "names 'q'"),
    "unknown y": ('G <xs = ["a"], zs = ["b"], y = "yy"> (a, b)', "names 'yy'.*Did you mean 'y'"),
    "listed twice": ('G <xs = ["a"], zs = ["b", "a"], y = "y"> (a, b, a)', "lists 'a' twice"),
    "dependent": ('G <xs = ["h", "a"], y = "y"> (h, a)', "'h', which is determined by 'a'"),
    "incomplete": ('G <xs = ["a"], y = "y"> (a)', "'y' also depends on 'b'"),
    "too few inputs": ('G <xs = ["a"], zs = ["b"], y = "y"> (a)', "1 inputs, but lists 2 tensors"),
    "too many inputs": ('G <xs = ["a", "b"], y = "y"> (a, b, a)', "3 inputs, but lists 2 tensors"),
    "other type": ('G <xs = ["a"], zs = ["b"], y = "y"> (a, k)', "given int64 for 'b'"),
}  # fmt: skip


@pytest.mark.parametrize(("node", "message"), FLAWS.values(), ids=FLAWS.keys())
def test_lower_gradients_rejects_nodes_against_the_specification(node, message):
    with pytest.raises(oj.InputError, match=message):
        oj.lower_gradients(model(f"{START} d = {node} }}"))


def test_more_outputs_than_tensors_are_refused():
    with pytest.raises(oj.InputError, match="2 outputs for 1"):
        oj.lower_gradients(model(START + 'd, e = G <xs = ["a"], zs = ["b"], y = "y"> (a, b) }'))


def test_a_y_that_is_not_differentiable_is_refused():
    cut = 'f = Floor(a)\n y2 = Mul(f, b)\n d = G <xs = ["a"], zs = ["b"], y = "y2"> (a, b) }'
    with pytest.raises(oj.InputError, match="not differentiable in 'a', as Floor"):
        oj.lower_gradients(model(START + cut))


def test_an_integer_y_is_refused():
    whole = 'i = ArgMax(y)\n d = G <xs = ["a"], zs = ["b"], y = "i"> (a, b) }'
    with pytest.raises(oj.InputError, match="'i' is a tensor of int64"):
        oj.lower_gradients(model(START + whole))


def test_an_integer_x_is_refused():
    with pytest.raises(oj.InputError, match="'k' is a tensor of int64"):
        oj.lower_gradients(model(START + 'd = G <xs = ["k"], y = "y"> (k) }'))


THROUGH = {
    "If": ("""yes = Constant<value = double {0}>()
        m = ReduceSum<keepdims = 0>(x)
        go = Greater(m, yes)
        h = Mul(x, w)
        y = If (go) <then_branch = a () => (double[3] g) { p = Mul(h, x)  g = Sin(p) },
                     else_branch = b () => (double[3] z) { q = Mul(w, w)  z = Mul(q, h) }>""",
           lambda x, w, n: (x * w * x).sin() if x.sum() > 0 else w * w * x * w),
    "Loop": ("""yes = Constant<value = bool {1}>()
        top = Constant<value = double {0.95}>()
        y = Loop (n, yes, x) <body = t (int64 i, bool on, double[3] h) => (bool c, double[3] k)
          { p = Mul(h, w)  q = Add(p, x)  k = Tanh(q)  m = ReduceMax<keepdims = 0>(k)
            c = Less(m, top) }>""", lambda x, w, n: looped(x, w, int(n))),
    "Scan": ("""rows = Concat<axis = 0>(x, w, x)
        shape = Constant<value = int64[2] {3, 3}>()
        series = Reshape(rows, shape)
        last, every = Scan<num_scan_inputs = 1, scan_input_directions = [1],
            body = t (double[3] h, double[3] r) => (double[3] k, double[3] o)
          { p = Mul(h, r)  k = Sin(p)  o = Mul(k, w) }>(x, series)
        some = ReduceSum<keepdims = 0>(every)
        y = Mul(last, some)""", lambda x, w, n: scanned(x, w)),
}  # fmt: skip


def looped(x, w, n):
    h = x
    for _ in range(n):
        h = (h * w + x).tanh()
        if not h.max() < 0.95:
            break
    return h


def scanned(x, w):
    h, total = x, 0
    for row in (x, w, x):
        h = (h * row).sin()
        total = total + (h * w).sum()
    return h * total


@pytest.mark.parametrize("case", THROUGH)
@pytest.mark.parametrize(("seed", "n"), [(0, 3), (1, 6), (2, 1), (3, 0)])
def test_through_control_flow_at_other_values_and_again(case, seed, n):
    torch = pytest.importorskip("torch")
    text, function = THROUGH[case]
    found = run(f"""through (double[3] x, double[3] w, int64 n, double[3] v, double[3] u)
        => (double[3] y, double[3] dx, double[3] dw, double[3] away, double[3] dxx) {{
        {text}
        dx, dw = G <xs = ["x", "w"], zs = ["n"], y = "y"> (x, w, n)
        away = G <xs = ["x"], zs = ["w", "n"], y = "y"> (v, u, n)
        s = Mul(dx, dx)
        dxx = G <xs = ["x"], zs = ["w", "n"], y = "s"> (x, w, n) }}""",
        x=(x := normal(3, seed=seed)), w=(w := normal(3, seed=seed + 10)), n=np.array(n),
        v=(v := normal(3, seed=seed + 20)), u=(u := normal(3, seed=seed + 30)))  # fmt: skip
    X, W, V, U = (torch.tensor(a, requires_grad=True) for a in (x, w, v, u))
    y = function(X, W, n)
    unused = {"create_graph": True, "materialize_grads": True}
    dx, dw = torch.autograd.grad(y.sum(), (X, W), **unused)
    (away,) = torch.autograd.grad(function(V, U, n).sum(), V)
    (dxx,) = torch.autograd.grad((dx * dx).sum() + 0 * X.sum(), X, **unused)
    for name, right in {"y": y, "dx": dx, "dw": dw, "away": away, "dxx": dxx}.items():
        np.testing.assert_allclose(found[name], right.detach().numpy(), atol=1e-12, err_msg=name)


def test_control_flow_whose_sizes_change_is_refused():
    text = """through (int64 n, double[3] x) => (double[3] d) {
        go = Constant<value = bool {1}>()
        y = Loop (n, go, x) <body = t (int64 i, bool on, double[k] h) => (bool c, double[m] k2)
          { c = Identity(on)  s = Sin(h)  k2 = Concat<axis = 0>(h, s) }>
        d = G <xs = ["x"], zs = ["n"], y = "y"> (x, n) }"""
    with pytest.raises(oj.UnsupportedOp, match=r"through Loop.*the shape of its state"):
        oj.lower_gradients(model(text))


SIZED = {
    "starts": ("int64[1] s", "r = Slice(x, s, e)", "its input 1, 's', int64"),
    "a mask": ("bool[2] s", "r = Compress <axis = 0> (x, s)", "its input 1, 's', bool"),
    "pads": ("int64[4] s", "r = Pad(x, s)", "its input 1, 's', int64"),
    "an axis": ("int64 s", "r = CumSum(x, s)", "its input 1, 's', int64"),
}  # fmt: skip


@pytest.mark.parametrize("case", SIZED)
def test_a_gradient_that_hangs_on_integers_is_refused(case):
    """The gradient is recorded once, for all values of the inputs."""
    declared, node, message = SIZED[case]
    text = f"""f (float[2,3] x, {declared}) => (float[2,3] g) <int64[1] e = {{9}}>
      {{ {node}  y = Mul(r, r)  g = G <xs=["x"], zs=["s"], y="y"> (x, s) }}"""
    with pytest.raises(oj.OnnxJacError, match=message):
        oj.lower_gradients(model(text))


@pytest.mark.parametrize("dtype", ["float", "double"])
@pytest.mark.parametrize(("kind", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
def test_lengths_of_sequences_may_be_inputs(kind, gates, dtype):
    rows = 2 * gates
    text = f"""f ({dtype}[t,3,4] x, int32[3] s, {dtype}[1,{rows},4] W, {dtype}[1,{rows},2] R)
      => ({dtype}[t,3,4] g, {dtype}[1,{rows},2] h) {{ y = {kind} <hidden_size = 2> (x, W, R, , s)
      g, h = G <xs=["x", "R"], zs=["s", "W"], y="y"> (x, R, s, W) }}"""
    plain = text.partition("g, h = G")[0].partition("=>")
    plain = f"{plain[0]} => ({dtype}[t,1,3,2] y) {plain[2].partition(')')[2]} }}"
    kinds = np.dtype(dtype.replace("float", "float32").replace("double", "float64"))
    held = {"W": normal(1, rows, 4).astype(kinds), "R": normal(1, rows, 2).astype(kinds)}
    for lengths in ([2, 1, 0], [5, 3, 4]):
        x, s = normal(max(lengths), 3, 4).astype(kinds), np.array(lengths, np.int32)
        J = oj.linearize(oj.load(model(plain)), {"x": x, "s": s, **held}, of="y", wrt=["x", "R"])
        wanted = J.T.apply({"y": np.ones(J.codomain[0].shape, kinds)})
        found = run(text, x=x, s=s, **held)
        for name, there in (("g", "x"), ("h", "R")):
            np.testing.assert_allclose(found[name], wanted[there], rtol=1e-4, atol=1e-5)


def test_a_gradient_follows_a_shape_among_the_inputs():
    text = """f (float[2,3] x, int64[2] s) => (float[2,3] g)
      { r = Reshape(x, s)  c = Sin(r)  y = Mul(c, r)  g = G <xs=["x"], zs=["s"], y="y"> (x, s) }"""
    for shape in ((2, 3), (3, 2), (1, 6)):
        found = run(text, x=(x := normal(2, 3).astype(np.float32)), s=np.array(shape))
        np.testing.assert_allclose(found["g"], np.cos(x) * x + np.sin(x), rtol=1e-5)


def test_a_gradient_follows_lengths_among_the_inputs():
    text = """f (float[2,3] x, int64[2] s) => (float[2,3] g) <float[2,3] w = {1,2,3,4,5,6}>
      { r = ReverseSequence <batch_axis = 0, time_axis = 1> (x, s)  y = Mul(r, w)
        g = G <xs=["x"], zs=["s"], y="y"> (x, s) }"""
    for lengths, wanted in (([2, 3], [[2, 1, 3], [6, 5, 4]]), ([3, 1], [[3, 2, 1], [4, 5, 6]])):
        found = run(text, x=normal(2, 3).astype(np.float32), s=np.array(lengths))
        np.testing.assert_array_equal(found["g"], wanted)


@pytest.mark.parametrize("node", [
    "h = Div(n, two) r = Slice(x, z, h)", "h = Min(n, six) r = Slice(x, z, h)",
    "r = ReduceProd(x, z)", "r = Slice(x, z, many)",
])  # fmt: skip
@pytest.mark.filterwarnings("ignore:the derivative holds only where N")
def test_a_gradient_of_sizes_that_are_not_in_proportion_to_the_batch(node):
    text = f"""f (float[N,2] x) => (float[N,2] g)
      <int64[1] two = {{2}}, int64[1] six = {{6}}, int64[1] z = {{0}}, int64[1] many = {{700}}>
      {{ n = Shape <start = 0, end = 1> (x)  {node}  y = Mul(r, r)
         g = G <xs=["x"], y="y"> (x) }}"""
    lowered = oj.load(oj.lower_gradients(model(text)))
    for n in (2,) if "ReduceProd" in node else (2, 5, 9):
        x = normal(n, 2).astype(np.float32)
        plain = text.partition("g = G")[0].replace("float[N,2] g", "float[k,l] y") + "}"
        J = oj.linearize(oj.load(model(plain)), {"x": x}, of="y", wrt="x")
        found, wanted = lowered.run({"x": x})["g"].ravel(), J.T @ np.ones(J.shape[0], np.float32)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_a_loop_counts_in_a_vector_where_its_body_says_so():
    text = """f (float[3] x, float[3] w) => (float[3,1] y, float[3] g)
      <int64 n = {3}, bool yes = {1}, float one = {1}>
      { s, y = Loop(n, yes, one) <body = b (int64[1] i, bool d, float h)
          => (bool c, float k, float[1] row) {
          c = Identity(d) k = Identity(h) e = Gather(w, i) row = Mul(e, e) }>
        z = Mul(x, x)  g = G <xs=["x"], y="z"> (x) }"""
    found = run(text, x=np.float32([1, 2, 3]), w=np.float32([2, 3, 5]))
    np.testing.assert_array_equal(found["y"], [[4], [9], [25]])
    np.testing.assert_array_equal(found["g"], [2, 4, 6])


# -- in functions ----------------------------------------------------------------------------------

SLOPE = """<domain: "me", opset_import: ["": 21, "ai.onnx.preview.training": 1]>
    slope (x) => (d) { y = Mul(x, x) d = G <xs = ["x"], y = "y"> (x) }"""
"""d = 2 x."""

PARTIAL = """<domain: "me", opset_import: ["": 21, "ai.onnx.preview.training": 1]>
    partial (x, z) => (d) {
        k = Mul(x, z) y = Exp(k) d = G <xs = ["x"], zs = ["z"], y = "y"> (x, z) }"""
"""d = z exp(x z)."""

NESTED = """<domain: "me", opset_import: ["": 21, "me": 1, "ai.onnx.preview.training": 1]>
    nested (x, y) => (d, e) {
        s = me.slope(x) k = Mul(s, y) d = G <xs = ["x"], zs = ["y"], y = "k"> (x, y)
        e = me.slope(k) }"""
"""k = 2 x y, d = 2 y, e = 4 x y."""

BRANCH = """<domain: "me", opset_import: ["": 21, "ai.onnx.preview.training": 1]>
    branch (x, c) => (d) {
        y = Mul(x, x)
        d = If (c) <then_branch = yes () => (p) { p = G <xs = ["x"], y = "y"> (x) },
                    else_branch = no () => (q) { q = Neg(x) }> }"""

ELSEWHERE = """<domain: "me", opset_import: ["": 21, "ai.onnx.preview.training": 1]>
    elsewhere (x, p) => (d) { y = Sin(x) d = G <xs = ["x"], y = "y"> (p) }"""
"""d = cos(p)."""

A, B = 0.75, -0.5

FUNCTIONS = {
    "names of its own": ("(double a) => (double r) { r = me.slope(a) }", [SLOPE], 2 * A),
    "a name that is used outside": (
        "(double a) => (double r) { y = Exp(a) d = me.slope(a) r = Add(y, d) }",
        [SLOPE], np.exp(A) + 2 * A,
    ),
    "both names are used outside": (
        "(double x) => (double r) { y = Exp(x) r = me.slope(y) }", [SLOPE], 2 * np.exp(A),
    ),
    "called twice": (
        "(double y) => (double r) { x = me.slope(y) r = me.slope(x) }", [SLOPE], 4 * A,
    ),
    "two parameters, one tensor": (
        "(double a) => (double r) { r = me.partial(a, a) }", [PARTIAL], A * np.exp(A * A),
    ),
    "a parameter that depends on another": (
        "(double a) => (double r) { z = Exp(a) r = me.partial(a, z) }", [PARTIAL],
        np.exp(A) * np.exp(A * np.exp(A)),
    ),
    "a constant parameter": (
        "(double a) => (double r) <double z = {2}> { r = me.partial(a, z) }", [PARTIAL],
        2 * np.exp(2 * A),
    ),
    "functions in functions": (
        "(double k, double x) => (double r) { y, s = me.nested(k, x) r = Add(y, s) }",
        [SLOPE, NESTED], 2 * B + 4 * A * B,
    ),
    "a branch": (
        "(double y) => (double r) { c = Constant<value = bool {1}>() r = me.branch(y, c) }",
        [BRANCH], 2 * A,
    ),
    "at another point": (
        "(double x, double p) => (double r) { y = Exp(p) r = me.elsewhere(x, p) }", [ELSEWHERE],
        np.cos(B),
    ),
    "a gradient of one": (
        """(double x) => (double r) {
            d = me.slope(x) y = Mul(d, d) r = G <xs = ["x"], y = "y"> (x) }""",
        [SLOPE], 8 * A,
    ),
}  # fmt: skip
"""name -> (graph, functions that it calls, expected outputs)."""


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_gradient_in_a_function(name):
    graph, functions, expected = FUNCTIONS[name]
    head = HEAD.replace('"": 21,', '"": 21, "me": 1,')
    text = (head + "f " + graph + "\n" + "\n".join(functions)).replace(
        " G <", " ai.onnx.preview.training.Gradient <"
    )
    proto = parser.parse_model(text)
    lowered = oj.lower_gradients(proto)
    onnx.checker.check_model(lowered, full_check=True)
    assert {node.domain for node in lowered.graph.node} == {""}
    s = ort.InferenceSession(lowered.SerializeToString(), providers=["CPUExecutionProvider"])
    point = zip((value.name for value in proto.graph.input), (A, B), strict=False)
    found = s.run(None, {name: np.array(value) for name, value in point})
    np.testing.assert_allclose(found[0], expected)


# -- before it is lowered --------------------------------------------------------------------------


@pytest.mark.parametrize("engine", [None, "numpy", "onnxruntime"])
def test_run_asks_to_lower_a_gradient(engine):
    loaded = oj.load(model("""f (double[3] x) => (double[3] d) {
        y = Mul(x, x) d = G <xs = ["x"], y = "y"> (x) }"""))  # fmt: skip
    with pytest.raises(oj.OnnxJacError, match=r"Gradient.*onnxjac\.lower_gradients\(model\)"):
        loaded.run({"x": normal(3)}, engine=engine)
    with pytest.raises(oj.OnnxJacError, match=r"Gradient.*onnxjac\.lower_gradients\(model\)"):
        oj.linearize(loaded, {"x": normal(3)}, engine=engine)


def test_linearize_asks_to_lower_an_optimizer():
    loaded = oj.load(parser.parse_model(HEAD + """f (double r, int64 t, double[3] x, double[3] g,
        double[3] h) => (double[3] y, double[3] k)
        { y, k = ai.onnx.preview.training.Adagrad(r, t, x, g, h) }"""))  # fmt: skip
    point = {"r": 0.1, "t": 1, **{name: np.ones(3) for name in "xgh"}}
    with pytest.raises(oj.UnsupportedOp, match=r"Adagrad.*onnxjac\.lower_gradients\(model\)"):
        oj.linearize(loaded, point)
