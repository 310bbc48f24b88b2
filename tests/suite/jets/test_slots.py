"""Laplacians of models whose entries move in few directions: beside the trace of the Hessian and
the same graph without slots; what they carry; the index.
"""

import numpy as np
import pytest

import onnxjac as oj
from onnxjac.modes.model.primal.evaluate import evaluate
from onnxjac.modes.taylor.record import SLOTS
from onnxjac.ops.series.coefficients import Coefficients
from onnxjac.ops.series.slots import Slots

from .networks import electrons, mlp, parse

PAIRS = """(double[n, 5, 3] x) => (double[n] y)
<int64[1] xyz = {-1}, int64[4] i = {0, 1, 2, 3}, int64[4] j = {1, 2, 3, 4}>
{ a = Gather<axis = 1>(x, i)  b = Gather<axis = 1>(x, j)  d = Sub(a, b)  s = Mul(d, d)
  r = ReduceSum<keepdims = 0>(s, xyz)  q = Sqrt(r)  e = Exp(q)  p = Tanh(e)  f = Mul(p, q)
  y = ReduceSum<keepdims = 0>(f, xyz) }
"""
"""A chain of five bodies: each pair moves in 6 of 15 directions."""

RING = """(double[n, 6, 2] x) => (double[n] y)
<int64[6] next = {1, 2, 3, 4, 5, 0}, int64[1] xyz = {-1}, int64[2] both = {-2, -1},
 double[2, 3] W = {1, -0.5, 0.3, 0.2, 0.7, -1},
 double[3, 3] V = {1, 2, 3, -1, 0.5, 2, 0.1, 0.2, 0.3}>
{ m = MatMul(x, W)  h = Tanh(m)  g = Gather<axis = 1>(h, next)  k = Mul(h, g)  v = MatMul(k, V)
  t = Sin(v)  u = Gather<axis = 1>(t, next)  w = Add(t, u)  z = Mul(w, w)
  y = ReduceSum<keepdims = 0>(z, both) }
"""
"""A ring of six bodies that hear their neighbours twice: 2, 4, then 6 of 12 directions."""

SORTED = """(double[n, 8] x) => (double[n] y) <int64[1] last = {-1}, int64[1] four = {4}>
{ s = Sin(x)  t, i = TopK(s, four)  c = Mul(t, t)  d = Mul(c, t)
  y = ReduceSum<keepdims = 0>(d, last) }
"""
"""Which entry goes where depends on numbers."""

CLIPPED = """(double[n, 8] x) => (double[n] y) <int64[1] last = {-1}, double zero = {0}>
{ s = Sin(x)  b = Greater(s, zero)  e = Exp(x)  c = Where(b, e, s)  p = Relu(c)  d = Mul(p, p)
  m = CumSum(d, last)  q = Mul(m, m)  y = ReduceSum<keepdims = 0>(q, last) }
"""

ONE = """(double[8] x, double[2] z) => (double y) <int64[2] w = {2, 4}, int64[1] s = {0}>
{ e = Exp(x)  m = Reshape(e, w)  t = ReduceSum<keepdims = 0>(m, s)  q = Mul(t, t)
  u = ReduceSum<keepdims = 0>(q)  v = Sin(z)  o = ReduceProd<keepdims = 0>(v)  y = Mul(u, o) }
"""
"""A single sample, of two tensors."""

TWINS = """(double[n, 3] x, double[n, 3] z) => (double[n] y) <int64[1] last = {-1}>
{ p = Mul(x, z)  s = Mul(p, p)  e = Exp(p)  q = Mul(s, e)  y = ReduceSum<keepdims = 0>(q, last) }
"""
"""Two tensors whose slots hold the same constants, of other directions."""

CASES = {
    "twins": (TWINS, {"x": (2, 3), "z": (2, 3)}, 2),
    "pairs": (PAIRS, {"x": (3, 5, 3)}, 6), "ring": (RING, {"x": (2, 6, 2)}, 6),
    "sorted": (SORTED, {"x": (3, 8)}, 1), "clipped": (CLIPPED, {"x": (3, 8)}, 1),
    "one": (ONE, {"x": (8,), "z": (2,)}, 2),
}  # fmt: skip


def drawn(shapes, seed=0):
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape) for name, shape in shapes.items()}


def traces(model, point, weights=1.0):
    """Σ wᵢ ∂²y/∂xᵢ² of every sample, from the Hessian of their sum."""
    y = model.run(point)["y"]
    found = 0.0
    for name, x in point.items():
        H = oj.hessian(model, point, wrt=name, weights=np.ones_like(y)).toarray()
        found = found + (np.diag(H).reshape(x.shape) * weights).reshape(*y.shape, -1).sum(-1)
    return found


def graph_of(model, point):
    return oj.load(oj.export(model, "laplacian", point))


def slots_of(graph):
    return int(graph.ir.metadata_props.get(SLOTS, 0))


@pytest.mark.parametrize("name", CASES)
def test_equal_to_the_trace_of_the_hessian(name):
    text, shapes, slots = CASES[name]
    model, point = parse(text), drawn(shapes)
    np.testing.assert_allclose(oj.laplacian(model, point), traces(model, point), rtol=1e-11)
    assert slots_of(graph_of(model, point)) == slots


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("options", [{"power": 2}, {"samples": 3, "seed": 1}])
def test_a_laplacian_is_the_same_without_slots(name, options, monkeypatch):
    text, shapes, _ = CASES[name]
    point = drawn(shapes)
    found = oj.laplacian(parse(text), point, **options)
    monkeypatch.setattr(Coefficients, "few", lambda *_: False)
    expected = oj.laplacian(parse(text), point, **options)
    value = getattr(found, "value", found)
    expected = getattr(expected, "value", expected)
    np.testing.assert_allclose(value, expected, rtol=1e-10, atol=1e-10 * np.abs(expected).max())


def test_weights_belong_to_directions():
    model, point = parse(PAIRS), drawn({"x": (3, 5, 3)})
    w = np.arange(15.0).reshape(5, 3) - 4
    found = oj.laplacian(model, point, weights=w)
    np.testing.assert_allclose(found, traces(model, point, w), rtol=1e-11)


@pytest.mark.parametrize("count", [4, 6])
def test_electrons_beside_the_hessian(count):
    model, _ = electrons(count, widths=(8, 4), layers=2)
    point = drawn({"x": (2, count, 3)}, count)
    np.testing.assert_allclose(oj.laplacian(model, point), traces(model, point), rtol=1e-9)


def test_pairs_carry_six_directions():
    """No tensor of pairs has more slots, and means over pairs have all 18 directions."""
    model, _ = electrons(6, widths=(8, 4), layers=2)
    point = drawn({"x": (2, 6, 3)})
    graph = graph_of(model, point)
    names = [n for s in graph.steps for n in s.outputs if n]
    shapes = [x.shape for x in evaluate(graph, point, names).values()]
    assert {s[0] for s in shapes if s[1:] == (2, 6, 6, 4)} == {2, 6}
    assert (18, 2, 6, 8) in shapes


@pytest.mark.peers
def test_electrons_beside_jax_and_folx():
    jax = pytest.importorskip("jax")
    from benchmarks.taylor import forward_laplacian, log_psi, trace_of_hessian

    model, weights = electrons(4, widths=(8, 4), layers=1)
    x = drawn({"x": (2, 4, 3)})["x"]
    found = {engine: oj.laplacian(model, {"x": x}, engine=engine)
             for engine in (None, "torch", "jax")}  # fmt: skip
    with jax.enable_x64(True):
        arrays = {n: jax.numpy.asarray(w) for n, w in weights.items()}
        ways = {"nested": trace_of_hessian(lambda x: log_psi(arrays, x.reshape(4, 3))),
                "folx": forward_laplacian(lambda x: log_psi(arrays, x.reshape(4, 3)), most=6)}
        truth = {name: np.array(jax.jit(jax.vmap(f))(x.reshape(2, 12)))
                 for name, f in ways.items() if f}  # fmt: skip
    for values in truth.values():
        for value in found.values():
            np.testing.assert_allclose(value, values, rtol=1e-9)


def test_another_batch_and_an_export_that_is_differentiated():
    model, point = parse(PAIRS), drawn({"x": (2, 5, 3)})
    file = oj.load(oj.export(model, "laplacian", point))
    more = drawn({"x": (7, 5, 3)}, 3)
    np.testing.assert_allclose(file.run(more)["y_laplacian"], traces(model, more), rtol=1e-11)
    J = oj.linearize(file, more, of="y_laplacian", wrt="x")
    slope = (J.T @ np.ones(7)).reshape(7, 5, 3)
    v = drawn({"x": (7, 5, 3)}, 4)["x"]
    ahead, behind = (traces(model, {"x": more["x"] + t * v}).sum() for t in (1e-5, -1e-5))
    np.testing.assert_allclose((slope * v).sum(), (ahead - behind) / 2e-5, rtol=1e-6)


def test_zeros_of_weights_are_no_structure():
    """A weight that is zero here may be another number in the exported file."""
    text = """(double[n, 4] x) => (double[n] y) <int64[1] last = {-1}, double[4, 4] W = {
    1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}>
    { s = Sin(x)  m = MatMul(s, W)  t = Tanh(m)  y = ReduceSum<keepdims = 0>(t, last) }"""
    model, point = parse(text), drawn({"x": (2, 4)})
    file = oj.load(oj.export(model, "laplacian", point))
    W = np.random.default_rng(0).standard_normal((4, 4))
    np.testing.assert_allclose(file.run({**point, "W": W})["y_laplacian"],
                               oj.laplacian(model, {**point, "W": W}, wrt="x"))  # fmt: skip
    np.testing.assert_allclose(file.run(point)["y_laplacian"], traces(model, point), rtol=1e-11)


def test_dense_networks_are_recorded_as_before(monkeypatch):
    model, _ = mlp([12, 8, 8, 1])
    point = {"x": np.ones((4, 12))}
    graph = graph_of(model, point)
    assert not slots_of(graph)
    monkeypatch.setattr(Coefficients, "few", lambda *_: False)
    again = graph_of(model, point)
    assert [s.op_type for s in again.steps] == [s.op_type for s in graph.steps]


# -- the index -------------------------------------------------------------------------------------


def test_slots_of_a_mask_give_the_mask_back():
    met = np.array([[1, 0, 1], [0, 0, 1], [1, 0, 0]], bool)
    slots = Slots.of(met)
    assert slots.index.tolist() == [[0, -1, 0], [2, -1, 1]]
    np.testing.assert_array_equal(slots.met(3), met)


def test_slots_repeat_once():
    assert Slots(np.broadcast_to(np.arange(2)[:, None, None], (2, 5, 4))).index.shape == (2, 1, 1)


@pytest.mark.parametrize("seed", range(5))
def test_unions_intersections_and_moves(seed):
    rng = np.random.default_rng(seed)
    a, b = (Slots.of(rng.random((7, 4, n)) < 0.3) for n in (3, 1))
    np.testing.assert_array_equal((a | b).met(7), a.met(7) | b.met(7))
    np.testing.assert_array_equal((a & b).met(7), a.met(7) & b.met(7))
    whole = np.where(a.met(7), rng.standard_normal((7, 4, 3)), 0)

    def few(slots):
        index = np.broadcast_to(slots.index, (len(slots), 4, 3))
        return np.where(index < 0, 0, np.take_along_axis(whole, np.maximum(index, 0), 0))

    for to in (a | b, a & b, Slots.every(7, 2)):
        moved = sum(few(a)[source] * mask for source, mask in a.moves(to))
        np.testing.assert_array_equal(np.broadcast_to(moved, (len(to), 4, 3)), few(to))
