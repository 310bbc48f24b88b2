"""Gauss-Newton: the curvature of a loss through the linearised model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...jacobians import shape_of
from ...jacobians.errors import InputError
from ..hessian import hessian
from ..linearize import linearize
from ..model import Model
from ..naming.names import Names, name_of
from .likelihoods import check_reduction
from .losses import loss_hessian
from .reductions import reduction_of
from .symmetric import Symmetric, relinearizable


@relinearizable
def gauss_newton(
    model: Model,
    inputs: Mapping[str, Any],
    *,
    of: str,
    at: str,
    wrt: Names = None,
    weights: Any = None,
    reduction: str | None = None,
    engine: str | None = None,
) -> Symmetric:
    """G = Jᵀ H J, with J = ∂at/∂wrt and H = ∂²of/∂at²: the generalised Gauss-Newton matrix.

    The loss is whatever the model computes between `at` and `of`; where `of` has several elements,
    `weights` combine them into a scalar, as for `hessian`. H is in closed form for softmax and
    binary cross-entropies and squared errors, however they are written; else it is the
    linearisation of the recorded gradient.

    Scaling: none by default; if `of` is a mean over samples, G is that mean. With
    `reduction="sum"` or `"mean"`, G is of the sum or of the mean over the N samples, the first axis
    of `at`, where the last steps to `of` tell which of the two the model takes.

    G is positive semidefinite where the loss is convex in `at`. Shapes: (size of `wrt`)²; `wrt` are
    all floating inputs by default, so name the weights. Source: Schraudolph, "Fast curvature
    matrix-vector products for second-order gradient descent", 2002.

    Raises `InputError` where a name, a shape or a dtype does not fit, and `UnsupportedOp` for an
    operator without a rule; `InputError` also for several elements of `of` without `weights`, and
    for a `reduction` that the model's last steps do not show.
    """
    check_reduction(reduction, (None, "sum", "mean"))
    middle = name_of(model, at, model.outputs, "at")
    loss = name_of(model, of, model.outputs, "of")
    J = linearize(model, inputs, of=middle, wrt=wrt, engine=engine)
    H = loss_hessian(model, inputs, loss, middle, weights, engine)
    if H is None:
        H = hessian(model, inputs, of=loss, wrt=middle, weights=weights, engine=engine)
    if reduction is not None:
        H = H * factor(reduction, reduction_of(model, loss), loss, shape_of(J.codomain[0])[:1])
    text = f"Jᵀ (∂²{loss}/∂{middle}²) J"
    return Symmetric(J.T @ (H @ J), J.domain, formula=text)


def factor(wanted: str, found: str | None, of: str, batch: tuple[int, ...]) -> float:
    """From what a model takes over N samples to what is wanted."""
    if found is None or not batch:
        raise InputError(
            f"the model does not end in a sum or a mean over samples that make {of!r}: leave out "
            f"reduction= and scale the operator"
        )
    return 1.0 if wanted == found else {"sum": float(batch[0]), "mean": 1 / batch[0]}[wanted]
