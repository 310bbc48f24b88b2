"""Gram matrices of a Jacobian: J Jᵀ between outputs, the tangent kernel, and Jᵀ J."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...jacobians import Jacobian
from ..linearize import linearize
from ..model import Model
from ..naming.names import Names
from .symmetric import Specs, Symmetric, relinearizable


def ntk(
    model: Model,
    inputs: Mapping[str, Any],
    others: Mapping[str, Any] | None = None,
    *,
    of: Names = None,
    wrt: Names = None,
    engine: str | None = None,
) -> Jacobian:
    """K = J(x) J(x')ᵀ with J = ∂of/∂wrt: the empirical neural tangent kernel.

    `others` is x', another batch; by default x' = x, and K is symmetric, between the tensors of
    `of`. Either may be data, whose batches are stacked: as if they were one batch. Rows and columns
    are the entries of `of`, samples first, so that for outputs (N, C) the block of a pair of
    samples n, m is `K[n * C : (n + 1) * C, m * C : (m + 1) * C]`. No scaling. Shapes: (size of
    `of`, size of `of` at `others`). Source: Jacot, Gabriel, Hongler, "Neural tangent kernel", 2018.

    Raises `InputError` where a name, a shape or a dtype does not fit, and `UnsupportedOp` for an
    operator without a rule.
    """
    J = linearize(model, inputs, of=of, wrt=wrt, engine=engine)
    if others is None:
        return kernel(J, J.codomain)
    return J @ linearize(model, others, of=of, wrt=wrt, engine=engine).T


def kernel(J: Jacobian, codomain: Specs | None) -> Jacobian:
    """J Jᵀ, between the tensors behind the rows of J where they have names."""
    return J @ J.T if codomain is None else Symmetric(J @ J.T, codomain, formula="J Jᵀ")


@relinearizable
def gram(
    model: Model,
    inputs: Mapping[str, Any],
    *,
    of: Names = None,
    wrt: Names = None,
    engine: str | None = None,
) -> Symmetric:
    """G = Jᵀ J with J = ∂of/∂wrt: the matrix of the normal equations.

    No scaling: it is the Gauss-Newton matrix of ½ ‖of‖². Shapes: (size of `wrt`)²;
    `wrt` are all floating inputs by default.

    Raises `InputError` where a name, a shape or a dtype does not fit, and `UnsupportedOp` for an
    operator without a rule.
    """
    J = linearize(model, inputs, of=of, wrt=wrt, engine=engine)
    return Symmetric(J.T @ J, J.domain, formula="Jᵀ J")
