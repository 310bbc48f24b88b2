"""Right-hand sides at equal accuracy: `oj.solve_ivp` beside SUNDIALS, with equations by hand.

Run as a script, this prints the table of docs/how-to/ode.md.
"""

from functools import cache

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import onnxjac as oj
from solvers.stiff import ROBERTSON, VAN_DER_POL, brusselator, brusselator_start

cvode, ida = (pytest.importorskip(f"sksundae.{name}") for name in ("cvode", "ida"))
pytestmark = pytest.mark.peers

N = 60
D = 0.02 * (N + 1) ** 2


def van_der_pol(t, y):
    return np.array([y[1], 1000 * (1 - y[0] ** 2) * y[1] - y[0]])


def robertson(t, y):
    slow, back, fast = 0.04 * y[0], 1e4 * y[1] * y[2], 3e7 * y[1] ** 2
    return np.array([back - slow, slow - back - fast, fast])


def robertson_dae(t, y):
    return np.append(robertson(t, y)[:2], y.sum() - 1)


def reaction(t, y):
    u, v = np.pad(y[:N], 1, constant_values=1), np.pad(y[N:], 1, constant_values=3)
    gain = u[1:-1] ** 2 * v[1:-1]
    return np.concatenate([1 + gain - 4 * u[1:-1] + D * np.diff(u, 2),
                           3 * u[1:-1] - gain + D * np.diff(v, 2)])  # fmt: skip


START = {"u": [1.0, 0.0, 0.0]}
LOG = np.append(0, np.logspace(-1, 7, 20))
PROBLEMS = {
    "Van der Pol, μ = 1000": (van_der_pol, VAN_DER_POL, {"u": [2.0, 0.0]}, None,
                              np.linspace(0, 2000, 12), [1e-2, 1e-2]),
    "Robertson": (robertson, ROBERTSON, START, None, LOG, [1e-3, 1e-7, 1e-3]),
    "Brusselator, 120 states": (reaction, brusselator(N), brusselator_start(N), None,
                                np.linspace(0, 10, 12), [0.1] * 2 * N),
    "Robertson as a DAE": (robertson_dae, ROBERTSON, START, [1, 1, 0], LOG, [1e-3, 1e-7, 1e-3]),
}  # fmt: skip
"""A name -> the equation by hand and as a model, the start, M, the times, the smallest states."""


def by_sundials(name, rtol):
    """u at the times, and the number of right-hand sides without those for differences."""
    f, model, start, mass, times, small = PROBLEMS[name]
    p = oj.as_scipy(model, start, of=outputs(model, mass), form="dense")
    options = {"rtol": rtol, "atol": rtol * np.array(small), "max_num_steps": 10**6}
    if mass is None:
        def rhs(t, y, rate):
            rate[:] = f(t, y)

        def jacobian(t, y, rate, J):
            J[:] = p.ode_jac(t, y)

        found = cvode.CVODE(rhs, jacfn=jacobian, **options).solve(times, p.x0)
    else:
        def residual(t, y, slope, r):
            r[:] = mass * slope - f(t, y)

        def jacobian(t, y, slope, r, c, J):
            J[:] = c * np.diag(mass) - p.ode_jac(t, y)

        solver = ida.IDA(residual, jacfn=jacobian, algebraic_idx=[2], calc_initcond="yp0",
                         calc_init_dt=1e-6, **options)  # fmt: skip
        found = solver.solve(times, p.x0, np.zeros(len(p.x0)))
    assert found.success
    return found.y.T, found.nfev


def by_onnxjac(name, rtol, method="BDF"):
    _, model, start, mass, times, small = PROBLEMS[name]
    found = oj.solve_ivp(
        model, start, times[[0, -1]], of=outputs(model, mass), mass=mass, method=method,
        t_eval=times, rtol=rtol, atol=rtol * np.array(small),
    )  # fmt: skip
    return found.y, found.nfev


def by_scipy(name, rtol, method):
    f, model, start, mass, times, small = PROBLEMS[name]
    p = oj.as_scipy(model, start, of=outputs(model, mass), form="dense")
    found = solve_ivp(f, times[[0, -1]], p.x0, method, times, jac=p.ode_jac, rtol=rtol,
                      atol=rtol * np.array(small))  # fmt: skip
    return (found.y, found.nfev) if found.success else None


def outputs(model, mass):
    return ("rate" if mass is None else "dae") if model is ROBERTSON else None


@cache
def solution(name):
    return by_sundials(name, 1e-11)[0]


def curve(name, solver, tolerances, *options):
    """Errors, relative but for small states, and right-hand sides, for decreasing tolerances."""
    runs = [solver(name, rtol, *options) for rtol in tolerances]
    exact, small = solution(name), np.array(PROBLEMS[name][-1])[:, None]
    return np.array([
        (np.sqrt(np.mean(((run[0] - exact) / (small + abs(exact))) ** 2)), run[1])
        for run in runs if run is not None
    ])  # fmt: skip


def needed(error, found):
    """Right-hand sides for an error, by a straight line through the logarithms."""
    slope, at = np.polyfit(*np.log(found).T, 1)
    return np.exp(at + slope * np.log(error))


@pytest.mark.parametrize("name", PROBLEMS)
def test_right_hand_sides_at_equal_accuracy(name):
    """At most 1.5 times those of SUNDIALS, with exact Jacobians for both."""
    theirs = curve(name, by_sundials, np.logspace(-3.5, -6.5, 5))
    ours = curve(name, by_onnxjac, [1e-4, 1e-6])
    for error, count in ours:
        assert count < 1.5 * needed(error, theirs)
    assert ours[-1, 0] < 1e-4


if __name__ == "__main__":
    ladder = np.logspace(-3, -9, 13)
    columns = {
        "SUNDIALS": (by_sundials, ), "`\"BDF\"`": (by_onnxjac, "BDF"),
        "`\"Rosenbrock\"`": (by_onnxjac, "Rosenbrock"), "SciPy's BDF": (by_scipy, "BDF"),
        "SciPy's Radau": (by_scipy, "Radau"),
    }  # fmt: skip
    print("| | error |", " | ".join(columns), "|\n|---|---|" + "---|" * len(columns))
    for name in PROBLEMS:
        curves = [curve(name, solver, ladder, *method) if PROBLEMS[name][3] is None or solver
                  is not by_scipy else None for solver, *method in columns.values()]  # fmt: skip
        for error in (1e-4, 1e-6):
            counts = [c if c is None else float(f"{needed(error, c):.2g}") for c in curves]
            cells = ["–" if n is None else f"{n:,.0f}" for n in counts]
            print(f"| {name} | {error:.0e} |", " | ".join(cells), "|")
