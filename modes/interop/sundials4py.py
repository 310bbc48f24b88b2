"""SUNDIALS by sundials4py: the callbacks of CVODE, which take vectors and matrices of SUNDIALS."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...jacobians.errors import InputError, optional


def cvode_callbacks(problem: Any) -> dict[str, Callable[..., int]]:
    """`rhs` for `CVodeInit`; `jac` for `CVodeSetJacFn`, or `jtimes` for `CVodeSetJacTimes`."""
    core = optional("sundials4py.core", "sundials")
    if problem.form == "sparse":
        raise InputError("sundials4py has no sparse LU: give as_scipy(..., form='dense') or "
                         "form='operator'")  # fmt: skip
    read = core.N_VGetArrayPointer

    def rhs(t: float, u: Any, rate: Any, _: Any) -> int:
        read(rate)[:] = problem.ode(t, read(u))
        return 0

    def jac(t: float, u: Any, rate: Any, J: Any, *_: Any) -> int:
        core.SUNDenseMatrix_Data(J)[:] = problem.ode_jac(t, read(u))
        return 0

    def jtimes(v: Any, product: Any, t: float, u: Any, *_: Any) -> int:
        read(product)[:] = problem.ode_jac(t, read(u)) @ read(v)
        return 0

    return {"rhs": rhs, **({"jac": jac} if problem.form == "dense" else {"jtimes": jtimes})}
