"""Pyomo: models as external grey boxes, with exact sparse derivatives for PyNumero."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from scipy.sparse import coo_matrix, tril

from ...jacobians.arguments import validated
from ...jacobians.errors import InputError, optional
from ..model.primal.inputs import Names, distinct


@validated
def to_pyomo(problem: Any, *, zero: Names = None) -> Any:
    """y = f(x), and c(x) = 0, as an `ExternalGreyBoxModel` for an `ExternalGreyBoxBlock` of Pyomo.

    Each number is a variable of Pyomo: a vector `x` has `x[0]`, `x[1]` …, a matrix `x[0,1]`,
    and one number alone is `x`. Jacobians and Hessians of the Lagrangian are sparse, with the same
    entries at all points and for all multipliers. Needs `onnxjac[pyomo]`.

    - `problem`: f and c as functions of x, as `as_scipy` gives them.
    - `zero`: the tensors c among the `of` of the problem, which are equations; the others are y.

    Shapes: x is (n,), y and c are the numbers of their tensors. Raises `InputError` without Pyomo,
    for something that is not such a problem, and for a name that is not among its `of`.
    """
    box = box_class()
    if not hasattr(problem, "weighted"):
        raise InputError("to_pyomo takes as_scipy(model, inputs, ...), not a "
                         f"{type(problem).__name__}")  # fmt: skip
    chosen = () if zero is None else distinct(zero, "zero")
    if unknown := [name for name in chosen if name not in problem.of]:
        raise InputError(f"zero={unknown[0]!r} is not in of: {', '.join(problem.of)}")
    return box(problem, chosen)


def labels(name: str, shape: tuple[int, ...]) -> Iterator[str]:
    """A name for each number of a tensor.

    >>> list(labels("x", (1, 2))), list(labels("s", ()))
    (['x[0,0]', 'x[0,1]'], ['s'])
    """
    for index in np.ndindex(shape):
        yield f"{name}[{','.join(map(str, index))}]" if index else name


@cache
def box_class() -> Any:
    """The class of grey boxes."""
    path = "pyomo.contrib.pynumero.interfaces.external_grey_box"
    Base: Any = optional(path, "pyomo").ExternalGreyBoxModel

    class GreyBox(Base):
        def __init__(self, problem: Any, zero: tuple[str, ...]) -> None:
            self.problem, self.x = problem, problem.x0
            shapes, sides = problem.shapes.items(), (False, True)
            rows = [(name in zero, label) for name, size in shapes for label in labels(name, size)]
            self.names = [[label for of, label in rows if of == side] for side in sides]
            self.rows = [np.flatnonzero([of == side for of, _ in rows]) for side in sides]
            self.multipliers = [np.ones(len(part)) for part in self.rows]

        def input_names(self) -> list[str]:
            start = self.problem.start.items()
            return [label for name, x in start for label in labels(name, x.shape)]

        def output_names(self) -> list[str]:
            return self.names[0]

        def equality_constraint_names(self) -> list[str]:
            return self.names[1]

        def finalize_block_construction(self, pyomo_block: Any) -> None:
            """The variables start where the problem does."""
            for side, values in ((pyomo_block.inputs, self.x), (pyomo_block.outputs, self.f(0))):
                for name, value in zip(side, values, strict=True):
                    side[name].set_value(float(value), skip_validation=True)

        def set_input_values(self, input_values: Any) -> None:
            self.x = np.array(input_values, float)

        def set_output_constraint_multipliers(self, output_con_multiplier_values: Any) -> None:
            self.multipliers[0] = np.array(output_con_multiplier_values, float)

        def set_equality_constraint_multipliers(self, eq_con_multiplier_values: Any) -> None:
            self.multipliers[1] = np.array(eq_con_multiplier_values, float)

        def f(self, side: int) -> np.ndarray:
            return np.asarray(self.problem.values(self.x), float)[self.rows[side]]

        def J(self, side: int) -> coo_matrix:
            return coo_matrix(self.problem.linearized(self.x).tosparse()[self.rows[side]])

        def H(self, side: int) -> coo_matrix:
            v = np.zeros(sum(map(len, self.rows)))
            v[self.rows[side]] = self.multipliers[side]
            return coo_matrix(tril(self.problem.weighted(self.x, v).tosparse()))

        def evaluate_outputs(self) -> np.ndarray:
            return self.f(0)

        def evaluate_equality_constraints(self) -> np.ndarray:
            return self.f(1)

        def evaluate_jacobian_outputs(self) -> coo_matrix:
            return self.J(0)

        def evaluate_jacobian_equality_constraints(self) -> coo_matrix:
            return self.J(1)

        def evaluate_hessian_outputs(self) -> coo_matrix:
            return self.H(0)

        def evaluate_hessian_equality_constraints(self) -> coo_matrix:
            return self.H(1)

    return GreyBox
