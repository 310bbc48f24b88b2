"""CVODE by sundials4py: a model beside SciPy, and as many steps as with a Jacobian by hand."""

import numpy as np
import onnx.parser
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import solve_ivp

import onnxjac as oj

core = pytest.importorskip("sundials4py.core")
cvodes = pytest.importorskip("sundials4py.cvodes")
pytestmark = pytest.mark.peers

STIFF = oj.load(onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["": 21]>
stiff (double[3] u, double t) => (double[3] rate)
<double[3, 3] A = {-500.0, 400.0, 0.0, 1.0, -20.0, 3.0, 0.0, 2.0, -1.0}>
{
    linear = MatMul (A, u)
    square = Mul (u, u)
    wave = Sin (t)
    less = Sub (linear, square)
    rate = Add (less, wave)
}"""))
START = {"u": np.ones(3), "t": 0.0}
A = np.array([[-500.0, 400, 0], [1, -20, 3], [0, 2, -1]])


def rate(t, u):
    return A @ u - u**2 + np.sin(t)


def solved(rhs, jac=None, jtimes=None, end=2.0):
    """The state at the end, and the number of steps."""
    status, context = core.SUNContext_Create(core.SUN_COMM_NULL)
    y = core.N_VNew_Serial(3, context)
    at, found = core.N_VGetArrayPointer(y), core.N_VNew_Serial(3, context)
    at[:] = 1.0
    solver = cvodes.CVodeCreate(cvodes.CV_BDF, context)
    memory = solver.get()
    ok = [status, cvodes.CVodeInit(memory, rhs, 0.0, y)]
    ok.append(cvodes.CVodeSStolerances(memory, 1e-8, 1e-10))
    if jtimes:
        linear, matrix = core.SUNLinSol_SPGMR(y, 0, 5, context), None
        ok.append(cvodes.CVodeSetLinearSolver(memory, linear, None))
        ok.append(cvodes.CVodeSetJacTimes(memory, None, jtimes))
    else:
        matrix = core.SUNDenseMatrix(3, 3, context)
        linear = core.SUNLinSol_Dense(y, matrix, context)
        ok.append(cvodes.CVodeSetLinearSolver(memory, linear, matrix))
        ok.append(cvodes.CVodeSetJacFn(memory, jac))
    ok.append(cvodes.CVodeSetMaxNumSteps(memory, 5000))
    assert ok == [0] * len(ok)
    status, t = cvodes.CVode(memory, end, found, cvodes.CV_NORMAL)
    assert (status, t) == (0, end)
    return core.N_VGetArrayPointer(found).copy(), cvodes.CVodeGetNumSteps(memory)[1]


@pytest.mark.parametrize("form", ["dense", "operator"])
def test_a_model_takes_the_same_steps_as_by_hand(form):
    options = oj.to_sundials(oj.as_scipy(STIFF, START, t="t", form=form), package="sundials4py")
    read = core.N_VGetArrayPointer

    def rhs(t, u, f, _):
        read(f)[:] = rate(t, read(u))
        return 0

    def jac(t, u, f, J, *_):
        core.SUNDenseMatrix_Data(J)[:] = A - 2 * np.diag(read(u))
        return 0

    def jtimes(v, Jv, t, u, *_):
        read(Jv)[:] = (A - 2 * np.diag(read(u))) @ read(v)
        return 0

    by_hand = {"jac": jac} if form == "dense" else {"jtimes": jtimes}
    (found, steps), (_, expected_steps) = solved(**options), solved(rhs, **by_hand)
    expected = solve_ivp(rate, (0, 2), np.ones(3), method="Radau", rtol=1e-10, atol=1e-12).y[:, -1]
    assert_allclose(found, expected, rtol=1e-6)
    assert abs(steps - expected_steps) <= 2
    assert steps > 50


def test_sundials4py_rejects_wrong_arguments():
    sparse = oj.as_scipy(STIFF, START, t="t", form="sparse")
    with pytest.raises(oj.InputError, match="sundials4py has no sparse LU: give as_scipy"):
        oj.to_sundials(sparse, package="sundials4py")
    lazy = oj.as_scipy(STIFF, START, t="t")
    with pytest.raises(oj.InputError, match="package='sundials4py' takes no rates and no precond"):
        oj.to_sundials(lazy, package="sundials4py", preconditioner=oj.preconditioners.ilu)
