"""K-FAC and E-KFAC: Kronecker factors from the structure of the weight Jacobians.

What the gradients are of, and how they are scaled: see `gradients`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...jacobians.errors import InputError
from ..model import Model
from .gradients import Gradients, assembled, gradients, per_sample
from .kronecker import Factors, KroneckerFactored

APPROXIMATIONS = "expand", "reduce"


def kfac(
    model: Model, inputs: Mapping[str, Any], *, approximation: str = "expand", **options: Any
) -> KroneckerFactored:
    """K = blockdiag(A ⊗ B) with A = mean of x xᵀ, B = c Σ g gᵀ: the Kronecker factors of F.

    `approximation` says how positions that share a weight count (kernels, tokens): `"expand"`
    takes every position for a sample of its own; `"reduce"` takes the mean of x and the sum of g
    over the positions of a sample. Biases and scales have blocks of their own.

    Options: `at`, `wrt` (all weights by default), `likelihood`, `axis`, `fisher_type`, `of`,
    `reduction`, `samples`, `seed`, `engine`. Scaling and fisher types: see `gradients`. Sources:
    Martens and Grosse, 2015; Grosse and Martens, 2016; Eschenhagen et al., 2023.
    """
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


def kronecker_factors(found: Gradients, approximation: str) -> dict[int, Factors]:
    """A and B of every layer."""
    if approximation not in APPROXIMATIONS:
        raise InputError(f"approximation={approximation!r} is not one of {APPROXIMATIONS}")
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
