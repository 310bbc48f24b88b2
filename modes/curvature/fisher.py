"""Fisher: the information that the distribution of a model's output carries about its tensors."""

from __future__ import annotations

from collections.abc import Mapping
from string import ascii_letters
from typing import Any

import numpy as np

from ...jacobians import Contraction, Jacobian
from ..linearize import linearize
from ..model import Model
from ..naming.names import Names, name_of
from .likelihoods import check_reduction, likelihood_of, terms
from .symmetric import Symmetric, relinearizable


@relinearizable
def fisher(
    model: Model,
    inputs: Mapping[str, Any],
    *,
    at: str | None = None,
    wrt: Names = None,
    likelihood: str = "categorical",
    axis: int = -1,
    reduction: str = "mean",
    samples: int | None = None,
    seed: int = 0,
    engine: str | None = None,
) -> Symmetric:
    """F = c Σₜ Jₜᵀ C(zₜ) Jₜ, with J = ∂at/∂wrt and C the covariance of y under p(y | zₜ).

    The terms t are the rows of `at` along `axis`: zₜ are the logits of one categorical
    (`likelihood="categorical"`), of independent Bernoullis (`"bernoulli"`), or the mean of a
    Gaussian of variance 1 (`"gaussian"`). Scaling: c = 1 for `reduction="sum"`, and 1 over the
    number of terms for `"mean"`, whatever loss the model itself holds. With `samples`, C is
    replaced by the mean of so many outer products (y − μ)(y − μ)ᵀ, y drawn from p(y | zₜ) with
    `seed`: an unbiased estimate. Shapes: (size of `wrt`)²; `wrt` are all floating inputs by
    default, so name the weights. Source: Martens, "New insights and perspectives on the natural
    gradient method", 2020.

    Raises `InputError` where a name, a shape or a dtype does not fit, and `UnsupportedOp` for an
    operator without a rule; `InputError` also for a `likelihood` or a `reduction` that there is
    not.
    """
    check_reduction(reduction, ("sum", "mean"))
    middle = name_of(model, at, model.outputs, "at")
    J = linearize(model, inputs, of=middle, wrt=wrt, engine=engine)
    z, family = J.primal[middle], likelihood_of(likelihood)
    if samples is None:
        C = family.covariance(z, axis)
    else:
        C = outer_products(family.residuals(z, axis, samples, seed), axis)
    scale = 1 / terms(z, axis) if reduction == "mean" else 1.0
    return Symmetric(J.T @ (C * scale @ J), J.domain, formula=f"Jᵀ C({middle}) J")


def outer_products(r: np.ndarray, axis: int) -> Jacobian:
    """(1/k) Σₘ rₘ rₘᵀ per row along the axis, for r of shape (k, *shape).

    >>> outer_products(np.array([[[1.0, 2.0]]]), -1).toarray()
    array([[1., 2.],
           [2., 4.]])
    """
    shape = r.shape[1:]
    k, new, *labels = list(ascii_letters[: len(shape) + 2])
    rows = "".join(labels)
    labels[axis] = new
    columns = "".join(labels)
    sizes = dict(zip((k, new, *rows), (len(r), shape[axis], *shape), strict=True))
    return Contraction(((r / len(r), k + rows), (r, k + columns)), columns, rows, sizes)
