"""Adaptive: a DAG that is eliminated further the more products are taken with it."""

from __future__ import annotations

from math import prod

import numpy as np

from ...jacobians import Array, Dag, Jacobian, Op, lead
from ...jacobians.cached import cached_property
from ...ops import numbers
from .plan import eliminated, lock_of, planned, repays_elimination

FIRST = 8
"""Products after which a plan is considered for the first time."""


class Adaptive(Jacobian):
    """y = J x. After 8, 32, 128 … products it is planned for as many again as there were.

    Nobody knows how many products are to come: the best guess is as many as came before. So
    vertices are only eliminated once products have taken as long as elimination would.
    """

    holds = ("structure",)

    def __init__(self, dag: Dag) -> None:
        super().__init__(dag.out_shape, dag.in_shape, dag.dtype)
        self.dag, self.count, self._next = dag, 0, FIRST

    @cached_property
    def structure(self) -> Jacobian:
        """The operator that takes the products now."""
        return eliminated(self.dag)

    def _apply(self, op: Op, v: Array) -> Array:
        if op is numbers and isinstance(v, np.ndarray):
            return self._after(prod(lead(v, self.in_shape)))._apply(op, v)
        return self.structure._apply(op, v)

    def _after(self, products: int) -> Jacobian:
        """The operator for these products, counted after the earlier ones."""
        with lock_of(self.dag):
            self.count += products
            if not repays_elimination(self.dag, self.count):
                return self.dag
            if self.count >= self._next:
                self.structure = planned(self.dag, self.count)
                self._next = 4 * self.count
            return self.structure

    def _transpose(self) -> Jacobian:
        return Adaptive(self.dag.T)

    def __repr__(self) -> str:
        return repr(self.structure)


@planned.register
def _(operator: Adaptive, products: int, memory: int | None = None) -> Jacobian:
    return planned(operator.dag, products, memory)
