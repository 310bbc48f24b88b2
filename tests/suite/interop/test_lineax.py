"""Operators as operators of lineax: products, tags, and solutions inside `jit`."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj
from curvature.models import parsed
from interop.operators import KINDS, hessian, linearization
from onnxjac.jacobians import Dense, Diagonal, Scalar

jax = pytest.importorskip("jax")
lineax = pytest.importorskip("lineax")
from interop.jaxprs import equations  # noqa: E402

pytestmark = pytest.mark.peers


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("kind", ["linearization", "transpose", "hessian", "kfac", "streamed"])
def test_products_by_lineax_are_ours_both_ways(kind):
    J = KINDS[kind]()
    A, u = J.to_lineax(), np.arange(float(J.shape[0]))
    assert (A.out_size(), A.in_size()) == J.shape
    assert_allclose(A.as_matrix(), J.toarray(), rtol=1e-9, atol=1e-12)
    assert_allclose(A.T.mv(jax.numpy.asarray(u)), J.T @ u, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("J", "found"),
    [
        (Dense(np.ones((2, 3))), set()),
        (Diagonal(np.ones(3)), {"symmetric", "diagonal", "positive_semidefinite"}),
        (Diagonal(-np.ones(3)), {"symmetric", "diagonal"}),
        (Scalar(2.0, (3,), np.dtype(float)), {"symmetric", "diagonal", "positive_semidefinite"}),
        (hessian(), {"symmetric"}),
        (KINDS["kfac"](), {"symmetric"}),
    ],
)
def test_tags_follow_the_structure(J, found):
    A = J.to_lineax()
    for name in ("symmetric", "diagonal", "positive_semidefinite"):
        assert getattr(lineax, f"is_{name}")(A) == (name in found)
    if "symmetric" in found:
        assert lineax.is_positive_semidefinite(J.to_lineax(lineax.positive_semidefinite_tag))


def test_least_squares_move_with_J():
    """The solver is compiled once, and takes J at the next point."""
    J = oj.linearize(linearization().route.model, linearization().point, of="logits", wrt="fc1",
                     engine="jax")  # fmt: skip
    b, traced = np.arange(float(J.shape[0])), []

    @jax.jit
    def solve(J, b):
        traced.append(J)
        A = (J @ J.T + 0.5 * oj.identity_like(J @ J.T)).to_lineax(
            lineax.positive_semidefinite_tag, lineax.symmetric_tag
        )
        return lineax.linear_solve(A, b, lineax.CG(1e-12, 1e-12)).value

    for K in (J, J.relinearize({**J.point, "x": 1.5 * J.point["x"]})):
        A = K.toarray() @ K.toarray().T + 0.5 * np.eye(len(b))
        assert_allclose(solve(K, b), np.linalg.solve(A, b), rtol=1e-6, atol=1e-8)
    assert len(traced) == 1


def largest_array(function, *args):
    """The entries of the largest array that a function of JAX makes on its way."""
    made = (y.aval for e in equations(jax.make_jaxpr(function)(*args).jaxpr) for y in e.outvars)
    return max(int(np.prod(getattr(y, "shape", ()))) for y in made)


@pytest.mark.parametrize(("solver", "is_dense"), [("GMRES", False), ("LU", True)])
def test_newton_steps_of_optimistix_need_no_matrix(solver, is_dense):
    """With an iterative solver they take products with J alone."""
    optimistix, n = pytest.importorskip("optimistix"), 500
    model = parsed(f"g (double[{n}] u) => (double[{n}] f) {{ s = Sin(u) f = Add(u, s) }}")
    linear = lineax.GMRES(1e-10, 1e-12) if solver == "GMRES" else lineax.LU()
    newton, f = optimistix.Newton(1e-10, 1e-10, linear_solver=linear), oj.to_jax(model)

    def root(u):
        return optimistix.root_find(lambda u, _: f(u) - 1, newton, u).value

    u = np.linspace(0, 1, n)
    assert (largest_array(root, u) >= n * n) == is_dense
    if not is_dense:
        assert_allclose(f(root(u)), np.ones(n), rtol=1e-8)
