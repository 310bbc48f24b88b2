"""Product: factors applied one after another, with neighbours merged where that simplifies.

The table `merges` holds the rules that merge two neighbours into one operator.

Kronecker products merge with one another, also through layouts between them:
(A ⊗ B)(C ⊗ D) = AC ⊗ BD, and L (C ⊗ D) = (C' ⊗ D') L' for a reshape or a permutation of axes L
after which C and D still act on the last two axes, each on one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from .arrays import Array, Op, common, reading_of, shape_of, size, wide
from .base import Jacobian
from .elementwise import Cast, Diagonal, Identity, Scalar, Zero
from .errors import InputError
from .hooks import multiply, scale
from .layout import Broadcast, Embed, Permutation, Reshape, Scatter, Slice, Span, SumTo, Take
from .matrices import BlockDiagonal, Dense, Eye, Factor, Kron, LowRank, matrix_shape, transposed
from .symint import agree, at, is_positive, largest, same, smallest
from .text import joined

F = TypeVar("F", bound=Callable[..., Any])
Factors = tuple[Jacobian, ...]

COPIES = 2
"""How many times larger than a tensor a rescaled matrix may be, to save a pass over the tensor."""


class Rewrites(dict[tuple[type, ...], Callable[..., Any]]):
    """Types of neighbouring factors -> the rule that rewrites them, or returns None for no gain."""

    def __call__(self, *kinds: type) -> Callable[[F], F]:
        """Register the rule for factors of these types."""

        def register(rule: F) -> F:
            self[kinds] = rule
            return rule

        return register

    def rewritten(self, *factors: Jacobian) -> Any:
        """The rewritten neighbours; None where there is no rule, or no gain."""
        rule = self.get(tuple(map(type, factors)))
        return rule(*factors) if rule else None


merges = Rewrites()
"""The rules that merge two neighbours into one simpler operator, in any product."""


class Product(Jacobian):
    """y = F₁ F₂ … Fₙ x, with Fᵢ the `factors`."""

    holds = ("factors",)

    def __init__(self, factors: tuple[Jacobian, ...]) -> None:
        for left, right in pairwise(factors):
            if not agree(left.in_shape, right.out_shape):
                raise InputError(f"Product: {left!r} takes a tensor of shape {list(left.in_shape)},"
                                 f" but {right!r} gives {list(right.out_shape)}")  # fmt: skip
        if not factors:
            raise InputError("Product: there are no factors")
        dtype = common(*(f.dtype for f in factors))
        super().__init__(factors[0].out_shape, factors[-1].in_shape, dtype)
        self.factors = factors

    def _apply(self, op: Op, v: Array) -> Array:
        for factor in reversed(self.factors):
            v = factor._apply(op, v)
        return v

    def _transpose(self) -> Jacobian:
        return Product(tuple(f.T for f in reversed(self.factors)))

    def __repr__(self) -> str:
        return joined(self.factors, " · ", factor_text)


def factor_text(factor: Jacobian) -> str:
    """The text of a factor in a product, with brackets around a sum."""
    text = str(factor)
    return f"({text})" if " + " in text or " - " in text else text


@multiply.register(Jacobian)
def _multiply(left: Jacobian, right: Jacobian) -> Jacobian:
    if not agree(left.shape[1], right.shape[0]):
        raise InputError(
            f"cannot multiply operators of shape {left.shape} and {right.shape}: {left!r} takes "
            f"{left.shape[1]} numbers, {right!r} gives {right.shape[0]}"
        )
    chain = list(factors_of(left))
    if not agree(left.in_shape, right.out_shape):
        push(chain, Reshape(left.in_shape, right.out_shape, right.dtype))
    for factor in factors_of(right):
        push(chain, factor)
    return chain[0] if len(chain) == 1 else Product(tuple(chain))


@scale.register(Jacobian)
def _scale(operator: Jacobian, factor: float) -> Jacobian:
    if same(factor, 1):
        return operator
    return Scalar(factor, operator.out_shape, operator.dtype) @ operator


def factors_of(operator: Jacobian) -> tuple[Jacobian, ...]:
    """The factors of a product, or the operator alone."""
    return operator.factors if isinstance(operator, Product) else (operator,)


def merge(left: Jacobian, right: Jacobian) -> Jacobian | None:
    """The product as one simpler operator, or None; zero through an empty tensor."""
    if isinstance(left, Zero) or isinstance(right, Zero):
        return Zero(left.out_shape, right.in_shape, common(left.dtype, right.dtype))
    if is_identity(left) and left.dtype == right.dtype:
        return right
    if is_identity(right) and left.dtype == right.dtype:
        return left
    if same(left.shape[1], 0):
        return Zero(left.out_shape, right.in_shape, common(left.dtype, right.dtype))
    return merges.rewritten(left, right)


def simplified(*factors: Jacobian) -> Factors | None:
    """The factors that replace two or three neighbours, or None where these stay."""
    found = merge(*factors) if len(factors) == 2 else merges.rewritten(*factors)
    return found if found is None or isinstance(found, tuple) else factors_of(found)


def push(
    chain: list[Jacobian], factor: Jacobian, meet: Callable[..., Factors | None] = simplified
) -> None:
    """Append a factor; where it meets the last one or two, the result takes their place."""
    for last in range(1, min(len(chain), 2) + 1):
        found = meet(*chain[-last:], factor)
        if found is not None:
            del chain[-last:]
            for part in found:
                push(chain, part, meet)
            return
    chain.append(factor)


def is_identity(operator: Jacobian) -> bool:
    """Whether the operator changes neither values nor shape."""
    return isinstance(operator, Identity) or (
        isinstance(operator, Reshape) and same(operator.in_shape, operator.out_shape)
    )


def multiply_arrays(a: Array, b: Array) -> Array:
    return reading_of(a, b).MatMul(a, b)


@merges(Scalar, Scalar)
def _(c: Scalar, d: Scalar) -> Jacobian:
    factor, dtype = c.factor * d.factor, np.result_type(c.dtype, d.dtype)
    return Identity(c.out_shape, dtype) if same(factor, 1) else Scalar(factor, c.out_shape, dtype)


@merges(Scalar, Diagonal)
def _(c: Scalar, d: Diagonal) -> Jacobian:
    return Diagonal(reading_of(d.d).Mul(d.d, c.factor), d.out_shape, chooses=d.chooses)


@merges(Diagonal, Scalar)
def _(d: Diagonal, c: Scalar) -> Jacobian | None:
    return merge(c, d)


@merges(Diagonal, Diagonal)
def _(d: Diagonal, e: Diagonal) -> Jacobian | None:
    """Not in half precision, in which d e may overflow though d (e v) does not."""
    if wide(d.dtype) != d.dtype:
        return None
    product = reading_of(d.d, e.d).Mul(d.d, e.d)
    return Diagonal(product, d.out_shape, chooses=d.chooses and e.chooses)


@merges(Cast, Cast)
def _(a: Cast, b: Cast) -> Jacobian | None:
    lossless = np.can_cast(b.source, b.target) and a.target == b.source
    return Identity(a.out_shape, a.target) if lossless else None


@merges(Reshape, Reshape)
def _(a: Reshape, b: Reshape) -> Jacobian:
    if same(a.out_shape, b.in_shape):
        return Identity(a.out_shape, a.dtype)
    return Reshape(a.out_shape, b.in_shape, a.dtype)


@merges(Permutation, Permutation)
def _(a: Permutation, b: Permutation) -> Jacobian:
    perm = tuple(b.perm[k] for k in a.perm)
    if perm == tuple(range(len(perm))):
        return Identity(b.in_shape, b.dtype)
    return Permutation(perm, b.in_shape, b.dtype)


@merges(Broadcast, Broadcast)
@merges(SumTo, SumTo)
def _(a: Broadcast | SumTo, b: Broadcast | SumTo) -> Jacobian:
    return type(a)(a.out_shape, b.in_shape, a.dtype)


@merges(SumTo, Broadcast)
def _(a: SumTo, b: Broadcast) -> Jacobian | None:
    if not same(a.out_shape, b.in_shape) or same(size(a.out_shape), 0):
        return None
    return Scalar(size(a.in_shape) // size(a.out_shape), a.out_shape, a.dtype)


@merges(Kron, Kron)
def _(k: Kron, h: Kron) -> Jacobian | None:
    """(A ⊗ B)(C ⊗ D) = AC ⊗ BD, where that does not make a product more expensive."""
    merged = Kron(factor_product(k.left, h.left), factor_product(k.right, h.right), k.batch)
    return merged if at(merged.flops) <= at(k.flops + h.flops) else None


@merges(Kron, Permutation, Kron)
@merges(Kron, Reshape, Kron)
def _(k: Kron, layout: Jacobian, h: Kron) -> tuple[Jacobian, Jacobian] | None:
    if (found := adjacent(k, layout, h)) is None:
        return None
    K, H, L, is_first = found
    if (merged := merge(K, H)) is None:
        return None
    return (merged, L) if is_first else (L, merged)


@merges(Kron, Diagonal)
def _(k: Kron, d: Diagonal) -> Jacobian | None:
    """(I ⊗ B) diag(d) as dense blocks B diag(dᵢ), where they move fewer bytes than B and d.

    Blocks much larger than the tensors are not built: they cost more than a pass over d.
    """
    if not isinstance(k.left, Eye) or isinstance(k.right, Eye):
        return None
    rows, columns = matrix_shape(k.right)
    entries = at(size(k.in_shape[:-1]) * rows * columns)
    if entries >= at(size(shape_of(k.right)) + size(k.in_shape)):
        return None
    if entries > COPIES * max(at(size(k.in_shape)), at(size(k.out_shape))):
        return None
    op = reading_of(k.right, d.d)
    one_per_row = op.Reshape(k.right, (*shape_of(k.right)[:-2], 1, rows, columns))
    one_per_block = op.Reshape(op.Expand(d.d, k.in_shape), (*k.in_shape[:-1], 1, columns))
    return BlockDiagonal(op.Mul(one_per_row, one_per_block))


@merges(Dense, Dense)
def _(a: Dense, b: Dense) -> Jacobian | None:
    m, n, inner = at((a.shape[0], b.shape[1], a.shape[1]))
    if m * n > inner * (m + n):
        return None
    return Dense(multiply_arrays(a.a, b.a), a.out_shape, b.in_shape)


@merges(Dense, Diagonal)
def _(a: Dense, d: Diagonal) -> Jacobian:
    op = reading_of(a.a, d.d)
    row = op.Reshape(op.Expand(d.d, d.out_shape), (1, d.shape[0]))
    return Dense(op.Mul(a.a, row), a.out_shape, a.in_shape)


@merges(Diagonal, Dense)
def _(d: Diagonal, a: Dense) -> Jacobian:
    op = reading_of(a.a, d.d)
    column = op.Reshape(op.Expand(d.d, d.out_shape), (d.shape[0], 1))
    return Dense(op.Mul(a.a, column), a.out_shape, a.in_shape)


@merges(Dense, LowRank)
def _(a: Dense, b: LowRank) -> Jacobian:
    return LowRank(multiply_arrays(a.a, b.u), b.v, a.out_shape, b.in_shape)


@merges(LowRank, Dense)
def _(a: LowRank, b: Dense) -> Jacobian:
    return LowRank(a.u, multiply_arrays(transposed(b.a), a.v), a.out_shape, b.in_shape)


@merges(LowRank, LowRank)
def _(a: LowRank, b: LowRank) -> Jacobian:
    """U (Vᵀ W) Zᵀ, with the smaller of the two ranks."""
    middle = multiply_arrays(transposed(a.v), b.u)
    rank, other = shape_of(middle)
    if at(rank) <= at(other):
        return LowRank(a.u, multiply_arrays(b.v, transposed(middle)), a.out_shape, b.in_shape)
    return LowRank(multiply_arrays(a.u, middle), b.v, a.out_shape, b.in_shape)


@merges(BlockDiagonal, BlockDiagonal)
def _(a: BlockDiagonal, b: BlockDiagonal) -> Jacobian | None:
    merged = at(size((*a.out_shape, b.in_shape[-1])))
    if merged > at(size(shape_of(a.blocks)) + size(shape_of(b.blocks))):
        return None
    return BlockDiagonal(multiply_arrays(a.blocks, b.blocks))


@merges(Slice, Slice)
def _(a: Slice, b: Slice) -> Jacobian:
    spans = tuple(
        (start + step * first, step * stride, count)
        for (first, stride, count), (start, step, _) in zip(a.spans, b.spans, strict=True)
    )
    return Slice(spans, b.in_shape, b.dtype)


@merges(Slice, Embed)
def _(a: Slice, b: Embed) -> Jacobian | None:
    if same(a.spans, b.spans):
        return Identity(a.out_shape, a.dtype)
    if any(map(disjoint, a.spans, b.spans)):
        return Zero(a.out_shape, b.in_shape, a.dtype)
    return None


def disjoint(a: Span, b: Span) -> bool:
    """Whether two spans of one axis cannot meet: one ends before the other starts."""
    (low, high), (bottom, top) = extent(a), extent(b)
    return is_positive(bottom - high) or is_positive(low - top)


def extent(span: Span) -> tuple[int, int]:
    start, step, count = span
    last = start + step * (count - 1)
    return smallest(start, last), largest(start, last)


@merges(Take, Take)
@merges(Scatter, Scatter)
def _(a: Take | Scatter, b: Take | Scatter) -> Jacobian | None:
    """Two selections along the same axis are one."""
    first, then, shape = (b, a, b.in_shape) if isinstance(a, Take) else (a, b, a.out_shape)
    if len(shape_of(first.index)) != 1 or a.axis != b.axis:
        return None
    index = reading_of(a.index, b.index).Gather(first.index, then.index, axis=0)
    return type(a)(index, a.axis, shape, a.dtype, distinct=a.distinct and b.distinct)


Commuted = tuple[Kron, Jacobian]


def factor_product(a: Factor, b: Factor) -> Factor:
    """A B, where each may be an identity."""
    if isinstance(a, Eye):
        return b
    return a if isinstance(b, Eye) else reading_of(a, b).MatMul(a, b)


def adjacent(k: Kron, layout: Jacobian, h: Kron) -> tuple[Kron, Kron, Jacobian, bool] | None:
    """k · L · h as K, H and a layout: K H L, or L K H where the last one is False; None if neither.

    >>> import numpy as np
    >>> k, h = Kron(np.ones((2, 3)), Eye(4), ()), Kron(np.ones((4, 5)), Eye(3), ())
    >>> adjacent(k, Permutation((1, 0), (4, 3), float), h)[:3]
    ((A[2×3] ⊗ I(4)), (I(3) ⊗ A[4×5]), perm(1, 0))
    """
    if found := commuted(layout, h):
        return k, found[0], found[1], True
    turned: Any = k.T
    if found := commuted(layout.T, turned):
        left: Any = found[0].T
        return left, h, found[1].T, False
    return None


def commuted(layout: Jacobian, K: Kron) -> Commuted | None:
    """K' and L' with L K = K' L'; None if L does not commute with K."""
    if isinstance(layout, Permutation):
        return through_permutation(layout, K)
    return through_reshape(layout, K) if isinstance(layout, Reshape) else None


def through_permutation(P: Permutation, K: Kron) -> Commuted | None:
    """Each matrix follows the axis that it acts on, if that is one of the last two afterwards."""
    rank, factors = len(P.perm), list[Factor](map(Eye, P.out_shape[-2:]))
    for factor, axis in ((K.left, rank - 2), (K.right, rank - 1)):
        if isinstance(factor, Eye):
            continue
        side = P.perm.index(axis) - (rank - 2)
        moved = moved_batch(factor, P.perm) if side >= 0 else None
        if moved is None:
            return None
        factors[side] = moved
    left, right = factors
    return Kron(left, right, P.out_shape[:-2]), Permutation(P.perm, K.in_shape, P.dtype)


def moved_batch(factor: Factor, perm: tuple[int, ...]) -> Factor | None:
    """The stack of matrices over permuted batch axes; None if one becomes an axis of matrices."""
    shape, rank = shape_of(factor), len(perm)
    if len(shape) == 2:
        return factor
    full = (1,) * (rank - len(shape)) + tuple(shape[:-2])
    if any(not same(full[axis], 1) for axis in perm[-2:] if axis < rank - 2):
        return None
    op, order = reading_of(factor), tuple(axis for axis in perm[:-2] if axis < rank - 2)
    left_out = tuple(axis for axis in range(rank - 2) if axis not in order)
    whole = op.Reshape(factor, (*full, *shape[-2:]))
    whole = op.Transpose(whole, perm=(*left_out, *order, rank - 2, rank - 1))
    batch = tuple(full[axis] if axis < rank - 2 else 1 for axis in perm[:-2])
    return op.Reshape(whole, (*batch, *shape[-2:]))


def through_reshape(R: Reshape, K: Kron) -> Commuted | None:
    """A matrix shared by the batch, where the reshape keeps the axes that it acts on."""
    held = [f for f in (K.left, K.right) if not isinstance(f, Eye)]
    kept = 1 if isinstance(K.left, Eye) else 2
    shape = R.out_shape
    if len(shape) < 2 or not same(shape[-kept:], K.out_shape[-kept:]):
        return None
    if any(not same(size(shape_of(f)[:-2]), 1) for f in held):
        return None
    left = Eye(shape[-2]) if isinstance(K.left, Eye) else single_matrix(K.left)
    right = K.right if isinstance(K.right, Eye) else single_matrix(K.right)
    before = (*shape[:-2], matrix_shape(left)[1], matrix_shape(right)[1])
    return Kron(left, right, shape[:-2]), Reshape(before, K.in_shape, R.dtype)


def single_matrix(factor: Factor) -> Factor:
    """The one matrix of a stack of one."""
    shape = shape_of(factor)
    return factor if len(shape) == 2 else reading_of(factor).Reshape(factor, shape[-2:])
