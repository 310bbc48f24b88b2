"""Jets of models: any order, any operator, along any curve, in one pass."""

import numpy as np
import pytest

import onnxjac as oj
from onnxjac.modes.taylor.record import jet_graph
from onnxjac.ops.formulas import DIGITS as MP
from scoreboard.truth import derivatives

from .networks import mlp, parse

LOOP = """(double[n] x, int64 count) => (double[n] y) <bool yes = {1}>
{ y = Loop (count, yes, x) <
    body = turn (int64 i, bool before, double[n] state) => (bool after, double[n] fresh)
    { after = Identity(before)  q = Mul(state, x)  fresh = Sin(q) }
  > }
"""

BRANCH = """(double[n] x, bool go) => (double[n] y)
{ y = If (go) <
    then_branch = then () => (double[n] a) { p = Mul(x, x)  a = Exp(p) },
    else_branch = other () => (double[n] b) { b = Sin(x) }
  > }
"""


def curve_of(rng, order, shape):
    return rng.integers(-8, 9, (order, *shape)) / 8


def test_a_network_to_the_sixth_order():
    """Beside mpmath on the formula of the network, in 900 digits."""
    model, weights = mlp([3, 8, 8, 1])
    rng = np.random.default_rng(1)
    x, v = rng.standard_normal((2, 3)), rng.standard_normal((2, 3))
    rows = np.zeros((6, 2, 3))
    rows[0] = v
    y, found = oj.jet(model, {"x": x}, {"x": rows})
    np.testing.assert_array_equal(y["u"], model.run({"x": x})["u"])

    def u(t):
        values = []
        for sample, tangent in zip(x, v, strict=True):
            h = MP.matrix([[MP.mpf(a) + t * MP.mpf(b)
                            for a, b in zip(sample, tangent, strict=True)]])  # fmt: skip
            for k, (W, b) in enumerate(weights):
                h = h * MP.matrix(W.tolist()) + MP.matrix([b.tolist()])
                h = h if k == len(weights) - 1 else h.apply(MP.tanh)
            values.append(h[0])
        return values

    with MP.workdps(400):
        truth = derivatives(u, 6)[1:]
    np.testing.assert_allclose(found["u"][..., 0], truth, rtol=1e-9, atol=1e-11)


def test_the_sixth_order_takes_few_nodes():
    """A tanh network of three layers: 1895 nodes by six nested products; the work is O(K²)."""
    model, _ = mlp([3, 8, 8, 1])
    counts = []
    for order in (3, 6, 12):
        t = jet_graph(model, {"x": np.ones((2, 3))}, ("u",), ("x",), None, order=order)
        counts.append(len(t.model("jet").steps))
    assert counts[1] <= 250
    assert counts[2] < 4 * counts[1]


@pytest.mark.parametrize("engine", [None, "numpy"])
def test_a_curve_moves_several_tensors(engine):
    """x(t) = (1 + t + t²), w(t) = 2 + 3 t: y = x w has the derivatives of a cubic polynomial."""
    model = parse("(double[1] x) => (double[1] y) <double[1] w = {2.0}> { y = Mul(x, w) }")
    rows = {"x": [np.ones(1), np.full(1, 2.0), np.zeros(1)], "w": [np.full(1, 3.0)]}
    _, found = oj.jet(model, {"x": np.ones(1)}, rows, engine=engine)
    np.testing.assert_array_equal(found["y"].ravel(), [5, 2 * 5, 6 * 3])


@pytest.mark.filterwarnings("ignore::onnxjac.OnnxJacWarning")
@pytest.mark.parametrize("count", [0, 1, 3])
def test_the_jet_of_a_loop_has_the_derivatives_of_its_iterations(count):
    x, rows = np.array([0.5, -0.75]), curve_of(np.random.default_rng(2), 4, (2,))
    _, found = oj.jet(parse(LOOP), {"x": x, "count": np.array(count)}, {"x": rows})

    def values(t):
        made = []
        for i in range(2):
            here = sum((MP.mpf(float(rows[k, i])) * t ** (k + 1) / MP.factorial(k + 1)
                        for k in range(4)), MP.mpf(float(x[i])))  # fmt: skip
            state = here
            for _ in range(count):
                state = MP.sin(state * here)
            made.append(state)
        return made

    np.testing.assert_allclose(found["y"], derivatives(values, 4)[1:], rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("go", [True, False])
def test_the_jet_of_a_branch_agrees_with_the_side_taken(go):
    point, rows = {"x": np.array([0.5]), "go": np.array(go)}, np.eye(4)[:, :1]
    _, found = oj.jet(parse(BRANCH), point, {"x": rows})
    function = (lambda t: [MP.exp((MP.mpf(0.5) + t) ** 2)]) if go else (
        lambda t: [MP.sin(MP.mpf(0.5) + t)])  # fmt: skip
    np.testing.assert_allclose(found["y"], derivatives(function, 4)[1:], rtol=1e-12)


@pytest.mark.parametrize(("text", "point", "message"), [
    (LOOP, {"count": np.array(3)}, r"'count' \(no input any more: Loop .*, unrolled\)"),
    (BRANCH, {"go": np.array(True)}, r"'go' \(no input any more: If .*, unrolled\)"),
])  # fmt: skip
def test_an_export_says_what_it_unrolled(text, point, message):
    model, x = parse(text), np.array([0.5, -0.75, 0.25])
    with pytest.warns(oj.OnnxJacWarning, match=message):
        file = oj.load(oj.export(model, "laplacian", {"x": x[:2], **point}, wrt="x"))
    expected = oj.laplacian(model, {"x": x, **point}, wrt="x")
    np.testing.assert_allclose(file.run({"x": x})["y_laplacian"], expected)


@pytest.mark.peers
@pytest.mark.parametrize("engine", ["torch", "jax"])
def test_every_engine_gives_the_same(engine):
    pytest.importorskip(engine)
    model, _ = mlp([3, 8, 1])
    rng = np.random.default_rng(3)
    point, rows = {"x": rng.standard_normal((2, 3))}, {"x": curve_of(rng, 4, (2, 3))}
    expected, found = (oj.jet(model, point, rows, engine=e)[1]["u"] for e in ("numpy", engine))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.peers
def test_jax_gives_the_same():
    jax = pytest.importorskip("jax")
    jnp = jax.numpy
    from jax.experimental.jet import jet

    with jax.enable_x64(True):
        model, weights = mlp([3, 8, 1])
        (W, b), (V, c) = weights
        rng = np.random.default_rng(4)
        x, rows = rng.standard_normal((1, 3)), curve_of(rng, 4, (1, 3))
        _, found = oj.jet(model, {"x": x}, {"x": rows})
        _, truth = jet(lambda x: jnp.tanh(x @ W + b) @ V + c, (x,), ([*rows],))
        np.testing.assert_allclose(found["u"], np.stack(truth), rtol=1e-10, atol=1e-12)


def test_a_jet_has_the_same_bits_each_time():
    model, _ = mlp([3, 8, 8, 1])
    rng = np.random.default_rng(5)
    point, rows = {"x": rng.standard_normal((4, 3))}, {"x": curve_of(rng, 3, (4, 3))}
    first = oj.jet(model, point, rows)[1]["u"]
    again = oj.jet(mlp([3, 8, 8, 1])[0], point, rows)[1]["u"]
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(first, oj.jet(model, point, rows)[1]["u"])


def test_jet_of_an_independent_input_is_zero():
    model = parse("(double[2] x, double[2] z) => (double[2] y) { y = Exp(x) }")
    _, found = oj.jet(model, {"x": np.ones(2), "z": np.ones(2)}, {"z": [np.ones(2), np.ones(2)]})
    np.testing.assert_array_equal(found["y"], np.zeros((2, 2)))


def test_an_infinite_slope_that_is_not_chosen_counts_for_nothing():
    """y = √x where x > 0, else x: its derivatives at 0 are 1, 0, 0."""
    text = """(double[2] x) => (double[2] y)
    { zero = Constant<value_float = 0.0>()  z = CastLike(zero, x)
      is = Greater(x, z)  r = Sqrt(x)  y = Where(is, r, x) }"""
    rows = [np.ones(2), np.zeros(2), np.zeros(2)]
    _, found = oj.jet(parse(text), {"x": np.array([0.0, 4.0])}, {"x": rows})
    np.testing.assert_allclose(found["y"], [[1, 1 / 4], [0, -1 / 32], [0, 3 / 256]])


def test_a_scale_that_moves_beside_a_mean_that_stays():
    """y = s (x − 3) / 2 + 1, affine in x and in s: y″ = 2 s′ x′ / 2, without the mean."""
    model = parse("""(double[1, 1] x) => (double[1, 1] y)
    <double[1] s = {5.0}, double[1] b = {1.0}, double[1] mean = {3.0}, double[1] var = {4.0}>
    { y = BatchNormalization <epsilon = 0.0> (x, s, b, mean, var) }""")
    rows = {"x": [np.full((1, 1), 7.0), np.zeros((1, 1))], "s": [np.full(1, 11.0)]}
    _, found = oj.jet(model, {"x": np.full((1, 1), 2.0)}, rows)
    np.testing.assert_allclose(found["y"].ravel(), [(11 * (2 - 3) + 5 * 7) / 2, 11 * 7])


def test_a_tensor_that_moves_by_itself_and_by_another():
    """s = sin x moves by x and by itself, as in J: y = s x has y′ = (cos x x′ + s′) x + s x′."""
    model = parse("(double[2] x) => (double[2] y) { s = Sin(x)  y = Mul(s, x) }")
    x, dx, ds = np.array([[0.5, -1.0], [2.0, 0.25], [-0.75, 3.0]])
    rows = {"x": [dx, 0 * dx], "s": [ds, 0 * ds]}
    _, found = oj.jet(model, {"x": x}, rows)
    _, first = oj.jvp(model, {"x": x}, {"x": dx, "s": ds})
    np.testing.assert_allclose(found["y"][0], first["y"])
    slope = np.cos(x) * dx + ds
    np.testing.assert_allclose(found["y"][1], 2 * slope * dx - np.sin(x) * dx**2 * x)
    H = oj.hessian(model, {"x": x}, wrt=["x", "s"], weights=np.ones(2)).toarray()
    found = oj.laplacian(model, {"x": x}, wrt=["x", "s"])
    np.testing.assert_allclose(found.sum(), np.trace(H))


def test_series_take_the_dtype_of_their_tensor():
    model = parse("(float[2] x) => (float[2] y) { y = Exp(x) }")
    x = np.zeros(2, np.float32)
    for rows in ([np.ones(2)], [[1, 1]], np.ones((1, 2), int), [np.ones(2, np.float16)]):
        for engine in (None, "numpy"):
            _, found = oj.jet(model, {"x": x}, {"x": rows}, engine=engine)
            assert found["y"].dtype == np.float32
            np.testing.assert_array_equal(found["y"], [[1, 1]])


@pytest.mark.peers
def test_series_of_tensors_give_the_jet_of_numpy():
    """Stacked or in lists, at a point of their library or of NumPy, by its engine or another."""
    torch = pytest.importorskip("torch")
    model, _ = mlp([3, 8, 1])
    rng = np.random.default_rng(7)
    x, rows = rng.standard_normal((2, 3)), curve_of(rng, 2, (2, 3))
    expected = oj.jet(model, {"x": x}, {"x": rows})[1]["u"]
    for take, engine in ((torch.tensor, "torch"), (torch.tensor, None), (np.array, "torch")):
        given = torch.tensor(rows)
        for series in (given, [*given]):
            _, found = oj.jet(model, {"x": take(x)}, {"x": series}, engine=engine)
            assert isinstance(found["u"], np.ndarray if engine is None else torch.Tensor)
            np.testing.assert_allclose(found["u"], expected)


@pytest.mark.peers
def test_a_jet_inside_of_jit_is_that_outside():
    jax = pytest.importorskip("jax")
    jnp = jax.numpy

    with jax.enable_x64(True):
        model, _ = mlp([3, 8, 1])
        rng = np.random.default_rng(8)
        x, rows = rng.standard_normal((2, 3)), curve_of(rng, 2, (2, 3))
        bent = {"x": rows, "b0": [np.ones(8)]}
        expected = oj.jet(model, {"x": x}, bent)[1]["u"]

        @jax.jit
        def series(x, first, second):
            moved = {"x": [first, second], "b0": [jnp.ones(8)]}
            return oj.jet(model, {"x": x}, moved, engine="jax")[1]["u"]

        with pytest.raises(oj.InputError, match="once outside of jit"):
            series(x, *rows)
        oj.jet(model, {"x": jnp.array(x)}, bent, engine="jax")
        np.testing.assert_allclose(series(x, *rows), expected, rtol=1e-12)


@pytest.mark.parametrize(("series", "message"), [
    ({"x": []}, "one derivative at least"),
    ({"x": 1.0}, "one derivative at least"),
    ({"x": None}, "one derivative at least"),
    ({"q": [np.ones(2)]}, "'q'"),
    ({"x": [np.ones(3)]}, "shape"),
    ({"x": [np.ones(1)]}, r"'x_series' has shape \[1, 1\], not \[1, 2\]"),
    ({"x": [np.ones(2), 1.0]}, "the series for 'x' must be arrays of its shape"),
    ({"x": [np.ones(2) * 1j]}, "complex128 does not become float64"),
    ([np.ones(2)], "by name"),
])  # fmt: skip
def test_series_that_do_not_fit_are_refused(series, message):
    model = parse("(double[2] x) => (double[2] y) { y = Exp(x) }")
    with pytest.raises(oj.OnnxJacError, match=message):
        oj.jet(model, {"x": np.ones(2)}, series)


def test_an_operator_without_a_rule():
    model = parse("(double[2] x) => (double[2] y) { y, m = Dropout(x) }")
    assert oj.jet(model, {"x": np.ones(2)}, {"x": [np.ones(2)]})[1]["y"].tolist() == [[1, 1]]


@pytest.mark.parametrize("order", [1, 3])
def test_an_export_holds_at_other_sizes(order):
    model, _ = mlp([3, 8, 1])
    rng = np.random.default_rng(6)
    file = oj.load(oj.export(model, "jet", {"x": np.ones((2, 3))}, order=order))
    x, rows = rng.standard_normal((5, 3)), curve_of(rng, order, (5, 3))
    found = file.run({"x": x, "x_series": rows})
    np.testing.assert_allclose(found["u_series"], oj.jet(model, {"x": x}, {"x": rows})[1]["u"])
    with pytest.raises(oj.InputError, match="order=None goes with mode='jet'"):
        oj.export(model, "jet", {"x": x})
