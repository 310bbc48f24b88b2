"""Simplify: the table of graph rewrites.

A row replaces the call of an operator by simpler calls, or by ones that an engine runs faster. The
rows without an engine are applied to calls while a graph is recorded, the rows of `COPIES` to the
steps of a model that are recorded as they are, the others where their engine compiles the graph. A
rule is written in calls of the vocabulary, and gives None where it does not apply; the first line
of its docstring says why.

What may befall any node of a session, in bodies too, is not a row: the functions and roundings in
`defects.py` follow from the type of each result, whichever operator computes it, while a rule knows
one operator and its operands, and gives its first result.

A transposed matrix is never copied: a large one is held once, in the order in which it is stored
(`transpose_behind` finds it behind a Transpose), and products read it in place.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir

from ...jacobians import Array, Op, Shape, dtype_of, shape_of, size
from ...jacobians.symint import Number, at, is_symbolic, largest, quotient, same, whole
from ..numbers.windows import given_attributes, windows
from .shapes import CONTENT, READING

RUNTIME, PRODUCTS, COPIES = "onnxruntime", "products by onnxruntime", "copies of steps"


class Rewrite(NamedTuple):
    """A row: `rule(op, *inputs, **attributes)` gives the result of an operator, or None.

    It is tried where an operand, by its index, comes `after` an operator.
    """

    operator: str
    engine: str
    rule: Callable[..., Any]
    after: tuple[int, str] | None = None

    @property
    def why(self) -> str:
        """Why, in one line."""
        return (self.rule.__doc__ or "").partition("\n")[0]


TABLE: dict[tuple[str, str], list[Rewrite]] = {}
"""(operator, engine) -> the rows, in the order in which they are tried."""

Rule = Callable[..., Any]


def rewrites(
    *names: str, engine: str = "", after: tuple[int, str] | None = None
) -> Callable[[Rule], Rule]:  # fmt: skip
    """Enter a rule for some operators, of an engine or of all recordings."""

    def enter(rule: Rule) -> Rule:
        for name in names:
            TABLE.setdefault((name, engine), []).append(Rewrite(name, engine, rule, after))
        return rule

    return enter


def rewritten(op: Any, op_type: str, inputs: Any, attrs: Any, engine: str = "") -> Any:
    """The result of a recorded call by the first row that applies; else None."""
    for row in TABLE.get((op_type, engine), ()):
        made = row.rule(op, *inputs, **attrs)
        if made is not None:
            return made
    return None


# -- what rules ask of their operands --------------------------------------------------------------


def made_by(x: Any, op_type: str) -> ir.Node | None:
    """The node that made a value, if it has this op_type."""
    node = x.producer() if isinstance(x, ir.Value) else None
    return node if node is not None and node.op_type == op_type and not node.domain else None


def transpose_behind(x: Any) -> ir.Value | None:
    """The matrix, or stack of matrices, of which x is the transpose by a node; None if none is."""
    node = made_by(x, "Transpose")
    if node is None:
        return None
    held = node.attributes.get("perm")  # reversed axes by default
    perm = (1, 0) if held is None and rank_of(x) == 2 else () if held is None else held.as_ints()
    rank = len(perm)
    turns = rank > 1 and (*perm,) == (*range(rank - 2), rank - 1, rank - 2)
    return node.inputs[0] if turns else None


def rank_of(x: ir.Value) -> int | None:
    """The number of axes, as declared; None if that is unknown."""
    return None if x.shape is None else len(x.shape)


def certain(x: ir.Value) -> Shape | None:
    """The static shape of a recorded value, or of an input, which is checked; else None: a model
    may declare other shapes than it has.
    """
    if x.shape is None or not all(isinstance(n, int) for n in x.shape):
        return None
    recorded = x.meta.get(READING) is not None
    return shape_of(x) if recorded or (x.producer() is None and x.const_value is None) else None


def constant_numbers(x: Any) -> np.ndarray | None:
    """The numbers of a constant; None for other values."""
    node = made_by(x, "Constant")
    value = node.attributes.get("value") if node is not None else None
    held = value.as_tensor() if value is not None else None if x is None else x.const_value
    return None if held is None else held.numpy()


def is_constant(x: Any, number: float) -> bool:
    """Whether an operand is a constant scalar of that value."""
    if x is None or isinstance(x, ir.Value):
        return False
    return np.size(x) == 1 and bool(np.all(x == number))


def tracked_entries(x: Array) -> tuple[Number, ...] | None:
    """The numbers of an integer tensor, or None if they are not tracked."""
    if isinstance(x, ir.Value) and x.const_value is not None:
        return tuple(x.const_value.numpy().tolist())
    held = x.meta.get(CONTENT) if isinstance(x, ir.Value) else x
    return None if held is None else tuple(map(whole, np.ravel(held)))


def places_differ(places: tuple[Any, ...], n: int) -> bool:
    """Whether all places on an axis of length n differ; negative ones count from the end."""
    return len({place % n for place in places}) == len(places)


# -- all recordings --------------------------------------------------------------------------------


@rewrites("Identity")
def _identity(op: Op, x: Array) -> Array:
    """A value needs no second name."""
    return x


@rewrites("Concat")
def _concat(op: Op, *parts: Array, axis: int) -> Array | None:
    """One part is the whole."""
    return parts[0] if len(parts) == 1 else None


def _unrepeated(name: str) -> Rule:
    def rule(op: Op, x: Array, y: Array) -> Array | None:
        """An operand is taken as it was before an Expand to the shape of the other one."""
        for k, (one, other) in enumerate(((x, y), (y, x))):
            node, shape = made_by(one, "Expand"), shape_of(one)
            if node is not None and same(shape_of(other)[-len(shape) :], shape):
                before = node.inputs[0]
                return getattr(op, name)(*((before, other) if k == 0 else (other, before)))
        return None

    return rule


for _name in ("Add", "Sub", "Mul", "Div"):
    rewrites(_name)(_unrepeated(_name))


@rewrites("CastLike")
def _cast_like(op: Op, x: Array, like: Array, **attrs: Any) -> Array:
    """The type is known, and `like` need not be there."""
    target = dtype_of(like)
    if not isinstance(x, ir.Value):
        return np.asarray(x, target)
    return op.Cast(x, to=int(ir.DataType.from_numpy(target)), **attrs)


@rewrites("Cast")
def _cast(op: Op, x: Array, to: int, **attrs: Any) -> Array | None:
    """A value may have the type already."""
    return x if dtype_of(x) == ir.DataType(to).numpy() else None


def _squeezed(name: str) -> Rule:
    def rule(op: Op, x: Array, *scalars: Array, **attrs: Any) -> Array | None:
        """Axes of length 1 are dropped last, since others may need them."""
        node = made_by(x, "Squeeze")
        if node is None or len(node.inputs) < 2 or any(shape_of(y) for y in scalars):
            return None
        return op.Squeeze(getattr(op, name)(node.inputs[0], *scalars, **attrs), node.inputs[1])

    return rule


for _name in ("Cast", "Not", "Greater"):
    rewrites(_name)(_squeezed(_name))


@rewrites("Unsqueeze")
def _unsqueeze(op: Op, x: Array, axes: Array) -> Array | None:
    """An axis need not be dropped where it comes back."""
    node = made_by(x, "Squeeze")
    back = node is not None and len(node.inputs) > 1 and tracked_entries(node.inputs[1])
    return node.inputs[0] if node is not None and back == tracked_entries(axes) else None


@rewrites("Reshape")
def _reshape(op: Op, x: Array, shape: Array, **attrs: Any) -> Array | None:
    """Only the last shape counts, with its numbers spelt out."""
    asked = tracked_entries(shape)
    if asked is None:
        return None
    target = resolved(asked, shape_of(x))
    if same(target, shape_of(x)):
        return x
    before = made_by(x, "Reshape") or made_by(x, "Squeeze")
    if before is not None:
        return op.Reshape(before.inputs[0], target)
    may_be_empty = is_symbolic(target) or 0 in target
    if may_be_empty and not attrs.get("allowzero"):  # 0 is an empty axis, not a copied size
        return op.Reshape(x, target, allowzero=1)
    return None if same(target, asked) else op.Reshape(x, target, **attrs)


def resolved(target: Shape, shape: Shape) -> Shape:
    """A target shape with -1 spelt out.

    >>> resolved((-1, 2), (3, 4))
    (6, 2)
    """
    known = largest(math.prod(n for n in target if not same(n, -1)), 1)
    return tuple(quotient(math.prod(shape), known) if same(n, -1) else n for n in target)


@rewrites("Transpose")
def _transpose(op: Any, x: Array, perm: Any = None) -> Array | None:
    """Only the last order counts; in a product, axes of size 1 move without a copy."""
    shape = shape_of(x)
    perm = tuple(reversed(range(len(shape)))) if perm is None else tuple(perm)
    if perm == tuple(range(len(perm))):
        return x
    moved = [k for k in perm if op.is_model or not same(shape[k], 1)]
    if moved == sorted(moved):
        return op.Reshape(x, tuple(shape[k] for k in perm))
    before = made_by(x, "Transpose")
    if before is None:
        return None
    held = before.attributes.get("perm")  # reversed axes by default
    first = tuple(reversed(range(len(perm)))) if held is None else held.as_ints()
    return op.Transpose(before.inputs[0], perm=tuple(first[k] for k in perm))


@rewrites("Expand")
def _expand(op: Op, x: Array, shape: Array) -> Array | None:
    """A value may have the shape already."""
    sizes = tracked_entries(shape)
    return x if sizes is not None and same(sizes, shape_of(x)) else None


@rewrites("Pad")
def _pad(
    op: Op, x: Array, pads: Array, value: Any = None, axes: Array | None = None, **attrs: Any
) -> Array | None:
    """Pads for all axes: ONNX Runtime 1.31 misreads a subset of axes after a Transpose."""
    held = tracked_entries(axes) if axes is not None else None
    sizes = tracked_entries(pads)
    if held is None or sizes is None:
        return None
    rank, count = len(shape_of(x)), len(held)
    full = [0] * (2 * rank)
    for k, axis in enumerate(held):
        full[axis % rank], full[rank + axis % rank] = sizes[k], sizes[count + k]
    return op.Pad(x, tuple(full), value, **attrs)


WINDOWED = {"Conv": 1, "ConvInteger": 1, "QLinearConv": 3,
            "MaxPool": 0, "AveragePool": 0, "LpPool": 0}  # fmt: skip
"""Operators with windows over their first operand -> the operand that may have their shape."""


def _with_pads(name: str) -> Rule:
    def rule(op: Op, *inputs: Array, auto_pad: str = "", **attrs: Any) -> Any:
        """Pads for `auto_pad`: ONNX Runtime 1.32 pads dilated windows too little, or refuses them.

        It crops inputs where strides exceed the windows. Pads that free sizes change stay open.
        """
        if not auto_pad.startswith("SAME"):
            return None
        space, told = shape_of(inputs[0])[2:], given_attributes(attrs, "dilations", "strides")
        kernel = attrs.get("kernel_shape") or shape_of(inputs[WINDOWED[name]])[2:]
        grid = windows(at(space), kernel, auto_pad=auto_pad, **told)
        plain = max(grid.dilations) == 1 and all(map(int.__le__, grid.strides, kernel))
        moving = any(is_symbolic(n) and s > 1 for n, s in zip(space, grid.strides, strict=True))
        attrs |= {"ceil_mode": None, "pads": (*grid.begins, *grid.ends)}
        return None if plain or moving else getattr(op, name)(*inputs, **attrs)

    return rule


for _name in WINDOWED:
    rewrites(_name)(rewrites(_name, engine=COPIES)(_with_pads(_name)))


@rewrites("Mul")
def _mul(op: Op, x: Array, y: Array) -> Array | None:
    """1 x = x."""
    for kept, other in ((x, y), (y, x)):
        if is_constant(other, 1) and np.ndim(other) <= len(shape_of(kept)):
            return kept
    return None


@rewrites("MatMul")
def _equal_rows(op: Op, a: Array, b: Array) -> Array | None:
    """Equal rows of a matrix, such as a tangent of all samples, are multiplied once."""
    node, shape = made_by(a, "Expand"), shape_of(a)
    if len(shape) < 2 or len(shape_of(b)) != 2:
        return None
    row: Any = node.inputs[0] if node is not None else None
    if isinstance(a, np.ndarray):
        row = a[..., :1, :] if a.shape[-2] > 1 and not a.strides[-2] else None
    if row is None or shape_of(row)[-2:-1] != (1,) or not same(shape_of(row)[-1], shape[-1]):
        return None
    if same(shape[-2], 1):
        return None
    return op.Expand(op.MatMul(row, b), (*shape[:-1], shape_of(b)[-1]))


@rewrites("Div")
def _div(op: Op, x: Array, y: Array) -> Array | None:
    """x / 1 = x."""
    return x if is_constant(y, 1) and np.ndim(y) <= len(shape_of(x)) else None


@rewrites("Neg")
def _neg(op: Op, x: Array) -> Array | None:
    """-(-x) = x."""
    before = made_by(x, "Neg")
    return None if before is None else before.inputs[0]


@rewrites("Add")
def _add(op: Op, x: Array, y: Array) -> Array | None:
    """x + (-y) = x - y."""
    if (before := made_by(y, "Neg")) is not None:
        return op.Sub(x, before.inputs[0])
    before = made_by(x, "Neg")
    return None if before is None else op.Sub(y, before.inputs[0])


def _side_by_side(op: Op, *parts: Array) -> Array | None:
    """Tensors padded with zeros to lie side by side are joined, as tangents of Concat are."""
    inner, starts, axes = list[Array](), list[tuple[Number, ...]](), set[int]()
    for part in parts:
        node = made_by(part, "Pad")
        pads = tracked_entries(node.inputs[1]) if node is not None else None
        if node is None or pads is None or "mode" in node.attributes or any(node.inputs[2:]):
            return None
        rank = len(pads) // 2
        axes |= {k % rank for k, n in enumerate(pads) if not same(n, 0)}
        inner, starts = [*inner, node.inputs[0]], [*starts, pads[:rank]]
    if len(axes) != 1:
        return None
    (axis,) = axes
    first = [start[axis] for start in starts]
    if is_symbolic(first):
        return None
    order, end = sorted(range(len(parts)), key=lambda k: first[k]), 0
    for k in order:
        if not same(first[k], end):
            return None
        end = first[k] + shape_of(inner[k])[axis]
    whole = same(end, shape_of(parts[0])[axis])
    return op.Concat(*(inner[k] for k in order), axis=axis) if whole else None


for _name in ("Sum", "Add"):
    rewrites(_name)(_side_by_side)


@rewrites("Sub")
def _sub(op: Op, x: Array, y: Array) -> Array | None:
    """x - (-y) = x + y."""
    before = made_by(y, "Neg")
    return None if before is None else op.Add(x, before.inputs[0])


@rewrites("Greater")
def _greater(op: Op, x: Array, y: Array) -> Array | None:
    """A condition as a number is above 0 where it holds."""
    node = made_by(x, "Cast")
    if node is None or not is_constant(y, 0) or np.ndim(y) > len(shape_of(x)):
        return None
    condition = node.inputs[0]
    return condition if dtype_of(condition).kind == "b" else None


@rewrites("Gather")
def _gather(op: Any, x: Array, index: Array, axis: int = 0) -> Array | None:
    """GatherElements takes a fifth of the time of ONNX Runtime's Gather for rows of one number.

    ONNX's reference evaluator, which may run a model, cannot gather more than 64 elements.
    """
    shape = shape_of(index)
    if op.is_model or len(shape_of(x)) != 1 or not shape or dtype_of(x).kind != "f":
        return None
    return op.Reshape(op.GatherElements(x, op.Reshape(index, (size(shape),)), axis=0), shape)


@rewrites("ScatterND")
def _scatter_nd(
    op: Any, x: Array, index: Array, updates: Array, reduction: str = "none"
) -> Array | None:
    """ONNX Runtime reduces rows of ScatterND in concurrent threads, which lose some updates.

    ScatterElements instead, where places may repeat.
    """
    shape, depth = shape_of(x), shape_of(index)[-1]
    if reduction == "none" or not op.is_model:
        return None
    if depth != 1:
        sizes, rest = shape[:depth], shape[depth:]
        places = op.Where(op.Less(index, 0), op.Add(index, sizes), index)
        strides = tuple(size(sizes[k + 1 :]) for k in range(depth))
        index = op.ReduceSum(op.Mul(places, strides), (-1,), keepdims=1)
        flat = op.Reshape(x, (size(sizes), *rest))
        return op.Reshape(op.ScatterND(flat, index, updates, reduction=reduction), shape)
    places = tracked_entries(index)
    if places and not is_symbolic((*places, shape[0])) and places_differ(places, shape[0]):
        return None
    rows, rest = size(shape_of(index)), shape[1:]
    column = op.Reshape(index, (rows, *(1 for _ in rest)))
    whole = (rows, *rest)
    return op.ScatterElements(
        x, op.Expand(column, whole), op.Reshape(updates, whole), axis=0, reduction=reduction
    )


# -- ONNX Runtime ----------------------------------------------------------------------------------

STREAMED_BYTES = 1 << 22
"""Bytes of a constant that does not stay in a core's cache from product to product."""

DOMINANT_RATIO = 8
"""How many times larger than the other factor a constant is that dominates the time."""

PACKING_ROWS = 32
"""The number of rows that repay packing the other factor."""

SUMMED_ENTRIES = 1024
"""A sum of so few numbers takes no longer than a product with ones."""

FLOATS = (np.float32, np.float64)


@rewrites("MatMul", engine=PRODUCTS)
def _as_left_factor(op: Any, a: ir.Value, c: ir.Value) -> ir.Value | None:
    """A large constant on the right is read from memory in a packed copy, on the left in place.

    A C = (Cᵀ Aᵀ)ᵀ if C is large: a constant, or the transpose of a computed matrix.
    """
    if not is_one_matrix(a) or not is_one_matrix(c):
        return None
    turned = transpose_behind(c)
    (m, k), n = shape_of(a)[-2:], shape_of(c)[-1]
    held = constant_numbers(c if turned is None else turned)
    long = turned is not None and k >= n >= DOMINANT_RATIO * m
    long &= held is None or k >= DOMINANT_RATIO * n
    if not long and (held is None or not dominates(held, m, k, n)):
        return None
    if turned is None:
        assert held is not None
        left = op.initializer(held.reshape(k, n).T)
    else:
        left = op.Reshape(turned, (n, k))
    made = op.MatMul(left, op.Transpose(op.Reshape(a, (m, k)), perm=(1, 0)))
    return op.Reshape(op.Transpose(made, perm=(1, 0)), (*shape_of(a)[:-1], n))


@rewrites("MatMul", engine=PRODUCTS, after=(1, "Transpose"))
def _stack_in_place(op: Any, a: ir.Value, c: ir.Value) -> ir.Value | None:
    """A C = (Cᵀ Aᵀ)ᵀ, which reads the stored stack Cᵀ, while C would be written at every run."""
    turned = transpose_behind(c)
    if turned is None or not is_read_in_place(turned, a, axis=-2):
        return None
    return turn_matrices(op, op.MatMul(turned, turn_matrices(op, a)))


@rewrites("MatMul", engine=PRODUCTS, after=(0, "Transpose"))
def _left_stack_in_place(op: Any, a: ir.Value, c: ir.Value) -> ir.Value | None:
    """A C = (Cᵀ Aᵀ)ᵀ, which reads the stored stack Aᵀ."""
    turned = transpose_behind(a)
    if turned is None or not is_read_in_place(turned, c, axis=-1):
        return None
    return turn_matrices(op, op.MatMul(turn_matrices(op, c), turned))


def is_read_in_place(stack: ir.Value, x: ir.Value, axis: int) -> bool:
    """Whether to turn x, whose number of vectors is the length of an axis, and the product takes
    fewer entries than to turn a large stack.
    """
    held, rank = constant_numbers(stack), rank_of(x)
    if held is None or held.ndim < 3 or held.nbytes < STREAMED_BYTES or rank is None or rank < 2:
        return False
    (m, n), vectors = held.shape[-2:], shape_of(x)[axis]
    return not is_one_matrix(stack) and vectors * (m + n) < m * n


def turn_matrices(op: Any, x: ir.Value) -> ir.Value:
    """The transposes of the matrices in a stack."""
    *lead, i, j = range(len(shape_of(x)))
    made: ir.Value = op.Transpose(x, perm=(*lead, j, i))
    return made


@rewrites("MatMul", engine=RUNTIME, after=(1, "Transpose"))
def _reads_in_place(op: Any, a: ir.Value, c: ir.Value) -> ir.Value | None:
    """Gemm reads a large transposed constant in place; a Transpose would write it at every run."""
    turned, rank = transpose_behind(c), rank_of(a)
    held = constant_numbers(turned)
    if turned is None or held is None or not is_one_matrix(turned) or held.nbytes < STREAMED_BYTES:
        return None
    if held.dtype not in FLOATS or rank is None or rank < held.ndim or (rank != 2 and op.is_model):
        return None
    if rank == 2:  # whatever its sizes are
        return emit_untyped(op, "Gemm", (a, turned), transB=1)
    n, k = held.shape[-2:]
    made = op.Gemm(op.Reshape(a, (size(shape_of(a)) // k, k)), op.Reshape(turned, (n, k)), transB=1)
    return op.Reshape(made, (*shape_of(a)[:-1], n))


def is_one_matrix(x: ir.Value) -> bool:
    """Whether a value is a matrix, up to leading axes of size 1."""
    shape = shape_of(x)
    return len(shape) > 1 and size(shape) == size(shape[-2:])


def dominates(held: np.ndarray, m: int, k: int, n: int) -> bool:
    """Whether C (k, n) is so large, and A (m, k) so small, that reading C dominates the time.

    Products with very few rows pack nothing; many rows repay the packing.
    """
    few = DOMINANT_RATIO <= m <= PACKING_ROWS
    return few and held.nbytes >= STREAMED_BYTES and held.size >= DOMINANT_RATIO * m * max(k, n)


@rewrites("ScatterND", engine=PRODUCTS)
def _single_numbers(
    op: Any, zeros: ir.Value, index: ir.Value, x: ir.Value, reduction: str = "none"
) -> ir.Value | None:  # fmt: skip
    """ScatterND copies row by row: other operators put single numbers in a fraction of the time.

    MaxUnpool, or ScatterElements where numbers are summed.
    """
    (n, *row), (rows, *depth) = shape_of(zeros), shape_of(index)
    if row != [1] or depth != [1]:
        return None
    held = constant_numbers(index)
    once = reduction == "none" or (
        held is not None and places_differ(tuple(held.ravel().tolist()), n)
    )
    if not once or not is_float32_zero(zeros):
        return op.ScatterElements(zeros, index, x, reduction=reduction)
    line = (1, 1, 1, rows)
    places = op.Reshape(index, line) if held is None else (held + n * (held < 0)).reshape(line)
    operands = op.Reshape(x, line), places, np.array([1, 1, 1, n])
    (made,) = op.emit("MaxUnpool", operands, {"kernel_shape": (1, 1)},
                      [((1, 1, 1, n), dtype_of(x))])  # fmt: skip
    return op.Reshape(made, (n, 1))


def is_float32_zero(value: ir.Value) -> bool:
    """Whether a value is known to be zeros of float32, the dtype that MaxUnpool supports."""
    node = made_by(value, "Expand")
    held = constant_numbers(value if node is None else node.inputs[0])
    return held is not None and held.dtype == np.float32 and not held.any()


@rewrites("ReduceSum", engine=RUNTIME)
def _by_ones(
    op: Any, x: ir.Value, axes: ir.Value | None = None, keepdims: int = 1, **attrs: Any
) -> ir.Value | None:
    """A sum over leading axes takes 0.1 to 0.5 of the time as a product with ones."""
    shape, held = certain(x), constant_numbers(axes)
    if shape is None or held is None or dtype_of(x) not in FLOATS:
        return None
    first = sorted(axis + len(shape) * (axis < 0) for axis in held.flat)
    rows, columns = size(shape[: len(first)]), size(shape[len(first) :])
    if first != [*range(len(first))] or rows < 2 or columns < 2 or rows * columns <= SUMMED_ENTRIES:
        return None
    ones = op.initializer(np.ones(rows, dtype_of(x)))
    made = op.MatMul(ones, op.Reshape(x, (rows, columns)))
    return op.Reshape(made, (*(1,) * len(first) * keepdims, *shape[len(first) :]))


def emit_untyped(op: Any, op_type: str, operands: tuple[ir.Value, ...], **attrs: Any) -> ir.Value:
    """The result of a new node, whose shape is not inferred."""
    y = ir.Value()
    attributes = ir.convenience.convert_attributes(attrs)
    op.nodes.append(ir.Node("", op_type, operands, attributes, outputs=[y]))
    return y
