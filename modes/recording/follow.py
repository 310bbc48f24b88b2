"""Follow: a constant that two recordings disagree on, computed from the batch size."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ...jacobians import Array
from ...ops import Step, numbers
from ...ops.graphs import Recorder
from ...ops.node import AT
from ..flow.steps import python_of

COUNTED = ("Range", "Expand")
"""Operators whose results grow with the batch."""


class NotGeneral(Exception):
    """What was recorded holds for one batch size only, and why."""


class Batch:
    """The batch size as a graph value, read off an input, and constants that follow it."""

    def __init__(self, recorder: Recorder, source: ir.Value, sizes: tuple[int, int]) -> None:
        self.sizes = sizes
        self._op = Recorder(recorder.opset_imports)
        self.n = self._op.Shape(source, start=0, end=1)
        self._made: dict[tuple[int, bytes], ir.Value] = {}

    def nodes(self) -> list[ir.Node]:
        """The nodes that compute what follows the batch size; they come before all others.

        What has as many entries as the batch loses the shape that it has at the first size.
        """
        counted: set[ir.Value | None] = set()
        for node in self._op.nodes:
            if node.op_type in COUNTED or not counted.isdisjoint(node.inputs):
                counted.update(node.outputs)
                for value in node.outputs:
                    value.shape = ir.Shape([None] * len(value.shape or ()))
        return self._op.nodes

    def constant(self, array: np.ndarray) -> ir.Value:
        """An initializer among those nodes."""
        value = self._op.value(array)
        assert value is not None
        return value

    def follow(self, value: ir.Value, a: np.ndarray, b: np.ndarray) -> ir.Value:
        """The constant that is `a` at the first size and `b` at the second."""
        key = id(value), b.tobytes()
        if key not in self._made:
            self._made[key] = self._computed(a, b)
        return self._made[key]

    def at(self, size: int) -> dict[int, np.ndarray]:
        """What follows the batch size, by the identity of its value, at a size."""
        found = {id(self.n): np.array([size])}
        for node in self._op.nodes[1:]:
            held = [found[id(v)] if v.const_value is None else v.const_value.numpy()
                    for v in node.inputs if v is not None]  # fmt: skip
            attrs = {name: python_of(attribute) for name, attribute in node.attributes.items()}
            (found[id(node.outputs[0])],) = numbers.run(node.op_type, held, attrs)
        return found

    def _computed(self, a: np.ndarray, b: np.ndarray) -> ir.Value:
        for form in (self._shape, self._factor, self._rows, self._filled):
            found = form(a, b)
            if found is not None:
                return found
        raise NotGeneral(f"a constant of shape {list(a.shape)} does not follow the batch size")

    def _shape(self, a: np.ndarray, b: np.ndarray) -> ir.Value | None:
        """Integers, each of them constant or k · n."""
        n, m = self.sizes
        if (
            a.shape != b.shape
            or a.dtype.kind != "i"
            or a.ndim > 1
            or np.any((a != b) & (a * m != b * n))
        ):
            return None
        entries = zip(np.ravel(a), np.ravel(b), strict=True)
        parts = [
            self._op.Mul(self.n, np.array([x // n])) if x != y else np.array([x])
            for x, y in entries
        ]
        return self._op.Reshape(self._op.Concat(*parts, axis=0), a.shape)

    def _factor(self, a: np.ndarray, b: np.ndarray) -> ir.Value | None:
        """One number, k · n or k / n."""
        if a.size != 1 or b.size != 1 or a.dtype.kind != "f":
            return None
        n, m = self.sizes
        size = self._op.Reshape(self._op.CastLike(self.n, a), a.shape)
        if np.isclose(a * n, b * m, rtol=1e-6):
            return self._op.Div(a * a.dtype.type(n), size)
        return (
            self._op.Mul(a / a.dtype.type(n), size) if np.isclose(a * m, b * n, rtol=1e-6) else None
        )

    def _rows(self, a: np.ndarray, b: np.ndarray) -> ir.Value | None:
        """Rows in arithmetic progression, one for each of the batch."""
        if a.ndim == 0 or (len(a), len(b)) != self.sizes or a.shape[1:] != b.shape[1:]:
            return None
        if a.dtype.kind == "b":
            return None
        start, step = a[:1], a[1:2] - a[:1]
        ramp = np.arange(self.sizes[1]).reshape(-1, *(1,) * (a.ndim - 1)).astype(a.dtype)
        if not np.array_equal(start + step * ramp, b) or not np.array_equal(b[:-1], a):
            return None
        op = self._op
        count = op.CastLike(self._counted(), a)
        column = op.Unsqueeze(count, tuple(range(1, a.ndim))) if a.ndim > 1 else count
        return op.Add(start, op.Mul(column, step))

    def _filled(self, a: np.ndarray, b: np.ndarray) -> ir.Value | None:
        """One number everywhere: its own form, in a shape that follows."""
        if a.ndim != b.ndim or not a.size or np.any(a != a.flat[0]) or np.any(b != b.flat[0]):
            return None
        one, other = (np.asarray(x.flat[0]) for x in (a, b))
        number = self.constant(one) if one == other else self._factor(one, other)
        shape = self._shape(np.array(a.shape), np.array(b.shape))
        known = number is not None and shape is not None
        return self._recorded("Expand", (number, shape), a) if known else None

    def _counted(self) -> ir.Value:
        """0, 1, ... n - 1."""
        bounds = np.array(0), self._op.Reshape(self.n, ()), np.array(1)
        return self._recorded("Range", bounds, np.arange(self.sizes[0]))

    def _recorded(self, op_type: str, inputs: tuple[Array | None, ...], at: np.ndarray) -> ir.Value:
        """A node whose shape inference cannot tell: it is that of `at` at the first size."""
        version = self._op.opset_imports[""]
        step = Step(op_type, "", version, "", (None,) * len(inputs), (op_type.lower(),))
        (made,) = self._op.copy(step, inputs, [at])
        made.name = None
        made.meta.pop(AT, None)
        return made
