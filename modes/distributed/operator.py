"""Operator: the `Jacobian` whose products are one map over workers and one reduction."""

from __future__ import annotations

from itertools import chain
from typing import Any, final

import numpy as np

from ...jacobians import Array, Jacobian, Op, lead
from ...jacobians.errors import InputError
from ...ops import numbers
from .grid import Shares


@final
class Distributed(Jacobian):
    """C = Σ_p C_p or [C_1; C_2; …], with C_p the operator of a part of the data, on a worker.

    The same operator as that of `streamed`, up to the order in which numbers are added, and that
    does not depend on which worker does what: two products of one vector are equal.
    """

    def __init__(self, shares: Shares, *, transposed: bool = False) -> None:
        self.shares, self.transposed = shares, transposed
        first = shares.outlines[0]
        m = shares.ends[-1] if shares.stacked else first.shape[0]
        shape = (m, first.shape[1])[:: -1 if transposed else 1]
        super().__init__(shape[:1], shape[1:], first.dtype)

    @property
    def codomains(self) -> tuple[Any, ...]:
        """The tensors behind the rows of each batch of a stack, where they have names."""
        return tuple(chain.from_iterable(o.codomains for o in self.shares.outlines))

    def _apply(self, op: Op, v: Array) -> Array:
        if op is not numbers:
            raise InputError("a product over workers cannot be written into a graph")
        columns = np.reshape(v, (-1, self.shape[1]))
        y = self.shares.product(columns, self.transposed)
        return y.reshape((*lead(v, self.in_shape), self.shape[0]))

    def _transpose(self) -> Jacobian:
        if not self.shares.stacked and self.shares.outlines[0].symmetric:
            return self
        return Distributed(self.shares, transposed=not self.transposed)

    def diagonal(self) -> np.ndarray:
        return super().diagonal() if self.shares.stacked else self.shares.diagonal()

    def compile(
        self, engine: str | None = None, *, products: int = 100, memory: int | None = None
    ) -> Jacobian:
        """The same operator, where every worker compiles what it keeps: see `Streamed.compile`."""
        made = self.shares.compiled({"engine": engine, "products": products, "memory": memory})
        return Distributed(made, transposed=self.transposed)

    def __repr__(self) -> str:
        parts, copies = len(self.shares.parts.grid), self.shares.parts.copies
        C = f"[C_1; …; C_{parts}]" if self.shares.stacked else f"Σ_p C_p, p = 1 … {parts}"
        return f"{C}{'ᵀ' if self.transposed else ''}, {copies} × on workers"
