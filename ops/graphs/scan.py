"""Scan and Twin: loops over entries as one Scan node, recorded and computed at once if need be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from ...jacobians import Array, Op, dtype_of, shape_of
from ...jacobians.readings import Reading
from ...jacobians.symint import at
from ..node import SURROGATE, Step
from ..numbers import numbers
from .build import body_of, every, nested_graphs
from .recorder import Recorder

Arrays = tuple[Array, ...]
Turn = Callable[[Arrays, Arrays], tuple[Arrays, Array]]
"""turn(state, slices): the new state, and a row of the output."""


def keeps(op: Op) -> bool:
    """Whether a loop in a definition becomes a Scan in this reading, instead of being unrolled."""
    return isinstance(op, Recorder) or (isinstance(op, Twin) and op.keeps)


def recorder_behind(op: Op) -> Recorder:
    """The recorder of a reading that records."""
    recorder = op.recorder if isinstance(op, Twin) else op
    assert isinstance(recorder, Recorder)
    return recorder


def run_definition(op: Op, op_type: str, *inputs: Any, outputs: int, **attrs: Any) -> Arrays:
    """The outputs of an operator that has a definition, computed by the operator itself."""
    recorder = recorder_behind(op)
    made = recorder.call(op_type, *inputs, outputs=outputs, **attrs)
    fake(op, made)
    return tuple(made)


def scan(
    op: Op, turn: Turn, state: Arrays, series: Arrays, *, backward: bool
) -> tuple[Arrays, Array]:
    """The final state, and the rows of all iterations in the order of the entries.

    Iterations run over the first axis of the series, from its end if `backward`.
    """
    if not keeps(op):
        made = op.scanned(turn, state, series, backward)
        return made or unroll_scan(op, turn, state, series, backward)
    recorder = recorder_behind(op)
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


def unroll_scan(
    op: Op, turn: Turn, state: Arrays, series: Arrays, backward: bool
) -> tuple[Arrays, Array]:
    """The same results, iteration by iteration."""
    turns, rows = int(shape_of(series[0])[0]), {}
    for t in reversed(range(turns)) if backward else range(turns):
        state, rows[t] = turn(state, tuple(op.Gather(x, t, axis=0) for x in series))
    return state, op.Concat(*(op.Unsqueeze(rows[t], (0,)) for t in range(turns)), axis=0)


def fake(op: Op, values: Sequence[Any]) -> None:
    """Set the numbers of values to zeros, in a reading that computes with numbers."""
    if isinstance(op, Twin):
        op.faked = True
        for value in values:
            op.remember(value, np.zeros(at(shape_of(value)), dtype_of(value)))


# -- recording and computing at once, where the graph depends on the numbers -----------------------


class Twin(Reading):
    """A reading whose values are graph values, each with its number at the point."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.keeps = False  # records loops in definitions as Scan nodes
        self.faked = False  # whether some numbers are placeholders, from such a loop
        self._numbers: dict[int, np.ndarray] = {}

    def call(self, op_type: str, *inputs: Any, **attrs: Any) -> Any:
        """The recorded result; its number is stored."""
        made = self.recorder.call(op_type, *inputs, **attrs)
        attrs = {name: value for name, value in attrs.items() if value is not None}
        found = getattr(numbers, op_type)(*map(self.number, inputs), **attrs)
        pairs = zip(made, found, strict=True) if isinstance(made, tuple) else [(made, found)]
        for value, number in pairs:
            self.remember(value, number)
        return made

    def number(self, value: Any) -> Any:
        """The number of a value; anything else is its own number."""
        if isinstance(value, np.ndarray) and value.dtype == object:
            return np.array([at(n) for n in value.ravel()], np.int64).reshape(value.shape)
        return self._numbers[id(value)] if isinstance(value, ir.Value) else at(value)

    def at(self, value: Any, reader: str = "") -> Any:
        """The number of a value, on which the recording then depends."""
        if isinstance(value, ir.Value):
            self.recorder.pin(value, reader)
        return self.number(value)

    def remember(self, value: Any, number: np.ndarray) -> Any:
        """The value, whose number is stored."""
        if isinstance(value, ir.Value):
            self._numbers[id(value)] = number
        return value

    def input(self, number: np.ndarray, name: str) -> ir.Value:
        """A new graph input of the shape of a number."""
        return self.remember(self.recorder.like(number, name), number)

    def initializer(self, number: np.ndarray, name: str) -> ir.Value:
        """A named constant of the model."""
        return self.remember(self.recorder.initializer(number, name), number)

    def run(
        self, step: Step, inputs: list[Any], outputs: tuple[str | None, ...]
    ) -> tuple[Any, ...]:
        """A step of the model, recorded under given output names and computed."""
        found = numbers.run(
            step.op_type, [self.number(x) for x in inputs], step.attrs, domain=step.domain,
            version=step.version, outputs=len(outputs),
        )  # fmt: skip
        shown = (*found, *(None,) * (len(outputs) - len(found)))
        made = self.recorder.copy(step, inputs, shown, outputs)
        for value, number in zip(made, shown, strict=True):
            self.remember(value, number)
        return made


def surrogate(op: Op, value: Array, expression: Array | None = None) -> Array:
    """The value, with the tangent of an expression for the same tensor; without one, constant.

    Only what the tangent needs of the expression is computed.
    """
    recorder = recorder_behind(op)
    like = np.zeros((), dtype_of(value)) if expression is None else expression
    value, like = recorder.value(value), recorder.value(like)
    made = recorder.new((), dtype_of(value))
    made.shape = value.shape  # some sizes may be symbolic
    node = ir.Node("", "CastLike", [value, like], outputs=[made])
    node.meta[SURROGATE] = 1
    recorder.nodes.append(node)
    if isinstance(op, Twin):
        op.remember(made, op.number(value))
    return made


def without_surrogates(nodes: Iterable[ir.Node]) -> None:
    """Make surrogates plain copies of their values, and drop what subgraphs then do not read."""
    kept = list(nodes)
    for node in every(kept):
        if node.op_type == "CastLike" and node.meta.pop(SURROGATE, None) is not None:
            node.op_type = "Identity"
            node.resize_inputs(1)
    for graph in nested_graphs(kept):
        for node in reversed(graph):
            if not any(y.uses() or y.is_graph_output() for y in node.outputs):
                graph.remove(node, safe=True)
