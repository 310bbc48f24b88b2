"""K-FAC, E-KFAC and Shampoo: Kronecker factors from the structure of the weight Jacobians.

What the gradients are of, and how they are scaled: see `gradients`; what data may be: see
`accumulation`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...jacobians.errors import InputError
from ..model import Model
from .accumulation import Accumulation, Moments, summed
from .gradients import Gradients, per_sample
from .kronecker import Factors, KroneckerFactored, eigh, rebuilt

APPROXIMATIONS = "expand", "reduce"

Bases = list[tuple[np.ndarray, np.ndarray]]
"""For every layer the eigenvectors of A and of B."""


def kfac(
    model: Model, inputs: Any, *, approximation: str = "expand", **options: Any
) -> KroneckerFactored:
    """K = blockdiag(A ⊗ B) with A = mean of x xᵀ, B = c Σ g gᵀ: the Kronecker factors of F.

    `approximation` says how positions that share a weight count (kernels, tokens): `"expand"`
    treats each position as a separate sample; `"reduce"` takes the mean of x and the sum of g over
    the positions of a sample. Biases and scales have blocks of their own; with `joint=True` a
    weight and the bias that is added to its product are one matrix, whose inputs x end in a 1.

    `inputs` are one batch, or data: then A and B are sums over all batches, which are linearised
    one at a time. Options: `at`, `wrt` (all weights by default), `joint`, `likelihood`, `axis`,
    `fisher_type`, `of`, `reduction`, `samples`, `seed`, `engine`, and for data `batch_size`,
    `shared`, `keep`, `progress` (see `onnxjac.progress`). Scaling and fisher types: see
    `gradients`.

    With `client`, a `distributed.Client`, its workers share out the batches of the data: each adds
    up its own, and keeps up to `keep` bytes of them for the second pass of `ekfac`. The draws of
    `fisher_type="mc"` do not depend on the number of workers.

    Shapes: K is (n, n), n the size of `wrt`; for a weight with i inputs and o outputs A is (i, i)
    and B is (o, o). Raises `InputError` for an option or a name that does not fit, `UnsupportedOp`
    for a weight whose use is not a Kronecker product, or mixes samples, `LimitError` where a factor
    would belong to a whole table. `K.inverse` raises `InputError` where K is
    singular without damping.

    Sources: Martens and Grosse, 2015; Grosse and Martens, 2016; Eschenhagen et al., 2023.
    """
    data = Accumulation(model, inputs, "K-FAC", **options)
    return KroneckerFactored(*kronecker_factors(data, approximation))


def ekfac(
    model: Model, inputs: Any, *, approximation: str = "expand", **options: Any
) -> KroneckerFactored:
    """E = Q diag(λ) Qᵀ: the eigenvectors Q of K-FAC, with λ = c Σₙ (Qᵀ vec Gₙ)² of F itself.

    No Kronecker product in this basis, of any eigenvalues, is nearer to F. Options: as for `kfac`.
    Takes two passes over data.

    Shapes: E and Q are (n, n), λ is (n,), n the size of `wrt`. Raises the errors of `kfac`, and
    `InputError` for `fisher_type="forward-only"`, which has no gradients.

    Source: George et al., "Fast approximate natural gradient descent in a Kronecker-factored
    eigenbasis", 2018.
    """
    data = Accumulation(model, inputs, "E-KFAC", **options)
    with_gradients(data, "E-KFAC")
    blocks, domain = kronecker_factors(data, approximation)

    bases = [(f.left_basis[1], f.right_basis[1]) for f in blocks]
    found = data.total(partial(summed, partial(squares, bases)))
    c = data.scale(found)
    corrected = [f.with_values(c * values) for f, (values,) in zip(blocks, found.sums, strict=True)]
    return KroneckerFactored(corrected, domain)


def squares(bases: Bases, k: int, x: np.ndarray, g: np.ndarray) -> tuple[np.ndarray]:
    """Σₙ Gₙ ∘ Gₙ in the basis of layer k."""
    q, r = bases[k]
    return (squared(x @ q[:, None], g @ r[:, None]),)


def squared(x: np.ndarray, g: np.ndarray) -> np.ndarray:
    """Σₙ Gₙ ∘ Gₙ with Gₙ = Σₛ xₙₛ gₙₛᵀ, which is never formed where a sample has one position."""
    if x.shape[2] == 1:
        return np.swapaxes(x[:, :, 0] ** 2, -1, -2) @ np.square(g[:, :, :, 0]).sum(axis=0)
    return np.square(per_sample(x, g)).sum(axis=(0, 2))


def with_gradients(data: Accumulation, what: str) -> None:
    """Raises `InputError` where there are no gradients."""
    if data.target.fisher_type == "forward-only":
        raise InputError(f"{what} is made of gradients: fisher_type='forward-only' has none")


def kronecker_factors(data: Accumulation, approximation: str) -> tuple[list[Factors], Any]:
    """A and B of every layer, and the tensors of all layers."""
    if approximation not in APPROXIMATIONS:
        raise InputError(f"approximation={approximation!r} is not one of {APPROXIMATIONS}")
    found = data.total(partial(second_moments, approximation == "reduce"))
    c = data.scale(found)
    forward = data.target.fisher_type == "forward-only"
    return [
        Factors(parts, A / rows, identities(parts, A.dtype) if forward else c * B)
        for parts, (A, rows, B) in zip(found.parts, found.sums, strict=True)
    ], found.domain


def second_moments(reduce: bool, found: Gradients) -> Moments:
    """Σ x xᵀ, its number of terms, and Σ g gᵀ; with `reduce`, for the mean x and the sum of g."""

    def right(_: int, x: np.ndarray, g: np.ndarray) -> tuple[np.ndarray]:
        g = g.sum(axis=-2, keepdims=True) if reduce else g
        return (np.einsum("kgnsp,kgnsq->gpq", g, g, optimize=True),)

    backward = summed(right, found) or [(0.0,)] * len(found.layers.layers)
    rows = []
    for layer, (B,) in zip(found.layers.layers, backward, strict=True):
        x = layer.x.mean(axis=-2, keepdims=True) if reduce else layer.x
        A = np.einsum("gnsi,gnsj->gij", x, x, optimize=True)
        rows.append((A, x.shape[1] * x.shape[2], B))
    return rows


def identities(parts: Any, dtype: np.dtype) -> np.ndarray:
    """I for every group, of the size of B."""
    groups, _, outputs = next(iter(parts.values())).out_shape
    return np.broadcast_to(np.eye(outputs, dtype=dtype), (groups, outputs, outputs))


def shampoo(model: Model, inputs: Any, *, power: float = 0.5, **options: Any) -> KroneckerFactored:
    """S = blockdiag(Lᵖ ⊗ Rᵖ) with L = c Σₙ Gₙ Gₙᵀ and R = c Σₙ Gₙᵀ Gₙ, Gₙ as in F.

    p = `power`: 1/2 as in Shampoo, whose steps use S⁻¹ᐟ² = L⁻¹ᐟ⁴ ⊗ R⁻¹ᐟ⁴. Options: as for `kfac`.

    Shapes: S is (n, n), n the size of `wrt`; for a weight with i inputs and o outputs Gₙ is (i, o),
    L is (i, i) and R is (o, o). Raises the errors of `kfac`, and `InputError` for
    `fisher_type="forward-only"`, which has no gradients.

    Source: Gupta, Koren, Singer, "Shampoo: preconditioned stochastic tensor optimization", 2018.
    """
    data = Accumulation(model, inputs, "Shampoo", **options)
    with_gradients(data, "Shampoo")
    found = data.total(partial(summed, sides))
    c = data.scale(found)
    return KroneckerFactored(
        [Factors(parts, powered(c * left, power), powered(c * right, power))
         for parts, (left, right) in zip(found.parts, found.sums, strict=True)],
        found.domain,
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
