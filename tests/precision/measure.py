"""The errors of one network: two engines for the primal, three ways to compute products."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from onnxjac.jacobians import Jacobian

from .networks import Network

ENGINES = ("numpy", "onnxruntime")
WAYS = (None, "numpy", "onnxruntime")
"""How products are computed: by plain `@`, or compiled."""


@dataclass(frozen=True)
class Errors:
    """Relative errors of J v and Jᵀ u, and the residual of the dot test."""

    jvp: float
    vjp: float
    dot: float


@dataclass(frozen=True)
class Row:
    """A network with its primal by one engine: the errors of y, and of products in each way."""

    network: str
    engine: str
    shape: tuple[int, int]
    primal: float
    ways: tuple[Errors, ...]


def rows(network: Network, seed: int = 0) -> Iterator[Row]:
    """The rows of a network in float32, compared with float64."""
    exact = network.linearized("float64", "numpy")
    rng = np.random.default_rng(seed)
    v, u = (rng.standard_normal(n).astype(np.float32) for n in exact.shape[::-1])
    forward, reverse = exact @ v.astype(np.float64), exact.T @ u.astype(np.float64)
    for engine in ENGINES:
        J = network.linearized(None, engine)
        ways = (J if way is None else J.compile(way) for way in WAYS)
        errors = tuple(measured(K, u, v, forward, reverse) for K in ways)
        primal = max(relative(J.primal[name], y) for name, y in exact.primal.items())
        yield Row(network.name, engine, J.shape, primal, errors)


def measured(
    J: Jacobian, u: np.ndarray, v: np.ndarray, forward: np.ndarray, reverse: np.ndarray
) -> Errors:
    """J in float32 against the products in float64."""
    pushed, pulled = ((J @ v).astype(np.float64), (J.T @ u).astype(np.float64))
    scale = np.linalg.norm(u.astype(np.float64)) * np.linalg.norm(pushed)
    dot = abs(u.astype(np.float64) @ pushed - pulled @ v.astype(np.float64)) / scale
    return Errors(relative(pushed, forward), relative(pulled, reverse), float(dot))


def relative(found: np.ndarray, exact: np.ndarray) -> float:
    """‖found - exact‖ / ‖exact‖."""
    return float(np.linalg.norm(np.ravel(found - exact)) / np.linalg.norm(np.ravel(exact)))
