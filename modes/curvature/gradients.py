"""Gradients: per-sample gradients, layer by layer, for K-FAC and related methods.

For a use Y[g, r, o] = Σᵢ X[g, r, i] W[g, i, o] (see `weights`), the gradient of a sample n is
Gₙ = Σₛ xₙₛ gₙₛᵀ over its positions s, with input rows x and output cotangents g. `fisher_type` says
which cotangents of `at` are pulled back:

| fisher_type | g, pulled back to Y | F is |
|---|---|---|
| `"type-2"` | all columns of a root of the covariance of p(y ∣ z) | exact |
| `"mc"` | y − μ for `samples` draws y of p(y ∣ z), with `seed`; their mean | unbiased |
| `"empirical"` | the gradient in `at` of a sample's loss, named by `of` | empirical |
| `"forward-only"` | none: only for `kfac`, where B = I then | not a Fisher matrix |

Scaling: F = c Σₙ vec(Gₙ) vec(Gₙ)ᵀ, for `reduction="sum"` with c = 1, for `"mean"` with c = 1 over
the number of terms, which are the rows of `at` along `axis`, of all batches. With
`fisher_type="empirical"`, `reduction` is also how the model reduces over a batch to make `of`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

import numpy as np

from ...jacobians.errors import InputError
from ..linearization import Linearization
from ..linearize import linearize
from ..model import Model
from ..naming.names import Names, name_of, names_of
from .fisher import check_reduction, likelihood_of, loss_gradients, terms
from .layers import Layer, Layers

FISHER_TYPES = "type-2", "mc", "empirical", "forward-only"


@dataclass(frozen=True)
class Target:
    """Which gradients; `wrt` defaults to all floating initializers."""

    at: str | None = None
    of: str | None = None
    wrt: Names = None
    likelihood: str = "categorical"
    axis: int = -1
    fisher_type: str = "type-2"
    reduction: str = "mean"
    samples: int = 1
    seed: int = 0
    joint: bool = False
    engine: str | None = None

    def __post_init__(self) -> None:
        check_reduction(self.reduction, ("sum", "mean"))
        likelihood_of(self.likelihood)
        if self.fisher_type not in FISHER_TYPES:
            raise InputError(f"fisher_type={self.fisher_type!r} is not one of {FISHER_TYPES}")
        if self.fisher_type == "empirical" and self.of is None:
            raise InputError("fisher_type='empirical' needs the loss: name it with of=")

    def linearized(self, model: Model, inputs: Mapping[str, Any]) -> Linearization:
        """J = ∂at/∂wrt."""
        middle = name_of(model, self.at, model.outputs, "at")
        weights = names_of(model, self.wrt, model.initializers, "wrt")
        return linearize(model, inputs, of=middle, wrt=weights, engine=self.engine)

    def seeded(self, seed: int) -> Target:
        """The same target with another seed."""
        return replace(self, seed=seed)


@dataclass(frozen=True, repr=False, eq=False)
class Gradients:
    """The gradients of one batch: its layers, and stacks of cotangents of `at`."""

    J: Linearization
    layers: Layers
    model: Model
    target: Target

    @property
    def z(self) -> np.ndarray:
        """The value of `at`."""
        (value,) = self.J.primal.values()
        return value

    @property
    def terms(self) -> int:
        """The number of terms of a mean."""
        return terms(self.z, self.target.axis)

    def stacks(self) -> Iterator[np.ndarray]:
        """Cotangents (k, *at), the sum of whose outer products is F for `reduction="sum"`."""
        t = self.target
        family = likelihood_of(t.likelihood)
        if t.fisher_type == "type-2":
            yield from family.roots(self.z, t.axis)
        elif t.fisher_type == "mc":
            yield family.residuals(self.z, t.axis, t.samples, t.seed) / sqrt(t.samples)
        elif t.of is not None and t.fisher_type == "empirical":
            (at,) = self.J.primal
            slopes = loss_gradients(self.model, self.J.point, t.of, at, t.reduction, t.engine)
            yield slopes[None]

    def each(self) -> Iterator[tuple[Layer, np.ndarray]]:
        """Layers with cotangents (k, groups, samples, positions, outputs)."""
        for stack in self.stacks():
            yield from self.layers.cotangents(stack)


def gradients(model: Model, inputs: Mapping[str, Any], **options: Any) -> Gradients:
    """The gradients of one batch; the options are the fields of `Target`."""
    target = Target(**options)
    return gradients_of(target.linearized(model, inputs), model, target)


def gradients_of(J: Linearization, model: Model, target: Target) -> Gradients:
    """The gradients of one batch, from its linearisation."""
    return Gradients(J, Layers(J, joint=target.joint), model, target)


def per_sample(x: np.ndarray, g: np.ndarray) -> np.ndarray:
    """Gₙ = Σₛ xₙₛ gₙₛᵀ, (k, groups, samples, inputs, outputs)."""
    return np.swapaxes(x, -1, -2) @ g
