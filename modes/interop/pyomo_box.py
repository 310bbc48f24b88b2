"""The grey box of Pyomo: the functions of a program under the names that PyNumero calls."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from scipy.sparse import coo_matrix, tril

from ...jacobians.errors import optional


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
        def __init__(self, program: Any, zero: tuple[str, ...]) -> None:
            self.program, self.x, sides = program, program.x0, (False, True)
            rows = [(name in zero, label) for name, size in program.names
                    for label in labels(name, size)]  # fmt: skip
            self.names = [[label for of, label in rows if of == side] for side in sides]
            self.rows = [np.flatnonzero([of == side for of, _ in rows]) for side in sides]
            self.multipliers = [np.ones(len(part)) for part in self.rows]
            self.low, self.high = map(np.asarray, program.constraint_bounds)
            aim = self.low[self.rows[1]]
            self.aim = np.where(np.isfinite(aim), aim, 0.0)

        def input_names(self) -> list[str]:
            start = self.program.start.items()
            return [label for name, x in start for label in labels(name, x.shape)]

        def output_names(self) -> list[str]:
            return self.names[0]

        def equality_constraint_names(self) -> list[str]:
            return self.names[1]

        def finalize_block_construction(self, pyomo_block: Any) -> None:
            """The variables start where the problem does, within its bounds."""
            out = self.rows[0]
            for side, *numbers in (
                (pyomo_block.inputs, self.x, *self.program.bounds),
                (pyomo_block.outputs, self.f(0), self.low[out], self.high[out]),
            ):
                for name, value, *ends in zip(side, *numbers, strict=True):
                    side[name].set_value(float(value), skip_validation=True)
                    side[name].bounds = tuple(float(x) if np.isfinite(x) else None for x in ends)

        def set_input_values(self, input_values: Any) -> None:
            self.x = np.array(input_values, float)

        def set_output_constraint_multipliers(self, output_con_multiplier_values: Any) -> None:
            self.multipliers[0] = np.array(output_con_multiplier_values, float)

        def set_equality_constraint_multipliers(self, eq_con_multiplier_values: Any) -> None:
            self.multipliers[1] = np.array(eq_con_multiplier_values, float)

        def f(self, side: int) -> np.ndarray:
            return self.program.constraints(self.x)[self.rows[side]]

        def J(self, side: int) -> coo_matrix:
            return coo_matrix(self.program.jacobian(self.x)[self.rows[side]])

        def H(self, side: int) -> coo_matrix:
            v = np.zeros(sum(map(len, self.rows)))
            v[self.rows[side]] = self.multipliers[side]
            return coo_matrix(tril(self.program.hessian(self.x, v, 0.0)))

        def evaluate_outputs(self) -> np.ndarray:
            return self.f(0)

        def evaluate_equality_constraints(self) -> np.ndarray:
            return self.f(1) - self.aim

        def evaluate_jacobian_outputs(self) -> coo_matrix:
            return self.J(0)

        def evaluate_jacobian_equality_constraints(self) -> coo_matrix:
            return self.J(1)

        def evaluate_hessian_outputs(self) -> coo_matrix:
            return self.H(0)

        def evaluate_hessian_equality_constraints(self) -> coo_matrix:
            return self.H(1)

        def has_objective(self) -> bool:
            return hasattr(self.program, "objective")

        def evaluate_objective(self) -> float:
            return self.program.objective(self.x)

        def evaluate_grad_objective(self, out: Any = None) -> np.ndarray:
            """By inputs and then outputs: PyNumero wants both."""
            return np.append(self.program.gradient(self.x), np.zeros(self.n_outputs()))

        def evaluate_hessian_objective(self) -> coo_matrix:
            return coo_matrix(tril(self.program.hessian(self.x)))

    return GreyBox
