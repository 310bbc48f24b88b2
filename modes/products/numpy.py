"""NumPy as the engine of products: node after node, by the kernels of `ops.numbers`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir

from ...jacobians import dtype_of
from ...ops.numbers import numbers
from ..flow.steps import python_of
from .record import Recording

Function = Callable[..., Any]
Values = Sequence[ir.Value | None]


class Call(NamedTuple):
    """outputs ← function(*inputs), by number; the `done` values are not needed afterwards."""

    function: Function
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    done: tuple[int, ...]


class Program:
    """v ↦ J v. The result belongs to the caller; several threads may call at the same time.

    The `fused` nodes are computed by functions of other values, and the `absent` ones inside these
    functions.
    """

    def __init__(
        self, recording: Recording, fused: Mapping[ir.Node, tuple[Function, Values]] | None = None,
        absent: Collection[ir.Node] = (),
    ) -> None:  # fmt: skip
        self._recording, self._numbers = recording, {id(None): 0}
        self._constants: list[np.ndarray | None] = [None]  # by number; None where computed
        self.dtype, self._v = dtype_of(recording.v), self._number(recording.v)
        works = []
        for node in recording.nodes:
            if node not in absent:
                work = (fused or {}).get(node) or (kernel(node), node.inputs)
                works.append((*work, node.outputs))
        self.calls: list[Call] = []
        self._y, needed = self._number(recording.y), {self._number(recording.y)}
        for function, reads, makes in reversed(works):
            inputs, outputs = (tuple(map(self._number, values)) for values in (reads, makes))
            done = tuple({*inputs, *outputs} - needed)
            needed.update(inputs)
            computed = (n for n in done if self._constants[n] is None)
            self.calls.insert(0, Call(function, inputs, outputs, tuple(computed)))

    def _number(self, value: ir.Value | None) -> int:
        """The number of a value; 0 for an omitted one."""
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self._constants)
            self._constants.append(None if value is None else self._recording.array(value))
        return self._numbers[id(value)]

    def __call__(self, v: np.ndarray) -> np.ndarray:
        held: list[Any] = [*self._constants]
        held[self._v] = np.asarray(v, self.dtype)
        with np.errstate(all="ignore"):  # infinities and NaN are values, as in every engine
            for function, inputs, outputs, done in self.calls:
                made = function(*[held[n] for n in inputs])
                if len(outputs) == 1:
                    held[outputs[0]] = made
                else:
                    for n, y in zip(outputs, made, strict=True):
                        held[n] = y
                for n in done:
                    held[n] = None
        y = np.asarray(held[self._y])
        own = y.base is None and y is not held[self._v] and y is not self._constants[self._y]
        return y if own and y.flags.c_contiguous else np.array(y, order="C")


def kernel(node: ir.Node) -> Function:
    """The NumPy kernel of a node with its attributes, without the error state of each call."""
    attributes = {name: python_of(attribute) for name, attribute in node.attributes.items()}
    if len(node.outputs) > 1:
        attributes["outputs"] = len(node.outputs)
    function = getattr(numbers, node.op_type)
    return partial(getattr(function, "__wrapped__", function), **attributes)


def compile(recording: Recording) -> Program:
    """The program of a recorded product."""
    return Program(recording)
