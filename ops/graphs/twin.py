"""Twin: recording and computing at once, where the graph depends on the numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir

from ...jacobians import Array, dtype_of
from ...jacobians.symint import at
from ..node import ASKED, SURROGATE, Step
from ..numbers import numbers
from .build import every, subgraphs
from .recorder import Recorder


class Twin:
    """A reading whose values are graph values, each with its number at the point."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.keeps = False  # records loops in definitions as Scan nodes
        self.faked = False  # whether some numbers are placeholders, from such a loop
        self._numbers: dict[int, np.ndarray] = {}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not name[0].isupper():
            raise AttributeError(name)
        return partial(self.call, name)

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
            value.meta.setdefault(ASKED, reader)
            self.recorder.pin(value, reader)
        return self.number(value)

    def remember(self, value: Array, number: np.ndarray) -> None:
        if isinstance(value, ir.Value):
            self._numbers[id(value)] = number

    def input(self, number: np.ndarray, name: str) -> ir.Value:
        """A new graph input of the shape of a number."""
        return self._kept(self.recorder.like(number, name), number)

    def initializer(self, number: np.ndarray, name: str) -> ir.Value:
        """A named constant of the model."""
        return self._kept(self.recorder.initializer(number, name), number)

    def _kept(self, value: ir.Value, number: np.ndarray) -> ir.Value:
        self.remember(value, number)
        return value

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


def surrogate(op: Any, value: Array, expression: Array | None = None) -> Array:
    """The value, with the tangent of an expression for the same tensor; without one, constant.

    Only what the tangent needs of the expression is computed.
    """
    recorder = op.recorder if isinstance(op, Twin) else op
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
        if node.meta.pop(SURROGATE, None) is not None:
            node.op_type = "Identity"
            node.resize_inputs(1)
    for graph in subgraphs(kept):
        for node in reversed(graph):
            if not any(y.uses() or y.is_graph_output() for y in node.outputs):
                graph.remove(node, safe=True)
