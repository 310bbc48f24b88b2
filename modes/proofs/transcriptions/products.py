"""Products of matrices: Gemm, and the points of AffineGrid."""

from __future__ import annotations

from typing import Any

import sympy as sp

from ....ops.symbols.placing import ints
from .table import Index, stretched, tabulate, transcription


@transcription("Gemm")
def gemm(
    a: Any, b: Any, c: Any = None, *, alpha: float = 1.0, beta: float = 1.0,
    transA: int = 0, transB: int = 0,
) -> Any:  # fmt: skip
    """y[i, j] = α Σₖ a[i, k] b[k, j] + β c[i, j], where a and b may be turned."""
    m, depth = reversed(a.shape) if transA else a.shape
    n = b.shape[0] if transB else b.shape[1]

    def entry(index: Index) -> Any:
        i, j = index
        terms = ((a[k, i] if transA else a[i, k]) * (b[j, k] if transB else b[k, j])
                 for k in range(depth))  # fmt: skip
        product = sum(terms) * alpha
        return product if c is None else product + stretched(c, index) * beta

    return tabulate((m, n), entry)


@transcription("AffineGrid")
def affine_grid(theta: Any, size: Any, *, align_corners: int = 0) -> Any:
    """y[n, p, r] = Σₖ θ[n, r, k] pₖ + θ[n, r, d]: the point p has its last axis first."""
    n, _, *lengths = ints(size)
    d = len(lengths)

    def entry(index: Index) -> Any:
        b, *place, r = index
        point = [centre(i, m, align_corners) for i, m in zip(place, lengths, strict=True)][::-1]
        return sum((theta[b, r, k] * p for k, p in enumerate(point)), start=theta[b, r, d])

    return tabulate((n, *lengths, d), entry)


def centre(i: int, n: int, align_corners: int) -> Any:
    """Where pixel i of n lies in [-1, 1], whose ends are the corners' centres or their outer edges.

    >>> [centre(i, 2, 0) for i in range(2)], [centre(i, 3, 1) for i in range(3)]
    ([-1/2, 1/2], [-1, 0, 1])
    """
    if align_corners and n == 1:
        raise NotImplementedError("the centre of a single pixel cannot be both -1 and 1")
    return sp.Rational(2 * i, n - 1) - 1 if align_corners else sp.Rational(2 * i + 1, n) - 1
