"""Right-hand sides for SUNDIALS, by scikit-sundae: beside Jacobians by hand, the same steps."""

import numpy as np
import onnx.parser
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import solve_ivp
from scipy.sparse import bmat, csc_array, diags_array, eye_array
from scipy.sparse.linalg import splu

import onnxjac as oj

cvode = pytest.importorskip("sksundae.cvode")
pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore:Custom sparse Jacobian")]

N = 40

BRUSSELATOR = oj.load(onnx.parser.parse_model(f"""
<ir_version: 10, opset_import: ["": 21]>
brusselator (double[1, 1, {N}] u, double[1, 1, {N}] v, double t)
    => (double[1, 1, {N}] du, double[1, 1, {N}] dv)
<double[1, 1, 3] stencil = {{30.0, -60.0, 30.0}}, double a = {{1.0}}, double b = {{3.0}}>
{{
    uu = Mul (u, u)
    uuv = Mul (uu, v)
    bu = Mul (b, u)
    spread = Conv <pads = [1, 1]> (u, stencil)
    wave = Sin (t)
    source = Add (a, wave)
    decay = Sub (uuv, u)
    change = Sub (decay, bu)
    du = Sum (source, change, spread)
    flux = Conv <pads = [1, 1]> (v, stencil)
    gain = Sub (bu, uuv)
    dv = Add (gain, flux)
}}"""))
"""A reaction with diffusion along a line, driven by sin t."""

X = np.linspace(0.0, 1.0, N).reshape(1, 1, N)
START = {"u": 1 + np.sin(2 * np.pi * X), "v": np.full((1, 1, N), 3.0), "t": 0.0}

STENCIL = 30.0 * diags_array([1.0, -2.0, 1.0], offsets=(-1, 0, 1), shape=(N, N))


def rate(t, y, f):
    """The same by hand."""
    u, v = y[:N], y[N:]
    f[:N] = 1 + np.sin(t) + u**2 * v - 4 * u + STENCIL @ u
    f[N:] = 3 * u - u**2 * v + STENCIL @ v


def jacobian(y):
    """Its Jacobian, by hand."""
    u, v = y[:N], y[N:]
    uv, uu = diags_array(2 * u * v), diags_array(u**2)
    I = eye_array(N)  # noqa: E741
    return csc_array(bmat([[STENCIL + uv - 4 * I, uu], [3 * I - uv, STENCIL - uu]]))


def times(t, y, f, v, Jv):
    Jv[:] = jacobian(y) @ v


def by_hand(form, y0):
    """The options of CVODE for the reaction, without onnxjac."""
    if form == "operator":
        return {"linsolver": "gmres", "jactimes": cvode.CVODEJacTimes(None, times)}
    if form == "dense":
        def fill(t, y, f, J):
            J[:] = jacobian(y).toarray()
        return {"linsolver": "dense", "jacfn": fill}  # fmt: skip
    pattern = jacobian(y0)
    pattern.sort_indices()

    def entries(t, y, f, data):
        J = jacobian(y)
        J.sort_indices()
        data[:] = J.data

    return {"linsolver": "sparse", "sparsity": pattern, "jacfn": entries}


def solved(options, y0, *, end=1.0, rtol=1e-7, atol=1e-9):
    found = cvode.CVODE(**options, rtol=rtol, atol=atol, max_num_steps=5000).solve([0.0, end], y0)
    assert found.success
    return found


@pytest.mark.parametrize("form", ["sparse", "dense", "operator"])
def test_a_reaction_takes_the_same_steps_as_by_hand(form):
    p = oj.as_scipy(BRUSSELATOR, START, t="t", form=form)
    expected = solved({"rhsfn": rate, **by_hand(form, p.x0)}, p.x0)
    found = solved(oj.to_sundials(p), p.x0)
    assert found.nfev > 100
    if form != "operator":  # GMRES turns on the last digits of its products
        assert (len(found.t), found.nfev, found.njev) == (
            len(expected.t), expected.nfev, expected.njev)  # fmt: skip
    assert abs(len(found.t) - len(expected.t)) < 0.03 * len(expected.t)
    assert_allclose(found.y[-1], expected.y[-1], rtol=1e-6)


def test_differences_of_its_own_agree():
    """Without a Jacobian of ours, at the same tolerances."""
    p = oj.as_scipy(BRUSSELATOR, START, t="t", form="sparse")
    options, calls = oj.to_sundials(p), [[], []]
    found = solved({**options, "rhsfn": counting(options["rhsfn"], calls[0])}, p.x0)
    expected = solved({"rhsfn": counting(options["rhsfn"], calls[1])}, p.x0)
    assert_allclose(found.y[-1], expected.y[-1], rtol=1e-5)
    assert len(calls[0]) < len(calls[1]) / 2


def counting(function, calls):
    """A function of three arguments that notes its calls."""

    def call(t, u, f):
        calls.append(t)
        function(t, u, f)

    return call


@pytest.mark.parametrize("preconditioner", [oj.preconditioners.ilu, lambda A: Exact(A)])
def test_a_preconditioner_saves_products(preconditioner):
    p, counts = oj.as_scipy(BRUSSELATOR, START, t="t"), []
    plain, options = oj.to_sundials(p), oj.to_sundials(p, preconditioner=preconditioner)
    for chosen in (plain, options):
        calls, product = [], chosen["jactimes"].solvefn

        def counted(t, u, f, v, Jv):
            calls.append(t)  # noqa: B023
            product(t, u, f, v, Jv)  # noqa: B023

        found = solved({**chosen, "jactimes": cvode.CVODEJacTimes(None, counted)}, p.x0, end=2)
        counts.append(len(calls))
    assert counts[1] < 0.7 * counts[0]
    assert_allclose(found.y[-1], solved(plain, p.x0, end=2).y[-1], rtol=1e-4)


class Exact:
    """A⁻¹ by sparse LU."""

    def __init__(self, A):
        self.lu = splu(A.tosparse().tocsc())

    def __matmul__(self, b):
        return self.lu.solve(b)


def test_entries_are_in_the_order_of_the_sparsity():
    p = oj.as_scipy(BRUSSELATOR, START, t="t", form="sparse")
    options = oj.to_sundials(p)
    pattern = options["sparsity"]
    assert pattern.indices.dtype == pattern.indptr.dtype == np.int32
    y, entries = p.x0 + 0.1, np.zeros(pattern.nnz)
    options["jacfn"](0.5, y, None, entries)
    J = csc_array((entries, pattern.indices, pattern.indptr), pattern.shape)
    assert_allclose(J.toarray(), jacobian(y).toarray(), atol=1e-12)


def test_to_sundials_rejects_wrong_arguments():
    p = oj.as_scipy(BRUSSELATOR, START, t="t", form="dense")
    with pytest.raises(oj.InputError, match="a preconditioner is for form='operator'"):
        oj.to_sundials(p, preconditioner=oj.preconditioners.ilu)
    with pytest.raises(oj.InputError, match=r"takes as_scipy\(model, inputs, ...\), not a Model"):
        oj.to_sundials(BRUSSELATOR)


ROBERTSON = oj.load(onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["": 21]>
robertson (double[3] y, double[3] dy) => (double[3] r)
<int64[1] a = {0}, int64[1] b = {1}, int64[1] c = {2}, int64[1] e = {3},
 double slow = {0.04}, double fast = {30000000.0}, double middle = {10000.0}, double one = {1.0}>
{
    y1 = Slice (y, a, b)  y2 = Slice (y, b, c)  y3 = Slice (y, c, e)
    dy1 = Slice (dy, a, b)  dy2 = Slice (dy, b, c)
    s = Mul (slow, y1)  y23 = Mul (y2, y3)  m = Mul (middle, y23)
    y22 = Mul (y2, y2)  f = Mul (fast, y22)
    u = Add (dy1, s)  r1 = Sub (u, m)
    v = Sub (dy2, s)  w = Add (v, m)  r2 = Add (w, f)
    both = Add (y1, y2)  all = Add (both, y3)  r3 = Sub (all, one)
    r = Concat <axis = 0> (r1, r2, r3)
}"""))
"""Robertson's reaction, whose third equation is algebraic, with r = 0."""


def robertson_jacobian(y, c):
    return np.array([[0.04 + c, -1e4 * y[2], -1e4 * y[1]],
                     [-0.04, c + 1e4 * y[2] + 6e7 * y[1], 1e4 * y[1]], [1, 1, 1]])  # fmt: skip


@pytest.mark.parametrize("form", ["sparse", "dense", "operator"])
def test_a_dae_takes_the_same_steps_as_by_hand(form):
    ida = pytest.importorskip("sksundae.ida")
    start = {"y": np.array([1.0, 0.0, 0.0]), "dy": np.array([-0.04, 0.04, 0.0])}
    p = oj.as_scipy(ROBERTSON, start, form=form)
    exact = {"preconditioner": lambda A: Exact(A)} if form == "operator" else {}
    options = oj.to_sundials(p, rates="dy", **exact)
    assert options["algebraic_idx"] == [2]

    def residual(t, y, dy, r):
        slow, middle = 0.04 * y[0], 1e4 * y[1] * y[2]
        r[:] = (dy[0] + slow - middle, dy[1] - slow + middle + 3e7 * y[1] ** 2, y.sum() - 1)

    def jacfn(t, y, dy, r, c, A):
        A[:] = robertson_jacobian(y, c)

    def rate(t, y):
        slow, lost = 0.04 * y[0] - 1e4 * y[1] * y[2], 3e7 * y[1] ** 2
        return [-slow, slow - lost, lost]

    expected = solve_ivp(rate, (0, 4e4), start["y"], method="Radau", rtol=1e-9, atol=1e-13)
    counts = []
    for chosen in (options, {"resfn": residual, "algebraic_idx": [2], "jacfn": jacfn}):
        solver = ida.IDA(**chosen, rtol=1e-6, atol=1e-10, max_num_steps=5000)
        found = solver.solve([0.0, 4e4], start["y"], start["dy"])
        assert found.success
        assert_allclose(found.y[-1], expected.y[:, -1], rtol=1e-3)
        counts.append(len(found.t))
    assert counts[0] <= counts[1] if form == "operator" else counts[0] == counts[1]


def test_the_entries_of_a_dae_are_those_by_hand():
    p = oj.as_scipy(ROBERTSON, {"y": np.ones(3), "dy": np.ones(3)}, form="sparse")
    options, y = oj.to_sundials(p, rates="dy"), np.array([0.5, 0.1, 0.4])
    P, entries = options["sparsity"], np.zeros(options["sparsity"].nnz)
    assert P.indices.dtype == np.int32
    options["jacfn"](0.0, y, np.ones(3), None, 2.5, entries)
    A = csc_array((entries, P.indices, P.indptr), P.shape)
    assert_allclose(A.toarray(), robertson_jacobian(y, 2.5), rtol=1e-12)


def test_rates_that_do_not_fit_are_refused():
    p = oj.as_scipy(ROBERTSON, {"y": np.ones(3), "dy": np.ones(3)})
    with pytest.raises(oj.InputError, match="rates='z' is not in wrt: y, dy"):
        oj.to_sundials(p, rates="z")
    with pytest.raises(oj.InputError, match="3 residuals for 0 states and 6 rates"):
        oj.to_sundials(p, rates=["y", "dy"])
