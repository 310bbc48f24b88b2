"""Boolean: where the entries of an operator may stand, as a sparse matrix of booleans."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import numpy as np
from scipy.sparse import csr_array, vstack

from ...jacobians import Jacobian
from ...jacobians.sparse import entries

Fixed = Container[int] | None
"""The ids of the operators whose numbers never change; None for all of them."""


class Boolean:
    """A pattern; the zeros of an operator with fixed numbers are known to be zeros."""

    def __init__(self, matrix: csr_array[Any], fixed: Fixed) -> None:
        self.matrix, self.fixed = matrix, fixed

    def under(self, operator: Jacobian) -> Boolean:
        """operator · A."""
        E = entries(operator)
        if not E.held or self.fixed is None or id(operator) in self.fixed:
            E = E.known()
        local = csr_array((np.ones(len(E.rows), bool), (E.rows, E.columns)), operator.shape)
        return Boolean(local @ self.matrix, self.fixed)

    def plus(self, others: list[Boolean]) -> Boolean:
        """A + B + …"""
        return Boolean(sum((B.matrix for B in others), self.matrix), self.fixed)

    def part(self, start: int, stop: int) -> Boolean:
        """The rows from start to stop."""
        return Boolean(self.matrix[start:stop], self.fixed)

    def stacked(self, parts: list[Boolean | int]) -> Boolean:
        """Matrices of these columns, one below the other; a number stands for rows of zeros."""
        columns = self.matrix.shape[1]
        blocks = [
            csr_array((part, columns), dtype=bool) if isinstance(part, int) else part.matrix
            for part in parts
        ]
        return Boolean(csr_array(vstack(blocks, format="csr")), self.fixed)
