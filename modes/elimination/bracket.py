"""Bracket: in which order a chain of operators is multiplied out, by dynamic programming.

Station k of a chain has a size s(k), and the operator from k to k + 1 takes f(k) arithmetic for
one column. The matrix from i to j is had from shorter ones, whichever takes least:

    A(i, j) = F(j - 1) A(i, j - 1)      s(i) f(j - 1)         columns pushed forward
    A(i, j) = A(i + 1, j) F(i)          s(j) f(i)             rows pulled back
    A(i, j) = A(k, j) A(i, k)           2 s(i) s(k) s(j)      a product of matrices

Forward and reverse accumulation are two of these orders, so that the best is never worse.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from math import inf


@dataclass(frozen=True)
class Bracket:
    """How the matrix from station `start` to station `stop` is had, and its arithmetic in all.

    `left` and `right` are the matrices behind it; without one of them it is the chain's own
    operator that is applied, and without both, that operator's matrix.
    """

    start: int
    stop: int
    flops: float
    left: Bracket | None = None
    right: Bracket | None = None

    def __str__(self) -> str:
        if self.left is None and self.right is None:
            return f"J{self.start}"
        left = self.left or f"J{self.stop - 1}"
        right = self.right or f"J{self.start}"
        return f"({left} {right})"


@lru_cache(maxsize=256)
def bracketed(
    sizes: tuple[int, ...], flops: tuple[int, ...], known: tuple[bool, ...], limit: float = inf
) -> Bracket | None:
    """The order of least arithmetic, None where each has a matrix of more than `limit` numbers.

    `known` says of which operators the matrix is there without any arithmetic. The orders of the
    last chains are remembered: that of a Jacobian at another point is the same.

    >>> best = bracketed((1000, 10, 1000, 5), (20000, 20000, 10000), (True,) * 3)
    >>> print(best), best.flops
    ((J2 J1) J0)
    (None, 200000)
    """

    def single(i: int) -> Bracket:
        return Bracket(i, i + 1, 0 if known[i] else min(sizes[i], sizes[i + 1]) * flops[i])

    @cache
    def best(i: int, j: int) -> Bracket | None:
        if sizes[i] * sizes[j] > limit:
            return None
        if j == i + 1:
            return single(i)
        found = [
            Bracket(i, j, r.flops + sizes[i] * flops[j - 1], None, r)
            for r in [best(i, j - 1)] if r
        ]  # fmt: skip
        found += [
            Bracket(i, j, a.flops + sizes[j] * flops[i], a, None) for a in [best(i + 1, j)] if a
        ]
        found += [
            Bracket(i, j, a.flops + r.flops + 2 * sizes[i] * sizes[k] * sizes[j], a, r)
            for k in range(i + 1, j)
            for a, r in [(best(k, j), best(i, k))]
            if a and r
        ]
        return min(found, key=lambda bracket: bracket.flops, default=None)

    return best(0, len(flops))
