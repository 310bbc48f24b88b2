"""`inverse`: an operator that solves systems, and raises where it cannot."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.sparse import csr_array
from scipy.sparse.linalg import gmres

import onnxjac as oj
from estimators.examples import Hidden, rotated
from house import ROOT
from onnxjac import InputError
from onnxjac.jacobians import Dense, Identity, Jacobian
from onnxjac.jacobians.errors import NotConverged
from onnxjac.modes.solvers.inverse import definiteness, identity_like, inverse
from onnxjac.modes.solvers.preconditioners import column_scaling, ilu, jacobi
from solvers.models import grid, reaction
from test_models import stored

RNG = np.random.default_rng(0)
SPD = rotated(np.logspace(0, 2, 30))
NEAR_ONE = rotated(np.linspace(0.3, 1.7, 30))
INDEFINITE = rotated(np.r_[np.linspace(-3, -1, 15), np.linspace(1, 3, 15)])
SKEW = SPD + RNG.random((30, 30))
CASES = {"cg": SPD, "minres": INDEFINITE, "neumann": NEAR_ONE, "lsmr": SKEW, "gmres": SKEW,
         "bicgstab": SKEW}  # fmt: skip
NEAR = {"rtol": 1e-6, "atol": 1e-7}


@pytest.mark.parametrize("solver", CASES)
def test_products_with_an_inverse_solve_the_system(solver):
    matrix = CASES[solver]
    inv, expected = inverse(Dense(matrix), solver=solver), np.linalg.inv(matrix)
    b, B = RNG.standard_normal(30), RNG.standard_normal((30, 3))
    assert isinstance(inv, Jacobian)
    assert_allclose(inv @ b, expected @ b, **NEAR)
    assert_allclose(inv @ B, expected @ B, **NEAR)
    assert_allclose(inv.T @ b, expected.T @ b, **NEAR)
    assert_allclose((2 * inv + Dense(matrix)) @ b, 2 * expected @ b + matrix @ b, **NEAR)
    assert_allclose(inv.toarray(), expected, **NEAR)
    assert not (inv @ np.zeros(30)).any()
    assert solver in repr(inv)


@pytest.mark.parametrize("shape", [(40, 20), (20, 40)])
def test_lsmr_gives_the_pseudo_inverse(shape):
    matrix = RNG.standard_normal(shape)
    inv = inverse(Dense(matrix), solver="lsmr")
    assert inv.shape == shape[::-1]
    assert_allclose(inv.toarray(), np.linalg.pinv(matrix), **NEAR)
    assert_allclose(inv.T.toarray(), np.linalg.pinv(matrix).T, **NEAR)


def model_jacobian(transform):
    """A rate that mixes neighbours: its J is square, and no closed form knows J⁻¹."""
    J = oj.linearize(reaction(4), grid(4), wrt="u")
    return transform(J), transform(J.toarray())


@pytest.mark.parametrize(
    ("solver", "transform"),
    [("gmres", lambda J: J), ("cg", lambda J: J.T @ J), ("cg", lambda J: 2.0 * (J.T @ J)),
     ("minres", lambda J: -(J.T @ J)), ("gmres", lambda J: J.T @ J @ J), ("lsmr", lambda J: J[:9])],
)  # fmt: skip
def test_the_solver_is_chosen_by_what_is_known(solver, transform):
    A, matrix = model_jacobian(transform)
    inv, b = inverse(A, maxiter=4000), RNG.standard_normal(len(matrix))
    assert inv.solver == inv.T.solver == solver
    assert_allclose(inv @ b, np.linalg.pinv(matrix) @ b, rtol=1e-5, atol=1e-5)
    with pytest.raises(NotConverged, match=f"{solver}, chosen because A is .*, did not solve"):
        inverse(A, maxiter=1) @ b


def test_a_sum_is_definite_where_its_terms_are():
    J = oj.linearize(reaction(4), grid(4), wrt="u")
    eye, G = identity_like(J), J.T @ J
    assert [definiteness(A).name for A in (G + 0.1 * eye, G - 0.1 * eye, G + J)] == [
        "DEFINITE", "SYMMETRIC", "NOTHING",
    ]  # fmt: skip


def test_many_unknowns_are_solved_without_a_basis(monkeypatch):
    monkeypatch.setattr("onnxjac.modes.solvers.inverse.GMRES_UNKNOWNS", 10)
    A, matrix = model_jacobian(lambda J: J)
    inv = inverse(A)
    assert inv.solver == "bicgstab"
    assert_allclose(inv @ np.ones(16), np.linalg.solve(matrix, np.ones(16)), rtol=1e-6)


@pytest.mark.parametrize("solver", ["cg", "minres", "neumann", "lsmr", "bicgstab"])
def test_preconditioned_products_solve_sooner(solver):
    """Rows and columns of very different scales, which a diagonal corrects."""
    scales = np.logspace(0, 1.5, 30)
    matrix = scales[:, None] * NEAR_ONE * scales if solver != "lsmr" else NEAR_ONE * scales
    M = column_scaling(Dense(matrix)) if solver == "lsmr" else jacobi(Dense(matrix))
    b, expected, counts = RNG.standard_normal(30), np.linalg.inv(matrix), []
    for preconditioner in (None, M):
        A = Hidden(matrix)
        inv = inverse(A, solver=solver, preconditioner=preconditioner, rtol=1e-8, maxiter=3000)
        try:
            assert_allclose(inv @ b, expected @ b, rtol=1e-5, atol=1e-5)
        except NotConverged:
            assert (solver, preconditioner) == ("neumann", None)
            continue
        counts.append(A.count)
        assert_allclose(inv.T @ b, expected.T @ b, rtol=1e-5, atol=1e-5)
    assert solver == "neumann" or counts[0] > 1.5 * counts[1]


def test_a_pseudo_inverse_is_right_with_column_scaling():
    """A right preconditioner, which does not affect the transpose."""
    matrix = RNG.standard_normal((40, 20)) * np.logspace(0, 2, 20)
    inv = inverse(Dense(matrix), solver="lsmr", preconditioner=column_scaling(Dense(matrix)))
    assert_allclose(inv.toarray(), np.linalg.pinv(matrix), **NEAR)
    assert_allclose(inv.T @ np.ones(20), np.linalg.pinv(matrix).T @ np.ones(20), **NEAR)


def damped(dtype):
    model = oj.load(ROOT / "tests" / "models" / "mlp.onnx", dtype=dtype)
    J = oj.linearize(model, {"x": stored("mlp")["x"]}, of="logits", wrt=["6.weight", "6.bias"])
    return J.T @ J + 0.1 * identity_like(J.T @ J)


def test_a_damped_gauss_newton_matrix():
    A = damped("float64")
    b = RNG.standard_normal(A.shape[0])
    x = inverse(A, preconditioner=jacobi(A)) @ b
    assert_allclose(x, np.linalg.solve(A.toarray(), b), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("solver", [None, "minres", "gmres", "bicgstab"])
def test_single_precision_is_solved_by_default(solver):
    """A residual of 1e-10 is out of reach."""
    A = damped(None)
    b = RNG.standard_normal(A.shape[0])
    assert np.linalg.norm(A @ (inverse(A, solver=solver) @ b) - b) < 2e-4 * np.linalg.norm(b)
    with pytest.raises(NotConverged, match="compute in float64 instead of float32, or raise"):
        A.solve(b, rtol=1e-10)


@pytest.mark.parametrize(
    ("solver", "matrix"),
    [("cg", np.triu(np.ones((30, 30))) - 0.6), ("minres", np.diag(np.r_[0.0, np.ones(29)])),
     ("neumann", 3 * SPD), ("cg", np.zeros((30, 30)))],
)  # fmt: skip
def test_inverse_names_the_residual_that_remains(solver, matrix):
    with pytest.raises(NotConverged, match=f"{solver} did not solve.*residual.*damping"):
        inverse(Dense(matrix), solver=solver) @ np.arange(1.0, 31)


@pytest.mark.parametrize("solver", CASES)
def test_too_few_iterations_say_so(solver):
    with pytest.raises(NotConverged, match="in 2 iterations"):
        inverse(Dense(CASES[solver]), solver=solver, maxiter=2) @ np.arange(1.0, 31)


@pytest.mark.parametrize("solver", CASES)
def test_any_number_of_iterations(solver):
    """None at all give no solution but 0, of 0; infinitely many end at the solution."""
    A = Dense(CASES[solver])
    b = A @ np.ones(30)
    assert_allclose(inverse(A, solver=solver, maxiter=np.inf) @ b, np.ones(30), **NEAR)
    with pytest.raises(NotConverged, match="in 0 iterations: the relative residual is 1"):
        inverse(A, solver=solver, maxiter=0) @ b
    assert_allclose(inverse(A, solver=solver, maxiter=0) @ (0 * b), 0)


def test_zero_is_the_least_squares_solution_where_no_column_meets_b():
    A = Dense(np.array([[1.0, 2.0], [0.0, 1.0], [0.0, 0.0]]))
    assert_allclose(inverse(A, solver="lsmr", maxiter=0) @ np.array([0.0, 0, 3]), 0)


def test_inverse_rejects_wrong_solvers():
    A = Dense(SPD)
    with pytest.raises(InputError, match="'cg'"):
        inverse(A, solver="gc")
    with pytest.raises(InputError, match="must be a string"):
        inverse(A, solver=gmres)
    with pytest.raises(InputError, match="lsmr"):
        inverse(Dense(SPD[:4]), solver="cg")
    with pytest.raises(InputError, match="preconditioner"):
        inverse(A, preconditioner=Identity((3,), float))
    with pytest.raises(InputError, match="square"):
        identity_like(Dense(SPD[:4]))


def test_inverse_takes_arrays_and_preconditioners():
    """An array, a sparse array, and a function that makes a preconditioner, as the solvers take."""
    b, expected = RNG.standard_normal(30), np.linalg.inv(SKEW)
    for A in (SKEW, csr_array(SKEW)):
        assert_allclose(inverse(A) @ b, expected @ b, **NEAR)
        inv = inverse(A, preconditioner=ilu)
        assert_allclose(inv @ b, expected @ b, **NEAR)
        assert_allclose(inv.T @ b, expected.T @ b, **NEAR)
    with pytest.raises(InputError, match="a Model is no operator"):
        inverse(oj.load(ROOT / "tests" / "models" / "mlp.onnx"))


@pytest.mark.parametrize("size", [1e-300, 1e-170, 1e160, 1e300])
@pytest.mark.parametrize("solver", ["cg", "minres", "gmres", "bicgstab", "lsmr", "neumann"])
def test_a_right_hand_side_of_any_size_is_solved(solver, size):
    A = np.array([[1.0, 0.2, 0.1], [0.2, 0.9, 0.3], [0.1, 0.3, 1.1]])
    inverse, b = oj.inverse(A, solver=solver), np.array([1.0, -2.0, 3.0])
    assert_allclose((inverse @ (size * b)) / size, np.linalg.solve(A, b), rtol=1e-6)
    assert_allclose(inverse @ (0 * b), 0)
