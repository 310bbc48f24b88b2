"""Gauss-Newton: the curvature of a loss through the linearised model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..hessian import hessian
from ..linearize import linearize
from ..model import Model
from ..names import Names, names_of
from .symmetric import Symmetric


def gauss_newton(
    model: Model,
    inputs: Mapping[str, Any],
    *,
    of: str,
    at: str,
    wrt: Names = None,
    weights: Any = None,
    engine: str | None = None,
) -> Symmetric:
    """G = Jᵀ H J, with J = ∂at/∂wrt and H = ∂²of/∂at²: the generalised Gauss-Newton matrix.

    The loss is whatever the model computes between `at` and `of`; where `of` has several elements,
    `weights` combine them into a scalar, as for `hessian`. No further scaling is applied: if `of`
    is a mean over samples, G is that mean. G is positive semidefinite where the loss is convex in
    `at`. Shapes: (size of `wrt`)². Source: Schraudolph, "Fast curvature matrix-vector products for
    second-order gradient descent", 2002.
    """
    (middle,) = names_of(model, at, model.outputs, "at")
    J = linearize(model, inputs, of=middle, wrt=wrt, engine=engine)
    H = hessian(model, inputs, of=of, wrt=middle, weights=weights, engine=engine)
    return Symmetric(J.T @ (H @ J), J.domain)
