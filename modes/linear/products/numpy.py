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
from ...model.primal.engines.numpy import Call, Function, in_line
from .compiled import Recording

Bind = Callable[[ir.Node, Recording], tuple[Function, int]]
"""A node ↦ the function of its first operands that computes it, and how many it takes."""


class Program:
    """v ↦ J v. The result belongs to the caller; several threads may call at the same time."""

    def __init__(
        self, recording: Recording, bind: Bind | None = None,
        take: Function = lambda _, x: np.asarray(x), in_line: Callable[..., Function] = in_line,
    ) -> None:  # fmt: skip
        bind, numbered, constants = bind or kernel, dict[int, int](), dict[int, Any]()

        def number(value: ir.Value | None) -> int:
            if id(value) not in numbered:
                n = numbered[id(value)] = len(numbered)
                held = None if value is None else recording.array(value)
                if held is not None or value is None:
                    constants[n] = None if held is None else take(value, held)
            return numbered[id(value)]

        v, y = number(recording.v), number(recording.y)
        arguments = v, *map(number, recording.residuals.values())
        calls = list[Call]()
        for node in recording.nodes:
            inputs, outputs = (tuple(map(number, x)) for x in (node.inputs, node.outputs))
            function, count = bind(node, recording)
            calls.append(Call(function, inputs[:count], outputs, shape_of(node.outputs[0])))
        self.dtype, self.keys = dtype_of(recording.v), tuple(recording.residuals)
        self.constants = (*constants.values(),)
        self._run = in_line(calls, arguments, (y,), constants)

    def __call__(
        self, v: np.ndarray, residuals: Mapping[str, np.ndarray] = MappingProxyType({})
    ) -> np.ndarray:
        """y for these residuals, by key."""
        v = np.asarray(v, self.dtype)
        with np.errstate(all="ignore"):  # infinities and NaN are values, as in every engine
            y = np.asarray(self.run(v, residuals))
        given = (v, *self.constants, *residuals.values())
        own = y.base is None and not any(y is x for x in given)
        return y if own and y.flags.c_contiguous else np.array(y, order="C")

    def at(self, residuals: Mapping[str, np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
        """The program for these residuals, by key."""
        return partial(self, residuals=residuals)

    def run(self, v: Array, residuals: Mapping[str, Array]) -> Array:
        """y, which may be a view of v or of a residual."""
        (y,) = self._run(v, *[residuals[key] for key in self.keys])
        return y


def kernel(node: ir.Node, recording: Recording) -> tuple[Function, int]:
    """The kernel of a node with its attributes, shapes and axes, and without the error state of
    each NumPy call.
    """
    name, known = node.op_type, [x and recording.array(x) for x in node.inputs]
    function = getattr(numbers, name)
    plain, attrs = getattr(function, "__wrapped__", function), attributes(node)
    told = all(x is None or y is not None for x, y in zip(node.inputs[1:], known[1:], strict=True))
    if name not in HOSTED or not told:
        return partial(plain, **attrs), len(known)
    shapes = shape_of(node.inputs[0]), shape_of(node.outputs[0])
    return settled(name, {name: plain}, STATIC, shapes, known[1:], attrs), 1


def attributes(node: ir.Node) -> dict[str, Any]:
    """The keywords of a kernel."""
    found = {name: python_of(attribute) for name, attribute in node.attributes.items()}
    return found if len(node.outputs) == 1 else found | {"outputs": len(node.outputs)}


def compile(recording: Recording) -> Program:
    """The program of a recorded product."""
    return Program(recording)
