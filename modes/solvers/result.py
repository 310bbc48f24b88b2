"""Result: SciPy's, which takes any fields; its stubs know only those of its own solvers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    OptimizeResult = Any
else:
    from scipy.optimize import OptimizeResult

__all__ = ["OptimizeResult"]
