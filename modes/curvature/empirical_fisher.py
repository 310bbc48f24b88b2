"""Empirical Fisher: the second moment of the gradients of single samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...jacobians import Inner, Jacobian, Shape, SumTo, shape_of
from ...jacobians.errors import InputError
from ..linearization import Linearization
from ..linearize import linearize
from ..model import Model
from ..naming.names import Names, name_of
from ..reverse import grad
from .likelihoods import check_reduction
from .symmetric import Symmetric, relinearizable


@relinearizable
def empirical_fisher(
    model: Model,
    inputs: Mapping[str, Any],
    *,
    of: str,
    at: str | None = None,
    wrt: Names = None,
    reduction: str = "mean",
    engine: str | None = None,
) -> Symmetric:
    """F = c Σₙ gₙ gₙᵀ, with gₙ = ∂ℓₙ/∂wrt the gradient of the loss of sample n.

    Without `at`, `of` holds the losses, the samples along its first axis; with it, `of` is their
    sum or their mean and acts on each sample of `at`, along the first axis, alone. `reduction` says
    which, and is the reduction of F: `"sum"`: of = Σ ℓₙ and c = 1; `"mean"`: of = (1/N) Σ ℓₙ and
    c = 1/N. No gradient is formed: F = c Gᵀ G, with the rows of G one product through the model.
    Shapes: (size of `wrt`)²; `wrt` are all floating inputs by default. Source: Kunstner,
    Balles, Hennig, "Limitations of the empirical Fisher approximation for natural gradient
    descent", 2019.

    Raises `InputError` where a name, a shape or a dtype does not fit, and `UnsupportedOp` for an
    operator without a rule; `InputError` also for a `reduction` that there is not, and where no
    tensor has an axis of samples.
    """
    G = per_sample_gradients(
        model, inputs, of=of, at=at, wrt=wrt, reduction=reduction, engine=engine
    )
    rows, J = G
    scale = 1 / rows.shape[0] if reduction == "mean" else 1.0
    return Symmetric(J.T @ (rows.T * scale @ rows @ J), J.domain, formula=f"Σ ∇{of} ∇{of}ᵀ")


def per_sample_gradients(
    model: Model,
    inputs: Mapping[str, Any],
    *,
    of: str,
    at: str | None,
    wrt: Names,
    reduction: str,
    engine: str | None,
) -> tuple[Jacobian, Linearization]:
    """(E, J) with G = E J, the gradient of every sample's loss in its row: J = ∂at/∂wrt."""
    check_reduction(reduction, ("sum", "mean"))
    middle = name_of(model, of if at is None else at, model.outputs, "at")
    J = linearize(model, inputs, of=middle, wrt=wrt, engine=engine)
    shape = shape_of(J.primal[middle])
    if not shape:
        raise InputError(f"{middle!r} is a scalar: name with at= a tensor that has a sample axis")
    if at is None:
        return SumTo(per_sample(shape), shape, J.dtype), J
    slopes = loss_gradients(model, inputs, of, middle, reduction, engine)
    return Inner(slopes, per_sample(shape), shape), J


def loss_gradients(
    model: Model, inputs: Mapping[str, Any], of: str, at: str, reduction: str, engine: str | None
) -> np.ndarray:
    """∂ℓₙ/∂at: a row for each sample, where `of` is the sum or the mean of the losses ℓₙ."""
    slopes = grad(model, inputs, of=of, wrt=at, engine=engine)[at]
    return slopes * len(slopes) if reduction == "mean" else slopes


def per_sample(shape: Shape) -> Shape:
    """One entry per sample, with the same rank.

    >>> per_sample((4, 3, 2))
    (4, 1, 1)
    """
    return (shape[0], *(1,) * (len(shape) - 1))
