"""Derivatives of roots agree with closed forms, differences, SciPy and unrolled PyTorch."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize

import onnxjac as oj
from implicit.equations import (
    batch,
    central,
    equilibrium,
    optimality,
    parsed,
    square,
    squared_error,
    weights,
)
from onnxjac.jacobians import Diagonal
from onnxjac.modes.implicit.linear_solves import LinearSolves

METHODS = ["newton_krylov", "levenberg_marquardt", "anderson"]


def test_derivatives_of_a_square_root_are_its_closed_forms():
    """x = √p, dx/dp = 1 / 2√p, d²x/dp² = −1 / 4p√p."""
    p = np.array([1.0, 4.0, 9.0])
    R = oj.root(square(), {"x": np.ones(3), "p": p}, x="x")
    assert_allclose(R.tensors["x"], np.sqrt(p), rtol=1e-12)
    assert_allclose(R.J.toarray(), np.diag(0.5 / np.sqrt(p)), rtol=1e-10)
    w = np.array([1.0, 2.0, -1.0])
    C = R.curvature({"x": w})
    assert_allclose(C.toarray(), np.diag(-0.25 * w * p**-1.5), rtol=1e-9)


def equilibrium_in_torch(point, y):
    """z by 400 turns of the unrolled iteration, the loss, and its gradient in W, U, b and x."""
    torch = pytest.importorskip("torch")
    leaves = [torch.tensor(a, requires_grad=True) for a in (*weights(6, 4), point["x"])]
    W, U, b, x = leaves
    z = torch.zeros(len(y), 6, dtype=torch.float64)
    for _ in range(400):
        z = torch.tanh(z @ W + x @ U + b)
    loss = ((z - torch.tensor(y)) ** 3).sum() / 3
    slopes = torch.autograd.grad(loss, leaves, create_graph=True)
    return leaves, z, loss, slopes


@pytest.mark.parametrize("solver", ["dense", "sparse", "krylov"])
@pytest.mark.parametrize("method", METHODS)
def test_an_equilibrium_against_unrolled_torch(method, solver):
    point, y, names = batch(), np.ones((3, 6)), ["W", "U", "b", "x"]
    _, z, loss, slopes = equilibrium_in_torch(point, y)
    R = oj.root(equilibrium(), point, x="z", wrt=names, fixed_point=True, method=method,
                linear_solver=solver, rtol=1e-13 if method == "levenberg_marquardt" else None,
                atol=None if method == "levenberg_marquardt" else 1e-13)  # fmt: skip
    assert_allclose(R.tensors["z"], z.detach(), atol=1e-11)
    J = oj.linearize(squared_error(), {"h": R, "y": y})
    assert_allclose(J.primal["l"], loss.item(), rtol=1e-11)
    for name, slope in zip(names, slopes, strict=True):
        assert_allclose(J.T.apply({"l": 1.0})[name], slope.detach(), atol=1e-9)


def test_the_hessian_through_an_equilibrium_against_unrolled_torch():
    torch = pytest.importorskip("torch")
    point, y = batch(), np.ones((3, 6))
    leaves, _, _, slopes = equilibrium_in_torch(point, y)
    rng = np.random.default_rng(2)
    v = {name: rng.standard_normal(leaf.shape)
         for name, leaf in zip(["W", "U", "b"], leaves, strict=False)}  # fmt: skip
    along = sum((g * torch.tensor(t)).sum() for g, t in zip(slopes, v.values(), strict=False))
    expected = torch.autograd.grad(along, leaves[:3])
    R = oj.root(equilibrium(), point, x="z", wrt=list(v), fixed_point=True, atol=1e-13)
    H = oj.hessian(squared_error(), {"h": R, "y": y})
    for product, right in zip(H.apply(v).values(), expected, strict=True):
        assert_allclose(product, right, atol=1e-9)


def test_the_optimum_of_a_quadratic_program_against_scipy():
    rng = np.random.default_rng(0)
    Q, c, a = np.diag([2.0, 1.0, 3.0]), rng.standard_normal(3), np.array([1.0, 1.0, 2.0])
    point = {"x": np.zeros(3), "l": 0.0, "Q": Q, "c": c, "a": a}
    R = oj.root(optimality(), point, x=["x", "l"], wrt="c")

    def best(c):
        problem = {"type": "eq", "fun": lambda x: a @ x - 1, "jac": lambda x: a}
        found = minimize(lambda x: (0.5 * x @ Q @ x - c @ x, Q @ x - c), np.zeros(3), jac=True,
                         method="SLSQP", constraints=problem, options={"ftol": 1e-15})  # fmt: skip
        return found.x

    assert_allclose(R.tensors["x"], best(c), atol=1e-8)
    for v in np.eye(3):
        assert_allclose(R.J.apply({"c": v})["x"], central(best, c, v, 1e-3), atol=1e-6)
    assert R.J["l", "c"].shape == (1, 3)


def test_an_implicit_step_against_differences_of_the_solver():
    rate = parsed("""
        rate (double[4] u, double[4] k) => (double[4] v)
        { uu = Mul(u, u)\n ku = Mul(k, uu)\n v = Neg(ku) }""")
    start = {"u": np.linspace(1, 2, 4), "k": np.linspace(0.5, 1, 4)}
    euler = oj.euler_residual(rate, start, wrt="u")
    point = {**start, "u_before": start["u"], "step": 0.1}
    R = oj.root(euler, point, x="u", wrt=["k", "u_before", "step"], atol=1e-14)
    rng = np.random.default_rng(0)
    v = {"k": rng.standard_normal(4), "u_before": rng.standard_normal(4), "step": np.array(0.3)}

    def along(t, _=None):
        return R.at({name: point[name] + t * v[name] for name in v}).tensors["u"]

    assert_allclose(R.J.apply(v)["u"], central(along, 0.0, 1.0, 1e-5), rtol=1e-8)
    u = rng.standard_normal(4)
    pulled = R.J.T.apply({"u": u})
    inner = sum(np.vdot(pulled[name], v[name]) for name in v)
    assert_allclose(inner, u @ R.J.apply(v)["u"], rtol=1e-12)


def test_a_root_whose_parameter_is_a_root():
    """x = √y, y = eᵃ: x = exp(a / 2), and ½ x and ¼ x are its derivatives."""
    exponential = parsed(
        "e (double[1] y, double[1] a) => (double[1] G) { g = Exp(a)\n G = Sub(g, y) }"
    )
    inner = oj.root(exponential, {"y": [1.0], "a": [0.8]}, x="y")
    outer = oj.root(square(), {"x": [1.0], "p": inner}, x="x")
    x = np.exp(0.4)
    assert [s.name for s in outer.J.domain] == ["a"]
    assert_allclose(outer.J.toarray(), [[x / 2]], rtol=1e-9)
    assert_allclose(outer.curvature({"x": [1.0]}).toarray(), [[x / 4]], rtol=1e-9)


def test_a_tensor_on_which_both_depend_counts_twice():
    """f = p x = p √p, in p and q, with f q."""
    model = parsed("""
        f (double[1] x, double[1] p, double[1] q) => (double[1] f)
        { px = Mul(p, x)\n f = Mul(px, q) }""")
    R = oj.root(square(), {"x": [1.0], "p": [4.0]}, x="x")
    J = oj.linearize(model, {"x": R, "p": [4.0], "q": [3.0]}, wrt=["q", "p"])
    assert_allclose(J.toarray(), [[8.0, 9.0]], rtol=1e-10)
    H = oj.hessian(model, {"x": R, "p": [4.0], "q": [3.0]}, wrt=["q", "p"])
    assert_allclose(H.toarray(), [[0, 3.0], [3.0, 9 / 8]], rtol=1e-9, atol=1e-12)
    assert_allclose(oj.grad(model, {"x": R, "p": [4.0], "q": [3.0]})["p"], [9.0], rtol=1e-10)
    moved = J.relinearize({"x": R.at({"p": [9.0]}), "p": [9.0], "q": [3.0]})
    assert_allclose(moved.toarray(), [[27.0, 13.5]], rtol=1e-9)


def test_forward_and_reverse_mode_behind_a_root():
    """f = Σ x³ with x = √p: df/dp = 3/2 √p."""
    loss = parsed("""
        loss (double[n] x) => (double f)
        { s = Mul (x, x)\n c = Mul (s, x)\n f = ReduceSum <keepdims = 0> (c) }""")
    R = oj.root(square(), {"x": [1.0, 1.0], "p": [4.0, 9.0]}, x="x")
    value, slope = oj.jvp(loss, {"x": R}, {"p": [1.0, 2.0]})
    assert_allclose((value["f"], slope["f"]), (35.0, 12.0))
    _, pullback = oj.vjp(loss, {"x": R})
    assert_allclose(pullback({"f": 2.0})["p"], [6.0, 9.0])
    H = oj.hessian(loss, {"x": R}, blocks="diagonal")
    assert_allclose(H.toarray(), np.diag([3 / 8, 1 / 4]), rtol=1e-9)
    with pytest.raises(oj.InputError, match="elsewhere give its values"):
        loss.run({"x": R})
    with pytest.raises(oj.InputError, match=r"behind a root take oj\.hessian"):
        oj.hvp(loss, {"x": R}, {"p": [1.0, 1.0]})


def test_factors_are_kept_while_the_matrix_stays():
    linear = parsed("e (double[3] x, double[3] p) => (double[3] F) { F = Sub(x, p) }")
    R = oj.root(linear, {"x": np.zeros(3), "p": np.ones(3)}, x="x")
    for p in np.eye(3):
        assert_allclose(R.at({"p": p}).J @ np.ones(3), np.ones(3))
    assert R.equations.solves.factored == 1


def test_a_preconditioner_is_kept_while_it_serves():
    made = []

    def by_diagonal(A):
        made.append(A)
        return np.diag(1 / A.diagonal())

    solves = LinearSolves("krylov", by_diagonal, "A")
    for p in (np.ones(300), np.full(300, 2.0), np.geomspace(1, 1e14, 300)):
        inverse = solves(Diagonal(p))
        for A in (inverse, inverse.T):
            assert_allclose(A @ np.ones(300), 1 / p, rtol=1e-8)
    assert len(made) == 3  # the second one serves twice, and J and Jᵀ of the last need one each


def test_a_singular_equation_is_an_error_that_names_tensors():
    R = oj.root(square(), {"x": [0.0, 1.0], "p": [0.0, 1.0]}, x="x")
    with pytest.raises(oj.InputError, match=r"∂\(F\)/∂\(x\) is singular.*nothing defines dx/dp"):
        R.J  # noqa: B018


def test_sizes_that_differ_and_searches_that_fail_are_errors():
    uneven = parsed("e (double[2] x, double[2] p) => (double[4] F) { F = Concat<axis = 0>(x, p) }")
    with pytest.raises(oj.InputError, match="4 equations for 2 unknowns"):
        oj.root(uneven, {"x": np.ones(2), "p": np.ones(2)}, x="x")
    for method in METHODS:
        with pytest.raises(oj.NotConverged, match="finds no root of F in x"):
            oj.root(square(), {"x": [0.5], "p": [-1.0]}, x="x", method=method)
    with pytest.raises(oj.InputError, match="wrt='x' is among x"):
        oj.root(square(), {"x": [1.0], "p": [1.0]}, x="x", wrt="x")
    R = oj.root(square(), {"x": [1.0], "p": [4.0]}, x="x")
    with pytest.raises(oj.InputError, match="wrt='h' is a root"):
        oj.linearize(squared_error(), {"h": R, "y": [1.0]}, wrt="h")
