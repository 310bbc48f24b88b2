"""Operators as arguments of jitted functions, and K-FAC at other points inside of these."""

from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj
from curvature.models import parsed
from interop.operators import MODEL, POINT, WRT
from onnxjac.jacobians import Diagonal

from ..jacobians.examples import EXAMPLES, Draw

jax = pytest.importorskip("jax")
from onnxjac.ops.jax import arrays  # noqa: E402, F401  (JAX knows the operators from then on)

pytestmark = pytest.mark.peers

TIGHT = {"rtol": 1e-10, "atol": 1e-12}
RNG = np.random.default_rng(0)
NEAR = [{**POINT, "x": x, **{n: w + 0.1 * RNG.standard_normal(w.shape) for n, w in weights.items()}}
        for x in RNG.standard_normal((2, *POINT["x"].shape))
        for weights in [{name: POINT[name] for name in WRT}]]  # fmt: skip
v = RNG.standard_normal(35)


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def counted(function):
    """The function, jitted, and a list that grows when it is compiled."""
    traced = []

    def call(*args):
        traced.append(args)
        return function(*args)

    return jax.jit(call), traced


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_numbers_are_the_leaves(name):
    """Of two operators that differ in numbers alone, one has the structure of the other."""
    J, K = (EXAMPLES[name][1](Draw(seed))[0] for seed in (0, 1))
    leaves, structure = jax.tree.flatten(J)
    same = structure == jax.tree.structure(EXAMPLES[name][1](Draw(0))[0])
    assert same == ("program" not in name)  # each of which is its own
    u = RNG.standard_normal(J.shape[1])
    again = jax.tree.unflatten(structure, leaves)
    assert type(again) is type(J)
    assert repr(again) == repr(J)
    assert_allclose(again @ u, J @ u, **TIGHT)
    if jax.tree.structure(K) == structure:
        other = jax.tree.unflatten(structure, jax.tree.leaves(K))
        assert_allclose(other @ u, K @ u, **TIGHT)
        assert_allclose(other.T @ (other @ u), K.T @ (K @ u), **TIGHT)


def test_an_operator_of_the_user_is_an_argument():
    """Also if its class is defined after JAX knows the others."""

    class Scaled(Diagonal):
        pass

    product, traced = counted(lambda J, u: J @ u)
    for factor in (2.0, 3.0):
        assert product(Scaled(np.full(3, factor)), np.ones(3)).tolist() == [factor] * 3
    assert len(traced) == 1


@pytest.mark.parametrize(
    "name", ["diagonal", "kron", "dense", "sum_", "product", "diamond", "block"]
)
def test_a_bare_operator_is_an_argument(name):
    product, traced = counted(lambda J, u: J.T @ (J @ u))
    for seed in range(2):
        J = EXAMPLES[name][1](Draw(seed))[0]
        u = RNG.standard_normal(J.shape[1])
        assert_allclose(product(J, u), J.T @ (J @ u), **TIGHT)
    assert len(traced) == 1


CURVATURE = {
    "gram": partial(oj.gram, MODEL, of="logits", wrt=WRT),
    "gauss_newton": partial(oj.gauss_newton, MODEL, of="loss", at="logits", wrt=WRT),
    "hessian": partial(oj.hessian, MODEL, of="loss", wrt=WRT),
    "fisher": partial(oj.fisher, MODEL, at="logits", wrt=WRT),
    "empirical": partial(oj.empirical_fisher, MODEL, of="loss", at="logits", wrt=WRT),
    "kfac": partial(oj.kfac, MODEL, at="logits", wrt=WRT),
    "kfac, reduce": partial(oj.kfac, MODEL, at="logits", wrt=WRT, approximation="reduce"),
    "kfac, labels": partial(oj.kfac, MODEL, of="loss", at="logits", wrt=WRT,
                            fisher_type="empirical"),
    "ekfac": partial(oj.ekfac, MODEL, at="logits", wrt=WRT),
    "shampoo": partial(oj.shampoo, MODEL, at="logits", wrt=WRT, power=1.0),
}  # fmt: skip


@pytest.mark.parametrize("name", CURVATURE)
def test_curvature_is_an_argument_and_moves(name):
    """Both compile once, and agree with the matrix that NumPy makes at each point."""
    make = CURVATURE[name]
    C = make(POINT, engine="jax")
    given, compiled = counted(lambda C, v: C @ v)
    moved, traced = counted(lambda point, v: (2 * C).relinearize(point) @ v)
    for point in NEAR:
        expected = make(point, engine="numpy") @ v
        assert_allclose(given(C.relinearize(point), v), expected, **TIGHT)
        assert_allclose(moved(point, v), 2 * expected, **TIGHT)
    assert len(compiled) == len(traced) == 1


FACTORED = [name for name in CURVATURE if "kfac" in name or name == "shampoo"]


@pytest.mark.parametrize(
    ("name", "heuristic"),
    [("kfac", False), ("kfac", True), ("ekfac", False), ("shampoo", False)],
)
def test_inverses_of_factors_are_traced_with_one_compilation(name, heuristic):
    """Taken inside, given as an argument, moved inside, and returned."""
    make, damped = CURVATURE[name], {"damping": 0.1, "heuristic": heuristic}
    K = make(POINT, engine="jax")
    ways = {
        "taken inside": lambda K, point, v: K.relinearize(point).inverse(**damped) @ v,
        "moved inside": lambda K, point, v: K.inverse(**damped).relinearize(point) @ v,
        "returned": lambda K, point, v: K.relinearize(point).inverse(**damped),
    }
    functions = {way: counted(function) for way, function in ways.items()}
    product, compiled = counted(lambda M, v: M @ v)
    for point in NEAR:
        expected = make(point, engine="numpy").inverse(**damped) @ v
        for way, (function, _) in functions.items():
            found = function(K, point, v)
            found = found if way != "returned" else found @ v
            assert_allclose(found, expected, err_msg=way, **TIGHT)
        there = K.relinearize(point).inverse(**damped)
        assert_allclose(product(there, v), expected, **TIGHT)
        K = K.relinearize(point)
    assert [len(traced) for _, traced in functions.values()] == [1, 1, 1]
    assert len(compiled) == 1


@pytest.mark.parametrize("engine", ["numpy", None])
def test_factors_move_with_any_engine(engine):
    for name in FACTORED:
        make = CURVATURE[name]
        K = make(POINT, engine=engine)
        for change in (lambda K: K, lambda K: K.inverse(0.1), lambda K: 3 * K,
                       lambda K: K.block("fc2"), lambda K: K.function(np.square)):  # fmt: skip
            found, wanted = change(K).relinearize(NEAR[0]), change(make(NEAR[0], engine="numpy"))
            assert_allclose(found.toarray(), wanted.toarray(), **TIGHT)


def test_a_trace_leaves_nothing_in_its_operators():
    """Nothing that a trace made remains in an operator that it used."""
    K = CURVATURE["kfac"](POINT, engine="jax")
    inside = jax.jit(lambda v: K.inverse(0.1) @ v)(v)
    assert_allclose(K.inverse(0.1) @ v, inside, **TIGHT)
    assert_allclose(inside, CURVATURE["kfac"](POINT, engine="numpy").inverse(0.1) @ v, **TIGHT)


@pytest.mark.parametrize("name", FACTORED)
@pytest.mark.parametrize("heuristic", [False, True])
def test_damping_may_be_traced(name, heuristic):
    """As in Levenberg-Marquardt's rule, which raises and lowers it inside of a jitted loop."""
    K = CURVATURE[name](POINT, engine="jax")
    solve, traced = counted(lambda K, d, v: K.inverse(d, heuristic=heuristic) @ v)
    for damping in (0.1, 0.3):
        wanted = K.inverse(damping, heuristic=heuristic) @ v
        assert_allclose(solve(K, damping, v), wanted, **TIGHT)
    assert len(traced) == 1
    inverse = jax.jit(lambda K, d: K.inverse(d))(K, 0.1)
    assert_allclose(inverse @ v, K.inverse(0.1) @ v, **TIGHT)
    with pytest.raises(oj.InputError, match="a number that is traced"):
        inverse.relinearize(POINT)


def test_sums_over_batches_do_not_move():
    K = oj.kfac(MODEL, [POINT, POINT], at="logits", wrt=WRT)
    with pytest.raises(oj.InputError, match="of several batches"):
        K.relinearize(POINT)


CONVOLUTION = parsed("""g (double[n, 1, 4, 4] x, double[3, 1, 3, 3] k, double[3] b, double[12, 2] W,
    double[2] c) => (double[n, 2] y) {
        h = Conv(x, k, b) t = Relu(h) p = Flatten(t) z = MatMul(p, W) y = Add(z, c) }""")


@pytest.mark.parametrize("joint", [False, True])
def test_kernels_and_biases(joint):
    rng, wrt = np.random.default_rng(0), ["k", "b", "W", "c"]

    def draw():
        shapes = {"x": (5, 1, 4, 4), "k": (3, 1, 3, 3), "b": (3,), "W": (12, 2), "c": (2,)}
        return {name: rng.standard_normal(shape) for name, shape in shapes.items()}

    make = partial(oj.kfac, CONVOLUTION, at="y", wrt=wrt, joint=joint)
    K, u = make(draw(), engine="jax"), rng.standard_normal(56)
    step, traced = counted(lambda point, u: K.relinearize(point).inverse(0.1) @ u)
    for point in (draw(), draw()):
        assert_allclose(step(point, u), make(point, engine="numpy").inverse(0.1) @ u, **TIGHT)
    assert len(traced) == 1


def test_products_by_name_and_blocks_inside():
    K = CURVATURE["kfac"](POINT, engine="jax")

    def step(point, tangents):
        there = K.relinearize(point)
        return there.inverse(0.1).apply(tangents), there.block("fc2") @ tangents["fc2"].ravel()

    tangents = {name: POINT[name] for name in WRT}
    found, part = jax.jit(step)(NEAR[0], tangents)
    wanted = CURVATURE["kfac"](NEAR[0], engine="numpy")
    for name, x in wanted.inverse(0.1).apply(tangents).items():
        assert_allclose(found[name], x, **TIGHT)
    assert_allclose(part, wanted.block("fc2") @ tangents["fc2"].ravel(), **TIGHT)
