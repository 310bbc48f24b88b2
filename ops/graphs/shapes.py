"""Shapes: the symbolic shapes of graph values, and the integers in small ones.

A shape is computed from the shapes and the integers of the operands: by a formula where there is
one, as for a Reshape to symbolic sizes, else by ONNX's inference. Sizes that both leave unknown
become new atoms, which the graph reads off the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from ...jacobians import reading, shape_of
from ...jacobians.symint import (
    Number,
    Symbols,
    SymInt,
    broadcast_sizes,
    divided,
    if_negative,
    is_positive,
    is_symbolic,
    larger,
    largest,
    quotient,
    same,
    smallest,
    whole,
)
from ..node import AT
from ..numbers.windows import CROPPING, GEOMETRY, transposed_windows, windows

CONTENT = "onnxjac.content"
"""Metadata key of a graph value: its integers, some of which are symbolic."""

STILL = "onnxjac.still"
"""Metadata key of a graph value that nodes compute from constants alone."""

DEPTH = "onnxjac.depth"
"""Metadata key of a graph value inside a subgraph: the number of subgraphs around it."""

SMALL = 64
"""The size up to which integer tensors are tracked: shapes, indices, axes or pads."""

Values = Sequence[ir.Value | None]
Sizes = tuple[Number, ...]
Known = tuple[Number | None, ...]
"""A shape in which some sizes may be unknown."""
Formula = Callable[..., Sequence[Known] | None]

FORMULAS: dict[str, Formula] = {}
"""Operator -> formula(shapes, contents, attrs): the shapes of its outputs, None if not known."""

INTEGERS: dict[str, Callable[..., Any]] = {}
"""Operator -> formula(contents, attrs): the integers of its output."""


class Dimension(ir.SymbolicDim):
    """A symbolic size in the shape of a graph value."""

    __slots__ = ("number",)

    def __init__(self, number: SymInt) -> None:
        ((atoms, c),) = number.terms.items() if len(number.terms) == 1 else (((), 0),)
        plain = len(atoms) == 1 and c == 1 and atoms[0].axis is not None
        super().__init__(atoms[0].name if plain else None)
        self.number = number


def as_shape(sizes: Sequence[Number]) -> ir.Shape:
    """Sizes as the shape of a graph value."""
    return ir.Shape([Dimension(n) if isinstance(n, SymInt) else int(n) for n in sizes])


# -- integers


def content(x: Any) -> np.ndarray | None:
    """The integers of an operand, symbolic ones in an object array; None if not tracked."""
    if isinstance(x, np.ndarray):
        return x if x.dtype.kind in "iub" else None
    if x is None:
        return None
    if CONTENT in x.meta:
        return np.asarray(x.meta[CONTENT])
    if x.const_value is not None:
        return x.const_value.numpy() if x.const_value.dtype.is_integer() else None
    here, symbols = x.meta.get(AT), reading(x).symbols
    if STILL in x.meta and here is not None and here.dtype.kind in "iu":
        return np.asarray(here)
    if symbols is None or here is None or here.dtype.kind not in "iu" or here.size > SMALL:
        return None
    if is_symbolic(shape_of(x)):
        return None
    x.meta[CONTENT] = entries_of(x, here, symbols)
    return np.asarray(x.meta[CONTENT])


def depth_in(x: ir.Value) -> int:
    """The number of subgraphs around a value."""
    return int(x.meta.get(DEPTH, 0))


def entries_of(x: ir.Value, here: np.ndarray, symbols: Symbols) -> np.ndarray:
    """An atom for every entry of a tensor, or the numbers at the point if they are fixed."""

    def lower(k: int) -> Callable[[Any], Any]:
        return lambda op: op.CastLike(
            op.Gather(op.Reshape(x, (-1,)), np.array([k]), axis=0), np.zeros((), np.int64)
        )

    name = x.name or "tensor"
    if f"{name}[:]" in symbols.fixed:
        return here
    entries = [
        symbols.atom(f"{name}[{k}]", n, lower(k), tensor=x.name or "", depth=depth_in(x))
        for k, n in enumerate(here.ravel())
    ]
    return objects(entries).reshape(here.shape)


def objects(numbers: Sequence[Any]) -> np.ndarray:
    """Numbers as an object array."""
    array = np.empty(len(numbers), object)
    array[:] = numbers
    return array


def integers(
    op_type: str, domain: str, values: Values, attrs: Mapping[str, Any], made: ir.Value
) -> np.ndarray | None:
    """The integers of a result, computed from the integers of the operands."""
    formula = None if domain else INTEGERS.get(op_type)
    kinds = ir.DataType.INT64, ir.DataType.INT32, ir.DataType.BOOL
    if formula is None or made.dtype not in kinds:
        return None
    shape = shape_of(made)
    if is_symbolic(shape) or math.prod(shape) > SMALL:
        return None
    if op_type in ("Shape", "Size"):
        found = formula(shape_of(values[0]), attrs)
    else:
        held = [content(v) for v in values]
        if any(c is None for c, v in zip(held, values, strict=True) if v is not None):
            return None
        found = formula(held, attrs)
    if found is None:
        return None
    found = np.asarray(found)
    return found.reshape(shape) if found.size == math.prod(shape) else np.broadcast_to(found, shape)


def counts(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register how some operators compute with integers."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        INTEGERS.update(dict.fromkeys(names, function))
        return function

    return register


@counts("Shape")
def _(sizes: Sizes, attrs: Mapping[str, Any]) -> np.ndarray:
    return objects(sizes[slice(attrs.get("start", 0), attrs.get("end"))])


@counts("Size")
def _(sizes: Sizes, attrs: Mapping[str, Any]) -> Any:
    return objects([math.prod(sizes)]).reshape(())


@counts("Cast", "CastLike", "Identity")
def _(held: list[Any], attrs: Mapping[str, Any]) -> Any:
    return held[0]


@counts("Reshape", "Squeeze", "Unsqueeze", "Flatten")
def _(held: list[Any], attrs: Mapping[str, Any]) -> Any:
    return held[0].ravel() if held[0].size == 1 or held[0].ndim == 1 else None


@counts("Gather")
def _(held: list[Any], attrs: Mapping[str, Any]) -> Any:
    data, index = held
    if index.dtype == object:
        return None
    return np.take(data, index, axis=attrs.get("axis", 0))


@counts("Concat")
def _(held: list[Any], attrs: Mapping[str, Any]) -> Any:
    return np.concatenate([x.astype(object) for x in held], axis=attrs["axis"])


@counts("Slice")
def _(held: list[Any], attrs: Mapping[str, Any]) -> Any:
    data, bounds = held[0], [x for k, x in enumerate(held) if k != 3 and k and x is not None]
    if data.ndim != 1 or any(x.dtype == object for x in bounds):
        return None
    return data[slice(*(int(x[0]) for x in bounds))]


@counts("Neg")
def _(held: list[Any], attrs: Mapping[str, Any]) -> Any:
    return -held[0]


@counts("Add")
def _(held: list[Any], attrs: Mapping[str, Any]) -> Any:
    return held[0].astype(object) + held[1].astype(object)


@counts("Sub")
def _(held: list[Any], attrs: Mapping[str, Any]) -> Any:
    return held[0].astype(object) - held[1].astype(object)


@counts("Mul")
def _(held: list[Any], attrs: Mapping[str, Any]) -> Any:
    return held[0].astype(object) * held[1].astype(object)


@counts("Div")
def _(held: list[Any], attrs: Mapping[str, Any]) -> Any:
    """ONNX rounds towards zero: possibly negative quotients are tracked only if exact."""
    pairs = np.broadcast_arrays(*(x.astype(object) for x in held))
    found = [truncated(a, b) for a, b in zip(*(x.ravel() for x in pairs), strict=True)]
    return None if None in found else objects(found).reshape(pairs[0].shape)


def truncated(a: Number, b: Number) -> Number | None:
    """a / b rounded towards zero; None where the signs, and so the direction, are unknown."""
    exact = divided(a, b)
    if exact is not None:
        return exact
    return quotient(a, b) if all(is_positive(n, strictly=False) for n in (a, b)) else None


@counts("Mod")
def _(held: list[Any], attrs: Mapping[str, Any]) -> Any:
    a, b = (x.astype(object) for x in held)
    return None if attrs.get("fmod") or any(same(n, 0) for n in b.ravel()) else a % b


@dataclass(frozen=True)
class Negative:
    """Whether a number is less than 0."""

    number: Number

    def __int__(self) -> int:
        return int(self.number < 0)


@counts("Less")
def _(held: list[Any], attrs: Mapping[str, Any]) -> Any:
    difference = np.asarray(held[0].astype(object) - held[1].astype(object), object)
    return objects([Negative(n) for n in difference.ravel()]).reshape(difference.shape)


@counts("Where")
def _(held: list[Any], attrs: Mapping[str, Any]) -> Any:
    if held[0].dtype == object:
        entries = np.broadcast_arrays(*(x.astype(object) for x in held))
        chosen = [if_negative(c.number, a, b)
                  for c, a, b in zip(*(x.ravel() for x in entries), strict=True)]  # fmt: skip
        return objects(chosen).reshape(entries[0].shape)
    return None


@counts("Max")
def _(held: list[Any], attrs: Mapping[str, Any]) -> Any:
    found = held[0].astype(object)
    for x in held[1:]:
        found = np.frompyfunc(larger, 2, 1)(found, x.astype(object))
    return found


@counts("Min")
def _(held: list[Any], attrs: Mapping[str, Any]) -> Any:
    found = held[0].astype(object)
    for x in held[1:]:
        found = np.frompyfunc(smallest, 2, 1)(found, x.astype(object))
    return found


@counts("Range")
def _(held: list[Any], attrs: Mapping[str, Any]) -> Any:
    numbers = [whole(x.item()) for x in held]
    return None if is_symbolic(numbers) else np.arange(*numbers)


@counts("ReduceProd")
def _(held: list[Any], attrs: Mapping[str, Any]) -> Any:
    return objects([math.prod(held[0].ravel())]) if held[0].ndim == 1 else None


# -- shapes


def formula(*names: str) -> Callable[[Formula], Formula]:
    """Register a formula for the output shapes of some operators."""

    def register(function: Formula) -> Formula:
        FORMULAS.update(dict.fromkeys(names, function))
        return function

    return register


def sizes_by_formula(
    op_type: str, domain: str, values: Values, attrs: Mapping[str, Any]
) -> Sequence[Known] | None:
    """The shapes of the outputs of a node, where there is a formula for them."""
    found = None if domain else FORMULAS.get(op_type)
    if found is None:
        return None
    shapes = [None if v is None else shape_of(v) for v in values]
    return found(shapes, [integers_of(v) for v in values], attrs)


def integers_of(value: ir.Value | None) -> tuple[Any, ...] | None:
    """The integers of a vector or scalar, plain or symbolic; for a constant, also floats."""
    held = content(value)
    if held is None and value is not None and value.const_value is not None:
        held = value.const_value.numpy()
        return tuple(held.ravel().tolist()) if held.size <= SMALL else None
    if held is None or held.size > SMALL or any(isinstance(n, Negative) for n in held.flat):
        return None
    return tuple(map(whole, held.ravel()))


def as_sizes(numbers: Sequence[Number]) -> Sizes:
    """Numbers as sizes: those computed from a tensor entry are clamped at 0, those computed from
    sizes are sizes already.
    """
    return tuple(largest(n, 0) if has_entry(n) else n for n in numbers)


def has_entry(n: Number) -> bool:
    """Whether a number is computed from an entry of a tensor."""
    return isinstance(n, SymInt) and any(atom.is_entry for atom in n.roots())


@formula(
    "Add", "Sub", "Mul", "Div", "Pow", "Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual",
    "And", "Or", "Xor", "Where", "Min", "Max", "Mod", "Sum", "Mean", "PRelu",
)  # fmt: skip
def _(shapes: list[Any], held: list[Any], attrs: Mapping[str, Any]) -> Sequence[Sizes]:
    return [broadcast_sizes(s for s in shapes if s is not None)]


@formula("GroupNormalization", "MeanVarianceNormalization")
def _(shapes: list[Any], held: list[Any], attrs: Mapping[str, Any]) -> Sequence[Sizes]:
    """ONNX infers no shape here."""
    return [shapes[0]]


@formula("LayerNormalization")
def _(shapes: list[Any], held: list[Any], attrs: Mapping[str, Any]) -> Sequence[Sizes]:
    """The tensor, its means and its deviations; ONNX infers no shape for axis 0."""
    rank = len(shapes[0])
    axis = attrs.get("axis", -1) % rank
    kept = (*shapes[0][:axis], *(1,) * (rank - axis))
    return [shapes[0], kept, kept]


@formula(
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
    "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
)  # fmt: skip
def _(shapes: list[Any], held: list[Any], attrs: Mapping[str, Any]) -> Sequence[Sizes] | None:
    given = len(shapes) > 1 and shapes[1] is not None
    axes = held[1] if given else ()
    if axes is None or is_symbolic(axes):
        return None
    if not axes and attrs.get("noop_with_empty_axes"):
        return [shapes[0]]
    rank = len(shapes[0])
    gone = {axis % rank for axis in axes or range(rank)}
    kept = attrs.get("keepdims", 1)
    return [tuple(1 if k in gone else n for k, n in enumerate(shapes[0]) if kept or k not in gone)]


@formula("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def _(shapes: list[Any], held: list[Any], attrs: Mapping[str, Any]) -> Sequence[Sizes]:
    """A score for every class at every target: the sizes of matching axes must be equal."""
    scores, targets = shapes[:2]
    places = (scores[0], *scores[2:])
    if any(not same(n, m) and n != m for n, m in zip(places, targets, strict=True)):
        raise ValueError(f"scores {scores} do not fit targets {targets}")
    return [places if attrs.get("reduction") == "none" else (), scores]


@formula("Reshape")
def _(shapes: list[Any], held: list[Any], attrs: Mapping[str, Any]) -> Sequence[Sizes] | None:
    if held[1] is None:
        return None
    opens = [is_number(n, -1) for n in held[1]]
    copied = [
        shapes[0][k] if not attrs.get("allowzero") and is_number(n, 0) else n
        for k, n in enumerate(held[1])
    ]
    known = math.prod(n for n, is_open in zip(copied, opens, strict=True) if not is_open)
    rest = quotient(math.prod(shapes[0]), known) if any(opens) else 0
    return [as_sizes([rest if is_open else n for n, is_open in zip(copied, opens, strict=True)])]


def is_number(n: Number, special: int) -> bool:
    """Whether an entry of a target shape is the `special` -1 or 0: a decision for an entry of a
    tensor, which may be; a number computed from sizes is a size.
    """
    entry = isinstance(n, SymInt) and any(atom.is_entry for atoms in n.terms for atom in atoms)
    return n == special if entry else same(n, special)


@formula("CenterCropPad")
def _(shapes: list[Any], held: list[Any], attrs: Mapping[str, Any]) -> Sequence[Sizes] | None:
    if held[1] is None:
        return None
    axes = attrs.get("axes") or range(len(shapes[0]))
    found = dict(zip((axis % len(shapes[0]) for axis in axes), as_sizes(held[1]), strict=True))
    return [tuple(found.get(k, n) for k, n in enumerate(shapes[0]))]


@formula("TensorScatter")
def _(shapes: list[Any], held: list[Any], attrs: Mapping[str, Any]) -> Sequence[Sizes]:
    return [shapes[0]]


@formula("TopK")
def _(shapes: list[Any], held: list[Any], attrs: Mapping[str, Any]) -> Sequence[Sizes] | None:
    if held[1] is None:
        return None
    sizes = list(shapes[0])
    (sizes[attrs.get("axis", -1)],) = as_sizes(held[1])
    return [tuple(sizes)] * 2


@formula("Resize")
def _(shapes: list[Any], held: list[Any], attrs: Mapping[str, Any]) -> Sequence[Known] | None:
    """Known for given sizes, and for integer scales."""
    sizes = shapes[0]
    axes = [axis % len(sizes) for axis in attrs.get("axes") or range(len(sizes))]
    if len(shapes) > 3 and shapes[3] is not None:
        if held[3] is None or attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch":
            return None
        found = dict(zip(axes, as_sizes(held[3]), strict=True))
    elif held[2] is None or attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        return None
    else:
        scales = zip(axes, held[2], strict=True)
        found = {k: sizes[k] * int(c) if c == int(c) else None for k, c in scales}
    return [tuple(found.get(k, n) for k, n in enumerate(sizes))]


@formula("Expand")
def _(shapes: list[Any], held: list[Any], attrs: Mapping[str, Any]) -> Sequence[Sizes] | None:
    if held[1] is None:
        return None
    return [broadcast_sizes([shapes[0], as_sizes(held[1])])]


@formula("Flatten")
def _(shapes: list[Any], held: list[Any], attrs: Mapping[str, Any]) -> Sequence[Sizes]:
    axis = attrs.get("axis", 1)
    return [(math.prod(shapes[0][:axis]), math.prod(shapes[0][axis:]))]


@formula("Squeeze")
def _(shapes: list[Any], held: list[Any], attrs: Mapping[str, Any]) -> Sequence[Sizes] | None:
    sizes = shapes[0]
    if len(shapes) > 1 and shapes[1] is not None:
        if held[1] is None or is_symbolic(held[1]):
            return None
        dropped = {axis % len(sizes) for axis in held[1]}
        return [tuple(n for k, n in enumerate(sizes) if k not in dropped)]
    return [tuple(n for n in sizes if n != 1)]


@formula("Concat")
def _(shapes: list[Any], held: list[Any], attrs: Mapping[str, Any]) -> Sequence[Sizes]:
    sizes = list(shapes[0])
    sizes[attrs["axis"]] = sum(s[attrs["axis"]] for s in shapes)
    return [tuple(sizes)]


@formula("Tile")
def _(shapes: list[Any], held: list[Any], attrs: Mapping[str, Any]) -> Sequence[Sizes] | None:
    pairs = zip(shapes[0], held[1] or (), strict=False)
    return None if held[1] is None else [as_sizes([n * k for n, k in pairs])]


@formula("ConstantOfShape")
def _(shapes: list[Any], held: list[Any], attrs: Mapping[str, Any]) -> Sequence[Sizes] | None:
    return None if held[0] is None else [as_sizes(held[0])]


@formula("Range")
def _(shapes: list[Any], held: list[Any], attrs: Mapping[str, Any]) -> Sequence[Sizes] | None:
    if any(h is None for h in held) or is_symbolic(held[2]):
        return None
    (start,), (limit,), (delta,) = held
    if delta == 0:
        return None
    count = -quotient(start - limit, delta) if delta > 0 else -quotient(limit - start, -delta)
    return [(largest(count, 0),)]


@formula("Pad")
def _(shapes: list[Any], held: list[Any], attrs: Mapping[str, Any]) -> Sequence[Sizes] | None:
    axes = held[3] if len(held) > 3 and shapes[3] is not None else tuple(range(len(shapes[0])))
    if held[1] is None or axes is None or is_symbolic(axes):
        return None
    sizes, count = list(shapes[0]), len(axes)
    for k, axis in enumerate(axes):
        sizes[axis] = sizes[axis] + held[1][k] + held[1][count + k]
    return [as_sizes(sizes)]


@formula("Slice")
def _(shapes: list[Any], held: list[Any], attrs: Mapping[str, Any]) -> Sequence[Sizes] | None:
    from ..rules.layout import span

    starts, ends = held[1], held[2]
    if starts is None or ends is None:
        return None
    axes, steps = tuple(range(len(starts))), (1,) * len(starts)
    if len(held) > 3 and shapes[3] is not None:
        axes = held[3]
    if len(held) > 4 and shapes[4] is not None:
        steps = held[4]
    if axes is None or steps is None or is_symbolic((axes, steps)):
        return None
    sizes = list(shapes[0])
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        sizes[axis] = span(start, end, step, sizes[axis])[2]
    return [tuple(sizes)]


@formula("Conv", "MaxPool", "AveragePool", "LpPool")
def _(shapes: list[Any], held: list[Any], attrs: Mapping[str, Any]) -> Sequence[Sizes] | None:
    x, convolves = shapes[0], len(shapes) > 1
    kernel = shapes[1][2:] if convolves else tuple(attrs["kernel_shape"])
    if is_symbolic(kernel):
        return None
    geometry = {name: attrs[name] for name in GEOMETRY if name in attrs}
    space = windows(x[2:], kernel, **geometry).count
    return [(x[0], shapes[1][0] if convolves else x[1], *space)] * 2  # MaxPool also gives indices


@formula("DFT")
def _(shapes: list[Any], held: list[Any], attrs: Mapping[str, Any]) -> Sequence[Sizes] | None:
    sizes, lengths, axes = list(shapes[0]), *(held[k] if len(held) > k else None for k in (1, 2))
    given = [len(shapes) > k and shapes[k] is not None for k in (1, 2)]
    if (given[0] and lengths is None) or (given[1] and (axes is None or is_symbolic(axes))):
        return None
    axis, half = axes[0] if axes else -2, attrs.get("onesided")
    n = sizes[axis] if lengths is None else lengths[0]
    if half and attrs.get("inverse"):
        n = 2 * (n - 1) if lengths is None else n
    elif half:
        n = quotient(n, 2) + 1
    sizes[axis] = n
    return [(*sizes[:-1], 1 if half and attrs.get("inverse") else 2)]


@formula("STFT")
def _(shapes: list[Any], held: list[Any], attrs: Mapping[str, Any]) -> Sequence[Sizes] | None:
    (batch, length, _), step = shapes[0], held[1]
    window, given = (shapes[k] if len(shapes) > k else None for k in (2, 3))
    if step is None or (window is None and given is not None and held[3] is None):
        return None
    n = window[0] if window is not None else length if given is None else largest(held[3][0], 0)
    bins = quotient(n, 2) + 1 if attrs.get("onesided", 1) else n
    return [(batch, largest(quotient(length - n, step[0]) + 1, 0), bins, 2)]


@formula("DeformConv")
def _(shapes: list[Any], held: list[Any], attrs: Mapping[str, Any]) -> Sequence[Sizes]:
    return [(shapes[0][0], shapes[1][0], *shapes[2][2:])]


@formula("AffineGrid")
def _(shapes: list[Any], held: list[Any], attrs: Mapping[str, Any]) -> Sequence[Sizes] | None:
    if held[1] is None:
        return None
    return [(shapes[0][0], *as_sizes(held[1][2:]), len(held[1]) - 2)]


@formula("ConvTranspose")
def _(shapes: list[Any], held: list[Any], attrs: Mapping[str, Any]) -> Sequence[Sizes]:
    x, w = shapes[:2]
    geometry = {name: attrs[name] for name in (*GEOMETRY, *CROPPING) if name in attrs}
    space = transposed_windows(x[2:], w[2:], **geometry).space
    return [(x[0], w[1] * attrs.get("group", 1), *space)]


@formula("Split")
def _(shapes: list[Any], held: list[Any], attrs: Mapping[str, Any]) -> Sequence[Sizes] | None:
    from ..rules.layout import equal_parts

    axis, count = attrs.get("axis", 0) % len(shapes[0]), attrs.get("num_outputs", 0)
    given = held[1] if len(shapes) > 1 and shapes[1] is not None else None
    if given is None and (len(shapes) > 1 or not count):
        return None
    parts = equal_parts(shapes[0][axis], count) if given is None else as_sizes(given)
    return [(*shapes[0][:axis], n, *shapes[0][axis + 1 :]) for n in parts]
