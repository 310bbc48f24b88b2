"""Nonlinear programs: exact derivatives, structures that no point and no multiplier moves."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from scipy.sparse import csr_array

import onnxjac as oj
from onnxjac.modes.sparse.fixed_pattern import FixedPattern, Placed
from solvers.models import parsed
from solvers.programs import HS71, SOLUTION, by_hand, hock_schittkowski

COUPLED = """
coupled (double[3] x, double[2] u) => (double[3] r)
<int64[1] i0 = {0}, int64[1] i2 = {2}, int64[1] i1 = {1}>
{
    head = Slice (x, i0, i2)
    product = Mul (head, u)
    first = Slice (u, i0, i1)
    square = Mul (first, first)
    r = Concat <axis = 0> (product, square)
}"""

CHEAP = """
cheap (double[2] u, double[2] p) => (double f) <int64[1] all = {0}>
{
    cube = Mul (u, u)
    far = Mul (cube, p)
    f = ReduceSum <keepdims = 0> (far, all)
}"""


@pytest.fixture
def program():
    return hock_schittkowski()


@pytest.fixture
def coupled():
    """Two models, with u in both, x in the constraints only and p fixed."""
    at = {"x": [1.0, 2.0, 3.0], "u": [0.5, 0.25], "p": [1.0, -1.0]}
    return oj.problem(parsed(CHEAP), at, constraints=parsed(COUPLED), wrt=["x", "u"],
                      bounds={"u": (0, None)}, constraint_bounds=(None, 1))  # fmt: skip


def points(n, count=5):
    return np.random.default_rng(0).uniform(1, 5, (count, n))


def test_derivatives_of_the_program_are_those_by_hand(program):
    for x in points(4):
        v, factor = np.array([0.5, -2.0]), 3.0
        slopes, J, H = by_hand(x, v, factor)
        assert_allclose(program.objective(x), x[0] * x[3] * x[:3].sum() + x[2])
        assert_allclose(program.constraints(x), [x.prod(), x @ x])
        assert_allclose(program.gradient(x), slopes)
        assert_allclose(program.jacobian(x).toarray(), J)
        assert_allclose(program.hessian(x, v, factor).toarray(), H)
        lower = csr_array((program.hess_values(x, v, factor), program.hess_structure), (4, 4))
        assert_allclose(lower.toarray(), np.tril(H))


@pytest.mark.parametrize("name", ["program", "coupled"])
def test_structures_stay_at_every_point_and_multiplier(name, request):
    p = request.getfixturevalue(name)
    rows, columns = p.hess_structure
    whole = {*zip(rows, columns, strict=True), *zip(columns, rows, strict=True)}
    for x in (p.x0, np.zeros(p.n), *points(p.n)):
        J = p.jacobian(x)
        assert_array_equal(J.indices, p.jac_structure[1])
        assert_array_equal(np.repeat(np.arange(p.m), np.diff(J.indptr)), p.jac_structure[0])
        for v, factor in ((np.zeros(p.m), 0.0), (np.ones(p.m), 1.0), (np.zeros(p.m), 1.0)):
            H = p.hessian(x, v, factor).tocoo()
            assert {*zip(*H.coords, strict=True)} == whole
            assert_array_equal(H.toarray(), H.toarray().T)
    for index in (*p.jac_structure, *p.hess_structure, p.jacobian(p.x0).indptr):
        assert index.dtype == np.int32
    assert (rows >= columns).all()


def test_several_models_form_one_program(coupled):
    p = coupled
    assert (p.n, p.m) == (5, 3)
    assert repr(p) == "min f(x 3, u 2) subject to r 3: 5 variables, 3 constraints"
    x = np.array([1.0, 2.0, 3.0, 0.5, 0.25])
    assert_array_equal(p.x0, x)
    assert_allclose(p.objective(x), 0.5**2 - 0.25**2)
    assert_allclose(p.gradient(x), [0, 0, 0, 1.0, -0.5])
    assert_allclose(p.constraints(x), [0.5, 0.5, 0.25])
    J = [[0.5, 0, 0, 1, 0], [0, 0.25, 0, 0, 2], [0, 0, 0, 1, 0]]
    assert_allclose(p.jacobian(x).toarray(), J)
    assert_array_equal(p.jac_structure, [[0, 0, 1, 1, 2], [0, 3, 1, 4, 3]])
    v = np.array([3.0, 5.0, 7.0])
    H = np.zeros((5, 5))
    H[3, 0] = H[0, 3] = 3
    H[4, 1] = H[1, 4] = 5
    H[3, 3], H[4, 4] = 2 * 11 + 14, -2 * 11
    assert_allclose(p.hessian(x, v, 11.0).toarray(), H)
    assert_array_equal(p.hess_structure, [[3, 3, 4, 4], [0, 3, 1, 4]])
    assert_array_equal(p.bounds[0], [-np.inf] * 3 + [0, 0])
    assert_array_equal(p.constraint_bounds, [[-np.inf] * 3, [1] * 3])
    assert_allclose(p.unflatten(x)["u"], [0.5, 0.25])
    assert_allclose(p.flatten(p.unflatten(x)), x)


def test_one_run_serves_values_of_one_model(program):
    values = program.parts[0].all.values
    before = values.count
    x = points(4)[0]
    program.objective(x), program.constraints(x)
    assert values.count == before + 1


@pytest.mark.parametrize(("method", "hess"), [("trust-constr", True), ("slsqp", False)])
def test_scipy_solves_the_program_with_and_without_the_hessian(program, method, hess):
    found = minimize(**program.to_scipy(hess=hess), method=method, tol=1e-10)
    assert_allclose(found.x, SOLUTION, atol=1e-4)


def test_a_program_without_constraints_is_minimised():
    p = oj.problem(parsed(CHEAP), {"u": [1.0, 1.0], "p": [1.0, 2.0]}, wrt="u")
    assert (p.n, p.m, len(p.constraints(p.x0)), p.jacobian(p.x0).shape) == (2, 0, 0, (0, 2))
    found = minimize(**p.to_scipy(), method="trust-constr")
    assert_allclose(found.x, 0, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"wrt": ["x", "y"]}, "wrt names 'y', which no model has"),
        ({"inputs": {"q": 1.0}}, "inputs have 'q', which no model has"),
        ({"bounds": {"p": (0, 1)}}, "bounds= has no tensor 'p'"),
        ({"bounds": 3}, "bounds= of 'x' is a pair"),
        ({"bounds": (2, 1)}, "some lower bound is above"),
        ({"bounds": {"u": ([0, 0, 0], None)}}, "bounds= of 'u' do not fit 2"),
        ({"constraint_bounds": {"f": (0, 1)}}, "constraint_bounds= has no tensor 'f'"),
    ],
)
def test_problem_rejects_wrong_arguments(change, message):
    at = {"x": [1.0, 2.0, 3.0], "u": [0.5, 0.25], "p": [1.0, -1.0]}
    options = {"wrt": ["x", "u"], **change, "inputs": {**at, **change.get("inputs", {})}}
    with pytest.raises(oj.InputError, match=message):
        oj.problem(parsed(CHEAP), constraints=parsed(COUPLED), **options)


def test_the_objective_is_one_number():
    at = {"x": [1.0, 2.0, 3.0], "u": [0.5, 0.25]}
    with pytest.raises(oj.InputError, match="'r' is 3, not one number"):
        oj.problem(parsed(COUPLED), at)
    with pytest.raises(oj.InputError, match=r"not cost, c: name it, objective=\(model, 'cost'\)"):
        oj.problem(parsed(HS71), {"x": np.ones(4)})


def test_vectors_that_do_not_fit_are_refused(coupled):
    with pytest.raises(oj.InputError, match=r"x has shape \[6\], not \(5,\)"):
        coupled.objective(np.zeros(6))
    with pytest.raises(oj.InputError, match="2 multipliers for 3 constraints"):
        coupled.hessian(coupled.x0, np.zeros(2))


def test_one_name_of_two_shapes_is_refused():
    other = parsed(CHEAP.replace("double[2]", "double[3]"))
    at = {"u": [1.0, 1.0], "p": [1.0, 2.0]}
    with pytest.raises(oj.InputError, match="shape"):
        oj.problem(parsed(CHEAP), at, constraints=other)


def test_an_entry_without_a_place():
    A, B = (csr_array(np.array(rows)) for rows in ([[1.0, 0.0]], [[0.0, 2.0]]))
    one = np.arange(1)
    structure = FixedPattern((1, 2), [Placed(A, one, np.arange(2))])
    with pytest.raises(oj.InputError, match=r"entry \(0, 1\) may be nonzero here"):
        structure.values([B])
