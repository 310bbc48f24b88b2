"""Shampoo: Kronecker factors from the second moments of gradient matrices."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ..model import Model
from .factors import Factors, eigh, rebuilt
from .gradients import per_sample
from .kfac import with_gradients
from .kronecker import KroneckerFactored
from .passes import Passes
from .pooling import summed


def shampoo(model: Model, inputs: Any, *, power: float = 0.5, **options: Any) -> KroneckerFactored:
    """S = blockdiag(Lᵖ ⊗ Rᵖ) with L = c Σₙ Gₙ Gₙᵀ and R = c Σₙ Gₙᵀ Gₙ, Gₙ as in F.

    p = `power`: 1/2 as in Shampoo, whose steps use S⁻¹ᐟ² = L⁻¹ᐟ⁴ ⊗ R⁻¹ᐟ⁴. Options: as for `kfac`.

    Shapes: S is (n, n), n the size of `wrt`; for a weight with i inputs and o outputs Gₙ is (i, o),
    L is (i, i) and R is (o, o). Raises the errors of `kfac`, and `InputError` for
    `fisher_type="forward-only"`, which has no gradients.

    Source: Gupta, Koren, Singer, "Shampoo: preconditioned stochastic tensor optimization", 2018.
    """
    passes = Passes(model, inputs, "Shampoo", **options)
    with_gradients(passes, "Shampoo")
    pool = passes.pooled(partial(summed, sides))
    c = passes.scale(pool)
    return KroneckerFactored(
        [Factors(parts, powered(c * left, power), powered(c * right, power))
         for parts, (left, right) in zip(pool.parts, pool.sums, strict=True)],
        pool.domain,
    )  # fmt: skip


def sides(_: int, x: np.ndarray, g: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Σ G Gᵀ and Σ Gᵀ G, per group."""
    G = per_sample(x, g)
    left = np.einsum("kgnio,kgnjo->gij", G, G, optimize=True)
    return left, np.einsum("kgnip,kgniq->gpq", G, G, optimize=True)


def powered(a: np.ndarray, power: float) -> np.ndarray:
    """aᵖ of a positive semidefinite matrix, per group."""
    values, vectors = eigh(a)
    return rebuilt(values**power, vectors)
