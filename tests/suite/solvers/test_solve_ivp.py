"""Stiff equations and DAEs: published solutions, closed forms and SciPy's Radau."""

import pickle
from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import solve_ivp
from scipy.linalg import expm
from scipy.sparse import diags_array
from scipy.sparse.linalg import aslinearoperator

import onnxjac as oj
from onnxjac.modes.solvers import rosenbrock as rodas
from onnxjac.modes.solvers.implicit_system import ImplicitSystem, started
from onnxjac.modes.solvers.problem import Problem
from solvers.models import parsed
from solvers.stiff import (
    AMPLIFIER,
    AMPLIFIER_AT_02,
    AMPLIFIER_START,
    FORCED,
    INDEX_ONE,
    ROBERTSON,
    ROBERTSON_AT_1E11,
    VAN_DER_POL,
    VAN_DER_POL_AT_2000,
    brusselator,
    brusselator_start,
    capacitors,
)

both = pytest.mark.parametrize("method", ["BDF", "Rosenbrock"])

FORCED_START = {"u": [1.0, 0.5], "time": 0.0}
HALF = parsed("decay (double[2] u) => (double[2] f) <double[2] k = {-1.0, -1000.0}>"
              "{ f = Mul (k, u) }")  # fmt: skip


def forced(t):
    return np.array([np.cos(t), 1 / (2 + np.sin(t))])


def index_one(*, start=1.0, **options):
    """u = z = 1 / (1 + t), the guess of z at the start as given."""
    return oj.solve_ivp(INDEX_ONE, {"u": [1.0], "z": [start]}, (0, 4), mass=[1, 0], **options)


@both
def test_van_der_pol_reaches_the_published_solution(method):
    found = oj.solve_ivp(VAN_DER_POL, {"u": [2.0, 0.0]}, (0, 2000), rtol=1e-6, method=method)
    assert_allclose(found.y[:, -1], VAN_DER_POL_AT_2000, rtol=1e-3)


@both
@pytest.mark.parametrize("form", ["rate", "dae"])
def test_robertson_reaches_the_published_solution_in_either_form(method, form):
    """The same as an ODE and with u₁ + u₂ + u₃ = 1 in place of an equation."""
    found = oj.solve_ivp(
        ROBERTSON, {"u": [1.0, 0.0, 0.0]}, (0, 1e11), of=form, method=method, rtol=1e-5,
        atol=[1e-13, 1e-18, 1e-13], mass=[1, 1, 0] if form == "dae" else None,
    )  # fmt: skip
    assert_allclose(found.y[:, -1], ROBERTSON_AT_1E11, rtol=2e-4)
    assert_allclose(found.y.sum(axis=0), 1, atol=1e-9)


def amplified(end, **options):
    """No row of M vanishes; M u̇ = f(t, u) has three algebraic equations in sums of rows."""
    return oj.solve_ivp(AMPLIFIER, {"u": AMPLIFIER_START, "t": 0.0}, (0, end), t="t",
                        mass=capacitors(), **options)  # fmt: skip


def test_a_mass_that_is_singular_as_a_whole():
    found = amplified(0.2, rtol=1e-3, atol=1e-3)
    assert_allclose(found.y[:, -1], AMPLIFIER_AT_02, atol=0.01)
    found, other = (amplified(0.01, rtol=1e-4, atol=1e-5, method=method)
                    for method in ("BDF", "Rosenbrock"))  # fmt: skip
    assert_allclose(found.y[:, -1], other.y[:, -1], atol=3e-3)


@pytest.fixture(scope="module")
def radau():
    """The brusselator at t = 2 by SciPy, with its Jacobian by SciPy's differences."""
    p = oj.as_scipy(brusselator(40), brusselator_start(40), form="sparse")
    sparsity = p.ode_jac(0.0, p.x0) != 0
    found = solve_ivp(p.ode, (0, 2), p.x0, "Radau", jac_sparsity=sparsity, rtol=1e-7, atol=1e-9)
    return found.y[:, -1]


@both
@pytest.mark.parametrize(
    "options",
    [{}, {"linear_solver": "dense"}, {"preconditioner": oj.preconditioners.ilu},
     {"linear_solver": "krylov", "mass": aslinearoperator(diags_array(np.ones(80)))}],
    ids=["sparse", "dense", "ilu", "krylov"],
)  # fmt: skip
def test_a_reaction_with_diffusion(method, options, radau):
    model, start = brusselator(40), brusselator_start(40)
    found = oj.solve_ivp(model, start, (0, 2), method=method, rtol=1e-5, **options)
    assert_allclose(found.y[:, -1], radau, atol=1e-4)
    assert (found.products > 0) == (options not in ({}, {"linear_solver": "dense"}))


@both
def test_algebraic_equations_without_a_matrix(method):
    """GMRES weighs the rows of algebraic equations, which are h times as small, as the others."""
    found = index_one(start=0.5, method=method, linear_solver="krylov", rtol=1e-6, atol=1e-8)
    assert_allclose(found.y, np.tile(1 / (1 + found.t), (2, 1)), rtol=1e-4)
    assert found.products > 0


def test_steps_of_the_greatest_length_share_one_factorisation():
    found = oj.solve_ivp(FORCED, FORCED_START, (0, 4), t="time", max_step=0.01, rtol=1e-2)
    assert len(found.t) > 400
    assert np.diff(found.t).max() < 0.01 * (1 + 1e-9)
    assert found.nlu < 20


def test_the_order_falls_where_less_is_better():
    """Robertson's reaction takes 320 right-hand sides; 490 where the order only rises."""
    found = oj.solve_ivp(ROBERTSON, {"u": [1.0, 0.0, 0.0]}, (0, 1e7), of="rate", rtol=1e-4,
                         atol=[1e-7, 1e-11, 1e-7])  # fmt: skip
    assert found.nfev < 400


def test_the_order_rises_in_steps_of_the_greatest_length():
    """Order 1 would add up errors to h / 2 = 5e-4, each one within the tolerance of a step."""
    found = oj.solve_ivp(HALF, {"u": [1.0, 0.0]}, (0, 1), max_step=1e-3, rtol=1e-6, atol=1e-9)
    assert_allclose(found.y[0], np.exp(-found.t), rtol=2e-6)


@pytest.mark.parametrize("begin", [1e10, 0.0])
def test_a_span_of_few_numbers_is_solved(begin):
    """A first step of a hundredth of the span would not change t = 1e10."""
    found = oj.solve_ivp(HALF, {"u": [1.0, 0.0]}, (begin, begin + 1e-4), first_step=1e-9)
    assert found.success
    assert_allclose(found.y[0, -1], np.exp(begin - found.t[-1]), rtol=1e-6)


def test_a_preconditioner_is_kept_while_it_serves():
    model, start, built = brusselator(100), brusselator_start(100), []

    def ilu(A):
        built.append(A)
        return oj.preconditioners.ilu(A)

    plain = oj.solve_ivp(model, start, (0, 2), rtol=1e-5, linear_solver="krylov")
    found = oj.solve_ivp(model, start, (0, 2), rtol=1e-5, preconditioner=ilu)
    assert found.products < 0.7 * plain.products
    assert len(built) < found.nlu / 2


@both
def test_an_error_follows_the_tolerance(method):
    for model in (FORCED, INDEX_ONE):
        errors = []
        for rtol in (1e-4, 1e-6, 1e-8):
            options = {"method": method, "rtol": rtol, "atol": rtol}
            if model is FORCED:
                found = oj.solve_ivp(FORCED, FORCED_START, (0, 4), t="time", **options)
            else:
                found = index_one(**options)
            exact = forced(found.t) if model is FORCED else np.tile(1 / (1 + found.t), (2, 1))
            errors.append(abs(found.y - exact).max())
            assert errors[-1] < 100 * rtol
        assert errors[2] < 2e-3 * errors[0]


@cache
def trees(n):
    """The rooted trees of n vertices, each the tuple of its branches."""
    return list(forests(n - 1, n - 1))


def forests(n, largest):
    """All sets of trees of n vertices, of `largest` or fewer vertices each; some several times."""
    if n == 0:
        yield ()
    for size in range(min(n, largest), 0, -1):
        yield from ((tree, *rest) for tree in trees(size) for rest in forests(n - size, size))


def test_rodas5p_satisfies_the_conditions_of_order_5():
    """Σ bᵢ Φᵢ(τ) = 1 / γ(τ) for all trees τ: Hairer and Wanner, IV.7. So do u and its error, and
    the dense output: Σ bᵢ(θ) Φᵢ(τ) = θ^|τ| / γ(τ).
    """
    a, c = np.zeros((9, 8)), np.zeros((8, 8))
    for i in range(8):
        a[i, : min(i, 5)] = rodas.STAGES_A[min(i, 5)]
        a[i, 5:i] = 1
        c[i, :i] = rodas.STAGES_C[i]
    a[8] = a[7] + np.eye(8)[7]  # u itself
    gamma = np.linalg.inv(np.eye(8) / rodas.GAMMA_STAGE - c)
    a = a @ gamma  # from Uᵢ to the kᵢ of the book
    alpha, b = a[:8], a[8]
    assert_allclose(alpha.sum(axis=1), rodas.TIMES, atol=1e-12)
    assert_allclose(gamma.sum(axis=1), rodas.DRIFTS, atol=1e-12)

    def conditions(tree):
        """Φ(τ), |τ| and γ(τ)."""
        parts = [conditions(branch) for branch in tree]
        by, size = alpha + gamma if len(tree) == 1 else alpha, 1 + sum(part[1] for part in parts)
        phi = np.prod([by @ part[0] for part in parts], axis=0)
        return phi * np.ones(8), size, size * np.prod([part[2] for part in parts])

    theta = np.array([0.3, 0.5, 0.8])
    inner = np.vander(theta, 3, increasing=True) @ rodas.DENSE_OUTPUT @ gamma
    inside = theta[:, None] * (b + (1 - theta[:, None]) * inner)
    for size in range(1, 6):
        for phi, n, density in map(conditions, trees(size)):
            assert_allclose(b @ phi, 1 / density, atol=1e-12)
            if size < 5:
                assert_allclose(gamma[7] @ phi, 0, atol=1e-12)
                assert_allclose(inside @ phi, theta**n / density, atol=1e-12)
            else:  # which the weights of U₈ keep so small: it is of order 5 itself
                assert_allclose(density * inside @ phi, theta**n, atol=0.054)


@pytest.mark.parametrize("model", ["forced", "index_one"])
def test_rosenbrock_is_of_order_5_and_its_dense_output_of_order_4(model):
    """In equal steps, for equations with the time and for DAEs."""
    errors = []
    for steps in (40, 80):
        fixed = {"method": "Rosenbrock", "rtol": 1e3, "dense_output": True,
                 "first_step": 4 / steps, "max_step": 4 / steps}  # fmt: skip
        if model == "forced":
            slow = parsed("""slow (double[1] u, double t) => (double[1] f) { s = Sin (t)
                             uu = Mul (u, u) us = Mul (uu, s) f = Neg (us) }""")
            found = oj.solve_ivp(slow, {"u": [0.5], "t": 0.0}, (0, 4), t="t", **fixed)
            exact = lambda t: 1 / (3 - np.cos(t))  # noqa: E731
        else:
            found, exact = index_one(**fixed), lambda t: 1 / (1 + t)
        assert len(found.t) == steps + 1
        times = np.linspace(0, 4, 777)
        errors.append([abs(found.y - exact(found.t)).max(),
                       abs(found.sol(times) - exact(times)).max()])  # fmt: skip
    orders = np.log2(np.divide(*errors))
    assert orders[0] > 4.7
    assert orders[1] > 3.9


@pytest.mark.parametrize(("order", "growth"), [(1, 10**1.5), (2, 10.0), (5, 10**0.5)])
def test_steps_of_bdf_grow_in_number_by_the_order(order, growth):
    """Steps of order k grow in number by 10^(3 / (k + 1)) for an error that is 1000 times less."""
    steps = [len(oj.solve_ivp(FORCED, FORCED_START, (0, 4), t="time", rtol=rtol, atol=rtol,
                              max_order=order).t) for rtol in (1e-3, 1e-6)]  # fmt: skip
    assert 0.5 * growth < steps[1] / steps[0] < 2 * growth


@both
@pytest.mark.parametrize("end", [4.0, -0.9])
def test_dense_output_follows_the_solution_between_steps(method, end):
    """Between steps as at steps, forward and backward in time, also in another process."""
    found = oj.solve_ivp(
        INDEX_ONE, {"u": [1.0], "z": [1.0]}, (0, end), mass=[1, 0], rtol=1e-6, atol=1e-6,
        method=method, dense_output=True, t_eval=np.linspace(0, end, 7),
    )  # fmt: skip
    times = np.linspace(0, end, 501)
    assert_allclose(found.sol(times), np.tile(1 / (1 + times), (2, 1)), rtol=1e-3)
    assert_allclose(found.sol(0.3 * end), 1 / (1 + 0.3 * end), rtol=1e-4)
    assert_array_equal(pickle.loads(pickle.dumps(found)).sol(times), found.sol(times))
    assert_array_equal(found.t, np.linspace(0, end, 7))
    assert_allclose(found.y, found.sol(found.t), atol=1e-12)
    assert_allclose(found.tensors["z"][:, 0], found.y[1])


@both
def test_events_are_found_where_their_functions_cross_zero(method):
    """cos t = 0 falling at π / 2 and rising at 3π / 2; the second zero of u₂ − 0.4 ends it."""

    def crossing(t, u):
        return u[0]

    def falling(t, u):
        return u[0]

    def second(t, u):
        return u[1] - 0.4

    falling.direction, second.terminal = -1, 2
    found = oj.solve_ivp(FORCED, FORCED_START, (0, 20), t="time", method=method, rtol=1e-8,
                         atol=1e-8, events=[crossing, falling, second])  # fmt: skip
    ends = np.arcsin(0.5), np.pi - np.arcsin(0.5)
    assert_allclose(found.t_events[0], [np.pi / 2], atol=1e-6)
    assert_allclose(found.t_events[1], [np.pi / 2], atol=1e-6)
    assert_allclose(found.t_events[2], ends, atol=1e-5)
    assert_allclose(found.y_events[2][:, 1], 0.4, atol=1e-10)
    assert (found.status, found.t[-1]) == (1, found.t_events[2][-1])
    second.terminal = np.True_
    first = oj.solve_ivp(FORCED, FORCED_START, (0, 20), t="time", method=method, events=second)
    assert first.t[-1] == pytest.approx(ends[0], abs=1e-2)


@pytest.mark.filterwarnings("ignore:.*zero blocks")
def test_derivatives_at_a_consistent_start():
    """u̇ = z, 0 = z − t² − u at t = 1, u = 1, from a wrong z: z = 2, u̇ = 2, ż = 4 and ü = 4."""
    model = parsed("""dae (double[1] u, double[1] z, double[1] t) => (double[1] du, double[1] g)
        { du = Identity (z) tt = Mul (t, t) v = Sub (z, tt) g = Sub (v, u) }""")
    problem = Problem(model, {"u": [1.0], "z": [7.0], "t": [1.0]}, None, None, t="t")
    system = ImplicitSystem(problem, [1, 0], "dense", None)
    y, slope, second = started(system, 1.0, np.array([1.0, 7.0]), lambda y: 1e-6 + 1e-6 * abs(y))
    assert_allclose(y, [1, 2], atol=1e-7)
    assert_allclose(slope, [2, 4], atol=1e-5)
    assert_allclose(second[0], 4, atol=1e-3)


@both
def test_a_guess_of_algebraic_states_is_corrected(method):
    found = index_one(start=0.2, rtol=1e-6, atol=1e-8, method=method)
    assert_allclose(found.y[:, 0], 1, atol=1e-9)
    assert_allclose(found.y[:, -1], 0.2, rtol=1e-4)
    assert_array_equal(index_one(start=1.0, method=method).y[:, 0], 1)


def test_algebraic_equations_that_come_to_hold_no_more():
    """Exponentials of a transistor: a step that Newton's method leaves too early is no dead end."""
    assert all(amplified(0.02, rtol=rtol, atol=rtol).success for rtol in (3e-2, 3e-4))


@pytest.mark.filterwarnings("ignore:'f' does not depend differentiably on 't'")
@both
def test_a_jump_of_the_rate_is_passed(method):
    """u̇ = 1 before t = 1, and −1 after it."""
    model = parsed("""jump (double[1] u, double t) => (double[1] f)
        <double one = {1.0}, double[1] two = {2.0}, double[1] none = {0.0}, double[1] up = {1.0}>
        { late = Less (one, t) less = Where (late, two, none) g = Sub (up, less)
          zero = Sub (u, u) f = Add (g, zero) }""")
    found = oj.solve_ivp(model, {"u": [0.0], "t": 0.0}, (0, 3), t="t", method=method, rtol=1e-6)
    assert_allclose(found.y[0, -1], -1, atol=1e-4)


@both
def test_a_solution_that_ends_says_where(method):
    """u̇ = u², u = 1 / (1 − t)."""
    model = parsed("blow_up (double[1] u) => (double[1] f) { f = Mul (u, u) }")
    found = oj.solve_ivp(model, {"u": [1.0]}, (0, 2), method=method)
    assert not found.success
    assert found.status == -1
    assert found.t[-1] == pytest.approx(1, abs=0.02)
    assert "the step became too small at t=" in found.message
    assert "The solution may be singular" in found.message


@pytest.mark.filterwarnings("error")
@both
def test_a_solution_stops_where_its_domain_ends(method):
    """u̇ = −√u, u = (1 − t / 2)²: trials with u < 0 fail, without warnings."""
    model = parsed("root (double[1] u) => (double[1] f) { s = Sqrt (u) f = Neg (s) }")
    found = oj.solve_ivp(model, {"u": [1.0]}, (0, 3), method=method, rtol=1e-6)
    assert found.t[-1] == pytest.approx(2, abs=0.01)
    assert "not finite" in found.message
    assert np.isfinite(found.y).all()


def test_at_time_0_a_step_cannot_become_shorter_for_ever():
    """Where ∂f/∂u is infinite no h helps, and all above 5e-324 change t = 0."""
    model = parsed("root (double[1] u) => (double[1] f) { s = Sqrt (u) f = Neg (s) }")
    found = oj.solve_ivp(model, {"u": [0.0]}, (0, 1))
    assert "at t=0: M − c J is singular, or not finite" in found.message
    assert found.njev < 60


@pytest.mark.filterwarnings("error")
@both
def test_the_pendulum_of_index_one_swings_as_scipys_without_its_force(method):
    """Of index 1, 0 = |v|² − λ |x|² − g y, from a wrong λ, by SciPy's Radau without λ."""
    model = parsed("""pendulum (double[2] x, double[2] v, double[1] force)
        => (double[2] dx, double[2] dv, double[1] length)
        <double[2] g = {0, 9.81}, int64[1] a = {0}>
        { dx = Identity (v) pull = Mul (force, x) push = Neg (pull) dv = Sub (push, g)
          w = ReduceSumSquare (v, a) r = ReduceSumSquare (x, a) fr = Mul (force, r)
          gx = Mul (g, x) gy = ReduceSum (gx, a) rest = Sub (w, fr) length = Sub (rest, gy) }""")

    def rates(t, u):
        x, v = u[:2], u[2:]
        return [*v, *(-(v @ v - 9.81 * x[1]) / (x @ x) * x - [0, 9.81])]

    exact = solve_ivp(rates, (0, 2), [1, 0, 0, 0], "Radau", rtol=1e-8, atol=1e-8).y[:, -1]
    found = oj.solve_ivp(model, {"x": [1.0, 0.0], "v": [0.0, 0.0], "force": [77.0]}, (0, 2),
                         mass=[1, 1, 1, 1, 0], method=method, rtol=1e-6, atol=1e-8)  # fmt: skip
    assert_allclose(found.y[:4, -1], exact, atol=1e-4)


def test_a_path_that_is_cut_is_said():
    model = parsed("round (double[1] u) => (double[1] f) { r = Round (u) f = Neg (r) }")
    with pytest.warns(oj.OnnxJacWarning, match="cut by Round"):
        oj.solve_ivp(model, {"u": [2.0]}, (0, 0.1))


@both
def test_a_solution_has_the_same_bits_each_time(method):
    first, second = (index_one(method=method, rtol=1e-7) for _ in range(2))
    assert_array_equal(first.y, second.y)


@both
def test_states_in_single_precision(method):
    model = parsed("decay (float[2] u) => (float[2] f) <float[2] k = {-1.0, -1000.0}>"
                   "{ f = Mul (k, u) }", "float32")  # fmt: skip
    found = oj.solve_ivp(model, {"u": np.ones(2, np.float32)}, (0, 2), method=method, rtol=1e-4)
    assert found.y.dtype == np.float64
    assert_allclose(found.y[:, -1], [np.exp(-2), 0], atol=1e-4)
    with pytest.raises(oj.InputError, match=r"rtol=1e-08 is below .* load\(dtype='float64'\)"):
        oj.solve_ivp(model, {"u": np.ones(2, np.float32)}, (0, 2), rtol=1e-8)


def nan(t, u):
    return np.nan


def rising(t, u):
    return u[0]


rising.direction = "up"

WRONG = {
    "mass has shape": {"mass": np.eye(3)},
    "real and finite": {"mass": [np.nan, 1.0]},
    "no operator": {"mass": "identity"},
    "no array of numbers": {"mass": [[1.0, 0.0], [1.0]]},
    "t_span=": {"t_span": (0, np.inf)},
    "t_eval holds no times": {"t_eval": [0.5, 0.2]},
    "atol must be": {"atol": 0.0},
    "each of the 2 states": {"atol": [1e-6] * 3},
    r"mass has shape \(3,\)": {"mass": np.ones(3)},
    "not real": {"mass": np.array([1j, 1])},
    "max_step=1e-17 is below 2e-15": {"max_step": 1e-17},
    "the value np.True_": {"events": lambda t, u: u[0] > 0.5},
    "is no event": {"events": ["f"]},
    "`direction` a number": {"events": rising},
    "an event has the value": {"events": nan},
    "a preconditioner is for": {
        "preconditioner": oj.preconditioners.ilu, "linear_solver": "sparse"},
    "max_order=6": {"max_order": 6},
    "method='Radau'": {"method": "Radau"},
    "the state is nan": {"inputs": {"u": [np.nan, 1.0]}},
    "no input 'v'": {"inputs": {"v": [0.0, 1.0]}},
}  # fmt: skip


@pytest.mark.parametrize("message", WRONG)
def test_solve_ivp_rejects_wrong_arguments(message):
    given = {"inputs": {"u": [1.0, 1.0]}, "t_span": (0, 1), **WRONG[message]}
    with pytest.raises(oj.InputError, match=message):
        oj.solve_ivp(HALF, given.pop("inputs"), given.pop("t_span"), **given)


def test_a_rate_that_is_not_finite_or_does_not_fit():
    log = parsed("log (double[1] u) => (double[1] f) { f = Log (u) }")
    with pytest.raises(oj.InputError, match="the rate is -inf at the start, t=0, in entry 0"):
        oj.solve_ivp(log, {"u": [0.0]}, (0, 1))
    with pytest.raises(oj.InputError, match="'time' is the time, and also among the states"):
        oj.solve_ivp(FORCED, FORCED_START, (0, 1), t="time", wrt=["u", "time"])
    with pytest.raises(oj.InputError, match="1 rates for 2 states"):
        oj.solve_ivp(INDEX_ONE, {"u": [1.0], "z": [1.0]}, (0, 1), of="du")
    two = parsed("two (double[3] u, double[2] v) => (double[2] dv, double[3] du) "
                 "{ dv = Neg (v) uu = Mul (u, u) du = Neg (uu) }")  # fmt: skip
    with pytest.raises(oj.InputError, match=r"the rates have shapes {'dv': \(2,\), 'du'.* order"):
        oj.solve_ivp(two, {"u": np.ones(3), "v": np.ones(2)}, (0, 1))
    found = oj.solve_ivp(two, {"u": np.ones(3), "v": np.ones(2)}, (0, 1), of=["du", "dv"])
    assert_allclose(found.tensors["u"][-1], 0.5, rtol=1e-2)


def test_no_states_and_no_times_give_empty_solutions():
    model = parsed("decay (double[n] u) => (double[n] f) { f = Neg (u) }")
    assert oj.solve_ivp(model, {"u": np.zeros(0)}, (0, 1)).tensors["u"].shape[1:] == (0,)
    assert oj.solve_ivp(model, {"u": np.ones(3)}, (0, 1), t_eval=[]).tensors["u"].shape == (0, 3)
    assert oj.solve_ivp(model, {"u": np.ones(3)}, (1, 1)).success


@pytest.mark.parametrize("solver", ["dense", "sparse", "krylov"])
def test_a_full_mass_is_solved_as_by_the_matrix_exponential(solver):
    """M u̇ = A u against the matrix exponential."""
    M, A = np.array([[2.0, 1.0], [1.0, 2.0]]), np.diag([-1.0, -1000.0])
    found = oj.solve_ivp(HALF, {"u": [1.0, 1.0]}, (0, 1), mass=M, linear_solver=solver, rtol=1e-7,
                         atol=1e-9)  # fmt: skip
    assert_allclose(found.y[:, -1], expm(np.linalg.solve(M, A)) @ np.ones(2), rtol=1e-5, atol=1e-8)


@both
def test_an_overflow_is_a_step_that_fails(method):
    """u̇ = eᵘ, u = −log(1/e − t)."""
    model = parsed("e (double[1] u) => (double[1] f) { f = Exp (u) }")
    found = oj.solve_ivp(model, {"u": [1.0]}, (0, 1), method=method)
    assert found.t[-1] == pytest.approx(np.exp(-1), abs=0.01)
    assert not found.success


def test_equations_that_determine_no_algebraic_state():
    """0 = u₁ + u₂² + 1 has no solution; 0 = u₁ − 1 leaves u₂ open, of index 2."""
    for text in ("c = Mul (b, b) d = Add (a, c) g = Add (d, one)", "g = Sub (a, one)"):
        model = parsed(f"""dae (double[2] u) => (double[2] f)
            <int64[2] parts = {{1, 1}}, double one = {{1.0}}>
            {{ a, b = Split <axis = 0> (u, parts) {text} f = Concat <axis = 0> (b, g) }}""")
        with pytest.raises(oj.InputError, match=r"no consistent start: .*index 1"):
            oj.solve_ivp(model, {"u": [2.0, 1.0]}, (0, 1), mass=[1, 0])
