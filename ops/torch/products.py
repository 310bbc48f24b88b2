"""Products and sums: matrix products, convolutions, transforms, reductions, norms."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

from ...jacobians.arrays import Shape, dtype_of
from ..numbers.convolution import check_kernel
from ..numbers.convolution import max_pool as max_pool_by_taps
from ..numbers.layout import framed
from ..numbers.matmul import contraction_order
from ..numbers.reductions import EPSILON, Axes, reductions
from ..numbers.reductions import layer_normalization as standardized
from ..numbers.table import Kernel, as_ints, highest, lowest
from ..numbers.windows import Windows, padded, transposed_windows, windows, within_padding
from .table import SAME, STATIC, Tensor, kernel, promote

CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
SPREAD = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
POOL = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
"""Convolutions, transposed convolutions and maxima of windows by the number of spatial axes."""


STACKED_ENTRIES = 4096
"""From this many entries on, a stack of matrices is worth another order of the product."""

THREADED_ENTRIES = 1 << 18
"""From this many entries on, a row times a matrix on a CPU is divided among the threads."""


def product(a: tuple[int, ...], b: tuple[int, ...]) -> Kernel:
    """(A, B) ↦ A B for these shapes; vectors of a stack are multiplied as rows, which takes a CPU a
    tenth of the time.
    """
    if len(b) > 2 < len(a) and b[-1] == 1 and math.prod(a) >= STACKED_ENTRIES:
        return lambda a, b: torch.matmul(b.mT, a.mT).mT
    if len(a) == len(b) == 2 and a[0] == 1 and math.prod(b) >= THREADED_ENTRIES:
        return row_by_matrix
    if len(a) == len(b) == 2 and b[1] == 1 and math.prod(a) >= THREADED_ENTRIES:
        return lambda a, b: row_by_matrix(b.T, a.T).T
    if len(a) == len(b) == 3 and a[0] == b[0]:
        return torch.bmm
    if len(b) == 2 < len(a):  # torch would copy the matrix for rows that do not lie in line
        rows, shape = (math.prod(a[:-1]), a[-1]), (*a[:-1], b[1])
        return lambda a, b: torch.mm(a.reshape(rows), b).view(shape)
    return torch.mm if len(a) == len(b) == 2 else torch.matmul


def row_by_matrix(row: Tensor, b: Tensor) -> Tensor:
    """A row times B, a block of rows of B for each thread; alone, it takes MKL one thread."""
    blocks = torch.get_num_threads() if b.device.type == "cpu" else 1
    if blocks == 1 or len(b) % blocks:
        return row @ b
    return torch.bmm(row.reshape(blocks, 1, -1), b.reshape(blocks, -1, b.shape[1])).sum(0)


SAME["MatMul"] = product


@kernel("MatMul")
def matmul(a: Tensor, b: Tensor) -> Tensor:
    """A B over the last two axes, the axes before them broadcast."""
    a, b = promote(a, b)
    return product(a.shape, b.shape)(a, b)


@kernel("Einsum", wide=True)
def einsum(*inputs: Tensor, equation: str) -> Tensor:
    """The sum of products that the equation defines, contracted pair by pair in a cheap order."""
    equation = equation.replace(" ", "")
    if "->" not in equation or len(inputs) < 3:
        return torch.einsum(equation, *promote(*inputs))
    left = dict(enumerate(promote(*inputs)))
    terms, out = dict(enumerate(equation.split("->")[0].split(","))), equation.split("->")[1]
    order = contraction_order(equation, *(tuple(x.shape) for x in inputs))
    for step, places in enumerate(order[1:] if order else [tuple(left)]):
        keys = [sorted(left)[place] for place in places]
        chosen, names = [left.pop(key) for key in keys], [terms.pop(key) for key in keys]
        rest = out + "".join(terms.values())
        kept = dict.fromkeys(c for name in names for c in name if c.isalpha() and c in rest)
        dots = "..." if any("..." in name for name in names) else ""
        made = dots + "".join(kept) if left else out
        key = len(inputs) + step
        left[key], terms[key] = torch.einsum(f"{','.join(names)}->{made}", *chosen), made
    return left.popitem()[1]


@kernel("Conv")
def conv(
    x: Tensor, w: Tensor, b: Tensor | None = None, *, group: int = 1, kernel_shape: Any = None,
    **geometry: Any,
) -> Tensor:  # fmt: skip
    """y[n, m, o] = Σ w[m, c, t] x[n, c, o · stride + t · dilation − begin] + b[m]."""
    check_kernel(w, kernel_shape)
    grid = within_padding(windows(tuple(x.shape[2:]), tuple(w.shape[2:]), **geometry))
    x, w, b = promote(x, w, b)
    if x.ndim - 2 not in CONV or 0 in (*x.shape, *w.shape, *grid.count):
        raise NotImplementedError("torch convolves along one to three axes that are not empty")
    margin = tuple(begin for begin, _ in grid.frame)
    if any(end > begin for begin, end in grid.frame):  # torch pads both ends alike
        x, margin = padded(x, grid), (0,) * len(margin)
    if math.prod(grid.kernel) > math.prod(grid.count) and not x.is_complex():
        return add_channels(correlated(x, w, grid, margin, group), b)
    y = CONV[x.ndim - 2](x, w, b, grid.strides, margin, grid.dilations, group)
    return y[(..., *map(slice, grid.count))]


def correlated(
    x: Tensor, w: Tensor, grid: Windows, margin: tuple[int, ...], group: int
) -> Tensor:
    """The convolution by a kernel larger than the result: it is the gradient, in its kernel, of the
    convolution with samples and channels of x exchanged, which has a faster kernel.
    """
    rank, lengths = len(margin), tuple(x.shape[2:])
    reached = [grid.covered(axis, n) for axis, n in enumerate(grid.count)]
    spare = (n + 2 * a - m for n, a, m in zip(lengths, margin, reached, strict=True))
    if any(more >= step for more, step in zip(spare, grid.dilations, strict=True)):
        x, margin = padded(x, grid) if any(margin) else x, (0,) * rank
        x = x[(..., *map(slice, reached))]
    signal = x.unflatten(1, (group, w.shape[1])).transpose(0, 2).flatten(1, 2)
    y: Tensor = torch.ops.aten.convolution_backward(
        w.transpose(0, 1), signal, x.new_empty((len(w), len(x), *grid.count)), None, grid.dilations,
        margin, grid.strides, False, (0,) * rank, group, (False, True, False),
    )[1]  # fmt: skip
    return y.transpose(0, 1)


@kernel("ConvTranspose")
def conv_transpose(
    x: Tensor, w: Tensor, b: Tensor | None = None, *, group: int = 1, kernel_shape: Any = None,
    **geometry: Any,
) -> Tensor:  # fmt: skip
    """y[n, m, i · stride + t · dilation − begin] is Σ w[c, m, t] x[n, c, i], plus b[m]."""
    check_kernel(w, kernel_shape)
    grid = transposed_windows(tuple(x.shape[2:]), tuple(w.shape[2:]), **geometry)
    x, w, b = promote(x, w, b)
    if x.ndim - 2 not in SPREAD or 0 in (*x.shape, *w.shape, *grid.space):
        raise NotImplementedError("torch convolves along one to three axes that are not empty")
    if (extra := excess_padding(grid)) is not None:
        spread = SPREAD[x.ndim - 2]
        return spread(x, w, b, grid.strides, grid.begins, extra, group, grid.dilations)
    y = SPREAD[x.ndim - 2](x, w, None, grid.strides, 0, 0, group, grid.dilations)
    margins = [(0, max(n - m, 0)) for n, m in zip(grid.framed, y.shape[2:], strict=True)]
    y = framed(y, [(0, 0), (0, 0), *margins], 0)
    y = y[(..., *(slice(a, a + n) for a, n in zip(grid.begins, grid.space, strict=True)))]
    return add_channels(y, b)


def excess_padding(grid: Windows) -> Shape | None:
    """The `output_padding` for torch, which cuts off as much at the end of an axis as at its begin;
    None where torch has none.
    """
    axes = enumerate(zip(grid.count, grid.space, grid.begins, strict=True))
    extra = tuple(n + 2 * a - grid.covered(axis, count) for axis, (count, n, a) in axes)
    steps = map(max, grid.strides, grid.dilations)
    fits = all(0 <= more < step for more, step in zip(extra, steps, strict=True))
    return extra if fits and min(grid.begins) >= 0 else None


def add_channels(y: Tensor, b: Tensor | None) -> Tensor:
    """y plus a vector over the channels."""
    return y if b is None else y + b.reshape(-1, *(1,) * (y.ndim - 2))


@kernel("MaxPool")
def max_pool(
    x: Tensor, *, kernel_shape: Any, storage_order: int = 0, outputs: int = 1, **geometry: Any
) -> Any:
    """The maximum of each window; then its index in the flattened x."""
    grid = windows(tuple(x.shape[2:]), kernel_shape, **geometry)
    margins = zip(grid.frame, grid.kernel, strict=True)
    fits = all(end <= begin <= length / 2 for (begin, end), length in margins)
    if storage_order or not fits or x.ndim - 2 not in POOL or 0 in (*x.shape, *grid.count):
        told = {"storage_order": storage_order, "outputs": outputs, **geometry}
        return max_pool_by_taps(x, kernel_shape=kernel_shape, **told)
    begins = tuple(begin for begin, _ in grid.frame)
    pool, there = POOL[x.ndim - 2], (..., *map(slice, grid.count))
    if outputs == 1:
        return pool(x, grid.kernel, grid.strides, begins, grid.dilations)[there]
    y, found = pool(x, grid.kernel, grid.strides, begins, grid.dilations, return_indices=True)
    count = math.prod(x.shape[:2])
    images = torch.arange(count, device=x.device).reshape(*x.shape[:2], *(1,) * (x.ndim - 2))
    return y[there], found[there] + images * math.prod(grid.space)


def multiply(x: Tensor, axes: Axes, keepdims: bool) -> Tensor:
    """∏ x, one axis at a time."""
    for axis in sorted((axis % x.ndim for axis in axes), reverse=True):
        x = torch.prod(x, axis, keepdim=keepdims)
    return x


def extreme(reduce: Kernel, neutral: Kernel) -> Kernel:
    """The extremum; over no elements, the neutral element."""

    def extremum(x: Tensor, axes: Axes, keepdims: bool) -> Tensor:
        if any(x.shape[axis] == 0 for axis in axes):
            shape = [1 if k in {a % x.ndim for a in axes} else n for k, n in enumerate(x.shape)]
            made = x.new_full(shape, neutral(dtype_of(x)))
            return made if keepdims else made.squeeze(axes)
        return reduce(x, axes, keepdim=keepdims)

    return extremum


greatest, least = extreme(torch.amax, lowest), extreme(torch.amin, highest)

for name, function in reductions(
    torch, torch.sum, multiply, greatest, least, torch.logsumexp
).items():
    kernel(name, hosted=True, wide=True)(function)


def make_sum(
    shape: tuple[int, ...], axes: Any = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
) -> Kernel:
    """The sum of tensors of one shape."""
    chosen = () if axes is None else as_ints(axes)
    if chosen or noop_with_empty_axes:
        return (lambda x: x.sum(chosen, bool(keepdims))) if chosen else lambda x: x
    return lambda x: x.sum(tuple(range(len(shape))), bool(keepdims))


STATIC["ReduceSum"] = make_sum


kernel("Softmax", wide=True)(lambda x, *, axis=-1: torch.softmax(x, axis))
kernel("LogSoftmax", wide=True)(lambda x, *, axis=-1: torch.log_softmax(x, axis))


@kernel("LayerNormalization", wide=True)
def layer_normalization(
    x: Tensor, scale: Tensor, b: Tensor | None = None, *, axis: int = -1, outputs: int = 1,
    **how: Any,
) -> Any:  # fmt: skip
    """(x − μ) / √(σ² + ε) · scale + b; then μ and 1 / √(σ² + ε)."""
    shape, told = x.shape[axis:], {"axis": axis, "outputs": outputs, **how}
    fits = {t.dtype for t in (scale, b) if t is not None} == {x.dtype} and scale.shape == shape
    if not fits or (b is not None and b.shape != shape) or not x.numel() or outputs > 1:
        return standardized(x, scale, b, **told)
    return torch.native_layer_norm(x, shape, scale, b, how.get("epsilon", EPSILON))[0]


@kernel("NegativeLogLikelihoodLoss", wide=True)
def negative_log_likelihood(
    log_prob: Tensor, labels: Tensor, weights: Tensor | None = None, *,
    ignore_index: int | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """−w[label] · log_prob[label]; the mean divides by the sum of the weights."""
    ignored = -1 if ignore_index is None else ignore_index
    return F.nll_loss(log_prob, labels.long(), weights, None, ignored, None, reduction)


@kernel("SoftmaxCrossEntropyLoss", wide=True)
def softmax_cross_entropy(
    scores: Tensor, labels: Tensor, weights: Tensor | None = None, *, outputs: int = 1, **how: Any
) -> Any:
    """The negative log likelihood of log softmax(scores); then log softmax(scores)."""
    log_prob = torch.log_softmax(scores, 1)
    loss = negative_log_likelihood(log_prob, labels, weights, **how)
    return loss if outputs == 1 else (loss, log_prob)
