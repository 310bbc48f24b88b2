"""Scan: a loop over the entries of tensors, recorded as one Scan node or unrolled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...jacobians import Array, dtype_of, shape_of
from ...jacobians.symint import at
from .build import body_of
from .recorder import Recorder
from .twin import Twin

Arrays = tuple[Array, ...]
Turn = Callable[[Arrays, Arrays], tuple[Arrays, Array]]
"""turn(state, slices): the new state, and a row of the output."""


def keeps(op: Any) -> bool:
    """Whether a loop in a definition becomes a Scan in this reading, instead of being unrolled."""
    return isinstance(op, Recorder) or (isinstance(op, Twin) and op.keeps)


def kept(op: Any, op_type: str, *inputs: Any, outputs: int, **attrs: Any) -> Arrays:
    """The outputs of an operator that has a definition, computed by the operator itself."""
    recorder = op.recorder if isinstance(op, Twin) else op
    made = recorder.call(op_type, *inputs, outputs=outputs, **attrs)
    fake(op, made)
    return tuple(made)


def scan(
    op: Any, turn: Turn, state: Arrays, series: Arrays, *, backward: bool
) -> tuple[Arrays, Array]:
    """The final state, and the rows of all iterations in the order of the entries.

    Iterations run over the first axis of the series, from its end if `backward`.
    """
    if not keeps(op):
        return unrolled(op, turn, state, series, backward)
    recorder = op.recorder if isinstance(op, Twin) else op
    given = [*map(recorder.value, (*state, *series))]
    types = [(shape_of(x)[k >= len(state) :], dtype_of(x)) for k, x in enumerate(given)]
    with recorder.body():
        formals = tuple(recorder.new(*kind) for kind in types)
        fake(op, formals)
        fresh, row = turn(formals[: len(state)], formals[len(state) :])
        graph = body_of(recorder, formals, [*fresh, row], "turn")
    turns = shape_of(given[len(state)])[0]
    back = [int(backward)]
    attrs = {
        "body": graph, "num_scan_inputs": len(series),
        "scan_input_directions": back * len(series), "scan_output_directions": back,
    }  # fmt: skip
    types[len(state) :] = [((turns, *shape_of(row)), dtype_of(row))]
    made = recorder.emit("Scan", given, attrs, types)
    fake(op, made)
    return tuple(made[:-1]), made[-1]


def unrolled(
    op: Any, turn: Turn, state: Arrays, series: Arrays, backward: bool
) -> tuple[Arrays, Array]:
    """The same results, iteration by iteration."""
    turns, rows = int(shape_of(series[0])[0]), {}
    for t in reversed(range(turns)) if backward else range(turns):
        state, rows[t] = turn(state, tuple(op.Gather(x, t, axis=0) for x in series))
    return state, op.Concat(*(op.Unsqueeze(rows[t], (0,)) for t in range(turns)), axis=0)


def fake(op: Any, values: Sequence[Any]) -> None:
    """Set the numbers of values to zeros, in a reading that computes with numbers."""
    if isinstance(op, Twin):
        op.faked = True
        for value in values:
            op.remember(value, np.zeros(at(shape_of(value)), dtype_of(value)))
