"""Catalogue: how to add a node of each operator to a random graph.

A maker adds one node, with any other nodes that it needs, or raises `Unfit`. It is registered under
the names of the operators that it makes; ONNX's schemas say which of them an opset has.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

from .graph import Graph, Unfit

Maker = Callable[[Graph, str], Any]

CATALOGUE: dict[str, Maker] = {}
"""Operator -> the function that adds a node of it."""


def makes(*operators: str) -> Callable[[Maker], Maker]:
    """Register a function that makes nodes of these operators."""

    def decorate(maker: Maker) -> Maker:
        CATALOGUE.update(dict.fromkeys(operators, maker))
        return maker

    return decorate


# --- elementwise


@makes("Asinh", "Atan", "Cos", "Erf", "Gelu", "Identity", "Mish", "Neg", "Sigmoid", "Sin",
       "Softplus", "Softsign", "Swish", "Tanh")  # fmt: skip
def smooth(g: Graph, op: str) -> None:
    g.node(op, [g.pick()])


@makes("Exp", "Sinh", "Cosh")
def growing(g: Graph, op: str) -> None:
    g.node(op, [g.bounded(g.pick())])


@makes("Asin", "Acos", "Atanh", "Tan", "Log", "Sqrt", "Reciprocal", "Acosh")
def within(g: Graph, op: str) -> None:
    """Operators defined on part of the real line, after an operator that maps into it."""
    x = g.pick()
    if op in ("Log", "Sqrt", "Reciprocal", "Acosh"):
        least = 1.2 if op == "Acosh" else 0.3
        x = g.node("Add", [g.node("Softplus", [x]), g.initializer(np.asarray(least, g.dtype))])
    else:
        x = g.node("Mul", [g.node("Tanh", [x]), g.initializer(np.asarray(0.8, g.dtype))])
    g.node(op, [x])


@makes("Abs", "Relu", "Sign", "HardSwish", "LeakyRelu", "Elu", "Selu", "Celu", "Shrink",
       "ThresholdedRelu", "HardSigmoid")  # fmt: skip
def kinked(g: Graph, op: str) -> None:
    kinks = {"HardSwish": (-3, 3), "Shrink": (-0.5, 0.5), "ThresholdedRelu": (0.4,),
             "HardSigmoid": (-1, 1)}.get(op, (0,))  # fmt: skip
    attributes: dict[str, Any] = {
        "Shrink": {"lambd": 0.5, "bias": 0.3}, "ThresholdedRelu": {"alpha": 0.4},
        "HardSigmoid": {"alpha": 0.4, "beta": 0.4}, "LeakyRelu": {"alpha": 0.2},
    }.get(op, {})  # fmt: skip
    g.node(op, [g.clear(g.pick(), *kinks)], **attributes)


@makes("Floor", "Ceil", "Round")
def stepped(g: Graph, op: str) -> None:
    g.node(op, [g.clear(g.pick(), *np.arange(-100, 100) / 2)])


@makes("Clip")
def clip(g: Graph, op: str) -> None:
    low, high = -0.5, 0.9
    x = g.clear(g.pick(), low, high)
    if g.opset < 11:
        g.node("Clip", [x], min=low, max=high)
    else:
        bounds = [g.constant(low, g.dtype), g.constant(high, g.dtype)]
        g.node("Clip", [x, *bounds[: g.integer(1, 2)]])


def partner(g: Graph, x: str) -> str:
    """A tensor that broadcasts with x."""
    shape = g.shape(x)
    if g.chance(0.5):
        try:
            return g.pick(lambda s: small(np.broadcast_shapes, s, shape))
        except Unfit:
            pass
    kept = [n if g.chance(0.7) else 1 for n in shape][g.integer(0, len(shape)) :]
    if g.symbolic and len(kept) == len(shape) and kept:
        kept = kept[1:]
    return g.fresh(kept)


def small(combine: Callable[..., Any], *shapes: tuple[int, ...]) -> bool:
    try:
        return prod(combine(*shapes)) <= 48
    except ValueError:
        return False


@makes("Add", "Sub", "Mul")
def binary(g: Graph, op: str) -> None:
    x = g.pick()
    pair = [x, partner(g, x)]
    g.node(op, pair if g.chance(0.5) else pair[::-1])


@makes("Div")
def div(g: Graph, op: str) -> None:
    x = g.pick()
    y = g.node("Softplus", [partner(g, x)])
    g.node("Div", [x, g.node("Add", [y, g.initializer(np.asarray(0.4, g.dtype))])])


@makes("Pow")
def power(g: Graph, op: str) -> None:
    x = g.pick()
    if g.chance(0.5):
        g.node("Pow", [g.bounded(x), g.constant(g.integer(1, 3), g.dtype)])
    else:
        base = g.node("Add", [g.node("Softplus", [x]), g.initializer(np.asarray(0.3, g.dtype))])
        g.node("Pow", [base, g.bounded(partner(g, x))])


@makes("Mod")
def mod(g: Graph, op: str) -> None:
    x, y = g.pick(), g.constant(0.7, g.dtype)
    ratio = g.values[x] / 0.7
    if np.abs(ratio - np.round(ratio)).min(initial=1) < 1e-2:
        raise Unfit
    g.node("Mod", [x, y], fmod=1)


@makes("PRelu")
def prelu(g: Graph, op: str) -> None:
    x = g.clear(g.pick(lambda s: len(s) > 0), 0)
    shape = g.shape(x)
    g.node("PRelu", [x, g.fresh([n if g.chance(0.5) else 1 for n in shape[1:]])])


@makes("Max", "Min")
def extreme(g: Graph, op: str) -> None:
    x = g.pick()
    y = partner(g, x)
    if x == y or not far(g.values[x], g.values[y]):
        raise Unfit
    check_broadcast(g, x, y)
    g.node(op, [x, y])


def check_broadcast(g: Graph, *names: str) -> None:
    """Raise `Unfit` where a variadic operator would have to broadcast before opset 8."""
    if g.opset < 8 and len({g.shape(name) for name in names}) > 1:
        raise Unfit


def far(x: np.ndarray, y: np.ndarray) -> bool:
    """Whether x and y differ clearly in every element."""
    return bool((np.abs(x - y) > 1e-3).all())


@makes("Sum", "Mean")
def variadic(g: Graph, op: str) -> None:
    x = g.pick()
    others = [partner(g, x) for _ in range(g.integer(0, 2))]
    check_broadcast(g, x, *others)
    g.node(op, [x, *others])


# --- booleans and integers


def truth(g: Graph) -> str:
    """A boolean tensor."""
    try:
        return g.pick(kind="b")
    except Unfit:
        return compared(g, "Less")


@makes("Less", "Greater")
def compared(g: Graph, op: str) -> str:
    x = g.pick()
    if g.chance(0.5):
        return g.node(op, [x, g.constant(0.13, g.dtype)])
    y = partner(g, x)
    if not far(g.values[x], g.values[y]):
        raise Unfit
    return g.node(op, [x, y])


@makes("LessOrEqual", "GreaterOrEqual", "Equal")
def compared_too(g: Graph, op: str) -> str:
    return g.node(op, [g.pick(), g.constant(0.17, g.dtype)])


@makes("And", "Or", "Xor")
def logical(g: Graph, op: str) -> None:
    a = truth(g)
    b = g.pick(lambda s: small(np.broadcast_shapes, s, g.shape(a)), kind="b")
    g.node(op, [a, b])


@makes("Not")
def negated(g: Graph, op: str) -> None:
    g.node("Not", [truth(g)])


@makes("IsNaN", "IsInf")
def finite(g: Graph, op: str) -> None:
    g.node(op, [g.pick()])


@makes("Where")
def where(g: Graph, op: str) -> None:
    condition = truth(g)
    shape = g.shape(condition)
    x = g.pick(lambda s: small(np.broadcast_shapes, s, shape))
    both = np.broadcast_shapes(shape, g.shape(x))
    g.node("Where", [condition, x, g.pick(lambda s: small(np.broadcast_shapes, s, both))])


def integers(g: Graph) -> str:
    """An integer tensor: an existing one, an input, or a float tensor that is cast."""
    try:
        if g.chance(0.6):
            return g.pick(kind="i")
    except Unfit:
        pass
    value = g.rng.integers(0, 4, [g.integer(1, 3)])
    return g.input(value) if g.chance(0.5) else g.initializer(value, "i")


@makes("BitwiseAnd", "BitwiseOr", "BitwiseXor")
def bits(g: Graph, op: str) -> None:
    x = integers(g)
    g.node(op, [x, g.constant(g.integer(1, 5), g.values[x].dtype)])


@makes("BitwiseNot")
def inverted(g: Graph, op: str) -> None:
    g.node(op, [integers(g)])


@makes("Cast")
def cast(g: Graph, op: str) -> None:
    double = helper.np_dtype_to_tensor_dtype(np.dtype(g.dtype))
    if g.chance(0.5):
        x = integers(g) if g.chance(0.6) else truth(g)
        g.node("Cast", [x], to=double)
        return
    x = g.clear(g.pick(), *np.arange(-100, 100))
    g.node("Cast", [g.node("Cast", [x], to=7)], to=double)


@makes("CastLike")
def cast_like(g: Graph, op: str) -> None:
    g.node("CastLike", [integers(g), g.pick()])


# --- reductions and order


def reduced(g: Graph, op: str, x: str, **attributes: Any) -> str:
    """A reduction over some axes, in the form that the opset prescribes."""
    rank = g.rank(x)
    axes = sorted(g.rng.permutation(rank)[: g.integer(0, rank)].tolist())
    if g.symbolic and g.chance(0.6):
        axes = [a for a in axes if a] or axes
    if axes and g.opset >= 11 and g.chance(0.3):
        axes = [a - rank for a in axes]
    attributes |= {"keepdims": g.integer(0, 1)}
    late = g.opset >= (13 if op == "ReduceSum" else 18)
    if not axes:
        return g.node(op, [x], **attributes)
    if late:
        return g.node(op, [x, g.constant(axes)], **attributes)
    return g.node(op, [x], axes=axes, **attributes)


@makes("ReduceMean", "ReduceSum", "ReduceLogSumExp", "ReduceSumSquare", "ReduceProd")
def reduction(g: Graph, op: str) -> None:
    reduced(g, op, g.bounded(g.pick()))


@makes("ReduceL1", "ReduceL2")
def norm(g: Graph, op: str) -> None:
    reduced(g, op, g.clear(g.pick(lambda s: 0 not in s), 0))


@makes("ReduceLogSum")
def log_sum(g: Graph, op: str) -> None:
    reduced(g, op, g.node("Softplus", [g.pick(lambda s: 0 not in s)]))


@makes("ReduceMax", "ReduceMin")
def largest(g: Graph, op: str) -> None:
    reduced(g, op, g.distinct(g.pick(lambda s: 0 not in s)))


@makes("ArgMax", "ArgMin")
def places(g: Graph, op: str) -> None:
    x = g.distinct(g.pick(lambda s: len(s) > 0 and 0 not in s))
    found = g.node(op, [x], axis=g.axis(x), keepdims=g.integer(0, 1))
    g.node("Cast", [found], to=helper.np_dtype_to_tensor_dtype(np.dtype(g.dtype)))


@makes("CumSum", "CumProd")
def cumulated(g: Graph, op: str) -> None:
    x = g.bounded(g.pick(lambda s: len(s) > 0), 1.5)
    axis = g.constant(g.axis(x))
    g.node(op, [x, axis], exclusive=g.integer(0, 1), reverse=g.integer(0, 1))


@makes("TopK")
def top(g: Graph, op: str) -> None:
    x = g.distinct(g.pick(lambda s: len(s) > 0 and 0 not in s))
    axis = g.axis(x)
    k = g.integer(1, g.shape(x)[axis])
    if g.opset < 10:
        g.node("TopK", [x], 2, axis=axis, k=k)
    elif g.opset < 11:
        g.node("TopK", [x, g.constant([k])], 2, axis=axis)
    else:
        g.node("TopK", [x, g.constant([k])], 2, axis=axis, largest=g.integer(0, 1))


@makes("Softmax", "LogSoftmax")
def softmax(g: Graph, op: str) -> None:
    x = g.pick(lambda s: len(s) > 0 and 0 not in s)
    g.node(op, [x], axis=g.axis(x))


@makes("Hardmax")
def hardmax(g: Graph, op: str) -> None:
    x = g.distinct(g.pick(lambda s: len(s) > 0 and 0 not in s))
    g.node(op, [x], axis=g.axis(x))


@makes("Det")
def determinant(g: Graph, op: str) -> None:
    g.node("Det", [g.bounded(g.pick(lambda s: len(s) > 1 and s[-1] == s[-2] < 4))])


# --- layout


@makes("Reshape")
def reshape(g: Graph, op: str) -> None:
    x = g.pick()
    shape, rank = list(g.shape(x)), g.rank(x)
    kind = g.integer(0, 3)
    if kind == 0 or rank == 0:
        target = [1] * (3 - min(rank, 3)) + shape if rank else [1]
    elif kind == 1:
        target = [-1]
    elif kind == 2:
        target = [0, -1] if rank > 1 and 0 not in shape else [-1]
    else:
        target = [*shape[:-2], -1] if 0 not in shape else shape
    if len(target) > 5:
        raise Unfit
    g.node("Reshape", [x, g.constant(target)])


@makes("Transpose")
def transpose(g: Graph, op: str) -> None:
    x = g.pick(lambda s: len(s) > 1)
    if g.chance(0.3):
        g.node("Transpose", [x])
    else:
        g.node("Transpose", [x], perm=g.rng.permutation(g.rank(x)).tolist())


@makes("Squeeze", "Unsqueeze")
def squeeze(g: Graph, op: str) -> None:
    x = g.pick(lambda s: len(s) < 5)
    if op == "Squeeze":
        axes = [k for k, n in enumerate(g.shape(x)) if n == 1][: g.integer(1, 3)]
        if g.symbolic and not g.chance(0.2):
            axes = [a for a in axes if a]
        if not axes or g.chance(0.1):
            g.node("Squeeze", [x])
            return
    else:
        axes = [g.integer(0, g.rank(x))]
    if g.opset < 13:
        g.node(op, [x], axes=axes)
    else:
        g.node(op, [x, g.constant(axes)])


@makes("Flatten")
def flatten(g: Graph, op: str) -> None:
    x = g.pick()
    g.node("Flatten", [x], axis=g.integer(0, g.rank(x)))


@makes("Expand")
def expand(g: Graph, op: str) -> None:
    x = g.pick(lambda s: prod(s) <= 16)
    shape = [g.integer(2, 3) if n == 1 else 1 for n in g.shape(x)]
    g.node("Expand", [x, g.constant([*[2][: g.integer(0, 1)], *shape])])


@makes("Tile")
def tile(g: Graph, op: str) -> None:
    x = g.pick(lambda s: len(s) > 0 and prod(s) <= 16)
    repeats = [g.integer(1, 2) for _ in g.shape(x)]
    if g.symbolic:
        repeats[0] = 1 if g.chance(0.8) else repeats[0]
    g.node("Tile", [x, g.constant(repeats)])


@makes("Concat")
def concat(g: Graph, op: str) -> None:
    x = g.pick(lambda s: len(s) > 0 and prod(s) <= 24)
    shape, axis = g.shape(x), g.axis(x)
    axis %= len(shape)
    rest = (*shape[:axis], *shape[axis + 1 :])

    def fits(s: tuple[int, ...]) -> bool:
        return len(s) == len(shape) and (*s[:axis], *s[axis + 1 :]) == rest

    others = [g.pick(fits) for _ in range(g.integer(1, 2))]
    g.node("Concat", [*others, x], axis=axis)


@makes("Split")
def split(g: Graph, op: str) -> None:
    x = g.pick(lambda s: len(s) > 0 and max(s) > 1)
    axis = g.one_of([k for k, n in enumerate(g.shape(x)) if n > 1])
    n = g.shape(x)[axis]
    first = g.integer(0, n)
    if g.chance(0.3) and n % 2 == 0:
        extra = {"num_outputs": 2} if g.opset >= 18 else {}
        g.node("Split", [x], 2, axis=axis, **extra)
    elif g.opset < 13:
        g.node("Split", [x], 2, axis=axis, split=[first, n - first])
    else:
        g.node("Split", [x, g.constant([first, n - first])], 2, axis=axis)


@makes("Slice")
def slice_(g: Graph, op: str) -> None:
    x = g.pick(lambda s: len(s) > 0)
    axis = g.axis(x)
    n = g.shape(x)[axis]
    start, end, step = g.integer(-n - 1, n), g.integer(-n, n + 1), 1
    if g.chance(0.5):
        start, end = g.integer(0, max(n - 1, 0)), g.one_of([n, 2**31, 2**62])
    if g.opset < 10:
        g.node("Slice", [x], starts=[start], ends=[end], axes=[axis % g.rank(x)])
        return
    step = g.one_of([1, 1, 2, -1])
    if step < 0:
        start, end = g.one_of([n, -1, 2**31]), g.one_of([-n - 1, -(2**31)])
    starts = [start]
    where = g.input(np.asarray(starts)) if g.chance(0.15) else g.constant(starts)
    g.node("Slice", [x, where, *(g.constant([v]) for v in (end, axis, step))])


@makes("Pad")
def pad(g: Graph, op: str) -> None:
    x = g.pick(lambda s: len(s) > 0 and prod(s) <= 16 and 0 not in s)
    shape = g.shape(x)
    modes = ["constant", "reflect", "edge"] + ["wrap"] * (g.opset >= 19)
    mode = g.one_of(modes)
    most = [n - 1 if mode == "reflect" else min(n, 2) for n in shape]
    pads = [min(g.integer(0, 2), m) for m in most * 2]
    if g.symbolic:
        pads[0] = pads[len(shape)] = 0
    if mode == "constant" and g.chance(0.2):
        pads[-1] = -1 if shape[-1] > 1 else 0
    if g.opset < 11:
        g.node("Pad", [x], pads=pads, mode=mode)
        return
    more = [g.fresh([])] if mode == "constant" and g.chance(0.5) else []
    g.node("Pad", [x, g.constant(pads), *more], mode=mode)


@makes("DepthToSpace")
def depth_to_space(g: Graph, op: str) -> None:
    x = g.pick(lambda s: len(s) == 4 and s[1] % 4 == 0 and s[1])
    extra = {"mode": g.one_of(["DCR", "CRD"])} if g.opset >= 11 else {}
    g.node(op, [x], blocksize=2, **extra)


@makes("SpaceToDepth")
def space_to_depth(g: Graph, op: str) -> None:
    shape = [1 if not g.symbolic else g.batch, g.integer(1, 2), 2, 2 * g.integer(1, 2)]
    g.node(op, [shaped(g, shape)], blocksize=2)


def shaped(g: Graph, shape: list[int]) -> str:
    """A tensor of the given shape: an existing one, a reshaped one, or a new one."""
    for fits in (lambda s: list(s) == shape, lambda s: prod(s) == prod(shape) and 0 not in s):
        try:
            x = g.pick(fits)
        except Unfit:
            continue
        same = list(g.shape(x)) == shape
        free = [-1, *shape[1:]] if g.symbolic and g.shape(x)[:1] == (g.batch,) else shape
        return x if same else g.node("Reshape", [x, g.constant(free)])
    return g.fresh(shape)


@makes("Shape", "Size")
def sizes(g: Graph, op: str) -> None:
    x = g.pick()
    n = g.node(op, [x])
    count = g.node("ReduceProd", [n], keepdims=0) if op == "Shape" else n
    factor = g.node("Cast", [count], to=helper.np_dtype_to_tensor_dtype(np.dtype(g.dtype)))
    scaled = g.node("Mul", [g.initializer(np.asarray(0.1, g.dtype)), factor])
    g.node("Mul", [x, scaled])


@makes("ConstantOfShape")
def constant_of_shape(g: Graph, op: str) -> None:
    x = g.pick(lambda s: 0 < len(s) < 4)
    value = numpy_helper.from_array(np.asarray([0.7], g.dtype))
    g.node("Add", [x, g.node(op, [g.node("Shape", [x])], value=value)])


@makes("Range")
def range_(g: Graph, op: str) -> None:
    x = g.pick(lambda s: len(s) > 0 and s[-1] > 0)
    end = g.shape(x)[-1] - 0.4  # a slightly perturbed limit gives the same length
    limits = [g.constant(v, g.dtype) for v in (0.0, end, 1.0)]
    g.node("Mul", [x, g.node("Range", limits)])


@makes("OneHot")
def one_hot(g: Graph, op: str) -> None:
    i = integers(g)
    if g.values[i].size > 6 or not g.rank(i):
        raise Unfit
    g.node("OneHot", [i, g.constant(4), g.fresh([2])])


@makes("EyeLike")
def eye_like(g: Graph, op: str) -> None:
    x = g.pick(lambda s: len(s) == 2)
    g.node("Add", [x, g.node("EyeLike", [x], k=g.integer(-1, 1))])


@makes("Trilu")
def trilu(g: Graph, op: str) -> None:
    x = g.pick(lambda s: len(s) > 1)
    k = g.integer(-1, 1)
    more = [] if g.chance(0.3) else [g.input(np.asarray(k)) if g.chance(0.2) else g.constant(k)]
    g.node("Trilu", [x, *more], upper=g.integer(0, 1))


@makes("NonZero")
def non_zero(g: Graph, op: str) -> None:
    x = g.pick(lambda s: len(s) == 1)
    i = g.node("NonZero", [g.clear(x, 0)])
    g.node("Gather", [x, g.node("Reshape", [i, g.constant([-1])])])


@makes("CenterCropPad")
def center(g: Graph, op: str) -> None:
    x = g.pick(lambda s: len(s) > 0 and 0 not in s)
    axis = g.axis(x)
    g.node(op, [x, g.constant([g.integer(1, 4)])], axes=[axis])


@makes("ReverseSequence")
def reverse_sequence(g: Graph, op: str) -> None:
    x = g.pick(lambda s: len(s) > 1 and 0 not in s)
    time, batch = g.one_of([(0, 1), (1, 0)])
    n = g.shape(x)
    lengths = g.rng.integers(1, n[time] + 1, n[batch])
    where = g.input(lengths) if g.chance(0.2) else g.constant(lengths)
    g.node(op, [x, where], time_axis=time, batch_axis=batch)


@makes("Compress")
def compress(g: Graph, op: str) -> None:
    x = g.pick(lambda s: len(s) > 0 and 0 not in s)
    axis = g.axis(x)
    mask = g.rng.random(g.shape(x)[axis]) < 0.6
    where = g.input(mask) if g.chance(0.2) else g.initializer(mask, "c")
    g.node(op, [x, where], axis=axis)


@makes("Unique")
def unique(g: Graph, op: str) -> None:
    x = g.distinct(g.pick(lambda s: len(s) == 1 and s[0] > 0))
    g.node(op, [x], sorted=1)


# --- indexing


@makes("Gather")
def gather(g: Graph, op: str) -> None:
    x = g.pick(lambda s: len(s) > 0 and 0 not in s and prod(s) <= 24)
    axis = g.axis(x)
    n = g.shape(x)[axis]
    low = -n if g.opset >= 11 else 0
    indices = g.rng.integers(low, n, [g.integer(1, 3) for _ in range(g.integer(0, 2))])
    where = g.input(indices) if g.chance(0.15) else g.constant(indices)
    g.node("Gather", [x, where], axis=axis)


@makes("GatherElements")
def gather_elements(g: Graph, op: str) -> None:
    x = g.pick(lambda s: len(s) > 0 and 0 not in s)
    axis = g.axis(x)
    shape = list(g.shape(x))
    n = shape[axis]
    shape[axis] = g.integer(1, 3)
    g.node(op, [x, g.constant(g.rng.integers(-n, n, shape))], axis=axis)


@makes("GatherND")
def gather_nd(g: Graph, op: str) -> None:
    x = g.pick(lambda s: len(s) > 0 and 0 not in s)
    shape = g.shape(x)
    free = g.symbolic and shape[0] == g.batch  # the indices hold for one batch size only
    batch = g.integer(0, 1) if g.opset >= 12 and len(shape) > 1 and not free else 0
    depth = g.integer(1, len(shape) - batch)
    count = g.integer(1, 3)
    columns = [g.rng.integers(0, n, (*shape[:batch], count)) for n in shape[batch : batch + depth]]
    extra = {"batch_dims": batch} if batch else {}
    indices = np.stack(columns, -1)
    if not batch and g.chance(0.2):
        indices = indices[0]
    g.node(op, [x, g.constant(indices)], **extra)


@makes("Scatter", "ScatterElements")
def scatter_elements(g: Graph, op: str) -> None:
    x = g.pick(lambda s: len(s) > 0 and 0 not in s)
    shape, axis = list(g.shape(x)), g.axis(x)
    axis %= len(shape)
    taken, n = list(shape), shape[axis]
    taken[axis] = g.integer(1, n)
    order = np.argsort(g.rng.random(shape), axis)
    indices = np.take(order, range(taken[axis]), axis)
    reductions = ["none"]
    if op == "ScatterElements" and g.opset >= 16:
        reductions += ["add", "mul"]
    if op == "ScatterElements" and g.opset >= 18:
        reductions += ["max", "min"]
    how = g.one_of(reductions)
    if how in ("add", "mul") and g.chance(0.6):
        indices = g.rng.integers(0, n, taken)
    extra = {"reduction": how} if how != "none" else {}
    g.node(op, [x, g.constant(indices), shaped(g, taken)], axis=axis, **extra)


@makes("ScatterND")
def scatter_nd(g: Graph, op: str) -> None:
    x = g.pick(lambda s: len(s) > 0 and 0 not in s)
    shape = g.shape(x)
    depth = g.integer(1, len(shape))
    places = list(np.ndindex(*shape[:depth]))
    count = g.integer(1, min(3, len(places)))
    chosen = g.rng.permutation(len(places))[:count]
    how = g.one_of(["none"] + ["add", "mul"] * (g.opset >= 16))
    if how == "add" and g.chance(0.5):
        chosen = g.rng.integers(0, len(places), count)
    indices = np.array([places[k] for k in chosen])
    extra = {"reduction": how} if how != "none" else {}
    updates = shaped(g, [count, *shape[depth:]])
    g.node(op, [x, g.constant(indices), updates], **extra)


@makes("TensorScatter")
def tensor_scatter(g: Graph, op: str) -> None:
    x = g.pick(lambda s: len(s) == 3 and s[1] > 1)
    b, n, d = g.shape(x)
    first = g.rng.integers(0, n, [b])
    mode = g.one_of(["linear", "circular"])
    if mode == "linear":
        first = np.zeros(b)
    g.node(op, [x, shaped(g, [b, 1, d]), g.constant(first)], mode=mode, axis=1)


# --- linear algebra


@makes("MatMul")
def matmul(g: Graph, op: str) -> None:
    a = g.pick(lambda s: len(s) > 0 and 0 not in s)
    inner, batch = g.shape(a)[-1], g.shape(a)[:-2]
    if g.chance(0.4):
        try:
            b = g.pick(lambda s: len(s) > 0 and s[max(-2, -len(s))] == inner)
        except Unfit:
            b = g.fresh([inner, g.integer(1, 3)])
    else:
        some = batch if g.chance(0.3) and not g.symbolic else ()
        b = g.fresh([*some, inner, g.integer(1, 3)])
    g.node("MatMul", [a, b])


@makes("Gemm")
def gemm(g: Graph, op: str) -> None:
    a = g.ranked(2, full=True)
    rows, inner = g.shape(a)
    columns = g.integer(1, 3)
    turn_a = g.chance(0.2)
    if turn_a:
        rows, inner = inner, rows
    turn_b = g.chance(0.5)
    b = shaped(g, [columns, inner] if turn_b else [inner, columns])
    c = [g.fresh(g.one_of([[columns], [1, columns], [], [1, 1]]))]
    more = c if g.opset < 11 or g.chance(0.7) else []
    scale = {"alpha": 0.5, "beta": 0.7} if g.chance(0.4) else {}
    g.node("Gemm", [a, b, *more], transA=int(turn_a), transB=int(turn_b), **scale)


@makes("Einsum")
def einsum(g: Graph, op: str) -> None:
    x = g.pick(lambda s: 0 < len(s) < 4 and 0 not in s)
    letters, shape = "ijkl"[: g.rank(x)], g.shape(x)
    sizes = dict(zip(letters, shape, strict=True))
    kept = "".join(g.rng.permutation(list(letters))[: g.integer(0, len(letters))])
    if g.chance(0.4):
        if len(shape) > 1 and shape[0] == shape[1] and g.chance(0.3):
            g.node("Einsum", [x], equation="ii" + letters[2:] + "->" + g.one_of(["", "i"]))
            return
        g.node("Einsum", [x], equation=f"{letters}->{kept}")
        return
    shared = list(g.rng.permutation(list(letters))[: g.integer(0, len(letters))])
    sizes["m"] = 2
    other = "".join(g.rng.permutation([*shared, *"m"[: g.integer(0, 1)]]))
    y = shaped(g, [sizes[k] for k in other])
    kept += "m" if "m" in other and g.chance(0.7) else ""
    g.node("Einsum", [x, y], equation=f"{letters},{other}->{kept}")


def image(g: Graph, least: int = 1) -> str:
    """A tensor of rank 3 or 4: samples, channels and one or two axes of pixels."""
    def fits(s: tuple[int, ...]) -> bool:
        return len(s) in (3, 4) and 0 not in s and min(s[2:]) >= least and prod(s) <= 48

    try:
        if g.chance(0.8):
            return g.pick(fits)
    except Unfit:
        pass
    spatial = [g.integer(least, 4) for _ in range(g.integer(1, 2))]
    return shaped(g, [g.batch if g.symbolic else g.integer(1, 2), g.integer(1, 2), *spatial])


def windows(g: Graph, x: str, kernel: list[int]) -> dict[str, Any]:
    """Attributes of a window that slides over the pixels of x."""
    len(kernel)
    attributes: dict[str, Any] = {"kernel_shape": kernel}
    if g.chance(0.5):
        attributes["strides"] = [g.integer(1, 2) for _ in kernel]
    if g.chance(0.3):
        attributes["auto_pad"] = g.one_of(["SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"])
    elif g.chance(0.6):
        attributes["pads"] = [min(g.integer(0, 1), k - 1) for k in kernel * 2]
    return attributes


@makes("Conv")
def conv(g: Graph, op: str) -> None:
    x = image(g)
    n = g.shape(x)
    groups = g.one_of([k for k in (1, n[1]) if n[1] % k == 0])
    kernel = [g.integer(1, min(3, size + 1)) for size in n[2:]]
    w = shaped(g, [groups * g.integer(1, 2), n[1] // groups, *kernel])
    bias = [g.fresh([g.shape(w)[0]])] if g.chance(0.5) else []
    attributes = windows(g, x, kernel)
    if any(k > size for k, size in zip(kernel, n[2:], strict=True)):
        attributes.pop("strides", None)  # a result below 0 pixels is an error
    if g.chance(0.2) and "auto_pad" not in attributes:
        attributes["dilations"] = [g.integer(1, 2) for _ in kernel]
    g.node("Conv", [x, w, *bias], group=groups, **attributes)


@makes("ConvTranspose")
def conv_transpose(g: Graph, op: str) -> None:
    x = image(g)
    n = g.shape(x)
    groups = g.one_of([k for k in (1, n[1]) if n[1] % k == 0])
    kernel = [g.integer(1, 3) for _ in n[2:]]
    w = shaped(g, [n[1], g.integer(1, 2), *kernel])
    bias = [g.fresh([g.shape(w)[1] * groups])] if g.chance(0.4) else []
    attributes: dict[str, Any] = {"kernel_shape": kernel, "group": groups}
    if g.chance(0.5):
        attributes["strides"] = [2 for _ in kernel]
        if g.chance(0.5):
            attributes["output_padding"] = [1 for _ in kernel]
    if g.chance(0.4):
        attributes["pads"] = [min(g.integer(0, 1), k - 1) for k in kernel * 2]
    if g.chance(0.2):
        attributes["dilations"] = [2 for _ in kernel]
    g.node(op, [x, w, *bias], **attributes)


@makes("MaxPool", "AveragePool", "LpPool")
def pool(g: Graph, op: str) -> None:
    x = image(g, 2)
    if op == "MaxPool":
        x = g.distinct(x)
    if op == "LpPool":
        x = g.clear(x, 0)
    kernel = [g.integer(1, min(3, size)) for size in g.shape(x)[2:]]
    attributes = windows(g, x, kernel)
    if op == "AveragePool":
        attributes["count_include_pad"] = g.integer(0, 1)
    late = {"MaxPool": 10, "AveragePool": 19, "LpPool": 18}[op]
    if g.opset >= late and "auto_pad" not in attributes:
        attributes["ceil_mode"] = g.integer(0, 1)
        if g.chance(0.2):
            sizes = zip(g.shape(x)[2:], kernel, strict=True)
            attributes["dilations"] = [2 if 2 * k - 1 <= n else 1 for n, k in sizes]
    outputs = 2 if op == "MaxPool" and g.opset >= 8 and g.chance(0.3) else 1
    g.node(op, [x], outputs, **attributes)


@makes("GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool")
def global_pool(g: Graph, op: str) -> None:
    x = image(g)
    if g.rank(x) == 3:  # ONNX's reference gives a different shape
        raise Unfit
    g.node(op, [g.distinct(g.clear(x, 0))])


# --- normalisation


@makes("BatchNormalization")
def batch_normalization(g: Graph, op: str) -> None:
    x = g.pick(lambda s: len(s) > 1 and 0 not in s)
    c = g.shape(x)[1]
    variance = g.initializer(np.abs(g.uniform([c])))
    statistics = [g.fresh([c]), g.fresh([c]), g.fresh([c]), variance]
    g.node(op, [x, *statistics], epsilon=0.1)


@makes("InstanceNormalization")
def instance_normalization(g: Graph, op: str) -> None:
    x = g.pick(lambda s: len(s) > 2 and 0 not in s)
    c = g.shape(x)[1]
    g.node(op, [x, g.fresh([c]), g.fresh([c])], epsilon=0.1)


@makes("LayerNormalization", "RMSNormalization")
def layer_normalization(g: Graph, op: str) -> None:
    x = g.pick(lambda s: len(s) > 0 and 0 not in s)
    axis = g.axis(x)
    scale = g.fresh(g.shape(x)[axis:])
    bias = [g.fresh(g.shape(x)[axis:])] if op[0] == "L" and g.chance(0.5) else []
    if g.symbolic and axis % g.rank(x) == 0:
        raise Unfit
    g.node(op, [x, scale, *bias], axis=axis, epsilon=0.1)


@makes("GroupNormalization")
def group_normalization(g: Graph, op: str) -> None:
    x = g.pick(lambda s: len(s) > 2 and s[1] and s[1] % 2 == 0 and 0 not in s)
    n = g.shape(x)[1] if g.opset >= 21 else 2
    g.node(op, [x, g.fresh([n]), g.fresh([n])], num_groups=2, epsilon=0.1)


@makes("LRN")
def local_response(g: Graph, op: str) -> None:
    g.node("LRN", [g.pick(lambda s: len(s) == 4 and 0 not in s)], size=3, alpha=0.5, bias=1.5)


@makes("MeanVarianceNormalization")
def mean_variance(g: Graph, op: str) -> None:
    x = g.ranked(4, full=True)
    if np.std(g.values[x], axis=(0, 2, 3)).min() < 0.1:
        raise Unfit
    g.node(op, [x])


@makes("LpNormalization")
def lp_normalization(g: Graph, op: str) -> None:
    x = g.clear(g.pick(lambda s: len(s) > 0 and 0 not in s), 0)
    g.node(op, [x], axis=g.axis(x), p=g.integer(1, 2))


# --- losses


@makes("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss")
def loss(g: Graph, op: str) -> None:
    x = g.pick(lambda s: len(s) in (2, 3) and 0 not in s and s[1] > 1)
    n = g.shape(x)
    labels = g.rng.integers(0, n[1], (n[0], *n[2:]))
    where = g.input(labels) if g.chance(0.3) else g.constant(labels)
    weights = [g.initializer(np.abs(g.uniform([n[1]])))] if g.chance(0.3) else []
    attributes: dict[str, Any] = {"reduction": g.one_of(["none", "sum", "mean"])}
    if g.chance(0.3) and len(set(labels.flat)) > 1:
        attributes["ignore_index"] = int(labels.flat[0])
    outputs = 2 if op[0] == "S" and g.chance(0.3) else 1
    g.node(op, [x, where, *weights], outputs, **attributes)


# --- the rest


@makes("Dropout")
def dropout(g: Graph, op: str) -> None:
    g.node("Dropout", [g.pick()])


@makes("Resize")
def resize(g: Graph, op: str) -> None:
    x = image(g)
    rank = g.rank(x)
    # 0.6 in single precision puts sample positions on a jump
    scales = [1.0, 1.0, *(g.one_of([1.0, 2.0, 1.5, 0.55]) for _ in range(rank - 2))]
    if g.opset < 11:
        g.node("Resize", [x, g.constant(scales, np.float32)], mode=g.one_of(["nearest", "linear"]))
        return
    attributes: dict[str, Any] = {
        "mode": g.one_of(["nearest", "linear", "cubic"]),
        "coordinate_transformation_mode": g.one_of(
            ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]
        ),
    }
    if attributes["mode"] == "nearest":
        attributes["nearest_mode"] = g.one_of(["floor", "ceil", "round_prefer_floor"])
    empty = g.initializer(np.zeros(0, np.float32), "c") if g.opset < 13 else ""
    if g.chance(0.5):
        sizes = [round(n * s) or 1 for n, s in zip(g.shape(x), scales, strict=True)]
        g.node("Resize", [x, empty, empty, g.constant(sizes)], **attributes)
    else:
        g.node("Resize", [x, empty, g.constant(scales, np.float32)], **attributes)


@makes("Upsample")
def upsample(g: Graph, op: str) -> None:
    if g.opset > 9:
        raise Unfit
    x = image(g)
    scales = [1.0, 1.0, *(2.0 for _ in g.shape(x)[2:])]
    mode = g.one_of(["nearest", "linear"])
    if g.opset == 7:
        g.node(op, [x], scales=scales, mode=mode)
    else:
        g.node(op, [x, g.constant(scales, np.float32)], mode=mode)


@makes("GridSample")
def grid_sample(g: Graph, op: str) -> None:
    x = g.pick(lambda s: len(s) == 4 and 0 not in s)
    n = g.shape(x)[0]
    grid = g.rng.uniform(-0.9, 0.9, [n, 2, g.integer(1, 2), 2])
    modes = ["linear", "nearest", "cubic"] if g.opset >= 20 else ["bilinear", "nearest", "bicubic"]
    g.node(
        op, [x, g.initializer(np.asarray(grid, g.dtype))], mode=g.one_of(modes),
        align_corners=g.integer(0, 1), padding_mode=g.one_of(["zeros", "border", "reflection"]),
    )  # fmt: skip


@makes("AffineGrid")
def affine_grid(g: Graph, op: str) -> None:
    theta = shaped(g, [1, 2, 3])
    g.node(op, [theta, g.constant([1, 1, 2, g.integer(2, 3)])], align_corners=g.integer(0, 1))


@makes("RNN", "GRU", "LSTM")
def recurrent(g: Graph, op: str) -> None:
    x = g.pick(lambda s: len(s) == 3 and 0 not in s and prod(s) <= 24)
    n, b, features = g.shape(x)
    if g.symbolic:
        raise Unfit
    hidden, gates = 2, {"RNN": 1, "GRU": 3, "LSTM": 4}[op]
    direction = g.one_of(["forward", "reverse", "bidirectional"])
    ways = 2 if direction[0] == "b" else 1
    w = g.fresh([ways, gates * hidden, features])
    r = g.fresh([ways, gates * hidden, hidden])
    bias = [g.fresh([ways, 2 * gates * hidden])] if g.chance(0.5) else [""]
    lengths = [g.constant(g.rng.integers(1, n + 1, [b]), np.int32)] if g.chance(0.3) else [""]
    state = [g.fresh([ways, b, hidden])] if g.chance(0.5) else [""]
    if op == "LSTM" and state[0] and g.chance(0.5):
        state.append(g.fresh([ways, b, hidden]))
    extra = {"linear_before_reset": g.integer(0, 1)} if op == "GRU" else {}
    operands = [x, w, r, *bias, *lengths, *state]
    while not operands[-1]:
        operands.pop()
    outputs = 3 if op == "LSTM" else 2
    g.node(op, operands, outputs, hidden_size=hidden, direction=direction, **extra)


@makes("Attention")
def attention(g: Graph, op: str) -> None:
    q = g.pick(lambda s: len(s) == 4 and 0 not in s and prod(s) <= 16)
    b, h, _, d = g.shape(q)
    n = g.integer(1, 3)
    k, v = (shaped(g, [b, h, n, d]) for _ in range(2))
    g.node(op, [q, k, v], is_causal=g.integer(0, 1))


@makes("RotaryEmbedding")
def rotary(g: Graph, op: str) -> None:
    x = g.pick(lambda s: len(s) == 4 and s[3] and s[3] % 2 == 0 and 0 not in s)
    b, _, n, d = g.shape(x)
    caches = [g.initializer(g.uniform([b, n, d // 2])) for _ in range(2)]
    g.node(op, [x, *caches], interleaved=g.integer(0, 1))


@makes("Col2Im")
def col2im(g: Graph, op: str) -> None:
    x = shaped(g, [1, 4, 4])
    g.node(op, [x, g.constant([3, 3]), g.constant([2, 2])])


@makes("DFT")
def dft(g: Graph, op: str) -> None:
    x = g.pick(lambda s: 1 < len(s) < 4 and 0 not in s and prod(s) <= 16)
    x = g.node("Unsqueeze", [x, g.constant([-1])])
    if g.opset < 20:
        g.node(op, [x], axis=1)
    else:
        g.node(op, [x, "", g.constant(1)], inverse=g.integer(0, 1))


@makes("STFT")
def stft(g: Graph, op: str) -> None:
    x = g.pick(lambda s: len(s) == 2 and s[1] > 3 and prod(s) <= 16)
    window = g.fresh([4])
    g.node(op, [x, g.constant(2), window, g.constant(4)], onesided=1)


@makes("HannWindow", "HammingWindow", "BlackmanWindow")
def window(g: Graph, op: str) -> None:
    x = g.pick(lambda s: len(s) > 0 and s[-1] > 1)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(g.dtype))
    made = g.node(op, [g.constant(g.shape(x)[-1])], output_datatype=kind)
    if op == "BlackmanWindow":  # its first entry is 0 up to rounding error, which would decide ties
        made = g.node("Add", [made, g.initializer(np.ones((), g.dtype), "c")])
    g.node("Mul", [x, made])


@makes("MaxUnpool")
def max_unpool(g: Graph, op: str) -> None:
    x = g.distinct(g.pick(lambda s: len(s) == 4 and 0 not in s and s[2] > 1 and s[3] > 1))
    kernel = {"kernel_shape": [2, 2], "strides": [2, 2]}
    y, places = g.node("MaxPool", [x], 2, **kernel)
    g.node(op, [y, places], **kernel)


# --- sequences and optional values


@makes("SequenceConstruct", "SequenceAt", "SequenceInsert", "SequenceErase", "SequenceLength",
       "ConcatFromSequence", "SplitToSequence")  # fmt: skip
def sequence(g: Graph, op: str) -> None:
    x = g.pick(lambda s: len(s) > 0 and prod(s) <= 24 and 0 not in s)
    if op == "SplitToSequence":
        axis = g.axis(x)
        many = g.node(op, [x], axis=axis, keepdims=g.integer(0, 1))
        g.node("SequenceAt", [many, g.constant(g.integer(0, len(g.values[many]) - 1))])
        return
    y = g.pick(lambda s: s == g.shape(x))
    many = g.node("SequenceConstruct", [x, y])
    if op == "SequenceInsert":
        many = g.node(op, [many, g.node("Tanh", [x]), g.constant(g.integer(0, 2))])
    elif op == "SequenceErase":
        many = g.node(op, [many, g.constant(g.integer(-2, 1))])
    elif op == "SequenceLength":
        g.node(op, [many])
    if op == "ConcatFromSequence":
        g.node(op, [many], axis=g.axis(x), new_axis=g.integer(0, 1))
    else:
        g.node("SequenceAt", [many, g.constant(g.integer(0, len(g.values[many]) - 1))])


@makes("Optional", "OptionalGetElement", "OptionalHasElement")
def optional(g: Graph, op: str) -> None:
    some = g.node("Optional", [g.pick()])
    if op == "OptionalHasElement":
        g.node(op, [some])
    g.node("OptionalGetElement", [some])
