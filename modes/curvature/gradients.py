"""Gradients: of single samples, layer by layer, as K-FAC and its kin need them.

For a use Y[g, r, o] = Σᵢ X[g, r, i] W[g, i, o] (see `uses`), the gradient of a sample n is
Gₙ = Σₛ xₙₛ gₙₛᵀ over its positions s: rows x that come in, cotangents g that come back. What g is a
cotangent of is `fisher_type`:

| fisher_type | g, pulled back to Y | F is |
|---|---|---|
| `"type-2"` | all columns of a root of the covariance of p(y ∣ z) | exact |
| `"mc"` | y − μ for `samples` draws y of p(y ∣ z), with `seed`; their mean | unbiased |
| `"empirical"` | the gradient of a sample's loss, named by `of`, in `at` | empirical |

Scaling: F = c Σₙ vec(Gₙ) vec(Gₙ)ᵀ, for `reduction="sum"` with c = 1, for `"mean"` with c = 1 over
the number of terms: rows of `at` along `axis`. With `fisher_type="empirical"`, `reduction` is
also what the model takes over the samples to make `of`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from ...jacobians.errors import InputError
from ..linearization import Linearization
from ..linearize import linearize
from ..model import Model
from ..names import Names, names_of
from .empirical_fisher import loss_gradients
from .kronecker import Factors, KroneckerFactored
from .layers import Layer, Layers
from .likelihoods import check_reduction, likelihood_of, terms

FISHER_TYPES = "type-2", "mc", "empirical"


@dataclass(frozen=True, repr=False, eq=False)
class Gradients:
    """Whatever K-FAC and its kin are made of: layers, and stacks of cotangents of `at`."""

    J: Linearization
    layers: Layers
    model: Model
    inputs: Mapping[str, Any]
    of: str | None
    likelihood: str
    axis: int
    fisher_type: str
    reduction: str
    samples: int
    seed: int
    engine: str | None

    @property
    def z(self) -> np.ndarray:
        """`at` at the point."""
        (value,) = self.J.primal.values()
        return value

    def stacks(self) -> Iterator[np.ndarray]:
        """Cotangents (k, *at), scaled so that F is the sum of all their outer products."""
        for stack in self._unscaled():
            yield stack / sqrt(terms(self.z, self.axis)) if self.reduction == "mean" else stack

    def _unscaled(self) -> Iterator[np.ndarray]:
        family = likelihood_of(self.likelihood)
        if self.fisher_type == "type-2":
            yield from family.roots(self.z, self.axis)
        elif self.fisher_type == "mc":
            drawn = family.residuals(self.z, self.axis, self.samples, self.seed)
            yield drawn / sqrt(self.samples)
        else:
            assert self.of is not None
            (at,) = self.J.primal
            slopes = loss_gradients(
                self.model, self.inputs, self.of, at, self.reduction, self.engine
            )
            yield slopes[None]

    def each(self) -> Iterator[tuple[Layer, np.ndarray]]:
        """Layers with cotangents (k, groups, samples, positions, outputs)."""
        for stack in self.stacks():
            yield from self.layers.cotangents(stack)


def gradients(
    model: Model,
    inputs: Mapping[str, Any],
    *,
    at: str | None = None,
    of: str | None = None,
    wrt: Names = None,
    likelihood: str = "categorical",
    axis: int = -1,
    fisher_type: str = "type-2",
    reduction: str = "mean",
    samples: int = 1,
    seed: int = 0,
    engine: str | None = None,
) -> Gradients:
    """The model at a point with its layers; `wrt` defaults to all floating initializers."""
    check_reduction(reduction, ("sum", "mean"))
    if fisher_type not in FISHER_TYPES:
        raise InputError(f"fisher_type={fisher_type!r} is not one of {FISHER_TYPES}")
    if fisher_type == "empirical" and of is None:
        raise InputError("fisher_type='empirical' needs the loss: name it with of=")
    (middle,) = names_of(model, at, model.outputs, "at")
    weights = names_of(model, wrt, model.initializers, "wrt")
    J = linearize(model, inputs, of=middle, wrt=weights, engine=engine)
    return Gradients(J, Layers(J), model, inputs, of, likelihood, axis, fisher_type, reduction,
                     samples, seed, engine)  # fmt: skip


def per_sample(x: np.ndarray, g: np.ndarray) -> np.ndarray:
    """Gₙ = Σₛ xₙₛ gₙₛᵀ, (k, groups, samples, inputs, outputs)."""
    return np.swapaxes(x, -1, -2) @ g


def assembled(found: Gradients, factors: dict[int, Factors]) -> KroneckerFactored:
    """The factors by tensor, in the order of `wrt`."""
    by_name: dict[str, list[Factors]] = {spec.name: [] for spec in found.J.domain}
    for layer in found.layers.layers:
        by_name[layer.name].append(factors[id(layer)])
    return KroneckerFactored(by_name, found.J.domain)
