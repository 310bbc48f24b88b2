"""Shampoo: Kronecker factors from the second moments of gradient matrices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..model import Model
from .gradients import assembled, gradients, per_sample
from .kronecker import Factors, KroneckerFactored, eigh


def shampoo(
    model: Model, inputs: Mapping[str, Any], *, power: float = 0.5, **options: Any
) -> KroneckerFactored:
    """S = blockdiag(Lᵖ ⊗ Rᵖ) with L = c Σₙ Gₙ Gₙᵀ and R = c Σₙ Gₙᵀ Gₙ, Gₙ as in F.

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


def powered(a: np.ndarray, power: float) -> np.ndarray:
    """aᵖ of a positive semidefinite matrix, per group."""
    values, vectors = eigh(a)
    return (vectors * values[..., None, :] ** power) @ np.swapaxes(vectors, -1, -2)
