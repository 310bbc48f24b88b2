"""Weights: where the model uses a weight as a matrix, by the structure of its Jacobian.

Whatever the node type, the Jacobian ∂Y/∂W of the first tensor Y computed from a weight W is a
selection and reordering of W, then a contraction with some X that does not depend on W, then a
reordering. The labels of the contraction define the layer:

| label in | X | W | Y | meaning |
|---|---|---|---|---|
| | ✓ | | ✓ | a row r: sample or position |
| | ✓ | ✓ | | an input i |
| | | ✓ | ✓ | an output o |
| | ✓ | ✓ | ✓ | a group g: groups are not coupled |

So Y[g, r, o] = Σᵢ X[g, r, i] W[g, i, o]: MatMul, Gemm, convolutions by patches, any einsum. A bias
has X = 1 and no inputs, an elementwise scale has groups but no inputs and outputs. A weight that
occurs several times has several uses. In a matrix that is assembled from several weights (Concat),
or from a weight and constants (Pad), each weight is a part.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, takewhile
from math import prod
from string import ascii_letters

import numpy as np
import onnx

from ...jacobians import (
    Broadcast,
    Cast,
    Contraction,
    Convolution,
    Dag,
    Diagonal,
    Edge,
    Embed,
    Identity,
    Jacobian,
    Permutation,
    Reshape,
    Scalar,
    Scatter,
    Slice,
    Take,
    reading,
    shape_of,
    size,
)
from ...jacobians.arrays import Array, host, reading_of
from ...jacobians.base import DENSE_LIMIT
from ...jacobians.contraction import EINSUMS, as_contraction
from ...jacobians.errors import LimitError, UnsupportedOp
from ...jacobians.products import factors_of
from ...jacobians.readings import module_of
from ...ops import Step
from ..linear.linearization import Linearization
from ..model.flow.steps import SHAPES

STILL = Identity, Reshape, Permutation, Cast
"""Operators that keep every entry."""

MOVES = *STILL, Scalar
"""Operators that keep every entry up to a factor."""


def uses(J: Linearization) -> list[Use]:
    """All uses of the tensors of the domain; raises `UnsupportedOp` if one is not a matrix."""
    dag, passing, leaving = J.there, passing_edges(J), defaultdict[int, list[Edge]](list)
    for edge in dag.edges:
        leaving[edge.start].append(edge)
    found = chain.from_iterable(
        _uses(dag, leaving, passing, source, Identity(dag.shapes[source], J.dtype), 1.0, spec.name)
        for spec, source in zip(J.domain, dag.sources, strict=True)
    )
    held = (use for use in found if size(use.start.out_shape))  # else no entry of W is used
    return [replace(use, number=k) for k, use in enumerate(held)]


def _uses(
    dag: Dag, leaving: Mapping[int, list[Edge]], passing: set[int], vertex: int, start: Jacobian,
    gain: float, name: str,
) -> Iterator[Use]:  # fmt: skip
    if vertex in dag.sinks:  # W is `at`, or only moves on its way there
        use = as_use((), name, start)
        made = replace(use, vertex=vertex, x=use.x * gain, name=name)
        yield restricted(made, name, start)
    for edge in leaving[vertex]:
        steps = factors_of(edge.operator)[::-1]
        passes = id(edge.operator) in passing
        middle = core_of(steps, passes)
        begun = apply_factors(start, steps[: middle[0]] if middle else steps)
        total = gain * prod(f.factor for f in steps if isinstance(f, Scalar))
        if not middle and passes:
            yield from _uses(dag, leaving, passing, edge.end, begun, total, name)
            continue
        after = middle[-1] + 1 if middle else len(steps)
        core, begun = scaled_last(steps[middle[0] : after] if middle else (), begun)
        if not all(isinstance(f, MOVES) for f in steps[after:]):
            raise unstructured(name, edge.operator)
        use = as_use(core, name, begun)
        end = apply_factors(Identity(use.rows.in_shape, dag.dtype), steps[after:])
        bias = all(isinstance(f, Broadcast) for f in core)
        x = use.x if total == 1 else use.x * total
        made = Use(edge.end, use.start, x, use.rows @ end.T, bias, name)
        yield restricted(made, name, edge.operator)


def scaled_last(
    core: tuple[Jacobian, ...], start: Jacobian
) -> tuple[tuple[Jacobian, ...], Jacobian]:  # fmt: skip
    """repeat · moves · diag(d) as diag(repeated d) · repeat, with the moves in the start."""
    if not core or not isinstance(first := core[0], Diagonal):
        return core, start
    moves = tuple(takewhile(lambda f: isinstance(f, MOVES), core[1:]))
    repeat, *others = core[1 + len(moves) :] or (first,)
    if not isinstance(repeat, Broadcast):
        return core, start
    lift = apply_factors(Identity(first.out_shape, first.dtype), (*moves, repeat))
    scale: Jacobian = Diagonal((lift @ first._diagonal()).reshape(repeat.out_shape))
    if others and isinstance(others[0], Diagonal):
        scale = others.pop(0) @ scale
    return (repeat, scale, *others), apply_factors(start, moves)


def core_of(steps: tuple[Jacobian, ...], passes: bool) -> list[int]:
    """The positions of the factors that do more than move entries.

    The factors include lookups of rows by data, even if no row is looked up twice.
    """
    found = [k for k, f in enumerate(steps) if not picks(f)]
    if not found and not passes:
        return [k for k, f in enumerate(steps) if isinstance(f, Take)]
    return found


def picks(operator: Jacobian) -> bool:
    """Whether an operator selects and moves entries, without repeating or adding any."""
    if isinstance(operator, Take | Scatter):
        index = operator.index
        return index.ndim < 2 and len(module_of(index).unique(index)) == size(shape_of(index))
    return isinstance(operator, (*MOVES, Slice, Embed))


def passing_edges(J: Linearization) -> set[int]:
    """The ids of operators whose steps only move their input, or do not depend on data."""
    fixed = without_data(J)
    return {
        id(operator)
        for entry in J.at.entries
        for still in [fixed.issuperset(filter(None, entry.step.inputs))]
        for (_, i), operator in entry.blocks.items()
        if still or (
            passes_on(entry.step, i) and not any(isinstance(f, Take) for f in factors_of(operator))
        )
    }


def without_data(J: Linearization) -> set[str]:
    """The tensors that depend on weights, constants and shapes, and on no other input."""
    model = J.route.model
    found = set(model.initializers) | {spec.name for spec in J.domain}
    for step in model.steps:
        if step.op_type in SHAPES or found.issuperset(filter(None, step.inputs)):
            found.update(filter(None, step.outputs))
    return found


def passes_on(step: Step, i: int) -> bool:
    """Whether a step only moves input i: no other input has the same type variable."""
    try:
        schema = onnx.defs.get_schema(step.op_type, step.version, step.domain)
    except onnx.defs.SchemaError:
        return False
    formal = schema.inputs
    given = step.inputs[: len(formal) + 1]  # two of a variadic input are enough
    kinds = [formal[min(k, len(formal) - 1)].type_str for k, name in enumerate(given) if name]
    return kinds.count(formal[min(i, len(formal) - 1)].type_str) == 1


def apply_factors(start: Jacobian, factors: tuple[Jacobian, ...]) -> Jacobian:
    """The factors applied after `start`, in order, without scalars."""
    for factor in factors:
        start = start if isinstance(factor, Scalar) else factor @ start
    return start


@dataclass(frozen=True, repr=False, eq=False)
class Use:
    """Y = rowsᵀ(X · start(W)), with X of shape (g, rows, i), at a vertex of the DAG.

    `start` takes W to (g, i, o), and `rows` takes Y to (g, rows, o). A `bias` multiplies no data:
    its X is the same number everywhere. `name` is W's name, `number` counts the uses of all
    weights.
    """

    vertex: int
    start: Jacobian
    x: np.ndarray
    rows: Jacobian
    bias: bool = False
    name: str = ""
    number: int = -1


def as_use(core: tuple[Jacobian, ...], name: str, start: Jacobian) -> Use:
    """The use of a weight by the operators in the middle of an edge."""
    match core:
        case (Convolution(source="w") as kernel,):
            return convolution(kernel, start)
        case (Broadcast() as repeat, *others) if len(others) < 2:
            (operator,) = others or [Identity(repeat.out_shape, repeat.dtype)]
            if isinstance(operator, (*EINSUMS, Identity)):
                return as_matrix_use(after_broadcast(as_einsum(operator), repeat), start)
        case (Take() as rows,):
            return as_matrix_use(lookup_use(rows), start)
        case (operator,) if isinstance(operator, EINSUMS):
            return as_matrix_use(as_einsum(operator), start)
        case ():
            return as_matrix_use(as_einsum(Identity(start.out_shape, start.dtype)), start)
    raise unstructured(name, core[0])


def unstructured(name: str, operator: Jacobian) -> UnsupportedOp:
    """The error for a weight that is not used as a matrix."""
    return UnsupportedOp(
        f"{name!r} meets the model through {operator!r}, which is no Kronecker product: leave it "
        f"out of wrt=, or take gauss_newton or fisher, which need no such structure"
    )


def restricted(use: Use, name: str, operator: Jacobian) -> Use:
    """The use without the groups, inputs and outputs of its matrix that hold no entry of W."""
    if all(isinstance(f, MOVES) for f in factors_of(use.start)):
        return use
    shape = use.start.out_shape
    held = (use.start @ np.ones(use.start.shape[1], use.start.dtype)).reshape(shape) != 0
    if held.all():
        return use
    kept = [np.flatnonzero(held.any(axis=tuple({0, 1, 2} - {k}))) for k in range(3)]
    if not held[np.ix_(*kept)].all():
        raise unstructured(name, operator)
    groups, ins, outs = kept
    start, rows = use.start, use.rows
    for axis, index in enumerate(kept):
        start = Take(index, axis, start.out_shape, start.dtype) @ start
    for axis, index in ((0, groups), (2, outs)):
        rows = Take(index, axis, rows.out_shape, rows.dtype) @ rows
    return replace(use, start=start, x=use.x[groups][..., ins], rows=rows)


def as_matrix_use(c: Contraction, start: Jacobian) -> Use:
    """The use by a contraction, with labels sorted into groups, rows, inputs and outputs."""
    held = {label for _, term in c.factors for label in term}
    rows = [k for k in c.out_term if k in held and k not in c.in_term]
    groups = [k for k in c.out_term if k in held and k in c.in_term]
    ins = [k for k in c.in_term if k not in c.out_term]
    outs = [k for k in c.in_term if k in c.out_term and k not in held]
    g, r, i, o = (prod(c.sizes[k] for k in part) for part in (groups, rows, ins, outs))
    terms = ",".join(term for _, term in c.factors)
    arrays = [a for a, _ in c.factors]
    op = reading_of(*arrays)
    x = op.Einsum(*arrays, equation=f"{terms}->{''.join(groups + rows + ins)}")
    inner = tuple(c.sizes[k] for k in c.in_term)
    dtype = c.dtype
    return Use(
        -1,
        reordered(inner, c.in_term, groups + ins + outs, (g, i, o), dtype)
        @ Reshape(inner, start.out_shape, dtype) @ start,
        x.reshape(g, r, i),
        reordered(c.out_shape, c.out_term, groups + rows + outs, (g, r, o), dtype),
    )  # fmt: skip


def reordered(
    shape: tuple[int, ...], term: str, wanted: list[str], final: tuple[int, ...], dtype: np.dtype
) -> Jacobian:
    """A permutation of the axes of a tensor, followed by a reshape."""
    moved = Permutation(tuple(term.index(k) for k in wanted), shape, dtype)
    return Reshape(final, moved.out_shape, dtype) @ moved


def convolution(c: Convolution, start: Jacobian) -> Use:
    """The use of a kernel: X holds the patches that multiply an output channel of each group."""
    g, dtype = c.geometry, c.dtype
    forward = c.target == "u"  # else a transposed convolution: channels of x are the outputs
    group, (n, _, *positions) = g.group, (g.u if forward else g.x)
    m, channels = g.w[0] // group, g.w[1]
    i, o = (g.w[1:], m) if forward else ((m, *g.w[2:]), channels)
    width, room = prod(i), prod(positions)
    split, perm = ((group, m, width), (0, 2, 1)) if forward else (
        (group, m, channels, prod(g.w[2:])), (0, 1, 3, 2))  # fmt: skip
    swapped = Permutation(perm, split, dtype) @ Reshape(split, g.w, dtype)
    flat = Reshape((group, width, o), swapped.out_shape, dtype) @ swapped
    y = (n, group, o, room)
    rows = Permutation((1, 0, 3, 2), y, dtype) @ Reshape(y, c.out_shape, dtype)
    rows = Reshape((group, n * room, o), rows.out_shape, dtype) @ rows
    return Use(-1, flat @ start, patch_matrix(c), rows)


def patch_matrix(c: Convolution) -> Array:
    """(groups, samples · positions, inputs): entries of the held tensor, or 0, by a selection."""
    g, op, shape = c.geometry, reading(c.held), shape_of(c.held)
    count = (g.u if c.target == "u" else g.x)[2:]
    n, channels, axes = shape[0], shape[1] // g.group, range(len(count))
    at = np.arange(channels).reshape(-1, *(1,) * len(axes))  # (*count, channels, *taps)
    inside = np.array(True)
    for k in axes:
        position, tap = np.arange(count[k])[:, None], g.dilations[k] * np.arange(g.w[2 + k])
        reached, step = ((g.strides[k] * position + tap - g.pads[k], 1) if c.target == "u"
                         else (position + g.pads[k] - tap, g.strides[k]))  # fmt: skip
        place, rest = np.divmod(reached, step)
        met = (rest == 0) & (place >= 0) & (place < shape[2 + k])
        grid = [1] * (2 * len(axes) + 1)
        grid[k], grid[len(axes) + 1 + k] = place.shape
        at, inside = at * shape[2 + k] + place.reshape(grid), inside & met.reshape(grid)
    last = channels * prod(shape[2:])
    flat = op.Pad(op.Reshape(c.held, (n, g.group, last)), (0, 0, 0, 0, 0, 1))  # ends in a zero
    found = op.Gather(flat, np.where(inside, at, last).reshape(prod(count), -1), axis=2)
    found = op.Transpose(found, perm=(1, 0, 2, 3)) if g.group > 1 else found
    return op.Reshape(found, (g.group, n * prod(count), channels * prod(g.w[2:])))


def as_einsum(operator: Jacobian) -> Contraction:
    """The operator as a contraction whose factors vary along all of their axes."""
    if isinstance(operator, Identity):
        operator = Diagonal(np.ones((), operator.dtype), operator.out_shape)
    c = as_contraction(operator)
    factors = tuple(varying(a, term, c.sizes) for a, term in c.factors)
    return Contraction(factors, c.in_term, c.out_term, c.sizes)


def lookup_use(rows: Take) -> Contraction:
    """The lookup of rows of a table: X is a one-hot matrix of the index."""
    index, n = host(rows.index), rows.in_shape[rows.axis]
    if n * n * rows.dtype.itemsize > DENSE_LIMIT:
        raise LimitError(f"a table of {n} rows has a Kronecker factor of {n}×{n}: leave it out")
    labels, k = ascii_letters, index.ndim
    places, v, others = labels[:k], labels[k], labels[k + 1 : k + len(rows.in_shape)]
    at = len(rows.in_shape) + rows.axis
    in_term, out_term = (others[:at] + label + others[at:] for label in (v, places))
    sizes = dict(zip(in_term + out_term, rows.in_shape + rows.out_shape, strict=True))
    return Contraction(((np.eye(n, dtype=rows.dtype)[index], places + v),), in_term, out_term,
                       sizes)  # fmt: skip


def varying(a: np.ndarray, term: str, sizes: dict[str, int]) -> tuple[np.ndarray, str]:
    """A factor without its axes of length 1 that are broadcast along their label."""
    axes = tuple(k for k, label in enumerate(term) if a.shape[k] != sizes[label])
    return (a.squeeze(axes) if axes else a), "".join(k for i, k in enumerate(term) if i not in axes)


def after_broadcast(c: Contraction, repeat: Broadcast) -> Contraction:
    """The contraction of a broadcast tensor: a factor of ones has the new labels."""
    shape = (1,) * (len(repeat.out_shape) - len(repeat.in_shape)) + repeat.in_shape
    ends = zip(c.in_term, shape, repeat.out_shape, strict=True)
    kept = "".join(label for label, n, m in ends if n == m)
    new = "".join(label for label in c.in_term if label not in kept)
    ones = np.ones(tuple(c.sizes[label] for label in new), c.dtype)
    return Contraction((*c.factors, (ones, new)), kept, c.out_term, c.sizes)
