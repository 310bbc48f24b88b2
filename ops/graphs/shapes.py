"""Shapes: the symbolic shapes of graph values, and the integers in small ones.

A shape is computed from the shapes and the integers of the operands: by a formula where there is
one, as for a Reshape to symbolic sizes, else by ONNX's inference. Sizes that both leave unknown
become new atoms, which the graph reads off the result.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import onnx_ir as ir

from ...jacobians import shape_of
from ...jacobians.symint import (
    Number,
    Symbols,
    SymInt,
    agree,
    at,
    bounds,
    broadcast_sizes,
    divided,
    if_negative,
    is_positive,
    is_symbolic,
    largest,
    quotient,
    same,
    smallest,
    whole,
)
from ..node import AT, recorder_of
from ..numbers.layout import equal_parts, span
from ..numbers.windows import CROPPING, GEOMETRY, given_attributes, transposed_windows, windows
from ..registry import full_name

CONTENT = "onnxjac.content"
"""Metadata key of a graph value: its integers, some of which are symbolic."""

READING = "onnxjac.reading"
"""Metadata key of a graph value: the recorder that it belongs to."""

STILL = "onnxjac.still"
"""Metadata key of a graph value that nodes compute from constants alone."""

DEPTH = "onnxjac.depth"
"""Metadata key of a graph value inside a subgraph: the number of subgraphs around it."""

TRACKED_ENTRIES = 64
"""The size up to which integer tensors are tracked: shapes, indices, axes or pads."""

OPTIONAL = 4
"""The most operands of an operator that its formula reads and that a node may leave out."""

FLOATS = frozenset(kind for kind in ir.DataType if kind.is_floating_point())

Values = Sequence[ir.Value | None]
Sizes = tuple[Number, ...]
Known = tuple[Number | None, ...]
"""A shape in which some sizes may be unknown."""
Formula = Callable[..., Sequence[Known] | None]

FORMULAS: dict[str, Formula] = {}
"""Operator -> formula(shapes, contents, attrs): the shapes of its outputs, None if not known."""

BY_SHAPES: set[str] = set()
"""The operators whose formulas read no integers."""


class Dimension(ir.SymbolicDim):
    """A symbolic size in the shape of a graph value."""

    __slots__ = ("number",)

    def __init__(self, number: SymInt) -> None:
        ((atoms, c),) = number.terms.items() if len(number.terms) == 1 else (((), 0),)
        plain = len(atoms) == 1 and c == 1 and atoms[0].axis is not None
        super().__init__(atoms[0].name if plain else None)
        self.number = number


class Measured(ir.Shape):
    """The shape of a graph value with its sizes as `numbers`, which are read often."""

    __slots__ = ("numbers",)

    def __init__(self, numbers: Sizes) -> None:
        dims = [Dimension(n) if isinstance(n, SymInt) else n for n in numbers]
        super().__init__(dims, frozen=True)
        self.numbers = numbers


def as_shape(sizes: Sequence[Number]) -> ir.Shape:
    """Sizes as the shape of a graph value."""
    numbers = tuple(n if isinstance(n, SymInt) else int(n) for n in sizes)
    return Measured(numbers) if is_symbolic(numbers) else _measured(numbers)


_measured = lru_cache(maxsize=4096)(Measured)


# -- integers


def content(x: Any) -> np.ndarray | None:
    """The integers of an operand, symbolic ones in an object array; None if not tracked."""
    if isinstance(x, np.ndarray):
        return x if x.dtype.kind in "iub" else None
    if x is None or x.dtype in FLOATS:
        return None
    if CONTENT in x.meta:
        return np.asarray(x.meta[CONTENT])
    if x.const_value is not None:
        return x.const_value.numpy() if x.const_value.dtype.is_integer() else None
    here, symbols = x.meta.get(AT), recorder_of(x).symbols
    if STILL in x.meta and here is not None and here.dtype.kind in "iu":
        return np.asarray(here)
    if (
        symbols is None
        or here is None
        or here.dtype.kind not in "iu"
        or here.size > TRACKED_ENTRIES
    ):
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
    if is_symbolic(shape) or math.prod(shape) > TRACKED_ENTRIES:
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


def entrywise(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of numbers applied to integers entry by entry; None if one result is None."""

    def formula(held: list[Any], attrs: Mapping[str, Any]) -> np.ndarray | None:
        applied = np.frompyfunc(function, len(held), 1)
        found = np.asarray(applied(*(x.astype(object) for x in held)), object)
        return None if any(n is None for n in found.flat) else found

    return formula


def sliced(held: list[Any], attrs: Mapping[str, Any]) -> Any:
    """Integers of a vector between known bounds."""
    data, bounds = held[0], [x for k, x in enumerate(held) if k != 3 and k and x is not None]
    if data.ndim != 1 or any(x.dtype == object for x in bounds):
        return None
    return data[slice(*(int(x[0]) for x in bounds))]


def truncated(a: Number, b: Number) -> Number | None:
    """a / b rounded towards zero; None where b is 0 or the direction, by the signs, is unknown."""
    exact = divided(a, b)
    if exact is not None:
        return exact
    signs_known = at(b) and all(is_positive(n, strictly=False) for n in (a, b))
    return quotient(a, b) if signs_known else None


def remainder(held: list[Any], attrs: Mapping[str, Any]) -> Any:
    """a - b ⌊a / b⌋; None where b is 0, as numbers that are not known yet may be."""
    a, b = (x.astype(object) for x in held)
    return a % b if all(map(at, b.ravel())) and not attrs.get("fmod") else None


def known_zero(n: Any) -> bool | None:
    """Whether a number is 0; None where that is known at the point alone."""
    if not isinstance(n, SymInt):
        return bool(n == 0)
    low, high = bounds(n)
    return False if (low or 0) > 0 or (high or 0) < 0 else None


def choose_number(c: Any, a: Number, b: Number) -> Number | None:
    """a where c holds, else b."""
    if isinstance(c, Negative):
        return if_negative(c.number, a, b)
    return a if c else b


def filled(held: list[Any], attrs: Mapping[str, Any]) -> Any:
    """A tensor of one number, of a known shape."""
    if is_symbolic(held[0].tolist()):
        return None
    return np.full(held[0].astype(int), np.ravel(attrs.get("value", 0))[0])


@dataclass(frozen=True)
class Negative:
    """Whether a number is less than 0."""

    number: Number

    def __int__(self) -> int:
        return int(self.number < 0)


INTEGERS: dict[str, Callable[..., Any]] = {
    "Shape": lambda sizes, attrs: objects(sizes[slice(attrs.get("start", 0), attrs.get("end"))]),
    "Size": lambda sizes, attrs: objects([math.prod(sizes)]).reshape(()),
    **dict.fromkeys(("Cast", "CastLike", "Identity"), lambda held, attrs: held[0]),
    **dict.fromkeys(
        ("Reshape", "Squeeze", "Unsqueeze", "Flatten"),
        lambda held, attrs: held[0].ravel() if held[0].size == 1 or held[0].ndim == 1 else None,
    ),
    "Gather": lambda held, attrs: None if held[1].dtype == object else (
        np.take(held[0], held[1], axis=attrs.get("axis", 0))),
    "Slice": sliced,
    "Concat": lambda held, attrs: np.concatenate([x.astype(object) for x in held], attrs["axis"]),
    "Range": lambda held, attrs: None if is_symbolic([x.item() for x in held]) else (
        np.arange(*(int(x.item()) for x in held))),
    "ReduceProd": lambda held, attrs: objects([math.prod(held[0])]) if held[0].ndim == 1 else None,
    "Neg": lambda held, attrs: -held[0],
    "Add": entrywise(operator.add),
    "Sub": entrywise(operator.sub),
    "Mul": entrywise(operator.mul),
    "Div": entrywise(truncated),
    "Mod": remainder,
    "Less": entrywise(lambda a, b: Negative(a - b)),
    "Equal": entrywise(lambda a, b: known_zero(a - b)),
    "Where": entrywise(choose_number),
    "ConstantOfShape": filled,
    "Max": entrywise(largest),
    "Min": entrywise(smallest),
}  # fmt: skip
"""Operator -> formula(contents, attrs): the integers of its output; Shape and Size take sizes."""


# -- shapes


def formula(
    *names: str, known: Sequence[int] = (), fixed: Sequence[int] = ()
) -> Callable[[Formula], Formula]:
    """Register a formula for the output shapes of some operators.

    A formula needs the integers of the `known` operands, if they are given, and plain ones of the
    `fixed`.
    """

    def register(function: Formula) -> Formula:
        def checked(shapes: list[Any], held: list[Any], attrs: Mapping[str, Any]) -> Any:
            given = [k for k in (*known, *fixed) if shapes[k] is not None]
            if any(held[k] is None or (k in fixed and is_symbolic(held[k])) for k in given):
                return None
            return function(shapes, held, attrs)

        FORMULAS.update(dict.fromkeys(names, checked))
        if not (known or fixed):
            BY_SHAPES.update(names)
        return function

    return register


def sizes_by_formula(
    op_type: str, domain: str, values: Values, attrs: Mapping[str, Any]
) -> Sequence[Known] | None:
    """The shapes of the outputs of a node, where there is a formula for them."""
    found = FORMULAS.get(full_name(op_type, domain))
    if found is None:
        return None
    every = (*values, *(None,) * OPTIONAL)
    shapes = [None if v is None else shape_of(v) for v in every]
    held = [None if op_type in BY_SHAPES else integers_of(v) for v in every]
    return found(shapes, held, attrs)


def integers_of(value: ir.Value | None) -> tuple[Any, ...] | None:
    """The integers of a vector or scalar, plain or symbolic; for a constant, also floats."""
    held = content(value)
    if held is None and isinstance(value, ir.Value) and value.const_value is not None:
        held = value.const_value.numpy()
        return tuple(held.ravel().tolist()) if held.size <= TRACKED_ENTRIES else None
    if (
        held is None
        or held.size > TRACKED_ENTRIES
        or any(isinstance(n, Negative) for n in held.flat)
    ):
        return None
    return tuple(map(whole, held.ravel()))


def as_sizes(numbers: Sequence[Number]) -> Sizes:
    """Numbers as sizes: those computed from a tensor entry are clamped at 0, those computed from
    sizes are sizes already.
    """
    return tuple(
        largest(n, 0) if isinstance(n, SymInt) and any(a.is_entry for a in n.roots()) else n
        for n in numbers
    )


formula(
    "Add", "Sub", "Mul", "Div", "Pow", "Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual",
    "And", "Or", "Xor", "Where", "Min", "Max", "Mod", "Sum", "Mean", "PRelu",
)(lambda shapes, held, attrs: [broadcast_sizes(s for s in shapes if s is not None)])  # fmt: skip
formula("GroupNormalization", "MeanVarianceNormalization", "TensorScatter",
        *(f"ai.onnx.ml::{name}" for name in ("Binarizer", "Imputer", "Normalizer", "Scaler")))(
    lambda shapes, held, attrs: [shapes[0]]  # ONNX infers no shape here
)  # fmt: skip


@formula("ai.onnx.ml::LinearClassifier")
def _(shapes: list[Any], held: list[Any], attrs: Mapping[str, Any]) -> Sequence[Known] | None:
    """A label for each row, and a score for each class."""
    labels = attrs.get("classlabels_ints") or attrs.get("classlabels_strings")
    batch = shapes[0][:1]
    return [batch, (*batch, len(labels) if labels else None)] if shapes[0][1:] else None


formula("Expand", known=(1,))(
    lambda shapes, held, attrs: [broadcast_sizes([shapes[0], as_sizes(held[1])])]
)
formula("Tile", known=(1,))(
    lambda shapes, held, attrs: [as_sizes(list(map(operator.mul, shapes[0], held[1])))]
)
formula("ConstantOfShape", known=(0,))(lambda shapes, held, attrs: [as_sizes(held[0])])
formula("DeformConv")(lambda shapes, held, attrs: [(shapes[0][0], shapes[1][0], *shapes[2][2:])])
formula("AffineGrid", known=(1,))(
    lambda shapes, held, attrs: [(shapes[0][0], *as_sizes(held[1][2:]), len(held[1]) - 2)]
)


@formula("LayerNormalization")
def _(shapes: list[Any], held: list[Any], attrs: Mapping[str, Any]) -> Sequence[Sizes]:
    """The tensor, its means and its deviations; ONNX infers no shape for axis 0."""
    rank = len(shapes[0])
    axis = attrs.get("axis", -1) % rank
    kept = (*shapes[0][:axis], *(1,) * (rank - axis))
    return [shapes[0], kept, kept]


@formula(
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
    "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare", fixed=(1,),
)  # fmt: skip
def _(shapes: list[Any], held: list[Any], attrs: Mapping[str, Any]) -> Sequence[Sizes]:
    if not held[1] and attrs.get("noop_with_empty_axes"):
        return [shapes[0]]
    rank = len(shapes[0])
    gone = {axis % rank for axis in held[1] or range(rank)}
    kept = attrs.get("keepdims", 1)
    return [tuple(1 if k in gone else n for k, n in enumerate(shapes[0]) if kept or k not in gone)]


@formula("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def _(shapes: list[Any], held: list[Any], attrs: Mapping[str, Any]) -> Sequence[Sizes]:
    """A score for every class at every target: the sizes of matching axes must be equal."""
    scores, targets = shapes[:2]
    places = (scores[0], *scores[2:])
    if not agree(places, targets):
        raise ValueError(f"scores {scores} do not fit targets {targets}")
    return [places if attrs.get("reduction") == "none" else (), scores]


@formula("Reshape", known=(1,))
def _(shapes: list[Any], held: list[Any], attrs: Mapping[str, Any]) -> Sequence[Sizes]:
    opens = [is_special(n, -1) for n in held[1]]
    copied = [
        shapes[0][k] if not attrs.get("allowzero") and is_special(n, 0) else n
        for k, n in enumerate(held[1])
    ]
    known = math.prod(n for n, is_open in zip(copied, opens, strict=True) if not is_open)
    rest = quotient(math.prod(shapes[0]), known) if any(opens) else 0
    return [as_sizes([rest if is_open else n for n, is_open in zip(copied, opens, strict=True)])]


def is_special(n: Number, special: int) -> bool:
    """Whether an entry of a target shape is the `special` -1 or 0: a decision for an entry of a
    tensor, which may be; a number computed from sizes is a size.
    """
    entry = isinstance(n, SymInt) and any(atom.is_entry for atoms in n.terms for atom in atoms)
    return n == special if entry else same(n, special)


@formula("TopK", known=(1,))
def _(shapes: list[Any], held: list[Any], attrs: Mapping[str, Any]) -> Sequence[Sizes]:
    sizes = list(shapes[0])
    (sizes[attrs.get("axis", -1)],) = as_sizes(held[1])
    return [tuple(sizes)] * 2


@formula("Resize", known=(3,))
def _(shapes: list[Any], held: list[Any], attrs: Mapping[str, Any]) -> Sequence[Known] | None:
    """Known for given sizes, and for integer scales."""
    sizes = shapes[0]
    axes = [axis % len(sizes) for axis in attrs.get("axes") or range(len(sizes))]
    if held[3] is not None:
        if attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch":
            return None
        found = dict(zip(axes, as_sizes(held[3]), strict=True))
    elif held[2] is None or attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        return None
    else:
        scales = zip(axes, held[2], strict=True)
        found = {k: sizes[k] * int(c) if c == int(c) else None for k, c in scales}
    return [tuple(found.get(k, n) for k, n in enumerate(sizes))]


@formula("Flatten")
def _(shapes: list[Any], held: list[Any], attrs: Mapping[str, Any]) -> Sequence[Sizes]:
    axis = attrs.get("axis", 1)
    return [(math.prod(shapes[0][:axis]), math.prod(shapes[0][axis:]))]


@formula("Squeeze", fixed=(1,))
def _(shapes: list[Any], held: list[Any], attrs: Mapping[str, Any]) -> Sequence[Sizes]:
    if held[1] is None:
        return [tuple(n for n in shapes[0] if n != 1)]
    dropped = {axis % len(shapes[0]) for axis in held[1]}
    return [tuple(n for k, n in enumerate(shapes[0]) if k not in dropped)]


@formula("Concat")
def _(shapes: list[Any], held: list[Any], attrs: Mapping[str, Any]) -> Sequence[Sizes]:
    sizes = list(shapes[0])
    sizes[attrs["axis"]] = sum(s[attrs["axis"]] for s in shapes if s is not None)
    return [tuple(sizes)]


@formula("Range", known=(0, 1), fixed=(2,))
def _(shapes: list[Any], held: list[Any], attrs: Mapping[str, Any]) -> Sequence[Sizes] | None:
    (start,), (limit,), (delta,) = held[:3]
    if delta == 0:
        return None
    count = -quotient(start - limit, delta) if delta > 0 else -quotient(limit - start, -delta)
    return [(largest(count, 0),)]


@formula("Pad", known=(1,), fixed=(3,))
def _(shapes: list[Any], held: list[Any], attrs: Mapping[str, Any]) -> Sequence[Sizes]:
    axes = range(len(shapes[0])) if held[3] is None else held[3]
    sizes, count = list(shapes[0]), len(axes)
    for k, axis in enumerate(axes):
        sizes[axis] = sizes[axis] + held[1][k] + held[1][count + k]
    return [as_sizes(sizes)]


@formula("Slice", known=(1, 2), fixed=(3, 4))
def _(shapes: list[Any], held: list[Any], attrs: Mapping[str, Any]) -> Sequence[Sizes]:
    sizes, (starts, ends, axes, steps) = list(shapes[0]), held[1:5]
    axes = range(len(starts)) if axes is None else axes
    steps = (1,) * len(starts) if steps is None else steps
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        sizes[axis] = span(start, end, step, sizes[axis])[2]
    return [tuple(sizes)]


@formula("Conv", "ConvInteger", "MaxPool", "AveragePool", "LpPool")
def _(shapes: list[Any], held: list[Any], attrs: Mapping[str, Any]) -> Sequence[Sizes] | None:
    x, w = shapes[:2]
    kernel = tuple(attrs["kernel_shape"]) if w is None else w[2:]
    space = (None,) * len(kernel) if is_symbolic(kernel) else (
        windows(x[2:], kernel, **given_attributes(attrs, *GEOMETRY)).count)  # fmt: skip
    return [(x[0], x[1] if w is None else w[0], *space)] * 2  # MaxPool also gives indices


formula("QLinearConv")(lambda shapes, held, attrs: FORMULAS["Conv"](shapes[::3], held, attrs))


@formula("DFT", known=(1,), fixed=(2,))
def _(shapes: list[Any], held: list[Any], attrs: Mapping[str, Any]) -> Sequence[Sizes]:
    sizes, (lengths, axes), half = list(shapes[0]), held[1:3], attrs.get("onesided")
    axis = axes[0] if axes else -2
    n = sizes[axis] if lengths is None else lengths[0]
    if half and attrs.get("inverse"):
        sizes[axis] = 2 * (n - 1) if lengths is None else n
    else:
        sizes[axis] = quotient(n, 2) + 1 if half else n
    return [(*sizes[:-1], 1 if half and attrs.get("inverse") else 2)]


@formula("STFT", known=(1,))
def _(shapes: list[Any], held: list[Any], attrs: Mapping[str, Any]) -> Sequence[Sizes] | None:
    (batch, length, _), _, window, given = shapes[:4]
    if window is None and given is not None and held[3] is None:
        return None
    n = window[0] if window is not None else length if given is None else largest(held[3][0], 0)
    bins = quotient(n, 2) + 1 if attrs.get("onesided", 1) else n
    return [(batch, largest(quotient(length - n, held[1][0]) + 1, 0), bins, 2)]


@formula("ConvTranspose")
def _(shapes: list[Any], held: list[Any], attrs: Mapping[str, Any]) -> Sequence[Sizes]:
    x, w = shapes[:2]
    space = transposed_windows(x[2:], w[2:], **given_attributes(attrs, *GEOMETRY, *CROPPING)).space
    return [(x[0], w[1] * attrs.get("group", 1), *space)]


@formula("Split", known=(1,))
def _(shapes: list[Any], held: list[Any], attrs: Mapping[str, Any]) -> Sequence[Sizes] | None:
    axis, count = attrs.get("axis", 0) % len(shapes[0]), attrs.get("num_outputs", 0)
    if held[1] is None and not count:
        return None
    parts = equal_parts(shapes[0][axis], count) if held[1] is None else as_sizes(held[1])
    return [(*shapes[0][:axis], n, *shapes[0][axis + 1 :]) for n in parts]
