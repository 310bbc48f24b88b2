"""Files for CasADi's own ONNX reader, by this reader: beside the same functions by hand."""

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj
from solvers.models import parsed
from solvers.programs import HS71, SOLUTION

ca = pytest.importorskip("casadi")
runtime = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.peers
if not hasattr(ca, "GraphBuilder"):
    pytest.skip("CasADi before 3.8 reads no ONNX", allow_module_level=True)

NETWORK = """
network (double[2, 3] x, double[3] b, double s, double[2, 1, 2] q) => (double[2, 3] y, double z)
<double[3, 3] W = {1, 2, 0, 0, 1, 0.5, 0.3, 0, -1},
 int64[2] all = {0, 1}, int64[3] each = {0, 1, 2}>
{
    h = MatMul (x, W)
    t = Add (h, b)
    a = Tanh (t)
    y = Mul (a, s)
    f = ReduceSumSquare <keepdims = 0> (y, all)
    qq = Mul (q, q)
    qqq = Mul (qq, q)
    r = ReduceSum <keepdims = 0> (qqq, each)
    z = Mul (f, r)
}"""
"""Arguments of all ranks: a matrix, a vector, a number and an array of rank 3."""


@pytest.fixture
def read(tmp_path, monkeypatch):
    """What writes the files of a model and reads them as a Function."""
    (library,) = Path(runtime.__file__).parent.glob("capi/libonnxruntime.so.*")
    monkeypatch.setenv("CASADI_ONNXRUNTIME_LIB", str(library))

    def made(model, *args, **options):
        oj.export_casadi(model, tmp_path / "f.onnx", *args, **options)
        return ca.GraphBuilder(str(tmp_path / "f.onnx")).create("f")

    return made


def by_hand():
    W = np.array([[1, 2, 0], [0, 1, 0.5], [0.3, 0, -1]])
    x, b, s, q = ca.MX.sym("x", 2, 3), ca.MX.sym("b", 3), ca.MX.sym("s"), ca.MX.sym("q", 4)
    y = ca.tanh(x @ W + ca.repmat(b.T, 2, 1)) * s
    z = ca.sumsqr(y) * ca.sum1(q**3)
    return ca.Function("f", [x, b, s, q], [y, z], ["x", "b", "s", "q"], ["y", "z"])


def same(ours, theirs):
    for found, expected in zip(ours, theirs, strict=True):
        assert_allclose(np.array(found), np.array(expected), rtol=1e-9, atol=1e-12)


def test_values_and_derivatives_of_several_seeds(read):
    ours, theirs, rng = read(parsed(NETWORK)), by_hand(), np.random.default_rng(0)
    assert [ours.name_in(), ours.name_out()] == [theirs.name_in(), theirs.name_out()]
    x = [rng.standard_normal(ours.size_in(k)) for k in range(4)]
    same(ours(*x), theirs(*x))
    y = theirs(*x)
    same(ours.jacobian()(*x, *y), theirs.jacobian()(*x, *y))
    for f, g in ((ours.forward(3), theirs.forward(3)), (ours.reverse(2), theirs.reverse(2)),
                 (ours.reverse(2).forward(3), theirs.reverse(2).forward(3))):  # fmt: skip
        seeds = [rng.standard_normal(f.size_in(k)) for k in range(6, f.n_in())]
        if f.n_in() > 14:  # the results of the reverse mode among them are not read
            seeds[2:6] = theirs.reverse(2)(*x, *y, *seeds[:2])
        same(f(*x, *y, *seeds), g(*x, *y, *seeds))


def test_derivatives_of_expressions_are_those_by_hand(read):
    found = []
    for f in (read(parsed(NETWORK)), by_hand()):
        x = [ca.MX.sym("x", *f.size_in(k)) for k in range(4)]
        y, z = f(*x)
        L = ca.dot(y, y**2) + z**2
        whole = ca.Function("w", x, [ca.hessian(L, v)[0] for v in x] + [ca.jacobian(y, x[0])])
        found.append(whole(np.arange(6).reshape(2, 3) / 7, [0.1, -0.2, 0.3], 1.5, [1, 2, -1, 0.5]))
    same(*found)


def test_as_many_iterations_as_by_hand(read):
    f, x = read(parsed(HS71)), ca.MX.sym("x", 4)
    product = x[0] * x[1] * x[2] * x[3]
    hand = x[0] * x[3] * (x[0] + x[1] + x[2]) + x[2], ca.vertcat(product, ca.sumsqr(x))
    counts = []
    for cost, c in (f(x), hand):
        options = {"ipopt": {"print_level": 0, "tol": 1e-9}, "print_time": False}
        solver = ca.nlpsol("solver", "ipopt", {"x": x, "f": cost, "g": c}, options)
        found = solver(x0=[1, 5, 5, 1], lbx=1, ubx=5, lbg=[25, 40], ubg=[np.inf, 40])
        assert_allclose(found["x"].full().ravel(), SOLUTION, atol=1e-6)
        counts.append(solver.stats()["iter_count"])
    assert counts[0] == counts[1]


NAMES = """
names (float[n, 2] adj_in, int64[2] adjust_k, float[2] y_o) => (float[n, 2] y__o)
<float[2] fc__weight = {2, 3}>
{
    fwd_adj_in = Mul (adj_in, fc__weight)
    t = Mul (fwd_adj_in, adj_in)
    kf = Cast <to = 1> (adjust_k)
    u = Mul (t, kf)
    y__o = Add (u, y_o)
}"""


def test_names_weights_integers_and_free_sizes(read):
    model = parsed(NAMES, "float32")
    with pytest.raises(oj.InputError, match=r"no fixed size: give an example in inputs="):
        read(model)
    f = read(model, {"adj_in": np.ones((3, 2))}, wrt=["adj_in", "fc__weight"])
    assert f.name_in() == ["x_adj_in", "x_adjust_k", "y_o", "fc_weight"]
    assert f.name_out() == ["y_o_1"]
    x, k, c, w = np.arange(6.0).reshape(3, 2), [1, 2], [5, 6], ca.DM([2.0, 3.0])
    assert_allclose(f(x, k, c, w).full(), x**2 * [2, 6] + [5, 6])
    X, V = ca.MX.sym("x", 3, 2), ca.MX.sym("w", 2)
    total = ca.sum1(ca.sum2(f(X, k, c, V)))
    found = ca.Function("g", [X, V], [ca.gradient(total, v) for v in (X, V)])(x, w)
    assert_allclose(found[0].full(), 2 * x * [2, 6])
    assert_allclose(found[1].full().ravel(), (x**2).sum(0) * [1, 2])


def test_an_input_is_an_output(read):
    f = read(parsed("g (double[2] x) => (double[2] y) { y = Exp (x) }"), of=["y", "x"])
    X = ca.MX.sym("x", 2)
    J = ca.Function("J", [X], [ca.jacobian(ca.vertcat(*f(X)), X)])([0, 1])
    assert_allclose(J.full(), np.vstack([np.diag(np.exp([0, 1])), np.eye(2)]))


BRANCHES = """
branches (float[2, 2] x, bool b) => (float[2, 2] y) {
    y = If (b) <then_branch = t () => (float[2, 2] p) { p = Mul (x, x) },
                else_branch = e () => (float[2, 2] q) { q = Exp (x) }>
}"""


def test_control_flow_stays(read):
    """The files are written in one branch, and right in the other."""
    f = read(parsed(BRANCHES, "float32"), {"b": np.array(True)})
    X, x = ca.MX.sym("x", 2, 2), np.array([[0.1, 0.2], [0.3, 0.4]])
    for b, slopes in ((1, 2 * x), (0, np.exp(x))):
        g = ca.Function("g", [X], [ca.gradient(ca.sum1(ca.sum2(f(X, b))), X)])
        assert_allclose(g(x).full(), slopes, rtol=1e-6)
