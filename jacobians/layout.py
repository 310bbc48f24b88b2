"""Operators that move, repeat, sum or select numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from .arrays import (
    Array,
    Op,
    Shape,
    as_array,
    axis_of,
    common,
    dtype_of,
    fits,
    is_complex,
    lead,
    prod_text,
    shape_of,
    size,
    wide,
)
from .base import Jacobian
from .elementwise import Identity
from .errors import InputError
from .hooks import submatrix
from .symint import agree, at, if_negative, is_symbolic, largest, same


class Reshape(Jacobian):
    """y = x in another shape; as a matrix, the identity.

    x is of `in_shape`, y of `out_shape`, and both are of `dtype`.
    """

    def __init__(self, out_shape: Shape, in_shape: Shape, dtype: DTypeLike) -> None:
        if not agree(size(out_shape), size(in_shape)):
            raise InputError(f"Reshape: {list(in_shape)} cannot become {list(out_shape)}")
        super().__init__(out_shape, in_shape, dtype)

    def _apply(self, op: Op, v: Array) -> Array:
        return op.Reshape(v, (*lead(v, self.in_shape), *self.out_shape))

    def _transpose(self) -> Jacobian:
        return Reshape(self.in_shape, self.out_shape, self.dtype)

    def __repr__(self) -> str:
        return f"reshape({prod_text(self.out_shape)})"


class Permutation(Jacobian):
    """y[i_perm(0), i_perm(1), ...] = x[i_0, i_1, ...]: axis k of y is axis perm[k] of x.

    `perm` orders the axes of x, of the shape `in_shape` and of `dtype`.
    """

    def __init__(self, perm: tuple[int, ...], in_shape: Shape, dtype: DTypeLike) -> None:
        self.perm = tuple(perm)
        if sorted(self.perm) != list(range(len(in_shape))):
            raise InputError(f"Permutation: {self.perm} does not order the axes of a tensor of "
                             f"shape {list(in_shape)}")  # fmt: skip
        super().__init__(tuple(in_shape[k] for k in self.perm), in_shape, dtype)

    def _apply(self, op: Op, v: Array) -> Array:
        k = len(lead(v, self.in_shape))
        return op.Transpose(v, perm=(*range(k), *(k + p for p in self.perm)))

    def _transpose(self) -> Jacobian:
        inverse = tuple(self.perm.index(k) for k in range(len(self.perm)))
        return Permutation(inverse, self.out_shape, self.dtype)

    def __repr__(self) -> str:
        return f"perm({', '.join(map(str, self.perm))})"


class Broadcast(Jacobian):
    """y = x repeated along axes of length 1 and along new leading axes, as ONNX broadcasts.

    x is of `in_shape`, y of `out_shape`, and both are of `dtype`.
    """

    def __init__(self, out_shape: Shape, in_shape: Shape, dtype: DTypeLike) -> None:
        super().__init__(out_shape, in_shape, dtype)
        check_repeats(self, self.in_shape, self.out_shape)

    def _apply(self, op: Op, v: Array) -> Array:
        k, new = lead(v, self.in_shape), len(self.out_shape) - len(self.in_shape)
        if k and new:
            v = op.Reshape(v, (*k, *(1,) * new, *self.in_shape))
        return op.Expand(v, (*k, *self.out_shape))

    def _transpose(self) -> Jacobian:
        return SumTo(self.in_shape, self.out_shape, self.dtype)

    def __repr__(self) -> str:
        return f"bcast({prod_text(self.in_shape)} → {prod_text(self.out_shape)})"


class SumTo(Jacobian):
    """y = x summed over the axes that `Broadcast` repeats: its transpose.

    x is of `in_shape`, y of `out_shape`, and both are of `dtype`.
    """

    def __init__(self, out_shape: Shape, in_shape: Shape, dtype: DTypeLike) -> None:
        super().__init__(out_shape, in_shape, dtype)
        check_repeats(self, self.out_shape, self.in_shape)

    def _apply(self, op: Op, v: Array) -> Array:
        return summed_to(op, v, self.out_shape, self.in_shape)

    def _transpose(self) -> Jacobian:
        return Broadcast(self.in_shape, self.out_shape, self.dtype)

    @property
    def flops(self) -> int:
        return size(self.in_shape)

    def __repr__(self) -> str:
        return f"sum({prod_text(self.in_shape)} → {prod_text(self.out_shape)})"


def summed_to(op: Op, v: Array, small: Shape, large: Shape) -> Array:
    """v (*columns, *large), summed over the axes along which `small` is repeated."""
    columns, axes = lead(v, large), summed_axes(small, large)
    gone = len(axes) == len(large) - len(small)  # those in front, which `small` does not have
    v = op.ReduceSum(v, axes, keepdims=1 - gone) if axes else v
    return v if gone else op.Reshape(v, (*columns, *small))


def check_repeats(operator: Jacobian, small: Shape, large: Shape) -> None:
    """Raises `InputError` where a tensor of one shape does not broadcast to the other."""
    if not fits(small, large):
        raise InputError(f"{type(operator).__name__}: a tensor of shape {list(small)} does not "
                         f"broadcast to {list(large)}")  # fmt: skip


def summed_axes(small: Shape, large: Shape) -> tuple[int, ...]:
    """The negative axes of `large` along which `small` is repeated.

    >>> summed_axes((3, 1), (2, 3, 4))
    (-3, -1)
    """
    padded = (1,) * (len(large) - len(small)) + tuple(small)
    return tuple(
        axis - len(large)
        for axis, (s, n) in enumerate(zip(padded, large, strict=True))
        if axis < len(large) - len(small) or is_repeated(s, n)
    )


def is_repeated(small: int, large: int) -> bool:
    """Whether one entry is repeated along an axis; a decision if that cannot be proved."""
    if same(small, large) or same(small, 1):
        return not same(small, large)
    return small != large and small == 1


def broadcast(in_shape: Shape, out_shape: Shape, dtype: DTypeLike) -> Jacobian:
    """`Broadcast`, or a `Reshape` or `Identity` where nothing is repeated.

    x is of `in_shape`, y of `out_shape`, and both are of `dtype`.
    """
    if same(tuple(in_shape), tuple(out_shape)):
        return Identity(out_shape, dtype)
    repeated = Broadcast(out_shape, in_shape, dtype)
    whole = same(size(in_shape), size(out_shape))
    return Reshape(out_shape, in_shape, dtype) if whole else repeated


Span = tuple[int, int, int]
"""start, step, count along one axis; the step may be negative."""


# -- selections, by slices or an index; the transpose scatters the entries back --------------------


class Slice(Jacobian):
    """y = x[start::step, ...], `count` entries along each axis.

    `spans` holds (start, step, count) for each axis of x, of the shape `in_shape` and of `dtype`.
    """

    def __init__(self, spans: tuple[Span, ...], in_shape: Shape, dtype: DTypeLike) -> None:
        self.spans = checked_spans(spans, in_shape, "Slice")
        super().__init__(tuple(count for _, _, count in spans), in_shape, dtype)

    def _apply(self, op: Op, v: Array) -> Array:
        cut = [k for k, span in enumerate(self.spans) if not same(span, (0, 1, self.in_shape[k]))]
        if not cut:
            return v
        axes = tuple(k - len(self.spans) for k in cut)
        starts, ends, steps = zip(
            *(bounds(self.spans[k], self.in_shape[k]) for k in cut), strict=True
        )
        return settle_shape(op, op.Slice(v, starts, ends, axes, steps), self, v)

    def _transpose(self) -> Jacobian:
        return Embed(self.spans, self.in_shape, self.dtype)

    def __repr__(self) -> str:
        return f"slice({prod_text(self.in_shape)} → {prod_text(self.out_shape)})"


class Embed(Jacobian):
    """The transpose of `Slice`: x is placed at the slices of a zero tensor.

    `spans` holds (start, step, count) for each axis of y, of the shape `out_shape` and of `dtype`.
    """

    def __init__(self, spans: tuple[Span, ...], out_shape: Shape, dtype: DTypeLike) -> None:
        self.spans = checked_spans(spans, out_shape, "Embed")
        super().__init__(out_shape, tuple(count for _, _, count in spans), dtype)

    def _apply(self, op: Op, v: Array) -> Array:
        for k, span in enumerate(self.spans):
            if span[1] != 1:
                v = space_out(op, v, k - len(self.spans), span)
        empty = tuple(map(margins, self.spans, self.out_shape))
        axes = tuple(k - len(empty) for k, margin in enumerate(empty) if not same(margin, (0, 0)))
        pads = (*(empty[a][0] for a in axes), *(empty[a][1] for a in axes))
        return settle_shape(op, op.Pad(v, pads, None, axes), self, v) if axes else v

    def _transpose(self) -> Jacobian:
        return Slice(self.spans, self.out_shape, self.dtype)

    def __repr__(self) -> str:
        return f"embed({prod_text(self.in_shape)} → {prod_text(self.out_shape)})"


def settle_shape(op: Op, y: Array, J: Jacobian, v: Array) -> Array:
    """y = J v in the shape of J's output, which inference may miss where sizes are symbolic."""
    if not is_symbolic((J.out_shape, J.in_shape)):
        return y
    return op.Reshape(y, (*lead(v, J.in_shape), *J.out_shape))


def checked_spans(spans: tuple[Span, ...], shape: Shape, kind: str) -> tuple[Span, ...]:
    """The spans, checked: one per axis, inside it."""
    inside = len(spans) == len(shape) and all(
        len(span) == 3 and span[2] >= 0 and all(
            0 <= k < n for k in (span[0], span[0] + span[1] * (span[2] - 1)) if span[2]
        ) and (span[1] or span[2] < 2)
        for span, n in zip(map(at, spans), at(tuple(shape)), strict=True)
    )  # fmt: skip
    if not inside:
        raise InputError(f"{kind}: the spans (start, step, count) {spans} do not lie in a tensor "
                         f"of shape {list(shape)}")  # fmt: skip
    return tuple(spans)


def index_array(index: Array) -> Array:
    """The index, where that is a list as an array."""
    return as_array(index) if isinstance(index, list | tuple) else index


def indexed(index: Array, axis: int, shape: Shape, kind: str) -> tuple[int, Shape]:
    """The axis, counted from the end, and the shape with the axes of the index in its place.

    Raises `InputError` where the index is not of integers in [-n, n), for an axis of length n.
    """
    axis = axis_of(axis, shape, kind)
    n, known = shape[axis], isinstance(index, np.ndarray)
    if known and index.dtype.kind not in "iu":
        raise InputError(f"{kind}: an index is of integers, not of {index.dtype}")
    if known and index.size and not -n <= index.min() <= index.max() < n:
        raise InputError(f"{kind}: the index reaches from {index.min()} to {index.max()}, on an "
                         f"axis of length {n}")  # fmt: skip
    return axis, (*shape[:axis], *shape_of(index), *shape[len(shape) + axis + 1 :])


def bounds(span: Span, n: int) -> tuple[int, int, int]:
    """start, end, step as ONNX's Slice takes them; an end before index 0 is very negative."""
    start, step, count = span
    end = start + step * count
    return start, end if same(step, 1) else if_negative(end, -n - 1, end), step


def margins(span: Span, n: int) -> tuple[int, int]:
    """The numbers of zeros before and after the span on an axis of length n."""
    start, step, count = span
    if same(count, 0):
        return 0, n
    low = start if step > 0 else start + step * (count - 1)
    return low, n - low - largest(abs(step) * (count - 1) + 1, 0)


def space_out(op: Op, v: Array, axis: int, span: Span) -> Array:
    """Entries of `v` placed |step| apart along a negative axis, reversed for a negative step."""
    _, step, count = span
    if step < 0:
        v = op.Slice(v, (count - 1,), (-count - 1,), (axis,), (-1,))
    if abs(step) == 1 or not (is_symbolic(count) or count > 1):
        return v
    shape = list(shape_of(v))
    v = op.Reshape(v, (*shape[:axis], count, 1, *shape[len(shape) + axis + 1 :]))
    v = op.Pad(v, (0, abs(step) - 1), None, (axis,))
    shape[axis] = count * abs(step)
    v = op.Reshape(v, tuple(shape))
    return op.Slice(v, (0,), ((count - 1) * abs(step) + 1,), (axis,))


class Take(Jacobian):
    """y = x[..., index, ...] along one axis; entries may repeat, the index is an integer tensor.

    `index` takes entries along `axis` of x, of the shape `in_shape` and of `dtype`. `parts` are the
    lengths of leading axes of the index: each such part of the index takes entries from the same
    part of the axis only. A `distinct` index counts from 0 and repeats no entry.
    """

    holds = ("index",)

    def __init__(
        self, index: Array, axis: int, in_shape: Shape, dtype: DTypeLike, parts: Shape = (),
        distinct: bool = False,
    ) -> None:  # fmt: skip
        self.index, self.parts, self.distinct = index_array(index), parts, distinct
        self.axis, out_shape = indexed(self.index, axis, in_shape, "Take")
        super().__init__(out_shape, in_shape, dtype)

    def _apply(self, op: Op, v: Array) -> Array:
        axis = len(shape_of(v)) + self.axis
        return op.Gather(v, self.index, axis=axis)

    def _transpose(self) -> Jacobian:
        return Scatter(self.index, self.axis, self.in_shape, self.dtype, self.parts, self.distinct)

    def __repr__(self) -> str:
        return f"take({prod_text(self.in_shape)} → {prod_text(self.out_shape)})"


class Scatter(Jacobian):
    """The transpose of `Take`: entries are summed where the index points.

    `index` points along `axis` of y, of the shape `out_shape` and of `dtype`; `parts` and
    `distinct` are as for `Take`.
    """

    holds = ("index",)

    def __init__(
        self, index: Array, axis: int, out_shape: Shape, dtype: DTypeLike, parts: Shape = (),
        distinct: bool = False,
    ) -> None:  # fmt: skip
        self.index, self.parts, self.distinct = index_array(index), parts, distinct
        self.axis, in_shape = indexed(self.index, axis, out_shape, "Scatter")
        super().__init__(out_shape, in_shape, dtype)

    def _apply(self, op: Op, v: Array) -> Array:
        n, k = self.out_shape[self.axis], lead(v, self.in_shape)
        front = (*k, *self.out_shape[: self.axis])
        back = self.out_shape[len(self.out_shape) + self.axis + 1 :]
        rows, before, after = size(shape_of(self.index)), size(front), size(back)
        dtype = wide(self.dtype)
        zero = np.zeros((), common(dtype, dtype_of(v)) if is_complex(v) else dtype)
        index = op.Reshape(self.index, (rows, 1))
        terms = op.CastLike(v, zero)
        zero = op.CastLike(0.0, terms)
        put = self.distinct and not getattr(op, "is_model", False)  # the rule of a sum is simpler
        how = {} if put else {"reduction": "add"}
        if same(before, 1):
            zeros, updates = op.Expand(zero, (n, after)), op.Reshape(terms, (rows, after))
            summed = op.ScatterND(zeros, index, updates, **how)
        else:
            zeros = op.Expand(zero, (n, before, after))
            rows_first = op.Transpose(op.Reshape(terms, (before, rows, after)), perm=(1, 0, 2))
            summed = op.ScatterND(zeros, index, rows_first, **how)
            summed = op.Transpose(summed, perm=(1, 0, 2))
        return op.Reshape(op.CastLike(summed, v), (*front, n, *back))

    def _transpose(self) -> Jacobian:
        return Take(self.index, self.axis, self.out_shape, self.dtype, self.parts, self.distinct)

    @property
    def flops(self) -> int:
        return size(self.in_shape)

    def __repr__(self) -> str:
        return f"scatter({prod_text(self.in_shape)} → {prod_text(self.out_shape)})"


def slab(in_shape: Shape, axis: int, start: int, stop: int, dtype: DTypeLike) -> Slice:
    """y = x[start:stop] along one axis: an output of Split; transposed, an input of Concat.

    The slice from `start` to `stop` is along `axis` of x, of the shape `in_shape` and of `dtype`.
    """
    axis %= len(in_shape)
    spans = [(0, 1, n) for n in in_shape]
    spans[axis] = (start, 1, stop - start)
    return Slice(tuple(spans), in_shape, dtype)


def take_flat(
    index: Array, in_shape: Shape, dtype: DTypeLike, parts: Shape = (), distinct: bool = False
) -> Jacobian:
    """y = x.ravel()[`index`]: any selection, by row-major positions in x.

    x is of the shape `in_shape` and of `dtype`. `parts` are leading axes of x and index: every
    entry is taken from its own part of x. No entry is taken twice by a `distinct` index.
    """
    n = size(in_shape)
    return Take(index, 0, (n,), dtype, parts, distinct) @ Reshape((n,), in_shape, dtype)


@submatrix.register(Jacobian)
def _submatrix(operator: Jacobian, rows: Any, columns: Any) -> Jacobian:
    m, n = operator.shape
    chosen = take_flat(_positions(rows, m), operator.out_shape, operator.dtype)
    return (
        chosen @ operator @ take_flat(_positions(columns, n), operator.in_shape, operator.dtype).T
    )


def _positions(index: Any, n: int) -> np.ndarray:
    if isinstance(index, str):
        raise InputError(f'{index!r} alone is no block: a block is J["of", "wrt"], by two names')
    try:
        return np.atleast_1d(np.arange(n)[index])
    except IndexError as error:
        raise InputError(f"index {index!r} does not fit a side of length {n}: {error}") from None
