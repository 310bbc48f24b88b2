"""K-FAC, E-KFAC and Shampoo: Kronecker factors from the structure of the weight Jacobians.

For a use Y[g, r, o] = Σᵢ X[g, r, i] W[g, i, o] (see `uses`), the gradient of a sample n is
Gₙ = Σₛ xₙₛ gₙₛᵀ over its positions s: rows x that come in, cotangents g that come back. What g is a
cotangent of is `fisher_type`:

| fisher_type | g, pulled back to Y | F |
|---|---|---|
| `"type-2"` | the columns of a root of the covariance of p(y ∣ z), as many as outputs of a sample | exact |
| `"mc"` | y − μ for `samples` draws y of p(y ∣ z), with `seed`; F is divided by `samples` | unbiased |
| `"empirical"` | the gradient of a sample's loss in `at`; `of` names the loss | empirical |

Scaling: F = c Σₙ vec(Gₙ) vec(Gₙ)ᵀ, for `reduction="sum"` with c = 1, for `"mean"` with c = 1 over
the number of terms: rows of `at` along `axis`. With `fisher_type="empirical"`, `reduction` is
also what the model takes over the samples to make `of`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...jacobians.errors import InputError
from ..linearization import Linearization
from ..linearize import linearize
from ..model import Model
from ..names import Names, names_of
from .empirical_fisher import loss_gradients
from .kronecker import Factors, KroneckerFactored, eigh
from .layers import Layer, Layers
from .likelihoods import check_reduction, likelihood_of, terms

FISHER_TYPES = "type-2", "mc", "empirical"
APPROXIMATIONS = "expand", "reduce"


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
            yield stack / np.sqrt(terms(self.z, self.axis)) if self.reduction == "mean" else stack

    def _unscaled(self) -> Iterator[np.ndarray]:
        family = likelihood_of(self.likelihood)
        if self.fisher_type == "type-2":
            yield from family.roots(self.z, self.axis)
        elif self.fisher_type == "mc":
            drawn = family.residuals(self.z, self.axis, self.samples, self.seed)
            yield drawn / np.sqrt(self.samples)
        else:
            assert self.of is not None
            (at,) = self.J.primal
            yield loss_gradients(
                self.model, self.inputs, self.of, at, self.reduction, self.engine
            )[None]

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


def kfac(
    model: Model, inputs: Mapping[str, Any], *, approximation: str = "expand", **options: Any
) -> KroneckerFactored:
    """K = blockdiag(A ⊗ B) with A = mean of x xᵀ, B = c Σ g gᵀ: the Kronecker factors of F.

    `approximation` says how positions that share a weight count (kernels, tokens): `"expand"`
    takes every position for a sample of its own; `"reduce"` takes the mean of x and the sum of g
    over the positions of a sample. Biases and scales have blocks of their own.

    Options: `at`, `wrt` (all weights by default), `likelihood`, `axis`, `fisher_type`, `of`,
    `reduction`, `samples`, `seed`, `engine`. Scaling and fisher types: see this module. Sources:
    Martens and Grosse, 2015; Grosse and Martens, 2016; Eschenhagen et al., 2023.
    """
    if approximation not in APPROXIMATIONS:
        raise InputError(f"approximation={approximation!r} is not one of {APPROXIMATIONS}")
    found = gradients(model, inputs, **options)
    return assembled(found, kronecker_factors(found, approximation))


def ekfac(
    model: Model, inputs: Mapping[str, Any], *, approximation: str = "expand", **options: Any
) -> KroneckerFactored:
    """E = Q diag(λ) Qᵀ: the eigenvectors Q of K-FAC, with λ = c Σₙ (Qᵀ vec Gₙ)² of F itself.

    No Kronecker product in this basis, of any eigenvalues, is nearer to F. Options are those of
    `kfac`. Source: George et al., "Fast approximate natural gradient descent in a
    Kronecker-factored eigenbasis", 2018.
    """
    found = gradients(model, inputs, **options)
    factors = kronecker_factors(found, approximation)
    second: dict[int, Any] = {id(layer): 0.0 for layer in found.layers.layers}
    for layer, g in found.each():
        f = factors[id(layer)]
        G = per_sample(layer.x @ f.left_basis[1][:, None], g @ f.right_basis[1][:, None])
        second[id(layer)] += np.square(G).sum(axis=(0, 2))
    corrected = {k: Factors(f.start, f.left, f.right, second[k]) for k, f in factors.items()}
    return assembled(found, corrected)


def shampoo(
    model: Model, inputs: Mapping[str, Any], *, power: float = 0.5, **options: Any
) -> KroneckerFactored:
    """S = blockdiag(Lᵖ ⊗ Rᵖ) with L = c Σₙ Gₙ Gₙᵀ and R = c Σₙ Gₙᵀ Gₙ, from the gradients of samples.

    p = `power`: 1/2 as in Shampoo, whose steps use S⁻¹ᐟ² = L⁻¹ᐟ⁴ ⊗ R⁻¹ᐟ⁴. Options are those of
    `kfac`. Source: Gupta, Koren, Singer, "Shampoo: preconditioned stochastic tensor optimization",
    2018.
    """
    found = gradients(model, inputs, **options)
    sides: dict[int, list[Any]] = {id(layer): [0.0, 0.0] for layer in found.layers.layers}
    for layer, g in found.each():
        G = per_sample(layer.x, g)
        sides[id(layer)][0] += np.einsum("kgnio,kgnjo->gij", G, G, optimize=True)
        sides[id(layer)][1] += np.einsum("kgnip,kgniq->gpq", G, G, optimize=True)
    roots = {
        id(layer): Factors(layer.start, *(powered(side, power) for side in sides[id(layer)]))
        for layer in found.layers.layers
    }
    return assembled(found, roots)


def kronecker_factors(found: Gradients, approximation: str) -> dict[int, Factors]:
    """A and B of every layer."""
    right: dict[int, Any] = {id(layer): 0.0 for layer in found.layers.layers}
    for layer, g in found.each():
        g = g.sum(axis=-2, keepdims=True) if approximation == "reduce" else g
        right[id(layer)] += np.einsum("kgnsp,kgnsq->gpq", g, g, optimize=True)
    return {
        id(layer): Factors(layer.start, input_factor(layer.x, approximation), right[id(layer)])
        for layer in found.layers.layers
    }


def input_factor(x: np.ndarray, approximation: str) -> np.ndarray:
    """A = mean of x xᵀ over samples and positions, or over samples of the mean x."""
    x = x.mean(axis=-2, keepdims=True) if approximation == "reduce" else x
    rows = x.shape[1] * x.shape[2]
    return np.einsum("gnsi,gnsj->gij", x, x, optimize=True) / rows


def per_sample(x: np.ndarray, g: np.ndarray) -> np.ndarray:
    """Gₙ = Σₛ xₙₛ gₙₛᵀ, (k, groups, samples, inputs, outputs)."""
    return np.swapaxes(x, -1, -2) @ g


def powered(a: np.ndarray, power: float) -> np.ndarray:
    """aᵖ of a positive semidefinite matrix, per group."""
    values, vectors = eigh(a)
    return (vectors * values[..., None, :] ** power) @ np.swapaxes(vectors, -1, -2)


def assembled(found: Gradients, factors: dict[int, Factors]) -> KroneckerFactored:
    """The factors by tensor, in the order of `wrt`."""
    by_name: dict[str, list[Factors]] = {spec.name: [] for spec in found.J.domain}
    for layer in found.layers.layers:
        by_name[layer.name].append(factors[id(layer)])
    return KroneckerFactored(by_name, found.J.domain)
