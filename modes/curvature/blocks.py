"""Blocks: the part of a curvature operator that couples each tensor with itself only."""

from __future__ import annotations

from functools import partial

from ...jacobians import Block, Jacobian
from .symmetric import Curvature, Symmetric, moved


def diagonal_blocks(C: Curvature) -> Symmetric:
    """blockdiag(C[w, w] for every tensor w), each block the same operator as in C.

    A block of a Hessian is cut out of its graph: what does not lie between w and its gradient costs
    nothing.
    """
    blocks = block_diagonal([C[s.name, s.name] for s in C.domain])
    text = f"blockdiag {C.formula}"
    return Symmetric(blocks, C.domain, partial(moved, C, diagonal_blocks), text)


def block_diagonal(blocks: list[Jacobian]) -> Jacobian:
    """Operators of their own inputs and outputs, side by side.

    >>> import numpy as np
    >>> from onnxjac.jacobians import Dense
    >>> block_diagonal([Dense(np.eye(1)), Dense(2 * np.eye(1))]).toarray()
    array([[1., 0.],
           [0., 2.]])
    """
    return Block([[b if i == j else None for j, _ in enumerate(blocks)]
                  for i, b in enumerate(blocks)])  # fmt: skip
