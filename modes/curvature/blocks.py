"""Blocks: the part of a curvature operator that couples each tensor with itself only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...jacobians import Block, Jacobian
from ..hessian import Hessian, hessian
from ..model import Model
from ..names import Names
from .symmetric import Curvature, Symmetric


def diagonal_blocks(C: Hessian | Curvature) -> Symmetric:
    """blockdiag(C[w, w] for every tensor w), each block the same operator as in C.

    A block of a Hessian is cut out of its graph: what does not lie between w and its gradient costs
    nothing.
    """
    return Symmetric(block_diagonal([C[s.name, s.name] for s in C.domain]), C.domain)


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


def block_hessian(
    model: Model,
    inputs: Mapping[str, Any],
    *,
    of: str | None = None,
    wrt: Names = None,
    weights: Any = None,
    engine: str | None = None,
) -> Symmetric:
    """blockdiag(∂²f/∂w² for every w of `wrt`), with f = Σ weights ∘ of, as for `hessian`.

    The second derivatives between two different tensors are left out. No further scaling.
    """
    return diagonal_blocks(hessian(model, inputs, of=of, wrt=wrt, weights=weights, engine=engine))
