"""`oj.linearize`: a Jacobian between any tensors, by name, at any point, at linear cost."""

import warnings

import numpy as np
import pytest
import scipy.linalg
from numpy.testing import assert_allclose, assert_array_equal
from onnx import numpy_helper, parser

import onnxjac as oj
from check_model import check_model
from check_rule import check_entries
from onnxjac.jacobians import size
from onnxjac.modes.model.loading.load import load

RNG = np.random.default_rng(0)
W, B, X = (RNG.standard_normal(shape) for shape in ((3, 3), (3,), (2, 3)))
I2 = np.eye(2)


def model(body, signature="(double[2,3] x) => (double[2,3] y)", **weights):
    """A loaded model in ONNX's text format, with initializers."""
    text = f'<ir_version: 10, opset_import: ["": 21]> g {signature} {{ {body} }}'
    proto = parser.parse_model(text)
    for name, array in weights.items():
        proto.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    return load(proto)


@pytest.fixture
def net():
    """y = tanh(h) * x with h = x W + b."""
    return model("m = MatMul(x, w) h = Add(m, b) t = Tanh(h) y = Mul(t, x)", w=W, b=B)


H = X @ W + B
SLOPE = 1 - np.tanh(H) ** 2
BY_H = np.diag((SLOPE * X).ravel())  # ∂y/∂h
H_BY_X = np.kron(I2, W.T)
Y_BY_X = BY_H @ H_BY_X + np.diag(np.tanh(H).ravel())  # all paths from x


# -- which tensors ---------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*zero blocks")
def test_by_default_floating_inputs_and_outputs():
    m = model("y = Mul(x, s) n = Shape(x) z = Gather(x, i)",
              "(double[2,3] x, double s, int64[1] i) => (double[2,3] y, int64[2] n, double[1,3] z)")
    J = oj.linearize(m, {"x": X, "s": 2.0, "i": [1]})
    assert [spec.name for spec in J.domain] == ["x", "s"]
    assert [spec.name for spec in J.codomain] == ["y", "z"]
    assert J.shape == (9, 7)
    assert_array_equal(J.primal["y"], 2 * X)


def test_inputs_initializers_and_intermediates(net):
    J = oj.linearize(net, {"x": X}, of=["y", "h"], wrt=["b", "x", "h", "w"])
    assert_allclose(J["y", "x"].toarray(), Y_BY_X)
    assert_allclose(J["h", "x"].toarray(), H_BY_X)
    assert_allclose(J["y", "h"].toarray(), BY_H)
    assert_allclose(J["h", "h"].toarray(), np.eye(6))
    assert_allclose(J["h", "b"].toarray(), np.tile(np.eye(3), (2, 1)))
    assert_allclose(J["h", "w"].toarray(), np.kron(X, np.eye(3)))
    check_model(net, {"x": X}, of=["y", "h"], wrt=["b", "x", "h", "w"])


@pytest.mark.parametrize("name", ["x", "w", "h", "y"])
def test_of_equals_wrt_is_the_identity(net, name):
    J = oj.linearize(net, {"x": X}, of=name, wrt=name)
    assert_array_equal(J.toarray(), np.eye(J.shape[0]))
    assert_allclose(J.primal[name], {"x": X, "w": W, "h": H, "y": np.tanh(H) * X}[name])


def test_a_weight_may_be_replaced_at_the_point(net):
    J = oj.linearize(net, {"x": X, "w": 2 * W}, of="h")
    assert_allclose(J.toarray(), np.kron(I2, 2 * W.T))
    check_model(net, {"x": X, "w": 2 * W}, wrt=["x", "w"])


def test_an_intermediate_that_is_given_depends_on_nothing(net):
    """With h given, y = tanh(h) x depends on x and h only."""
    J = oj.linearize(net, {"x": X, "h": X}, wrt=["x", "h"])
    assert_allclose(J["y", "x"].toarray(), np.diag(np.tanh(X).ravel()))
    check_model(net, {"x": X, "h": X}, wrt=["x", "h"])
    again = J.relinearize({"x": X})
    assert_allclose(again["y", "x"].toarray(), Y_BY_X)


@pytest.mark.parametrize("given", [{}, {"h": X}, {"w": 2 * W[:2]}])
def test_control_flow_between_any_tensors(given):
    """Weights (even equal ones) and intermediates keep their names where an If is resolved."""
    m = model(
        """h = Mul(x, w) c = Constant<value = bool {1}>() k = If(c) <
               then_branch = yes () => (double[2,3] a) { a = Mul(h, x) },
               else_branch = no () => (double[2,3] b) { b = Identity(x) }
           > z = Mul(k, v) y = Exp(z)""", w=W[:2], v=W[:2],
    )  # fmt: skip
    point, wrt = {"x": X, **given}, ["x", "w", "v", "h", "k"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a given h does not depend on w
        J = check_model(m, point, wrt=wrt, of=["y", "k"])
        again = J["y", "w"].relinearize(point)
    assert_allclose(again.toarray(), J["y", "w"].toarray())


@pytest.mark.filterwarnings("ignore:.*zero blocks")
def test_tensors_of_size_zero_and_rank_zero():
    m = model("e = Slice(x, zero, zero) s = ReduceSum<keepdims=0>(x) y = Mul(x, s)",
              zero=np.array([0, 0]))
    J = oj.linearize(m, {"x": X}, of=["e", "s", "y"])
    assert J.shape == (7, 6)
    assert_array_equal(J["s", "x"].toarray(), np.ones((1, 6)))
    assert J["e", "x"].toarray().shape == (0, 6)


# -- products by name ------------------------------------------------------------------------------


def test_apply_takes_some_of_the_tangents(net):
    J = oj.linearize(net, {"x": X}, of=["y", "h"], wrt=["x", "w"])
    v = RNG.standard_normal((2, 3))
    only = J.apply({"x": v})
    assert_allclose(only["h"], v @ W)
    assert only["y"].shape == (2, 3)
    assert_array_equal(J.apply({})["y"], np.zeros((2, 3)))
    pulled = J.T.apply({"h": v})
    assert_allclose(pulled["w"], X.T @ v)
    assert_allclose(pulled["x"], v @ W.T)


def test_the_transpose_has_blocks_too(net):
    J = oj.linearize(net, {"x": X}, wrt=["x", "w"])
    assert_allclose(J.T["x", "y"].toarray(), J["y", "x"].toarray().T)
    assert_allclose(J["y", "x"].T.toarray(), Y_BY_X.T)
    assert [spec.name for spec in J.T.codomain] == ["x", "w"]
    assert J.T.T.domain == J.domain


def test_results_are_the_callers_own(net):
    """Writing to a product or a tangent changes no later product."""
    J = oj.linearize(net, {"x": X}, of=["h", "y"], wrt=["h", "x"])
    v = np.ones((2, 3))
    for K, (a, b) in ((J, ("h", "y")), (J.T, ("h", "x"))):
        first = K.apply({"h": v})
        first[a] += 1
        first[b] += 1
        assert_array_equal(v, np.ones((2, 3)))
        assert_array_equal(K.apply({"h": v})["h"], first["h"] - 1)


def test_repr_and_str_say_what_it_is(net):
    J = oj.linearize(net, {"x": X}, wrt=["x", "w"])
    assert repr(J) == "∂/∂: (x 2×3, w 3×3) → (y 2×3), 6×15 float64"
    assert repr(J.T).startswith("transpose of")


# -- jvp, vjp, grad --------------------------------------------------------------------------------


def test_a_jvp_is_the_jacobian_times_the_tangents(net):
    v = RNG.standard_normal((2, 3))
    y, dy = oj.jvp(net, {"x": X}, {"x": v, "b": np.ones(3)})
    assert_allclose(y["y"], np.tanh(H) * X)
    assert_allclose(dy["y"], SLOPE * X * (v @ W + 1) + np.tanh(H) * v)
    _, dh = oj.jvp(net, {"x": X}, {"x": v}, of="h")
    assert_allclose(dh["h"], v @ W)


def test_a_vjp_is_the_cotangents_times_the_jacobian(net):
    u = RNG.standard_normal((2, 3))
    y, pullback = oj.vjp(net, {"x": X}, wrt=["w", "b"])
    expected = {"w": X.T @ (u * SLOPE * X), "b": (u * SLOPE * X).sum(axis=0)}
    assert_allclose(y["y"], np.tanh(H) * X)
    for cotangent in (u, {"y": u}, u.tolist()):
        pulled = pullback(cotangent)
        assert list(pulled) == ["w", "b"]
        for name, value in expected.items():
            assert_allclose(pulled[name], value)
    assert_array_equal(pullback({})["w"], np.zeros((3, 3)))
    assert repr(pullback).startswith("pullback of ∂/∂")


@pytest.mark.parametrize("keep", [0, 1])
def test_grad_is_the_derivative_of_one_number(keep):
    m = model(f"s = Mul(x, x) y = ReduceSum<keepdims={keep}>(s)",
              f"(double[2,3] x) => (double{['', '[1,1]'][keep]} y)")
    assert_allclose(oj.grad(m, {"x": X})["x"], 2 * X)
    assert_allclose(oj.grad(m, {"x": X}, of="y", wrt="s")["s"], np.ones((2, 3)))


def test_grad_of_many_numbers_is_refused(net):
    with pytest.raises(oj.InputError, match=r"'y' has shape \[2, 3\].*`vjp` takes a cotangent"):
        oj.grad(net, {"x": X})


# -- zero blocks -----------------------------------------------------------------------------------

CUT = "f = Floor(x) a = ArgMax<axis=1>(x) c = Cast<to=11>(a) z = Mul(f, c) y = Mul(x, z)"


def test_one_warning_names_what_cuts():
    m = model(CUT)
    with pytest.warns(oj.OnnxJacWarning) as caught:
        J = oj.linearize(m, {"x": X}, of=["y", "z"])
    (warning,) = caught
    text = str(warning.message)
    assert "'z' does not depend differentiably on 'x'" in text
    assert "Floor" in text
    assert "ArgMax" in text
    assert "'y'" not in text
    assert warning.filename == __file__
    assert_array_equal(J["z", "x"].toarray(), np.zeros((6, 6)))
    assert_array_equal(J.T.apply({"z": X})["x"], np.zeros((2, 3)))
    assert text.removesuffix(": zero blocks") in str(J.explain())


SIDES = [
    (("y",), ("x", "b")), (("y",), ("b", "W")), (("y", "z"), ("x",)), (("y",), ("b",)),
    (("z", "y"), ("b", "W")), (("y", "e"), ("x", "n")), (("y",), ("n", "x")), (("y", "x"), ("x",)),
]  # fmt: skip
"""Rows and columns of y = W x, z = exp(b), and the empty e = exp(n): most blocks are zero."""


@pytest.mark.filterwarnings("ignore:.*zero blocks")
@pytest.mark.parametrize(("of", "wrt"), SIDES, ids=lambda names: "".join(names))
def test_a_matrix_has_all_its_blocks_of_zeros(of, wrt):
    m = model("y = MatMul(W, x) z = Exp(b) e = Exp(n)",
              signature="(double[2,3] W, double[3] x, double[2] b, double[0,2] n) => "
              "(double[2] y, double[2] z, double[0,2] e)")  # fmt: skip
    point = {"W": X, "x": X[0], "b": B[:2], "n": np.zeros((0, 2))}
    J = oj.linearize(m, point, of=of, wrt=wrt)
    dense = J @ np.eye(J.shape[1])
    for K in (J, J.plan(products=1000), J.compile("numpy"), J.relinearize(point)):
        check_entries(K, dense)
    for k, row in enumerate(of):
        for j, column in enumerate(wrt):
            block = J[row, column]
            shape = size(J.codomain[k].shape), size(J.domain[j].shape)
            assert block.toarray().shape == block.tosparse().shape == block.shape == shape
    assert J.check()


@pytest.mark.filterwarnings("ignore:.*zero blocks")
def test_a_hessian_has_all_its_blocks_of_zeros():
    m = model("e = Exp(x) s = ReduceSum<keepdims=0>(e) t = ReduceSum<keepdims=0>(b) y = Add(s, t)",
              signature="(double[3] x, double[2] b) => (double y)")  # fmt: skip
    for wrt in (("x", "b"), ("b", "x"), ("b",)):
        H = oj.hessian(m, {"x": B, "b": X[0, :2]}, wrt=wrt)
        expected = {"x": np.diag(np.exp(B)), "b": np.zeros((2, 2))}
        matrix = scipy.linalg.block_diag(*(expected[name] for name in wrt))
        check_entries(H, matrix)
        check_entries(H.compile("numpy"), matrix)


def test_many_zero_blocks_are_one_warning():
    m = model(CUT + " p = Neg(b) q = Neg(p)", b=B)
    with pytest.warns(oj.OnnxJacWarning, match="and 4 more: zero blocks") as caught:
        J = oj.linearize(m, {"x": X}, of=["z", "y"], wrt=["x", "b", "p", "q"])
    assert len(caught) == 1
    assert J.shape == (12, 15)
    assert len(J.explain().zeros) == 7


def test_where_nothing_is_cut_nothing_is_warned(net):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        J = oj.linearize(net, {"x": X})
        J.relinearize({"x": X + 1})
    assert J.explain().zeros == ()


def test_a_whole_zero_jacobian_passes_its_check():
    m = model("y = Floor(x)")
    with pytest.warns(oj.OnnxJacWarning, match="cut by Floor"):
        J = oj.linearize(m, {"x": X})
    assert J.check()
    assert J.nbytes == J.flops == 0


def test_explain_lists_the_blocks_in_order(net):
    text = str(oj.linearize(net, {"x": X}).explain())
    ops = [line.split()[0] for line in text.splitlines()[:6]]
    assert ops == ["op", "MatMul", "Add", "Tanh", "Mul", "Mul"]
    assert "∂y/∂t" in text
    assert "∂y/∂x" in text


def test_explain_says_what_was_eliminated():
    w1, w2 = np.ones((3, 64)), np.ones((64, 1))
    m = model("h = MatMul(x, w1) s = Sigmoid(h) p = Mul(h, s) y = MatMul(p, w2)", w1=w1, w2=w2,
              signature="(double[2,3] x) => (double[2,1] y)")  # fmt: skip
    J = oj.linearize(m, {"x": X})
    (stretch,) = J.explain().stretches
    assert (stretch.start, stretch.end, stretch.gone) == ("h", "y", ("s", "p"))
    assert stretch.choice == "merged"
    J.plan(products=10000).structure  # noqa: B018
    (stretch,) = J.explain().stretches
    assert (stretch.start, stretch.end, stretch.choice) == ("x", "y", "multiplied out")
    assert stretch.structure == "blockdiag(2×1×3)"


# -- one point after the other ---------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["numpy", None])
def test_relinearize_is_linearize_elsewhere(net, engine):
    J = oj.linearize(net, {"x": X}, of=["y", "h"], wrt=["x", "w"], engine=engine)
    again = J.relinearize({"x": X - 1})
    fresh = oj.linearize(net, {"x": X - 1}, of=["y", "h"], wrt=["x", "w"], engine=engine)
    assert_allclose(again.toarray(), fresh.toarray())
    assert_allclose(again.primal["y"], fresh.primal["y"])
    assert_allclose(J["y", "x"].toarray(), Y_BY_X)
    assert again.relinearize({"x": X}).domain == J.domain
    assert_allclose(again.relinearize({"x": X})["y", "x"].toarray(), Y_BY_X)


def test_relinearize_keeps_blocks_and_transposes(net):
    J = oj.linearize(net, {"x": X}, of=["y", "h"], wrt=["x", "w"])
    for K in (J["y", "x"], J.T["x", "h"], J.T, J.block(("h", "y"), ("w",))):
        again = K.relinearize({"x": X})
        assert (again.domain, again.codomain) == (K.domain, K.codomain)
        assert_allclose(again.toarray(), K.toarray())


def test_relinearize_at_another_shape():
    m = model("h = MatMul(x, w) y = Tanh(h)", "(double[N,3] x) => (double[N,3] y)", w=W)
    J = oj.linearize(m, {"x": X})
    wide = np.concatenate([X, X, X])
    assert J.relinearize({"x": wide}).shape == (18, 18)
    assert_allclose(
        J.relinearize({"x": wide}).toarray(), oj.linearize(m, {"x": wide}).toarray()
    )


def test_the_third_point_asks_no_rule_and_keeps_what_holds_no_residual(monkeypatch):
    """Operators of MatMul by a weight, Sub and Reshape are reused; Tanh's is not."""
    body = "h = MatMul(x, w) r = Reshape(h, s) t = Tanh(r) k = Sub(t, r) y = Mul(k, k)"
    m = model(body, "(double[2,3] x) => (double[6] y)", w=W, s=np.array([6]))
    asked = count_rules(monkeypatch)
    J = oj.linearize(m, {"x": X})
    assert asked == ["MatMul", "Reshape", "Tanh", "Sub", "Mul"]
    K = J.relinearize({"x": X - 1})
    asked.clear()
    again = K.relinearize({"x": X + 1})
    assert asked == []
    changed = [b.step.op_type for a, b in zip(K.entries, again.entries, strict=True) if a is not b]
    assert changed == ["Tanh", "Mul"]
    assert_allclose(again.toarray(), oj.linearize(m, {"x": X + 1}).toarray())


def test_relinearize_with_another_weight_asks_again(monkeypatch):
    m = model("h = MatMul(x, w) y = MatMul(h, v)", w=W, v=W)
    J = oj.linearize(m, {"x": X})
    asked = count_rules(monkeypatch)
    again = J.relinearize({"x": X, "w": 2 * W})
    assert_allclose(again.toarray(), 2 * J.toarray())
    assert asked == ["MatMul", "MatMul"]
    assert_allclose(again.relinearize({"x": X}).toarray(), J.toarray())


def test_relinearize_sees_an_index_move():
    m = model("y = Gather(x, i)", "(double[2,3] x, int64[1] i) => (double[1,3] y)")
    J = oj.linearize(m, {"x": X, "i": [0]})
    assert_array_equal(J.relinearize({"x": X, "i": [1]}).toarray(), np.eye(6)[3:])
    signature = "(double[2,3] x, int64[1] i) => (double[1,3] y)"
    sliced = model("e = Add(i, one) y = Slice(x, i, e)", signature, one=np.array([1]))
    J = oj.linearize(sliced, {"x": X, "i": [0]})
    assert_array_equal(J.relinearize({"x": X, "i": [1]}).toarray(), np.eye(6)[3:])


def count_rules(monkeypatch):
    """A list of the operators whose rules are called."""
    from onnxjac.modes.linear.derivatives import record as module

    asked, blocks_of = [], module.blocks_of

    def counting(active, values, op):
        asked.append(active.op_type)
        return blocks_of(active, values, op)

    monkeypatch.setattr(module, "blocks_of", counting)
    return asked


# -- dtypes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "dtype"), [("float", np.float32), ("float16", np.float16)])
@pytest.mark.parametrize("engine", ["numpy", None])
def test_the_dtype_is_the_models(kind, dtype, engine):
    m = model("h = MatMul(x, w) t = Tanh(h) y = Mul(t, x)", f"({kind}[2,3] x) => ({kind}[2,3] y)",
              w=W.astype(dtype))
    J = oj.linearize(m, {"x": X}, wrt=["x", "w"], engine=engine)
    v = RNG.standard_normal(15)
    assert J.dtype == J.T.dtype == dtype
    assert (J @ v.astype(dtype)).dtype == (J.T @ np.ones(6, dtype)).dtype == dtype
    assert (J @ v).dtype == np.float64  # NumPy's result type of both
    assert J.apply({"x": X})["y"].dtype == dtype
    assert all(np.asarray(a).dtype in (dtype, bool) or a.dtype.kind == "i" for a in J.arrays())
    h = X @ W
    slope = np.diag(((1 - np.tanh(h) ** 2) * X).ravel())
    expected = slope @ H_BY_X + np.diag(np.tanh(h).ravel())
    assert_allclose(J.toarray()[:, :6], expected, rtol=0, atol=30 * np.finfo(dtype).eps)


@pytest.mark.parametrize("inner", [1, 10])
def test_casts_inside_keep_a_float64_jacobian_of_the_inner_values(inner):
    """float64 outside, lower precision inside: J is float64 and uses the inner values."""
    m = model(f"n = Cast<to={inner}>(x) t = Tanh(n) z = Mul(t, n) d = Cast<to=11>(z) y = Add(d, x)")
    J = oj.linearize(m, {"x": X}, of=["y", "t"], wrt=["x", "t"])
    assert J.dtype == np.float64
    slope = (1 - np.tanh(X) ** 2) * X + np.tanh(X) + 1
    assert_allclose(J["y", "x"].diagonal(), slope.ravel(), rtol=1e-5 if inner == 1 else 1e-2)
    u, v = RNG.standard_normal((2, 12))
    assert_allclose(u @ (J @ v), (J.T @ u) @ v, rtol=1e-6 if inner == 1 else 2e-2)


# -- cost ------------------------------------------------------------------------------------------


def diamonds(depth):
    """hₖ₊₁ = tanh(hₖ) + sin(hₖ), a graph with 2**depth paths."""
    nodes, h = [], "x"
    for k in range(depth):
        nodes += [f"p{k} = Tanh({h})", f"q{k} = Sin({h})", f"h{k} = Add(p{k}, q{k})"]
        h = f"h{k}"
    return model(" ".join(nodes) + f" y = Identity({h})")


def test_sixty_diamonds_cost_what_sixty_diamonds_cost():
    J = oj.linearize(diamonds(60), {"x": X})
    assert len(J.dag.edges) <= 4 * 60 + 1
    assert J.flops < 60 * 10 * 6
    assert count_applications(J, lambda: J.dag @ np.ones(6)) == len(J.dag.edges)
    assert count_applications(J.T, lambda: J.dag.T @ np.ones(6)) == len(J.dag.edges)
    slope = np.ones_like(X)
    x = X
    for _ in range(60):
        slope, x = slope * (1 - np.tanh(x) ** 2 + np.cos(x)), np.tanh(x) + np.sin(x)
    assert_allclose(J.toarray(), np.diag(slope.ravel()), rtol=1e-10)


def count_applications(J, product):
    """The number of operators that one product applies."""
    counted = []
    with pytest.MonkeyPatch.context() as patch:
        for kind in {type(edge.operator) for edge in J.dag.edges}:
            patch.setattr(kind, "_apply", counting(kind._apply, counted))
        product()
    return len(counted)


def counting(apply, counted):
    def counted_apply(self, op, v):
        counted.append(self)
        return apply(self, op, v)

    return counted_apply


# -- memory ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["numpy", None])
def test_j_holds_only_tensors_that_it_needs(engine):
    """Of the tensors of 8 MB, only the output of Tanh and the output of the model stay."""
    m = model("b = Expand(x, s) p = Add(b, b) t = Tanh(p) q = Neg(t) y = Mul(q, two)",
              "(double[1] x) => (double[1000000] y)", s=np.array([1000000]), two=np.array([2.0]))
    J = oj.linearize(m, {"x": np.ones(1)}, engine=engine)
    held = sum(array.nbytes for array in {id(owner(a)): owner(a) for a in J.arrays()}.values())
    assert 8e6 <= held <= 17e6
    assert J.nbytes == held
    assert [a.nbytes for a in J.primal.values()] == [8_000_000]


def owner(array):
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def test_values_are_released(monkeypatch):
    """Values of the run are freed unless a block or `primal` holds them."""
    import gc
    import weakref

    from onnxjac.modes.linear.derivatives import route as module

    references = {}

    def watching(*arguments, **keywords):
        values = evaluate(*arguments, **keywords)
        references.update({name: weakref.ref(value) for name, value in values.items()})
        return values

    evaluate = module.evaluate
    monkeypatch.setattr(module, "evaluate", watching)
    m = model("p = Add(x, x) t = Tanh(p) q = Neg(t) r = Exp(q) y = Add(r, one)", one=np.ones(3))
    J = oj.linearize(m, {"x": X.copy()}, engine="numpy")
    gc.collect()
    assert references["p"]() is None
    assert references["q"]() is None
    assert references["y"]() is J.primal["y"]
    assert references["r"]() is not None  # exp' = exp
    assert references["t"]() is None  # 1 - t² is kept, t is not


def test_shared_weights_are_counted_once():
    m = model("h = MatMul(x, w) k = MatMul(h, w) y = MatMul(k, w)", w=W)
    assert oj.linearize(m, {"x": X}).nbytes == W.nbytes


# -- the checker itself ----------------------------------------------------------------------------


@pytest.mark.usefixtures("clean_registry")
@pytest.mark.parametrize("fault", ["factor", "adjoint"])
def test_a_fault_in_one_rule_does_not_pass(net, fault):
    """A derivative that is off by 1 % and a wrong adjoint fail both checks."""
    from onnxjac.jacobians import Diagonal

    @oj.jacobian("Tanh")
    def faulty(op, node):
        J = Diagonal((1.01 if fault == "factor" else 1) * (1 - node.y**2))
        if fault == "adjoint":
            vars(J)["T"] = 1.01 * J
        return {(0, 0): J}

    assert not oj.linearize(net, {"x": X}).check()
    with pytest.raises(AssertionError):
        check_model(net, {"x": X})


def test_a_warning_of_zeros_names_what_rounds_to_integers_and_few_of_many():
    m = model("i = Cast<to=7>(x) y = Cast<to=11>(i)")
    with pytest.warns(oj.OnnxJacWarning, match=r"cut by Cast '\w+' \(its result is not floating\)"):
        oj.linearize(m, {"x": X}, of="y", wrt="x")
    m = model("""k = Constant<value = int64[1] {2}>() v, i = TopK(x, k) s = Constant<value =
    double[5] {1, 2, 3, 4, 5}>() y = Gather(s, i)""")
    with pytest.warns(oj.OnnxJacWarning, match=r"cut by TopK '\w+' \(its result is not floating\)"):
        oj.linearize(m, {"x": X}, of="y", wrt="x")
    rows = " ".join(f"r{k} = Round(x)" for k in range(9))
    m = model(f"{rows} y = Sum({', '.join(f'r{k}' for k in range(9))})")
    with pytest.warns(oj.OnnxJacWarning, match=r"\) and 7 more\)") as caught:
        oj.linearize(m, {"x": X}, of="y", wrt="x")
    assert len(str(caught[0].message)) < 300
