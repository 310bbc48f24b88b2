"""Control flow by NumPy: If, Loop and Scan run their bodies as graphs of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import numpy as np
import onnx_ir as ir

from ...ops.node import Step

FLOAT = ir.DataType.FLOAT
Run = Callable[[ir.Graph, Sequence[Any]], list[Any]]
"""run(graph, arguments): the outputs of a subgraph."""


def branch(step: Step, inputs: Sequence[Any], run: Run) -> list[Any]:
    """If: one of two graphs without arguments."""
    return run(step.attrs["then_branch" if np.all(inputs[0]) else "else_branch"], ())


def loop(step: Step, inputs: Sequence[Any], run: Run) -> list[Any]:
    """Loop: body(i, go, *state) -> (go, *state, *rows) while go, at most so many times."""
    body = step.attrs["body"]
    limit, go, *state = (*inputs, None) if len(inputs) < 2 else inputs
    carried, rows = len(state), []
    for i in count() if limit is None else range(int(np.ravel(limit)[0])):
        if go is not None and not np.all(go):
            break
        go, *results = run(body, (np.int64(i), np.bool_(True), *state))
        state = results[:carried]
        rows.append(results[carried:])
    return [*state, *_stack(rows, body.outputs[1 + carried :])]


def scan(step: Step, inputs: Sequence[Any], run: Run) -> list[Any]:
    """Scan: body(*state, *slices) -> (*state, *rows) over slices of the last inputs."""
    body, width = step.attrs["body"], step.attrs["num_scan_inputs"]
    carried = len(inputs) - width
    state, series = list(inputs[:carried]), _series(step, inputs[carried:])
    rows = []
    for slices in zip(*series, strict=True):
        results = run(body, (*state, *slices))
        state = results[:carried]
        rows.append(results[carried:])
    return [*state, *_unseries(step, _stack(rows, body.outputs[carried:]))]


def _series(step: Step, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Every scanned input with its scanned axis first, in the direction it is read."""
    axes = step.attrs.get("scan_input_axes", (0,) * len(inputs))
    back = step.attrs.get("scan_input_directions", (0,) * len(inputs))
    moved = [np.moveaxis(x, axis, 0) for x, axis in zip(inputs, axes, strict=True)]
    return [x[::-1] if b else x for x, b in zip(moved, back, strict=True)]


def _unseries(step: Step, outputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    axes = step.attrs.get("scan_output_axes", (0,) * len(outputs))
    back = step.attrs.get("scan_output_directions", (0,) * len(outputs))
    read = [x[::-1] if b else x for x, b in zip(outputs, back, strict=True)]
    return [np.moveaxis(x, 0, axis) for x, axis in zip(read, axes, strict=True)]


def _stack(rows: Sequence[Sequence[Any]], declared: Sequence[ir.Value]) -> list[np.ndarray]:
    """The results of all turns, one array for each output; without turns, an empty one."""
    if rows:
        return [np.stack(column) for column in zip(*rows, strict=True)]
    return [np.empty((0, *_sizes(value)), (value.dtype or FLOAT).numpy()) for value in declared]


def _sizes(value: ir.Value) -> list[int]:
    return [dim if isinstance(dim, int) else 0 for dim in value.shape or ()]


CONTROL: dict[str, Callable[[Step, Sequence[Any], Run], list[Any]]] = {
    "If": branch,
    "Loop": loop,
    "Scan": scan,
}
