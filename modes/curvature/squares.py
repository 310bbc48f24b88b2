"""Squares: the diagonal of Jᵀ H J from the squared gradients of samples, layer by layer.

Where H couples no two samples, its block of a sample is Hₙ = Σₖ ± sₙₖ sₙₖᵀ, and the diagonal is
Σₙ Σₖ ± Gₙₖ ∘ Gₙₖ with the gradients Gₙₖ = Jₙᵀ sₙₖ: as many cotangents as a sample has outputs.
Source: Dangel, Kunstner, Hennig, "BackPACK: packing more into backprop", 2020.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...jacobians import Jacobian, shape_of
from ...jacobians.errors import LimitError, UnsupportedOp
from ...ops import numbers
from ..linear.elimination.samples import Batch, within
from ..linear.linearization import Linearization
from .fisher import CHUNK
from .gradients import Gradients, Target, squares

OUTPUTS = 256
"""The most outputs of a sample for which as many cotangents are pulled back."""


def sample_diagonal(J: Linearization, H: Jacobian) -> np.ndarray | None:
    """diag(Jᵀ H J); None where H couples samples or has too many outputs, or where the weights are
    not used as matrices.
    """
    z = next(iter(J.primal.values()))
    if len(J.primal) > 1 or J.transposed or not z.ndim or not z.size or H.shape != (z.size,) * 2:
        return None
    batch = Batch(len(z), z[0].size)
    if batch.inner > OUTPUTS or within(H, batch) != batch:
        return None
    try:
        found = Gradients(J, J.route.model, Target())
    except (UnsupportedOp, LimitError):
        return None
    if overlapping(found):
        return None  # the square of a sum of gradients
    total = {s.name: np.zeros(shape_of(s), J.dtype) for s in J.domain}
    for sign, stack in roots(H, z):
        for layer, g in found.cotangents(stack):
            m = squares(layer.x, g)
            for name, part in layer.parts.items():
                total[name] += sign * part.T._apply(numbers, m).reshape(total[name].shape)
    return np.concatenate([t.ravel() for t in total.values()])


def overlapping(found: Gradients) -> bool:
    """Whether an entry of a tensor belongs to several layers."""
    parts: dict[str, list[Jacobian]] = {}
    for layer in found.layers:
        for name, part in layer.parts.items():
            parts.setdefault(name, []).append(part)
    several = ([part.T @ np.ones(part.shape[0]) for part in own]
               for own in parts.values() if len(own) > 1)  # fmt: skip
    return any((np.count_nonzero(own, axis=0) > 1).any() for own in several)


def roots(H: Jacobian, z: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Signs and stacks (k, *z) of vectors sₙₖ with Hₙ = Σ ± sₙₖ sₙₖᵀ for every sample n."""
    samples, n = len(z), z[0].size
    units = np.broadcast_to(np.eye(n, dtype=H.dtype)[:, None], (n, samples, n))
    blocks = (H @ units.reshape(n, -1).T).reshape(samples, n, n)
    values, vectors = np.linalg.eigh((blocks + blocks.swapaxes(1, 2)) / 2)
    scaled = np.moveaxis(vectors * np.sqrt(np.abs(values))[:, None], -1, 0)
    noise = n * np.finfo(values.dtype).eps * np.abs(values).max()
    width = max(1, CHUNK // max(z.nbytes, 1))
    for sign in (1, -1):
        held = np.where(sign * values > noise, 1, 0).astype(scaled.dtype).T
        used = np.flatnonzero(held.any(axis=1))
        for start in range(0, len(used), width):
            k = used[start : start + width]
            yield sign, (scaled[k] * held[k, :, None]).reshape(len(k), *z.shape)
