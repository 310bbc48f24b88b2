"""NumPy as the engine of products: node after node, by the kernels of `ops.numbers`.

The program is written for any reading: `products.torch` runs it over tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx_ir as ir

from ....jacobians import Array, dtype_of, shape_of
from ....ops.numbers import numbers
from ....ops.numbers.table import HOSTED, STATIC, settled
from ...model.flow.steps import python_of
from ...model.primal.engines.numpy import Call, Function, run
from .record import Recording

Bind = Callable[[ir.Node, Recording], Function]
"""A node ↦ the function that computes it."""


class Program:
    """v ↦ J v. The result belongs to the caller; several threads may call at the same time."""

    def __init__(
        self, recording: Recording, bind: Bind | None = None, take: Function = np.asarray
    ) -> None:  # fmt: skip
        bind, numbered = bind or kernel, dict[int, int]()
        self.constants: list[Any] = []  # by number; None where computed or omitted

        def number(value: ir.Value | None) -> int:
            if id(value) not in numbered:
                numbered[id(value)] = len(numbered)
                held = None if value is None else recording.array(value)
                self.constants.append(None if held is None else take(held))
            return numbered[id(value)]

        self.dtype, self._v = dtype_of(recording.v), number(recording.v)
        self._residuals = {key: number(x) for key, x in recording.residuals.items()}
        self._y = number(recording.y)
        self.calls: list[Call] = []
        needed = {self._y}
        for node in reversed(recording.nodes):
            inputs, outputs = (tuple(map(number, x)) for x in (node.inputs, node.outputs))
            done = {n for n in (*inputs, *outputs) if self.constants[n] is None} - needed
            needed.update(inputs)
            self.calls.insert(0, Call(bind(node, recording), inputs, outputs, tuple(done)))

    def __call__(
        self, v: np.ndarray, residuals: Mapping[int, np.ndarray] = MappingProxyType({})
    ) -> np.ndarray:
        """y for these residuals, by key."""
        v = np.asarray(v, self.dtype)
        with np.errstate(all="ignore"):  # infinities and NaN are values, as in every engine
            y = np.asarray(self.run(v, residuals))
        given = (v, *self.constants, *residuals.values())
        own = y.base is None and not any(y is x for x in given)
        return y if own and y.flags.c_contiguous else np.array(y, order="C")

    def at(self, residuals: Mapping[int, np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
        """The program for these residuals, by key."""
        return partial(self, residuals=residuals)

    def run(self, v: Array, residuals: Mapping[int, Array]) -> Array:
        """y, which may be a view of v or of a residual."""
        held: list[Any] = [*self.constants]
        for key, n in self._residuals.items():
            held[n] = residuals[key]
        held[self._v] = v
        run(self.calls, held)
        return held[self._y]


def kernel(node: ir.Node, recording: Recording) -> Function:
    """The kernel of a node with its attributes, shapes and axes, and without the error state of
    each NumPy call.
    """
    name, known = node.op_type, [x and recording.array(x) for x in node.inputs]
    function = getattr(numbers, name)
    plain, attrs = getattr(function, "__wrapped__", function), attributes(node)
    told = all(x is None or y is not None for x, y in zip(node.inputs[1:], known[1:], strict=True))
    if name not in HOSTED or not told:
        return partial(plain, **attrs)
    shapes = shape_of(node.inputs[0]), shape_of(node.outputs[0])
    return settled(name, {name: plain}, STATIC, shapes, known[1:], attrs)


def attributes(node: ir.Node) -> dict[str, Any]:
    """The keywords of a kernel."""
    found = {name: python_of(attribute) for name, attribute in node.attributes.items()}
    return found if len(node.outputs) == 1 else found | {"outputs": len(node.outputs)}


def compile(recording: Recording) -> Program:
    """The program of a recorded product."""
    return Program(recording)
