"""J as matrices of PETSc: beside SciPy, and a small PDE by SNES."""

import numpy as np
import onnx.parser
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import root

import onnxjac as oj
from onnxjac.jacobians import Dense

PETSc = pytest.importorskip("petsc4py.PETSc")
pytestmark = pytest.mark.peers

N = 12

BRATU = oj.load(onnx.parser.parse_model(f"""
<ir_version: 10, opset_import: ["": 21]>
bratu (double[1, 1, {N}, {N}] u) => (double[1, 1, {N}, {N}] r)
<double[1, 1, 3, 3] stencil = {{0.0, -1.0, 0.0, -1.0, 4.0, -1.0, 0.0, -1.0, 0.0}}, double c = {{{3 / (N + 1) ** 2}}}>
{{
    spread = Conv <pads = [1, 1, 1, 1]> (u, stencil)
    heat = Exp (u)
    source = Mul (c, heat)
    r = Sub (spread, source)
}}"""))  # noqa: E501
"""-Δu = 3 exp u on a square, u = 0 around it."""

PROBLEM = oj.as_scipy(BRATU, {"u": np.zeros((1, 1, N, N))})


def J_at(value):
    return PROBLEM.jac(np.linspace(0.0, value, N * N))


@pytest.mark.parametrize("form", ["sparse", "operator"])
@pytest.mark.parametrize("solver", [("gmres", "jacobi"), ("preonly", "lu"), ("gmres", "ilu")])
def test_a_pde_is_solved_by_snes(form, solver):
    if form == "operator" and solver[1] != "jacobi":
        pytest.skip("needs the entries")
    A, calls = oj.to_petsc(PROBLEM.jac(PROBLEM.x0), form=form), []

    def residual(snes, x, r):
        r.array[:] = PROBLEM.fun(x.getArray(readonly=True))

    def fill(snes, x, J, P):
        calls.append(oj.to_petsc(PROBLEM.jac(x.array.copy()), out=P))

    snes, u = PETSc.SNES().create(PETSc.COMM_SELF), A.createVecRight()
    snes.setFunction(residual, A.createVecLeft())
    snes.setJacobian(fill, A, A)
    snes.setTolerances(rtol=1e-12)
    snes.ksp.setType(solver[0])
    snes.ksp.pc.setType(solver[1])
    snes.ksp.setTolerances(rtol=1e-10)
    snes.solve(None, u)
    assert snes.getConvergedReason() > 0
    assert 3 <= len(calls) <= 6  # as many as Newton's method takes with exact derivatives
    expected = root(PROBLEM.fun, PROBLEM.x0, jac=lambda x: PROBLEM.jac(x).toarray(), tol=1e-12)
    assert_allclose(u.array, expected.x, rtol=1e-8)


@pytest.mark.parametrize("form", ["sparse", "operator"])
@pytest.mark.parametrize("rows", [slice(None), slice(0, 5)])
def test_products_and_the_diagonal_agree_with_the_dense_matrix(form, rows):
    for value in (0.5, 2.0):
        J = J_at(value)[rows]
        A = oj.to_petsc(J, form=form) if value == 0.5 else oj.to_petsc(J, out=A)  # noqa: F821
        dense, (x, y) = J.toarray(), A.createVecs()
        x.array[:] = np.arange(x.size)
        A.mult(x, y)
        assert_allclose(y.array, dense @ np.arange(x.size), rtol=1e-12)
        A.multTranspose(y, x)
        assert_allclose(x.array, dense.T @ y.array, rtol=1e-12)
        if rows == slice(None):
            assert_allclose(A.getDiagonal().array, np.diagonal(dense), rtol=1e-12)


def test_a_new_point_keeps_the_pattern_and_reaches_the_solver():
    A = oj.to_petsc(J_at(0.0))
    before = A.getValuesCSR()
    ksp, b, x = PETSc.KSP().create(PETSc.COMM_SELF), A.createVecLeft(), A.createVecRight()
    ksp.setOperators(A)
    ksp.setType("preonly")
    ksp.pc.setType("lu")
    b.set(1.0)
    for value in (0.0, 2.0):
        assert oj.to_petsc(J_at(value), out=A) is A
        ksp.solve(b, x)
        assert_allclose(x.array, np.linalg.solve(J_at(value).toarray(), b.array), rtol=1e-9)
    after = A.getValuesCSR()
    for i in (0, 1):
        np.testing.assert_array_equal(before[i], after[i])


def test_to_petsc_rejects_another_shape_or_pattern():
    A, J = oj.to_petsc(J_at(0.0)), J_at(1.0)
    with pytest.raises(oj.InputError, match="out has another pattern"):
        oj.to_petsc(oj.asoperator(np.eye(N * N)), out=A)
    with pytest.raises(oj.InputError, match=r"out has the shape \(144, 144\), J \(5, 144\)"):
        oj.to_petsc(J[:5], out=A)
    with pytest.raises(oj.InputError, match="out is a seqaij: give what to_petsc made"):
        oj.to_petsc(J, form="operator", out=A)
    if np.dtype(PETSc.ScalarType).kind != "c":
        with pytest.raises(oj.InputError, match="J is complex128, and this PETSc has real numbers"):
            oj.to_petsc(Dense(np.full((2, 2), 1j), (2,), (2,)))
    with pytest.raises(oj.InputError, match="out is a ndarray: give what to_petsc made"):
        oj.to_petsc(J, out=np.eye(3))
    with pytest.raises(oj.InputError, match=r"not a ndarray: asoperator\(A\) makes one"):
        oj.to_petsc(np.eye(3))
