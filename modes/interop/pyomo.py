"""Pyomo: models as external grey boxes, with exact sparse derivatives for PyNumero."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...jacobians import size
from ...jacobians.arguments import validated
from ...jacobians.errors import InputError
from ..model.primal.inputs import Names, distinct
from .pyomo_box import box_class


@validated
def to_pyomo(problem: Any, *, zero: Names = None) -> Any:
    """y = f(x), and c(x) = 0, as an `ExternalGreyBoxModel` for an `ExternalGreyBoxBlock` of Pyomo.

    Each number is a variable of Pyomo: a vector `x` has `x[0]`, `x[1]` …, a matrix `x[0,1]`,
    and one number alone is `x`. Jacobians and Hessians of the Lagrangian are sparse, with the same
    entries at all points and for all multipliers. Of a nonlinear program, the box has the objective
    and all bounds, so that a model needs nothing else. Needs `onnxjac[pyomo]`.

    - `problem`: f and c as functions of x, as `as_scipy` gives them, or a program of `problem`.
    - `zero`: the tensors c among the `of` of the problem, which are equations; the others are y.
      By default none, and of a program the constraints whose bounds are the same.

    Shapes: x is (n,), y and c are the numbers of their tensors. Raises `InputError` without Pyomo,
    for something that is not such a problem, and for a name that is not among its `of`.
    """
    box = box_class()
    if hasattr(problem, "hess_values"):
        p, same = problem, equations_of(problem)
    elif hasattr(problem, "weighted"):
        p, same = Unbounded(problem), ()
    else:
        raise InputError("to_pyomo takes as_scipy(model, inputs, ...) or problem(...), not a "
                         f"{type(problem).__name__}")  # fmt: skip
    chosen, known = same if zero is None else distinct(zero, "zero"), dict(p.names)
    if unknown := [name for name in chosen if name not in known]:
        raise InputError(f"zero={unknown[0]!r} is not in of: {', '.join(known)}")
    if p is problem and (between := [name for name in chosen if name not in same]):
        raise InputError(f"zero={between[0]!r} is no equation: its two bounds differ")
    return box(p, chosen)


class Unbounded:
    """The functions of `as_scipy` as a program without an objective and without bounds."""

    def __init__(self, problem: Any) -> None:
        self.problem, self.start, self.x0 = problem, problem.start, problem.x0
        self.names = [*problem.shapes.items()]
        counts = len(problem.x0), sum(size(shape) for _, shape in self.names)
        self.bounds, self.constraint_bounds = (([-np.inf] * k, [np.inf] * k) for k in counts)

    def constraints(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(self.problem.values(x), float)

    def jacobian(self, x: np.ndarray) -> Any:
        return self.problem.linearized(x).tosparse()

    def hessian(self, x: np.ndarray, v: np.ndarray, _: float) -> Any:
        return self.problem.weighted(x, v).tosparse()


def equations_of(program: Any) -> tuple[str, ...]:
    """The constraints whose bounds are the same."""
    low, high = program.constraint_bounds
    ends = np.cumsum([size(shape) for _, shape in program.names])[:-1]
    pairs = zip(program.names, np.split(low == high, ends), strict=True)
    return tuple(name for (name, _), same in pairs if same.all())
