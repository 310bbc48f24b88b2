"""PyLops: operators as `pylops.LinearOperator`."""

from __future__ import annotations

from typing import Any

from ...jacobians import Jacobian, Shape, hooks, shape_of
from ..support.optional import optional


@hooks.to_pylops.register
def to_pylops(J: Jacobian) -> Any:
    """J as a `pylops.LinearOperator`, from dims to dimsd: see `Jacobian.to_pylops`."""
    domain = getattr(J, "domain", ())
    dims = shape(domain, J.in_shape)
    dimsd = shape(getattr(J, "codomain", domain), J.out_shape)
    P = optional("pylops", "pylops").LinearOperator(Op=J, dims=dims, dimsd=dimsd)
    P._matmat, P._rmatmat = J._matmat, J._rmatmat  # PyLops would take one column after the other
    return P


def shape(specs: Any, default: Shape) -> Shape:
    """The shape of a single tensor on one side, else the default; PyLops has no rank 0."""
    return (shape_of(specs[0]) if len(specs) == 1 else default) or (1,)
