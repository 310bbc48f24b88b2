"""NLopt: a nonlinear program as functions that write their gradients in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...jacobians.errors import InputError, optional


def to_nlopt(program: Any, algorithm: str, tol: float) -> Any:
    """An `nlopt.opt` for a `program`, by the name of an `algorithm`, constraints up to `tol`."""
    library = optional("nlopt", "nlopt")
    try:
        made = library.opt(algorithm, program.n)
    except (ValueError, getattr(library, "invalid_argument", ValueError)) as error:
        raise InputError(f"NLopt has no algorithm {algorithm!r}: LD_SLSQP, LD_MMA ...") from error
    made.set_min_objective(objective(program))
    made.set_lower_bounds(program.bounds[0])
    made.set_upper_bounds(program.bounds[1])
    low, high = program.constraint_bounds
    equal = low == high
    kinds = (
        (made.add_equality_mconstraint, equal, 1.0, high),
        (made.add_inequality_mconstraint, ~equal & (high < np.inf), 1.0, high),
        (made.add_inequality_mconstraint, ~equal & (low > -np.inf), -1.0, low),
    )
    for add, which, sign, bound in kinds:
        if rows := [int(k) for k in np.flatnonzero(which)]:
            add(residual(program, rows, sign, bound[rows]), np.full(len(rows), tol))
    return made


def objective(program: Any) -> Callable[[np.ndarray, np.ndarray], float]:
    """f(x), with ∇f(x) written into an array that is not empty."""

    def value(x: np.ndarray, slopes: np.ndarray) -> float:
        if slopes.size:
            slopes[:] = program.gradient(x)
        return float(program.objective(x))

    return value


def residual(
    program: Any, rows: list[int], sign: float, bound: np.ndarray
) -> Callable[[np.ndarray, np.ndarray, np.ndarray], None]:
    """± (c(x) − bound) of some rows, written in place as its dense Jacobian is."""

    def values(found: np.ndarray, x: np.ndarray, slopes: np.ndarray) -> None:
        if slopes.size:
            slopes[:] = sign * program.jacobian(x)[rows].toarray()
        found[:] = sign * (program.constraints(x)[rows] - bound)

    return values
