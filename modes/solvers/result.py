"""Result: SciPy's, which takes any fields; its stubs know only those of its own solvers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...jacobians.hooks import Shown

if TYPE_CHECKING:
    Base = Any
else:
    from scipy.optimize import OptimizeResult as Base


class OptimizeResult(Base, Shown):
    """SciPy's, which shows itself in a notebook too."""
