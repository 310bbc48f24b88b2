"""Transcriptions: the specification of each operator, in loops over indices and sums of products.

Transcriptions are written from the text of the specification alone, or run ONNX's reference
implementation, and share no code with what they verify: the kernels of the numbers reading and the
rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product as tuples
from typing import Any

import numpy as np
import sympy as sp

from ...ops.symbols import REFERRED, referred
from ...ops.symbols.placing import as_ints

Transcription = Callable[..., Any]
Index = tuple[int, ...]
Summary = Callable[..., Any]

TRANSCRIPTIONS: dict[str, Transcription] = {}
"""domain::op_type -> a function of object arrays and attributes."""


def transcription(name: str) -> Callable[[Transcription], Transcription]:
    """Register a function as the transcription of an operator."""

    def enter(function: Transcription) -> Transcription:
        TRANSCRIPTIONS[name] = function
        return function

    return enter


def tabulate(shape: Iterable[int], entry: Callable[[Index], Any]) -> np.ndarray:
    """y[index] = entry(index), for every index of the shape.

    >>> tabulate((2, 2), lambda index: 10 * index[0] + index[1]).tolist()
    [[0, 1], [10, 11]]
    """
    y = np.empty(tuple(shape), object)
    for index in np.ndindex(*y.shape):
        y[index] = entry(index)
    return y


def replace_index(index: Index, axis: int, *others: int) -> Index:
    """The index with the number of one axis replaced by other numbers, or removed.

    >>> replace_index((1, 2, 3), 1, 7), replace_index((1, 2, 3), -1)
    ((1, 7, 3), (1, 2))
    """
    axis %= len(index)
    return (*index[:axis], *others, *index[axis + 1 :])


def wrap_index(i: Any, n: int) -> int:
    """An index of an axis of length n; a negative index counts from the end."""
    return int(i) + n if i < 0 else int(i)


for _name in REFERRED:
    transcription(_name)(referred(_name))


# -- what the reference implementation does not compute over symbols -------------------------------


def mean(entries: Sequence[Any]) -> Any:
    """(Σ x) / n."""
    return sum(entries) / len(entries)


def p_norm(entries: Sequence[Any], p: int = 2) -> Any:
    """(Σ |x|ᵖ)^(1/p)."""
    return sum(abs(v) ** p for v in entries) ** sp.Rational(1, p)


def transcribe_entrywise(name: str, function: Callable[..., Any]) -> None:
    """Enter y[i] = f(a[i], b[i], ...)."""

    def apply(*inputs: Any, **how: Any) -> Any:
        applied = np.frompyfunc(partial(function, **how), len(inputs), 1)
        return np.asarray(applied(*inputs), object)

    transcription(name)(apply)


transcribe_entrywise("Sum", lambda *xs: sum(xs))
transcribe_entrywise("Mean", lambda *xs: mean(xs))
transcribe_entrywise("Div", lambda a, b: a / b)


@transcription("AffineGrid")
def affine_grid(theta: Any, size: Any, *, align_corners: int = 0) -> Any:
    """y[n, p, r] = Σₖ θ[n, r, k] pₖ + θ[n, r, d], with the last axis of space first in p."""
    n, _, *lengths = as_ints(size)
    d = len(lengths)

    def entry(index: Index) -> Any:
        b, *place, r = index
        point = [centre(i, m, align_corners) for i, m in zip(place, lengths, strict=True)][::-1]
        return sum((theta[b, r, k] * p for k, p in enumerate(point)), start=theta[b, r, d])

    return tabulate((n, *lengths, d), entry)


def centre(i: int, n: int, align_corners: int) -> Any:
    """Position of pixel i of n in [-1, 1]; ±1 are the centres of the corners, or their outer edges.

    >>> [centre(i, 2, 0) for i in range(2)], [centre(i, 3, 1) for i in range(3)]
    ([-1/2, 1/2], [-1, 0, 1])
    """
    if align_corners and n == 1:
        raise NotImplementedError("the centre of a single pixel cannot be both -1 and 1")
    return sp.Rational(2 * i, n - 1) - 1 if align_corners else sp.Rational(2 * i + 1, n) - 1


@transcription("LpNormalization")
def lp_normalization(x: Any, *, axis: int = -1, p: int = 2) -> Any:
    """x / ‖x‖ₚ along an axis, and 0 where the norm is 0."""

    def entry(index: Index) -> Any:
        size = p_norm([x[replace_index(index, axis, i)] for i in range(x.shape[axis])], p)
        return 0 if size == 0 else x[index] / size

    return tabulate(x.shape, entry)


@transcription("LayerNormalization")
def layer_normalization(
    x: Any, scale: Any, bias: Any = None, *, axis: int = -1, epsilon: float = 1e-5,
    stash_type: int = 1, outputs: int = 1,
) -> Any:  # fmt: skip
    """((x - μ) r scale + bias, μ, r), r = 1 / √(σ² + ε), over the axes from `axis` on.

    For models in double precision: ONNX gives no body whose statistics are doubles.
    """
    over = tuple(range(axis % x.ndim, x.ndim))
    centred = x - (centre := x.mean(over, keepdims=True))
    inverse = 1 / np.sqrt((centred * centred).mean(over, keepdims=True) + epsilon)
    y = centred * inverse * scale
    y = y if bias is None else y + bias
    return y if outputs == 1 else (y, centre, inverse)[:outputs]


@transcription("GatherElements")
def gather_elements(x: Any, indices: Any, *, axis: int = 0) -> Any:
    """y[i, j, k] = x[i, indices[i, j, k], k]."""
    n = x.shape[axis]
    return tabulate(
        indices.shape, lambda index: x[replace_index(index, axis, wrap_index(indices[index], n))]
    )


@transcription("Pad")
def pad(x: Any, pads: Any, value: Any = None, axes: Any = None, *, mode: Any = "constant") -> Any:
    """x, cropped where pads are negative, then extended by NumPy's mode of the same name."""
    given, chosen = as_ints(pads), range(x.ndim) if axes is None else as_ints(axes)
    around = {a % x.ndim: (given[k], given[k + len(chosen)]) for k, a in enumerate(chosen)}
    ends = [around.get(axis, (0, 0)) for axis in range(x.ndim)]
    kept = (slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in zip(x.shape, ends, strict=True))
    filling = 0 if value is None else np.asarray(value, object).item()
    options: dict[str, Any] = {"constant_values": filling} if mode == "constant" else {}
    return np.pad(x[*kept], np.maximum(ends, 0), mode, **options)


# -- windows that slide over space: transposed convolutions, pools, bins of regions ----------------


@dataclass(frozen=True)
class Axis:
    """One axis of space: its length, the taps of a window, and ONNX's attributes."""

    length: int
    kernel: int
    stride: int
    dilation: int
    begin: int
    end: int
    count: int

    def place(self, window: int, tap: int) -> int:
        """The place of a tap of a window; outside 0 ≤ place < length it is in the padding."""
        return window * self.stride + tap * self.dilation - self.begin

    def inside(self, place: int, padding: bool = False) -> bool:
        """Whether a place is in x, or with `padding`, in x or the padding."""
        before, after = (self.begin, self.end) if padding else (0, 0)
        return -before <= place < self.length + after


def space_axes(space: Sequence[int], kernel: Sequence[int], **attributes: Any) -> list[Axis]:
    """The axes of space."""
    return [axis(n, k, i, len(space), **attributes)
            for i, (n, k) in enumerate(zip(space, kernel, strict=True))]  # fmt: skip


def axis(
    n: int, k: int, i: int, rank: int, *, auto_pad: str = "NOTSET", ceil_mode: int = 0,
    dilations: Any = None, pads: Any = None, strides: Any = None,
) -> Axis:  # fmt: skip
    """Axis i, by the equations for the output shape of a pool.

    >>> axis(5, 3, 0, 1, auto_pad="SAME_LOWER", strides=[2]).count
    3
    >>> axis(5, 2, 0, 1, ceil_mode=1, strides=[2]).count
    3
    """
    stride, dilation = strides[i] if strides else 1, dilations[i] if dilations else 1
    extent = (k - 1) * dilation + 1
    begin, end = (pads[i], pads[i + rank]) if pads and auto_pad == "NOTSET" else (0, 0)
    room = n + begin + end - extent
    upwards = ceil_mode and auto_pad != "VALID"
    count = (-(-room // stride) if upwards else room // stride) + 1
    if auto_pad.startswith("SAME"):
        count = -(-n // stride)
        begin, end = halves(max((count - 1) * stride + extent - n, 0), auto_pad)
    if upwards and (count - 1) * stride >= n + begin:  # it would start in the padding at the end
        count -= 1
    return Axis(n, k, stride, dilation, begin, end, count)


def halves(total: int, auto_pad: str) -> tuple[int, int]:
    """The padding before and after; SAME_UPPER puts the odd entry at the end.

    >>> halves(3, "SAME_UPPER"), halves(3, "SAME_LOWER")
    ((1, 2), (2, 1))
    """
    small, large = total // 2, total - total // 2
    return (small, large) if auto_pad == "SAME_UPPER" else (large, small)


def taps(
    space: Sequence[Axis], window: Index, padding: bool = False
) -> Iterator[tuple[Index, Index]]:
    """Each tap of a window that has a place in x, with that place."""
    for tap in tuples(*(range(a.kernel) for a in space)):
        place = tuple(a.place(o, t) for a, o, t in zip(space, window, tap, strict=True))
        if all(a.inside(p, padding) for a, p in zip(space, place, strict=True)):
            yield tap, place


@transcription("ConvTranspose")
def conv_transpose(
    x: Any, w: Any, b: Any = None, *, group: int = 1, kernel_shape: Any = None, **how: Any
) -> Any:
    """y[n, m, o] = b[m] + Σ w[c, m, t] x[n, c, i], over i · stride + t · dilation - begin = o."""
    rank, inner, outer = x.ndim - 2, x.shape[1] // group, w.shape[1]
    space = [transposed_axis(x.shape[2 + i], w.shape[2 + i], i, rank, **how) for i in range(rank)]
    y: Any = np.zeros((len(x), outer * group, *(a.count for a in space)), int).astype(object)
    for g, i, t in tuples(range(group), np.ndindex(x.shape[2:]), np.ndindex(w.shape[2:])):
        place = [a.place(*pair) for a, *pair in zip(space, i, t, strict=True)]
        if all(0 <= o < a.count for a, o in zip(space, place, strict=True)):
            c, m = (slice(g * n, (g + 1) * n) for n in (inner, outer))
            y[:, m, *place] += x[:, c, *i] @ w[c, :, *t]
    return y if b is None else y + b.reshape(-1, *[1] * rank)


def transposed_axis(
    n: int, k: int, i: int, rank: int, *, auto_pad: str = "NOTSET", dilations: Any = None,
    output_padding: Any = None, output_shape: Any = None, pads: Any = None, strides: Any = None,
) -> Axis:  # fmt: skip
    """Axis i: n inputs are windows over `count` outputs.

    >>> transposed_axis(3, 2, 0, 1, strides=[2], pads=[1, 0]).count
    5
    """
    stride, dilation = strides[i] if strides else 1, dilations[i] if dilations else 1
    extra = output_padding[i] if output_padding else 0
    full = stride * (n - 1) + extra + (k - 1) * dilation + 1
    begin, end = (pads[i], pads[i + rank]) if pads and auto_pad == "NOTSET" else (0, 0)
    if output_shape:
        begin, end = halves(full - output_shape[i - rank], auto_pad)
    elif auto_pad.startswith("SAME"):
        begin, end = halves(full - n * stride, auto_pad)
    return Axis(n, k, stride, dilation, begin, end, full - begin - end)


def pool_windows(x: Any, space: list[Axis], entry: Callable[[list[Any], Index], Any]) -> Any:
    """y[n, c, o] = f(the entries of window o in x, o)."""

    def summary(index: Index) -> Any:
        n, c, *window = index
        met = [x[(n, c, *place)] for _, place in taps(space, tuple(window))]
        return entry(met, tuple(window))

    return tabulate((*x.shape[:2], *(a.count for a in space)), summary)


@transcription("MaxPool")
def max_pool(
    x: Any, *, kernel_shape: Any, storage_order: int = 0, outputs: int = 1, **how: Any
) -> Any:
    """The greatest entry of each window; the second output, their indices, is left out."""
    return pool_windows(x, space_axes(x.shape[2:], kernel_shape, **how), lambda met, _: max(met))


@transcription("AveragePool")
def average_pool(x: Any, *, kernel_shape: Any, count_include_pad: int = 0, **how: Any) -> Any:
    """The sum of each window over the number of its taps, with or without the padding."""
    space = space_axes(x.shape[2:], kernel_shape, **how)
    counted = bool(count_include_pad)
    return pool_windows(x, space, lambda met, o: sum(met) / len(list(taps(space, o, counted))))


@transcription("LpPool")
def lp_pool(x: Any, *, kernel_shape: Any, p: int = 2, **how: Any) -> Any:
    """The norm of each window."""
    return pool_windows(
        x, space_axes(x.shape[2:], kernel_shape, **how), lambda met, _: p_norm(met, p)
    )


def transcribe_over_space(name: str, summary: Summary) -> None:
    """Enter y[n, c, 0, …] = f(x[n, c])."""

    def apply(x: Any, **how: Any) -> Any:
        shape = (*x.shape[:2], *(1,) * (x.ndim - 2))
        return tabulate(shape, lambda index: summary(list(x[index[:2]].flat), **how))

    transcription(name)(apply)


transcribe_over_space("GlobalMaxPool", max)
transcribe_over_space("GlobalLpPool", p_norm)


@transcription("LRN")
def lrn(x: Any, *, size: int, alpha: float = 0.0001, beta: float = 0.75, bias: float = 1.0) -> Any:
    """x / (bias + α / size · Σ x²)^β, over channels c - ⌊(size - 1)/2⌋ to c + ⌈(size - 1)/2⌉."""

    def entry(index: Index) -> Any:
        n, c, *place = index
        near = range(max(0, c - (size - 1) // 2), min(x.shape[1], c + size // 2 + 1))
        squares = sum(x[(n, i, *place)] * x[(n, i, *place)] for i in near)
        return x[index] / (squares * alpha / size + bias) ** beta

    return tabulate(np.shape(x), entry)


# -- two operators of ONNX Runtime, whose kinks are found with these only --------------------------


def scaled_integers(q: Any, scale: Any, zero: Any = None) -> Any:
    """(q - zero) scale, for the whole tensor or per index of the last axis."""
    return (q.astype(int) - (0 if zero is None else zero.astype(int))) * scale


@transcription("com.microsoft::DynamicQuantizeMatMul")
def dynamic_quantize_matmul(
    a: Any, b: Any, b_scale: Any, b_zero: Any = None, bias: Any = None
) -> Any:
    """(round(aᵢₖ / s) s) Bₖⱼ + biasⱼ, with 255 s = max(a, 0) - min(a, 0)."""
    step = (max(0, *a.flat) - min(0, *a.flat)) / 255
    y = (np.rint(a / step) * step) @ scaled_integers(b, b_scale, b_zero)
    return y if bias is None else y + bias


@transcription("com.microsoft::WordConvEmbedding")
def word_conv_embedding(words: Any, w: Any, b: Any, table: Any) -> Any:
    """y[n, m] = the maximum of tanh(Σₖ Σ_d w[m, 0, k, d] C[word[n, t + k], d] + b[m]) over t."""
    wide = w.shape[2]

    def entry(index: Index) -> Any:
        n, m = index
        last = max(np.count_nonzero(words[n]), wide) - wide
        sums = ((table[words[n, t : t + wide]] * w[m, 0]).sum() + b[m] for t in range(last + 1))
        return max(z.tanh() for z in sums)

    return tabulate((len(words), len(w)), entry)
