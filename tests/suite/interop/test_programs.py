"""Nonlinear programs by the solvers of other libraries, beside the same programs by hand."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize

import onnxjac as oj
from solvers.models import parsed
from solvers.programs import SOLUTION, by_hand, hock_schittkowski

pytestmark = pytest.mark.peers

QUIET = {"print_level": 0, "sb": "yes", "tol": 1e-9}


@pytest.fixture
def program():
    return hock_schittkowski()


class ByHand:
    """Problem 71 as cyipopt's manual has it."""

    def objective(self, x):
        return x[0] * x[3] * x[:3].sum() + x[2]

    def gradient(self, x):
        return by_hand(x, np.zeros(2), 1)[0]

    def constraints(self, x):
        return np.array([x.prod(), x @ x])

    def jacobian(self, x):
        return by_hand(x, np.zeros(2), 1)[1].ravel()

    def hessianstructure(self):
        return np.nonzero(np.tril(np.ones((4, 4))))

    def hessian(self, x, v, factor):
        return by_hand(x, v, factor)[2][self.hessianstructure()]


@pytest.mark.parametrize("library", ["cyipopt", "pounce"])
def test_ipopt_solves_the_program_as_by_hand(program, library):
    module = pytest.importorskip(library)
    ours = program.to_cyipopt()
    counts = []
    for made in (ours, {**ours, "problem_obj": ByHand()}):
        solver = module.Problem(**made)
        for name, value in QUIET.items():
            solver.add_option(name, value)
        x, info = solver.solve(program.x0)
        assert info["status"] == 0, info["status_msg"]
        assert_allclose(x, SOLUTION, atol=1e-6)
        counts.append(info["obj_val"])
    assert_allclose(*counts, rtol=1e-9)


def test_as_many_iterations_as_by_hand(program):
    cyipopt = pytest.importorskip("cyipopt")
    counts = []

    class Counted:
        def __init__(self, inner):
            self.inner, self.turns = inner, 0

        def __getattr__(self, name):
            return getattr(self.inner, name)

        def intermediate(self, mode, turn, *_):
            self.turns = turn

    for inner in (program.to_cyipopt()["problem_obj"], ByHand()):
        made = Counted(inner)
        solver = cyipopt.Problem(**{**program.to_cyipopt(), "problem_obj": made})
        for name, value in QUIET.items():
            solver.add_option(name, value)
        solver.solve(program.x0)
        counts.append(made.turns)
    assert 0 < counts[0] <= counts[1]


def test_pynumero_solves_the_program(program):
    solvers = pytest.importorskip("pyomo.contrib.pynumero.algorithms.solvers.cyipopt_solver")
    pytest.importorskip("cyipopt")
    x, info = solvers.CyIpoptSolver(program.to_pynumero(), {"print_level": 0}).solve()
    assert info["status"] == 0
    assert_allclose(x, SOLUTION, atol=1e-6)


def test_nlopt_solves_the_program_as_by_hand(program):
    nlopt = pytest.importorskip("nlopt")
    hand = nlopt.opt("LD_SLSQP", 4)

    def into(slopes, made):
        if slopes.size:
            slopes[:] = made

    def f(x, slopes):
        into(slopes, ByHand().gradient(x))
        return ByHand().objective(x)

    def product(found, x, slopes):
        into(slopes, -by_hand(x, np.zeros(2), 1)[1][:1])
        found[:] = 25 - x.prod()

    def norm(found, x, slopes):
        into(slopes, 2 * x[None])
        found[:] = x @ x - 40

    hand.set_min_objective(f)
    hand.set_lower_bounds(1)
    hand.set_upper_bounds(5)
    hand.add_equality_mconstraint(norm, [1e-8])
    hand.add_inequality_mconstraint(product, [1e-8])
    counts = []
    for opt in (program.to_nlopt(), hand):
        opt.set_xtol_rel(1e-6)  # below that, rounding decides how often a line is searched
        assert_allclose(opt.optimize(program.x0), SOLUTION, atol=1e-6)
        counts.append(opt.get_numevals())
    assert counts[0] <= counts[1]


def test_an_algorithm_that_nlopt_lacks(program):
    pytest.importorskip("nlopt")
    with pytest.raises(oj.InputError, match="NLopt has no algorithm 'SLSQP'"):
        program.to_nlopt("SLSQP")


def test_nlpsol_solves_the_program_as_by_hand(program):
    ca = pytest.importorskip("casadi")
    x = ca.MX.sym("x", 4)
    hand = {
        "x": x, "f": x[0] * x[3] * (x[0] + x[1] + x[2]) + x[2],
        "g": ca.vertcat(x[0] * x[1] * x[2] * x[3], ca.sumsqr(x)),
    }  # fmt: skip
    nlp, start = program.to_casadi()
    counts = []
    for made in (nlp, hand):
        options = {"ipopt": {"print_level": 0, "tol": 1e-9}, "print_time": False}
        solver = ca.nlpsol("solver", "ipopt", made, options)
        found = solver(**start)
        assert solver.stats()["success"]
        assert_allclose(found["x"].full().ravel(), SOLUTION, atol=1e-6)
        counts.append(solver.stats()["iter_count"])
    assert counts[0] <= counts[1]


def test_nlpsol_solves_a_program_without_constraints():
    ca = pytest.importorskip("casadi")
    p = oj.problem(parsed(BOWL), {"x": [1.0, 2.0]}, bounds={"x": ([-1, 0.5], None)})
    nlp, start = p.to_casadi()
    found = ca.nlpsol("s", "ipopt", nlp, {"print_time": False, "ipopt.print_level": 0})(**start)
    assert_allclose(found["x"].full().ravel(), [0, 0.5], atol=1e-6)


BOWL = """
bowl (double[2] x) => (double f) <int64[1] all = {0}> {
    f = ReduceSumSquare <keepdims = 0> (x, all)
}"""

NETWORK = """
network (double[2, 3] x, double[3] b) => (double[2, 3] y, double z)
<double[3, 3] W = {1, 2, 0, 0, 1, 0.5, 0.3, 0, -1}, int64[2] all = {0, 1}>
{
    h = MatMul (x, W)
    s = Add (h, b)
    y = Tanh (s)
    z = ReduceSumSquare <keepdims = 0> (y, all)
}"""


def by_casadi(ca):
    W = np.array([[1, 2, 0], [0, 1, 0.5], [0.3, 0, -1]])
    x, b = ca.MX.sym("x", 2, 3), ca.MX.sym("b", 3)
    y = ca.tanh(x @ W + ca.repmat(b.T, 2, 1))
    return ca.Function("network", [x, b], [y, ca.sumsqr(y)])


def test_a_model_as_a_function_has_the_derivatives_of_expressions():
    ca = pytest.importorskip("casadi")
    ours, theirs = parsed(NETWORK).to_casadi(), by_casadi(ca)
    assert [ours.name_in(), ours.name_out()] == [["x", "b"], ["y", "z"]]
    rng = np.random.default_rng(0)
    x, b, u = rng.standard_normal((2, 3)), rng.standard_normal(3), rng.standard_normal((2, 3))
    X, B = ca.MX.sym("x", 2, 3), ca.MX.sym("b", 3)

    def numbers(f):
        """Values, Jacobian, reverse and forward mode of two directions, and a Hessian."""
        y, z = f(X, B)
        w = ca.vertcat(ca.vec(X), B)
        whole = ca.Function("w", [X, B], [
            y, z, ca.jacobian(y, X), ca.jacobian(y, B), ca.gradient(z, X),
            ca.jacobian(ca.gradient(ca.dot(y, u) + z * z, B), B),
            ca.hessian(ca.dot(y, u) * z, X)[0], ca.jtimes(y, X, ca.repmat(ca.DM(u), 1, 2)),
            ca.jtimes(ca.vec(y), X, ca.repmat(ca.vec(ca.DM(u)), 1, 2), True), ca.jacobian(z, B),
        ])  # fmt: skip
        assert w.shape == (9, 1)
        return whole(x, b)

    for a, e in zip(numbers(ours), numbers(theirs), strict=True):
        assert_allclose(np.array(a), np.array(e), rtol=1e-9, atol=1e-12)
    sparse, known = (f.jacobian().sparsity_out(0).nnz() for f in (ours, theirs))
    assert sparse == 12 < known  # W has two zeros besides the blocks of two samples


def test_opti_solves_with_a_network_as_with_its_expressions():
    ca = pytest.importorskip("casadi")
    found = []
    for f in (parsed(NETWORK).to_casadi(), by_casadi(ca)):
        opti = ca.Opti()
        x = opti.variable(2, 3)
        y, z = f(x, ca.DM([0.1, -0.2, 0.3]))
        opti.minimize(ca.sumsqr(y - 0.5) + 0.01 * ca.sumsqr(x))
        opti.subject_to(z <= 1)
        opti.solver("ipopt", {"print_time": False}, {"print_level": 0})
        solved = opti.solve()
        found.append((solved.value(x), solved.stats()["iter_count"]))
    assert_allclose(found[0][0], found[1][0], atol=1e-6)
    assert found[0][1] <= found[1][1]


def test_names_such_as_those_of_derivatives():
    """CasADi reads a number between `adj` and `_`."""
    ca = pytest.importorskip("casadi")
    f = parsed("g (double[2] adjust__x) => (double[2] x_adjust_x) { x_adjust_x = Exp (adjust__x) }")
    f, x = f.to_casadi(), ca.MX.sym("x", 2)
    assert f.name_in() + f.name_out() == ["x_adjust_x", "x_adjust_x_1"]
    H = ca.Function("H", [x], [ca.hessian(ca.sum1(f(x)), x)[0]])
    assert_allclose(H([0, 1]).full(), np.diag(np.exp([0, 1])))


def test_a_free_size_needs_an_example():
    pytest.importorskip("casadi")
    model = parsed(NETWORK.replace("double[2, 3] x", "double[n, 3] x"))
    with pytest.raises(oj.InputError, match="give an example in inputs="):
        model.to_casadi()
    f = model.to_casadi(wrt=["x", "b"], inputs={"x": np.zeros((4, 3))})
    assert f.size_in(0) == (4, 3)


def test_scipy_solves_the_same_program(program):
    found = minimize(**program.to_scipy(), method="trust-constr", tol=1e-10)
    assert_allclose(found.x, SOLUTION, atol=1e-4)
