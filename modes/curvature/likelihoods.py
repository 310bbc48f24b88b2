"""Likelihoods: distributions whose natural parameters are the outputs of a model.

In an exponential family the Fisher information in the natural parameter z is the covariance of the
sufficient statistic, which is the derivative of its mean: C(z) = ∂μ/∂z. So a likelihood is the
operator that gives the mean, and its rule gives the rest.

| likelihood | μ(z) | C(z) | loss −log p(y | z) |
|---|---|---|---|
| categorical | softmax(z) | diag(p) − p pᵀ | cross-entropy |
| Bernoulli | σ(z) | diag(σ (1 − σ)) | binary cross-entropy |
| Gaussian, variance 1 | z | I | ½ ‖z − y‖² |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...jacobians import Jacobian
from ...jacobians.errors import InputError
from .local import value_and_jacobian

CHUNK = 32 * 2**20
"""Bytes of cotangents that are made at a time."""

Draw = Callable[[np.random.Generator, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Likelihood:
    """The operator of the mean, whether it couples the entries of a row, and how to draw y."""

    mean: str
    coupled: bool
    draw: Draw

    def covariance(self, z: np.ndarray, axis: int = -1) -> Jacobian:
        """C(z) = ∂μ/∂z, over all terms."""
        return self._mean(z, axis)[1]

    def residuals(self, z: np.ndarray, axis: int, samples: int, seed: int) -> np.ndarray:
        """y − μ for samples y of p(· | z), (samples, *z): C is the mean of their outer products."""
        mean = self._mean(z, axis)[0]
        rows = np.moveaxis(np.broadcast_to(mean, (samples, *z.shape)), axis % z.ndim + 1, -1)
        drawn = self.draw(np.random.default_rng(seed), rows)
        return np.moveaxis(drawn - rows, -1, axis % z.ndim + 1).astype(z.dtype)

    def roots(self, z: np.ndarray, axis: int = -1) -> Iterator[np.ndarray]:
        """S with S Sᵀ = C for every sample: one column per output of a sample, in chunks (k, *z).

        S = C diag(μ)^(-1/2) for a categorical: diag(√p) − p √pᵀ. Else C is diagonal, S = √C.
        """
        mean, C = self._mean(z, axis)
        outputs, width = z[0].size, max(1, CHUNK // max(z.nbytes, 1))
        weight = inverse_root(mean if self.coupled else C.diagonal().reshape(z.shape))
        for start in range(0, outputs, width):
            unit = np.zeros((min(width, outputs - start), *z.shape), z.dtype)
            columns = unit.reshape(*unit.shape[:2], -1)
            columns[range(len(unit)), :, range(start, start + len(unit))] = 1
            yield (C @ (unit * weight).reshape(len(unit), -1).T).T.reshape(unit.shape)

    def _mean(self, z: np.ndarray, axis: int) -> tuple[Any, Jacobian]:
        return value_and_jacobian(self.mean, z, **({"axis": axis} if self.coupled else {}))


def inverse_root(x: np.ndarray) -> np.ndarray:
    """1/√x, and 0 where x is 0: there the column of C is 0 too."""
    return np.divide(1, np.sqrt(x), out=np.zeros_like(x), where=x > 0)


def one_hot(rng: np.random.Generator, p: np.ndarray) -> np.ndarray:
    """Unit vectors along the last axis, each with its probability."""
    u = rng.random((*p.shape[:-1], 1))
    label = (u > np.cumsum(p, axis=-1)[..., :-1]).sum(axis=-1)
    return np.eye(p.shape[-1])[label]


LIKELIHOODS = {
    "categorical": Likelihood("Softmax", True, one_hot),
    "bernoulli": Likelihood("Sigmoid", False, lambda rng, p: rng.random(p.shape) < p),
    "gaussian": Likelihood("Identity", False, lambda rng, z: z + rng.standard_normal(z.shape)),
}


def likelihood_of(name: str) -> Likelihood:
    """The likelihood of that name."""
    if name not in LIKELIHOODS:
        raise InputError(f"likelihood={name!r} is not one of {', '.join(map(repr, LIKELIHOODS))}")
    return LIKELIHOODS[name]


def terms(z: np.ndarray, axis: int = -1) -> int:
    """How many terms a loss on z has: one per row along the axis; one per entry of a vector."""
    return z.size if z.ndim < 2 else z.size // z.shape[axis]


def check_reduction(reduction: str | None, allowed: tuple[str | None, ...]) -> None:
    """Raises where a reduction is not one of those allowed."""
    if reduction not in allowed:
        raise InputError(f"reduction={reduction!r} is not one of {', '.join(map(repr, allowed))}")
