"""PETSc: J as a Mat, of the entries of J or of its products."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from ...jacobians import Jacobian
from ...jacobians.arguments import validated
from ...jacobians.errors import InputError, optional


@validated
def to_petsc(
    J: Jacobian, *, form: Literal["sparse", "operator"] | None = None, out: Any = None
) -> Any:
    """J as a `petsc4py.PETSc.Mat` of one process; with `out`, the Mat of J at another point.

    Needs petsc4py, which has no wheels: `pip install 'onnxjac[petsc]'` builds it.

    - `form`: `"sparse"` (default) is an AIJ matrix of the entries that may be nonzero, for LU and
      all preconditioners; `"operator"` multiplies by J and Jᵀ and gives the diagonal, for Krylov
      methods.
    - `out`: a result for the same Jacobian at another point, which is overwritten and returned:
      what the callback of `SNES.setJacobian` does.

    Shape: (m, n). Raises `InputError` without petsc4py, for complex J where PETSc is built for
    real numbers, and where `out` has another shape, pattern or form.
    """
    PETSc = optional("petsc4py.PETSc", "petsc")
    if not isinstance(J, Jacobian):
        raise InputError(f"to_petsc takes a Jacobian, not a {type(J).__name__}: asoperator(A) "
                         "makes one of a matrix")  # fmt: skip
    if J.dtype.kind == "c" and np.dtype(PETSc.ScalarType).kind != "c":
        raise InputError(f"J is {J.dtype}, and this PETSc has real numbers: use a complex build")
    found = made(PETSc, J, form or "sparse") if out is None else refilled(J, form, out)
    found.assemble()
    return found


class PetscContext:
    """The context of a Mat of type python: products with J and Jᵀ."""

    def __init__(self, J: Jacobian) -> None:
        self.J = J

    def mult(self, A: Any, x: Any, y: Any) -> None:
        """y = J x."""
        y.array[:] = self.J @ x.getArray(readonly=True)

    def multTranspose(self, A: Any, x: Any, y: Any) -> None:
        """y = Jᵀ x."""
        y.array[:] = self.J.T @ x.getArray(readonly=True)

    def getDiagonal(self, A: Any, d: Any) -> None:
        """d[i] = J[i, i]."""
        d.array[:] = self.J.diagonal()


def made(PETSc: Any, J: Jacobian, form: str) -> Any:
    """A new Mat."""
    if form == "operator":
        return PETSc.Mat().createPython(J.shape, PetscContext(J), comm=PETSc.COMM_SELF)
    A = J.tosparse()
    pattern = A.indptr.astype(PETSc.IntType), A.indices.astype(PETSc.IntType)
    entries = A.data.astype(PETSc.ScalarType)
    return PETSc.Mat().createAIJ(J.shape, csr=(*pattern, entries), comm=PETSc.COMM_SELF)


def refilled(J: Jacobian, form: str | None, out: Any) -> Any:
    """The Mat with the numbers of another J."""
    type_of = out.getType() if hasattr(out, "getType") else type(out).__name__
    kind = {"python": "operator", "seqaij": "sparse"}.get(type_of)
    if kind is None or form not in (None, kind):
        raise InputError(f"out is a {type_of}: give what to_petsc made, in the same form")
    if tuple(out.getSize()) != J.shape:
        raise InputError(f"out has the shape {tuple(out.getSize())}, J {J.shape}")
    if kind == "operator":
        out.getPythonContext().J = J
        return out
    A = J.tosparse()
    starts, columns, entries = out.getValuesCSR()
    if not (np.array_equal(A.indptr, starts) and np.array_equal(A.indices, columns)):
        raise InputError("out has another pattern: give what to_petsc made of J at another point")
    out.setValuesCSR(starts, columns, A.data.astype(entries.dtype))
    return out
