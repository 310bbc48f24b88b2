"""Block Jacobi: the inverses of the dense blocks on the diagonal."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from ...jacobians import Block, BlockDiagonal, Dense, Jacobian, Reshape, Shape, shape_of, size
from ...jacobians.base import DENSE_LIMIT
from ...jacobians.errors import InputError, LimitError
from ..elimination.samples import Batch
from ..estimators.probes import Probed, probing, square
from .jacobi import in_shape
from .matrices import inverted
from .samples import within_samples


def block_jacobi(A: Any, blocks: int | None = None, *, damping: float = 0.0) -> Jacobian:
    """M = blockdiag(A₁₁ + λI, A₂₂ + λI, …)⁻¹ for a symmetric positive definite A, or any square A.

    By tensor, as `A.domain` lists them, or in so many equal `blocks`: one per sample of a batch.
    A block of n columns takes n products; where A is known to act within samples, n products give
    all blocks at once. Holds Σ n² numbers. For `M=` of `cg` and `minres`, where a block is not
    symmetric of `gmres` and `bicgstab`.

    Shapes: A and M are (n, n). Raises `InputError` where A is not square or not real, where a
    symmetric block is not positive definite or another one is singular, and where `blocks` does not
    divide n or is not given for an A without `domain`; `LimitError` where the blocks take more than
    2 GiB.
    """
    with probing(A, "block Jacobi") as P:
        n = square(P)
        sizes = _sizes(A, n, blocks)
        need = 8 * sum(size**2 for size in sizes)
        if need > DENSE_LIMIT:
            raise LimitError(f"the blocks take {need} bytes, more than {DENSE_LIMIT}: take smaller "
                             f"blocks=, or jacobi")  # fmt: skip
        if blocks is not None and within_samples(A, Batch(blocks, sizes[0])):
            found = _all_at_once(P, blocks, sizes[0])
        else:
            found = list(_one_by_one(P, sizes))
    return _assembled([inverted(block, damping, P.eps) for block in found], in_shape(A))


def _sizes(A: Any, n: int, blocks: int | None) -> list[int]:
    """The lengths of the blocks."""
    if blocks is None:
        if not hasattr(A, "domain"):
            raise InputError("this operator does not name its tensors: say how many blocks=")
        return [size(shape_of(spec)) for spec in A.domain]
    if blocks < 1 or n % blocks:
        raise InputError(f"{n} columns are not {blocks} equal blocks")
    return [n // blocks] * blocks


def _all_at_once(P: Probed, blocks: int, n: int) -> list[np.ndarray]:
    """Column j of every block from one product, as no sample touches another."""
    images = P @ np.tile(np.eye(n), (blocks, 1))
    return list(images.reshape(blocks, n, n))


def _one_by_one(P: Probed, sizes: list[int]) -> Iterator[np.ndarray]:
    """Aₖₖ, one product for each column."""
    for start, stop in pairwise(accumulate(sizes, initial=0)):
        yield (P @ np.eye(P.shape[1], stop - start, -start))[start:stop]


def _assembled(inverses: list[np.ndarray], shape: Shape) -> Jacobian:
    """The block diagonal operator over a tensor of that shape."""
    if len({len(B) for B in inverses}) == 1:
        M: Jacobian = BlockDiagonal(np.stack(inverses))
    else:
        M = Block([[Dense(B) if i == k else None for i in range(len(inverses))]
                   for k, B in enumerate(inverses)])  # fmt: skip
    return Reshape(shape, M.out_shape, M.dtype) @ M @ Reshape(M.in_shape, shape, M.dtype)
