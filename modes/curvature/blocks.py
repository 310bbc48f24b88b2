"""Blocks: the part of a curvature operator that couples each tensor with itself only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...jacobians import Block, Jacobian
from ...jacobians.errors import InputError
from ..hessian import Hessian
from ..hessian import hessian as whole
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


def hessian(
    model: Model,
    inputs: Mapping[str, Any],
    *,
    of: str | None = None,
    wrt: Names = None,
    weights: Any = None,
    blocks: str | None = None,
    engine: str | None = None,
) -> Curvature:
    """H = ∂²(Σ weights ∘ of)/∂wrt² at the point, as a symmetric operator.

    `of` is one tensor; where it has several elements, `weights` of its shape combine them into a
    scalar, without further scaling. `blocks="diagonal"` leaves out the second derivatives between
    two different tensors of `wrt`. H is the linearisation of the recorded gradient, so that a
    product costs about two gradients: for an MLP of L layers in its weights, 6 L - 4 GEMMs.
    """
    H = whole(model, inputs, of=of, wrt=wrt, weights=weights, engine=engine)
    if blocks not in (None, "diagonal"):
        raise InputError(f"blocks={blocks!r} is neither None nor 'diagonal'")
    return H if blocks is None else diagonal_blocks(H)
