"""Probes: an operator whose products are counted and shown, and the vectors that it is tried on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from scipy.sparse.linalg import aslinearoperator

from ...jacobians.base import CHUNK
from ...jacobians.errors import InputError
from ...jacobians.progress import Tick, counting

Columns = np.ndarray
"""Columns that go through the operator together."""


class Probed:
    """A for an estimator: `P @ V` is A V and `P.adjoint(U)` is Aᵀ U, in float64, counted."""

    def __init__(self, A: Any, tick: Tick = lambda n: None) -> None:
        self.A = aslinearoperator(A)
        if np.issubdtype(self.A.dtype, np.complexfloating):
            raise InputError(f"this needs a real operator, not one of {self.A.dtype}")
        self.shape, self.tick, self.products = self.A.shape, tick, 0
        self.eps = float(np.finfo(np.result_type(self.A.dtype, np.float32)).eps)

    def __matmul__(self, V: Columns) -> Columns:
        return self._product(self.A.matmat, V, self.shape[0])

    def adjoint(self, U: Columns) -> Columns:
        """Aᵀ U."""
        return self._product(self.A.rmatmat, U, self.shape[1])

    def _product(self, product: Callable[[Columns], Columns], V: Columns, rows: int) -> Columns:
        """Some columns at a time, so that memory stays bounded and progress is seen."""
        columns = V[:, None] if V.ndim == 1 else V
        found = np.empty((rows, columns.shape[1]))
        width = max(1, CHUNK // (8 * max(*self.shape, 1)))
        for start in range(0, columns.shape[1], width):
            part = columns[:, start : start + width]
            found[:, start : start + width] = product(part)
            self.products += part.shape[1]
            self.tick(part.shape[1])
        return found[:, 0] if V.ndim == 1 else found


@contextmanager
def probing(A: Any, label: str, shown: bool | None = None) -> Iterator[Probed]:
    """The operator for an estimator, its products shown on a terminal."""
    with counting(label, "products", shown=shown) as tick:
        yield Probed(A, tick)


def signs(rng: np.random.Generator, n: int, m: int) -> np.ndarray:
    """m vectors of independent ±1 (Rademacher)."""
    return 2.0 * rng.integers(0, 2, (n, m)) - 1


def square(P: Probed) -> int:
    """n of an n×n operator; another raises `InputError`."""
    if P.shape[0] != P.shape[1]:
        raise InputError(f"this needs a square operator, not one of shape {P.shape}")
    return int(P.shape[1])


def is_symmetric(matrices: np.ndarray, eps: float) -> bool:
    """Whether real matrices of numbers that are right to eps are symmetric, up to rounding."""
    if matrices.shape[-1] != matrices.shape[-2] or np.iscomplexobj(matrices):
        return False
    skew = np.abs(matrices - matrices.swapaxes(-1, -2)).max(initial=0)
    rounding = 100 * matrices.shape[-1] ** 0.5 * eps
    return bool(skew <= rounding * np.abs(matrices).max(initial=0))


def symmetric(P: Probed, rng: np.random.Generator) -> int:
    """n of a symmetric operator; ⟨u, A v⟩ = ⟨A u, v⟩ is tried on one pair, where A.T is not A."""
    n = square(P)
    if getattr(P.A, "T", None) is P.A:
        return n
    pair = rng.standard_normal((n, 2))
    products = P @ pair
    difference = abs(pair[:, 0] @ products[:, 1] - pair[:, 1] @ products[:, 0])
    if difference > np.sqrt(P.eps) * np.linalg.norm(pair) * np.linalg.norm(products):
        raise InputError("this needs a symmetric operator: ⟨u, A v⟩ and ⟨A u, v⟩ differ")
    return n
