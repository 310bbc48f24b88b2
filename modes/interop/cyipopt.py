"""IPOPT: a nonlinear program as the object that cyipopt, pounce and PyNumero call."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...jacobians.errors import optional

Pair = tuple[np.ndarray, np.ndarray]


class IpoptProblem:
    """min f(x) where l ≤ c(x) ≤ u, by values at points: the `program` in the words of IPOPT.

    `lagrange` are the multipliers λ and `obj_factor` is σ in ∇²(σ f + λᵀc), of which the entries on
    and below the diagonal are given.

    Shapes: as of the `program`.
    """

    def __init__(self, program: Any) -> None:
        self.program = program

    def objective(self, x: np.ndarray) -> float:
        """f(x)."""
        return self.program.objective(x)

    def gradient(self, x: np.ndarray) -> np.ndarray:
        """∇f(x)."""
        return self.program.gradient(x)

    def constraints(self, x: np.ndarray) -> np.ndarray:
        """c(x)."""
        return self.program.constraints(x)

    def jacobian(self, x: np.ndarray) -> np.ndarray:
        """The entries of ∂c/∂x that may be nonzero."""
        return self.program.jac_values(x)

    def jacobianstructure(self) -> Pair:
        """The rows and columns of the entries that `jacobian` gives."""
        return self.program.jac_structure

    def hessianstructure(self) -> Pair:
        """The rows and columns of the entries that `hessian` gives."""
        return self.program.hess_structure

    def hessian(self, x: np.ndarray, lagrange: np.ndarray, obj_factor: float) -> np.ndarray:
        """The entries of ∇²(σ f + λᵀc)(x), λ the multipliers `lagrange` and σ the `obj_factor`."""
        return self.program.hess_values(x, lagrange, obj_factor)

    # -- what PyNumero asks before it calls cyipopt ---------------------------------------------

    def x_init(self) -> np.ndarray:
        """The start."""
        return self.program.x0

    def x_lb(self) -> np.ndarray:
        """The lower bounds of x."""
        return self.program.bounds[0]

    def x_ub(self) -> np.ndarray:
        """The upper bounds of x."""
        return self.program.bounds[1]

    def g_lb(self) -> np.ndarray:
        """The lower bounds of c."""
        return self.program.constraint_bounds[0]

    def g_ub(self) -> np.ndarray:
        """The upper bounds of c."""
        return self.program.constraint_bounds[1]

    def scaling_factors(self) -> tuple[None, None, None]:
        """No scaling of f, x and c besides IPOPT's own."""
        return None, None, None


def to_cyipopt(program: Any) -> dict[str, Any]:
    """The arguments of `cyipopt.Problem` and `pounce.Problem` for a `program`."""
    made = IpoptProblem(program)
    return {
        "n": program.n, "m": program.m, "problem_obj": made,
        "lb": made.x_lb(), "ub": made.x_ub(), "cl": made.g_lb(), "cu": made.g_ub(),
    }  # fmt: skip


def to_pynumero(program: Any) -> Any:
    """A `program` for PyNumero's `CyIpoptSolver`, which wants a class derived from its own."""
    module = optional("pyomo.contrib.pynumero.interfaces.cyipopt_interface", "pyomo")
    Base: Any = module.CyIpoptProblemInterface

    class PyNumeroProblem(IpoptProblem, Base):
        def __init__(self, program: Any) -> None:
            IpoptProblem.__init__(self, program)
            Base.__init__(self)

    return PyNumeroProblem(program)
