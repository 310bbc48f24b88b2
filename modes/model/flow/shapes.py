"""Shapes: the symbolic shapes of the inputs and outputs of bodies of control flow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import onnx_ir as ir

from ....jacobians import shape_of
from ....jacobians.errors import OnnxJacError
from ....jacobians.symint import Number, at, depth_of, same
from ....ops import Recorder, Step

Sizes = tuple[Number, ...]


def shape_formals(
    op: Recorder, step: Step, formals: Iterable[ir.Value], operands: Sequence[Any]
) -> None:
    """Give the inputs of a body their symbolic shapes."""
    if op.symbols is not None:
        shapes = [None if x is None else shape_of(x) for x in operands]
        for value, sizes in zip(formals, shapes_within(step, shapes), strict=False):
            if sizes is not None:
                op.shape(value, sizes)


def shape_outputs(
    op: Recorder, step: Step, graphs: Mapping[str, ir.Graph], operands: Iterable[Any],
    made: Sequence[ir.Value | None], turns: Number | None = None,
) -> None:  # fmt: skip
    """Give the outputs of a step with bodies their symbolic shapes.

    If nothing else tells the trip count, it is read off the first output stacked over iterations.
    """
    if op.symbols is None:
        return
    shapes = [None if x is None else shape_of(x) for x in operands]
    results = [[shape_of(value) for value in graph.outputs] for graph in graphs.values()]
    if step.op_type == "Scan":
        turns = turns_of_scan(step, shapes)
    elif step.op_type == "Loop" and turns is None:
        row = next(filter(None, made[max(len(shapes) - 2, 0) :]), None)
        turns = None if row is None else op.dimension(row, 0, at(shape_of(row))[0])
    found = shapes_around(step, shapes, results, turns)
    for value, sizes in zip(made, found, strict=False):
        if value is not None:
            if len(sizes) != len(shape_of(value)):
                raise OnnxJacError(f"it has no turn here, where {value.name!r} has no rows")
            op.shape(value, sizes)


def turns_of_scan(step: Step, shapes: Sequence[Any]) -> Number:
    """The trip count of a Scan with inputs of these shapes."""
    first = shapes[-step.attrs["num_scan_inputs"]]
    return first[step.attrs.get("scan_input_axes", (0,))[0]]


def shapes_within(step: Step, shapes: Sequence[Any]) -> list[Sizes | None]:
    """The shapes of the inputs of a body; None for iteration number and condition of a Loop."""
    if step.op_type == "If":
        return []
    if step.op_type == "Loop":
        return [None, None, *shapes[2:]]
    width = step.attrs["num_scan_inputs"]
    axes = step.attrs.get("scan_input_axes", (0,) * width)
    series = ((s, axis % len(s)) for s, axis in zip(shapes[-width:], axes, strict=True))
    return [*shapes[:-width], *((*s[:axis], *s[axis + 1 :]) for s, axis in series)]


def shapes_around(
    step: Step, shapes: Sequence[Any], results: Sequence[Sequence[Sizes]], turns: Any
) -> list[tuple[Any, ...]]:
    """The shapes of the outputs of a step, from the shapes of its inputs and its bodies' results.

    A size that differs between branches is None. Raises `OnnxJacError` where a state may change its
    shape between iterations.
    """
    if step.op_type == "If":
        return [*map(both, *results)]
    lost = step.op_type == "Loop"
    states = shapes[2:] if lost else shapes[: -step.attrs["num_scan_inputs"]]
    ends = results[0][lost:]
    for k, (a, b) in enumerate(zip(states, ends, strict=False)):
        if len(a) != len(b) or not all(stays(n, m) for n, m in zip(a, b, strict=True)):
            raise OnnxJacError(f"the shape of its state {k} becomes {shown(b)}, from {shown(a)}")
    rows = ends[len(states) :]
    axes = step.attrs.get("scan_output_axes", (0,) * len(rows))
    placed = ((axis % (len(row) + 1), row) for axis, row in zip(axes, rows, strict=True))
    return [*states, *((*row[:axis], turns, *row[axis:]) for axis, row in placed)]


def both(a: Sizes, b: Sizes) -> tuple[Any, ...]:
    """The shape of an output of an If, from the shapes in both branches."""
    if len(a) != len(b):
        raise OnnxJacError(f"its branches give {shown(a)} and {shown(b)}")
    return tuple(n if same(n, m) else None for n, m in zip(a, b, strict=True))


def stays(n: Any, m: Any) -> bool:
    """Whether a size is the same before and after an iteration: for certain, or decided by numbers
    that are known before the first iteration.
    """
    return same(n, m) or (depth_of(m) <= depth_of(n) and bool(n == m))


def shown(shape: Sizes) -> str:
    """A shape at the point, as text."""
    return str([*at(shape)])
