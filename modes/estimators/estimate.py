"""Estimate: the result of an estimator, and its input: a counted operator and random probes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse.linalg import aslinearoperator

from ...jacobians import Dense
from ...jacobians.arrays import Array, host
from ...jacobians.base import CHUNK_BYTES
from ...jacobians.errors import InputError
from ...jacobians.hooks import Shown
from ...jacobians.placing import HOST
from ...jacobians.progress import Tick, counting
from ...jacobians.readings import is_kept
from ..resume import ResumeFile, Work, begin_work


@dataclass(frozen=True)
class Estimate(Shown):
    """`value` ± `error` after a number of `products`, found by `method`.

    `error` is one standard error, in the shape of the value, unless the function says otherwise;
    it is zero where `method` starts with "exact". Products with the transpose count as well.

    >>> Estimate(12.5, 0.25, 60, "XTrace")
    12.5 ± 0.25 (XTrace, 60 products)
    >>> Estimate(np.ones(3), 0.0, 0, "exact by structure")
    array of shape (3,) (exact by structure, 0 products)
    """

    value: Any
    error: Any
    products: int
    method: str

    @property
    def exact(self) -> bool:
        """Whether the value is exact, not estimated."""
        return self.method.startswith("exact")

    def __float__(self) -> float:
        return float(self.value)

    def __repr__(self) -> str:
        error = np.max(host(self.error), initial=0)
        margin = "" if self.exact else f" ± {'up to ' * bool(np.ndim(self.error))}{error:.3g}"
        return f"{_text(self.value)}{margin} ({self.method}, {self.products} products)"


def _text(value: Any) -> str:
    """A number to six digits, an array by its shape, an operator by its repr."""
    if (is_kept(value) or isinstance(value, np.ndarray)) and value.ndim:
        return f"array of shape {tuple(value.shape)}"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def mean_and_error(samples: Array) -> tuple[Any, Any]:
    """Σ xₖ / m along the last axis, and its standard error √(Σ (xₖ - x̄)² / (m (m - 1)))."""
    m, found = samples.shape[-1], samples.mean(-1)
    squares = ((samples - found[..., None]) ** 2).sum(-1)
    return found, (squares / (m * (m - 1))) ** 0.5 if m > 1 else squares + np.inf


class Probed:
    """A for an estimator: `P @ V` is A V and `P.adjoint(U)` is Aᵀ U, in float64, counted.

    `P.normal` and `P.signs` draw probes from a seed where the arrays of A are: as NumPy's, or on
    the device of its tensors. `xp` is the module that computes with them.
    """

    def __init__(self, A: Any, tick: Tick = lambda n: None, seed: int = 0) -> None:
        try:
            self.A: Any = Dense(A) if is_kept(A) else aslinearoperator(A)
        except TypeError as error:
            raise InputError(f"an estimate is of an operator, not of {type(A).__name__}") from error
        if np.issubdtype(self.A.dtype, np.complexfloating):
            raise InputError(f"this needs a real operator, not one of {self.A.dtype}")
        self.shape, self.tick, self.work = self.A.shape, tick, Work()
        self.eps = float(np.finfo(np.result_type(self.A.dtype, np.float32)).eps)
        there = getattr(self.A, "place", None)
        self.place = there if there is not None and there.op.writes else HOST  # blocks are filled
        self.rng, self.xp = self.place.random(seed), self.place.module
        self.how: dict[str, Any] = {"dtype": self.xp.float64, "device": self.place.device}

    @property
    def products(self) -> int:
        """The products so far."""
        return self.work.count

    def normal(self, *shape: int) -> Array:
        """Independent standard normal numbers."""
        return self.rng.standard_normal(shape)

    def signs(self, *shape: int) -> Array:
        """Independent ±1 (Rademacher)."""
        return 2.0 * self.rng.integers(0, 2, shape) - 1

    def zeros(self, *shape: int) -> Array:
        """Zeros in double precision."""
        return self.xp.zeros(shape, **self.how)

    def units(self, first: int, stop: int, n: int) -> Array:
        """The unit vectors of length n from the first one on, as columns."""
        made = self.zeros(n, stop - first)
        made[first:stop] = self.xp.eye(stop - first, **self.how)
        return made

    def __matmul__(self, V: Array) -> Array:
        return self._product(self.A.matmat, V, self.shape[0])

    def adjoint(self, U: Array) -> Array:
        """Aᵀ U."""
        return self._product(self.A.rmatmat, U, self.shape[1])

    def _product(self, product: Callable[[Array], Array], V: Array, rows: int) -> Array:
        """Products by chunks of columns, to bound memory and show progress."""
        columns = V[:, None] if V.ndim == 1 else V
        shape = rows, columns.shape[1]
        found = self.zeros(*shape) if is_kept(V) else np.empty(shape)
        width = max(1, CHUNK_BYTES // (8 * max(*self.shape, 1)))
        loop = self.work.loop("product", 0, found)
        done, found = loop.state
        for start in range(done, columns.shape[1], width):
            part = columns[:, start : start + width]
            stop = start + part.shape[1]
            found[:, start:stop] = product(part)
            loop.step(stop, found[:, :stop], products=stop - start)
            self.tick(stop - start)
        return found[:, 0] if V.ndim == 1 else found


@contextmanager
def probing(
    A: Any, label: str, shown: bool | None = None, seed: int = 0,
    resume: ResumeFile | None = None, **options: Any,
) -> Iterator[Probed]:  # fmt: skip
    """The operator for an estimator, with its products shown on a terminal.

    With `resume` the estimator goes on from the file, if it is of the same `options`.
    """
    with counting(label, "products", shown=shown) as tick:
        P = Probed(A, tick, seed)
        P.work, P.A = begin_work(resume, label, P.A, {"seed": seed, **options})
        with P.work.going_on():
            yield P


def square(P: Probed) -> int:
    """n of an n×n operator; raises `InputError` for other shapes."""
    if P.shape[0] != P.shape[1]:
        raise InputError(f"this needs a square operator, not one of shape {P.shape}")
    return int(P.shape[1])


def check_symmetric(P: Probed) -> int:
    """n of a symmetric operator; where A.T is not A, ⟨u, A v⟩ = ⟨A u, v⟩ is tested on one pair."""
    n = square(P)
    if getattr(P.A, "T", None) is P.A:
        return n
    pair, norm = P.normal(n, 2), P.xp.linalg.norm
    products = P @ pair
    difference = abs(pair[:, 0] @ products[:, 1] - pair[:, 1] @ products[:, 0])
    if difference > P.eps**0.5 * norm(pair) * norm(products):
        raise InputError("this needs a symmetric operator: ⟨u, A v⟩ and ⟨A u, v⟩ differ")
    return n
