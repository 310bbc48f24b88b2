"""SUNDIALS: u̇ = f(t, u) with its exact Jacobian as the callbacks of CVODE, by scikit-sundae.

IDA's, for r(t, u, u̇) = 0, are in `sundials_dae`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from scipy.sparse import csr_array

from ...jacobians import Identity
from ...jacobians.arguments import validated
from ...jacobians.errors import InputError, optional
from ..model.primal.inputs import Names
from .sundials4py import cvode_callbacks
from .sundials_dae import dae_callbacks


@validated
def to_sundials(
    problem: Any, *, rates: Names = None, preconditioner: Callable[[Any], Any] | None = None,
    package: Literal["sksundae", "sundials4py"] = "sksundae",
) -> dict[str, Any]:  # fmt: skip
    """u̇ = f(t, u) for `sksundae.cvode.CVODE(**to_sundials(problem), ...)`, with ∂f/∂u.

    With `rates`, r(t, u, u̇) = 0 for `sksundae.ida.IDA`, with A = ∂r/∂u + c ∂r/∂u̇ in the place of
    ∂f/∂u; states whose rate r does not read are marked as algebraic.

    By the `form` of the problem: `"sparse"` gives `jacfn` and `sparsity` for sparse LU, `"dense"`
    gives `jacfn` for dense LU, and `"operator"` gives `jactimes`, products with ∂f/∂u, for GMRES.
    Needs `onnxjac[sundials]`.

    - `problem`: f, or r of states and rates, as `as_scipy` gives it.
    - `rates`: the tensors u̇ among the `wrt` of the problem, in the order of their states.
    - `preconditioner`: for GMRES, A ↦ M ≈ A⁻¹ of A, which is I - γ ∂f/∂u for CVODE, such as
      `preconditioners.ilu`.
    - `package`: `"sundials4py"` gives `rhs`, and `jac` or `jtimes`, for CVODE by that package, with
      `form="dense"` or `"operator"`; it takes no rates and no preconditioner.

    Shapes: u, u̇, f, r and products are (n,), ∂f/∂u and A are (n, n). Raises `InputError` without
    the package, for something that is not such a problem, for rates that do not fit, and for a
    preconditioner that LU does not need.
    """
    cvode = optional("sksundae.cvode", "sundials") if package == "sksundae" else None
    form = getattr(problem, "form", None)
    if form is None or not hasattr(problem, "ode_jac"):
        raise InputError("to_sundials takes as_scipy(model, inputs, ...), not a "
                         f"{type(problem).__name__}")  # fmt: skip
    if cvode is None:
        if rates is not None or preconditioner is not None:
            raise InputError("package='sundials4py' takes no rates and no preconditioner")
        return cvode_callbacks(problem)
    if preconditioner is not None and form != "operator":
        raise InputError(f"form={form!r} solves by LU: a preconditioner is for form='operator'")
    if rates is not None:
        return dae_callbacks(problem, rates, preconditioner)

    def rhsfn(t: float, u: np.ndarray, rate: np.ndarray) -> None:
        rate[:] = problem.ode(t, u)

    if form == "operator":
        times = cvode.CVODEJacTimes(None, jacobian_times(problem))
        found = {"linsolver": "gmres", "jactimes": times}
        if preconditioner is not None:
            found["precond"] = cvode.CVODEPrecond(*approximate(problem, preconditioner))
        return {"rhsfn": rhsfn, **found}
    return {"rhsfn": rhsfn, **(by_sparse_lu(problem) if form == "sparse" else by_lu(problem))}


def jacobian_times(problem: Any) -> Callable[..., None]:
    """(t, u, f, v, product) ↦ product = ∂f/∂u v."""

    def product(t: float, u: np.ndarray, _: np.ndarray, v: np.ndarray, Jv: np.ndarray) -> None:
        Jv[:] = problem.ode_jac(t, u) @ v

    return product


def approximate(problem: Any, preconditioner: Callable[[Any], Any]) -> tuple[Any, Any]:
    """The functions that make M ≈ (I - γ J)⁻¹ and multiply by it.

    J is kept where SUNDIALS says so, while γ changes.
    """
    J: Any = None
    M: Any = None

    def setup(t: float, u: np.ndarray, _: np.ndarray, keep: int, new: list[int], γ: float) -> None:
        nonlocal J, M
        if J is None or not keep:
            J = problem.ode_jac(t, u)
        new[0] = int(not keep)
        M = preconditioner(Identity(J.in_shape, J.dtype) - γ * J)

    def solve(
        t: float, u: Any, _: Any, r: np.ndarray, z: np.ndarray, γ: float, δ: float, side: int
    ) -> None:
        z[:] = M @ r

    return setup, solve


def by_lu(problem: Any) -> dict[str, Any]:
    """The Jacobian for dense LU."""

    def jacfn(t: float, u: np.ndarray, _: np.ndarray, J: np.ndarray) -> None:
        J[:] = problem.ode_jac(t, u)

    return {"linsolver": "dense", "jacfn": jacfn}


def by_sparse_lu(problem: Any) -> dict[str, Any]:
    """The Jacobian for sparse LU: its entries column by column."""
    A = csr_array(problem.ode_jac(0.0, problem.x0))
    A.data = np.arange(A.nnz)
    sparsity = A.tocsc()
    sparsity.indices = sparsity.indices.astype(np.int32)
    sparsity.indptr = sparsity.indptr.astype(np.int32)
    places, sparsity.data = sparsity.data, np.ones(A.nnz, bool)

    def jacfn(t: float, u: np.ndarray, _: np.ndarray, entries: np.ndarray) -> None:
        entries[:] = problem.ode_jac(t, u).data[places]

    return {"linsolver": "sparse", "sparsity": sparsity, "jacfn": jacfn}
