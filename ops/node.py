"""Node: one step of a model with its inputs and outputs, as a rule sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import onnx

from ..jacobians import Array, Shape, dtype_of, reading, shape_of
from ..jacobians.arrays import is_recorded, on_host
from ..jacobians.errors import OnnxJacError
from ..jacobians.readings import library_of
from ..jacobians.symint import whole

TRAINING = "ai.onnx.preview.training"
"""The domain of Gradient and of the optimisers."""

AT = "onnxjac.at"
"""Metadata key of a graph value: its numbers at the point, for integers and booleans."""

NAN = "onnxjac.nan"
"""Metadata key of a graph value: some entry may be NaN."""

SURROGATE = "onnxjac.surrogate"
"""Metadata key of a CastLike node: the number of the input whose tangent its output takes."""


def remedy(domain: str, otherwise: str) -> str:
    """Advice for an operator that cannot be run or differentiated."""
    lowering = "onnxjac.lower_gradients(model) replaces it by plain nodes: load what it gives"
    return lowering if domain == TRAINING else otherwise


@dataclass(frozen=True, slots=True)
class Step:
    """One operator application: names in, names out, attributes as Python values.

    With a `surrogate`, the output takes the tangent of the input of this number. `wanted` are the
    blocks of its Jacobian, (output, input), that a path between two tensors needs.
    """

    op_type: str
    domain: str
    version: int
    name: str
    inputs: tuple[str | None, ...]
    outputs: tuple[str | None, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    surrogate: int | None = None
    wanted: frozenset[tuple[int, int]] = frozenset()

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells it from the other steps of a model."""
        return self.domain, self.op_type, self.inputs, self.outputs

    @property
    def tensors(self) -> tuple[str, ...]:
        """The names of its inputs, then of its outputs."""
        return tuple(name for name in (*self.inputs, *self.outputs) if name)

    def __str__(self) -> str:
        domain = f"{self.domain}::" if self.domain else ""
        return f"{domain}{self.op_type} (node {self.name!r}, opset {self.version})"


def node_of(
    op_type: str, inputs: Sequence[Any], attrs: Mapping[str, Any], domain: str = "",
    version: int = 21, outputs: int = 1,
) -> Node:  # fmt: skip
    """A node on these inputs, whose outputs are not computed yet."""
    names = tuple(None if x is None else f"x{i}" for i, x in enumerate(inputs))
    made = tuple(f"y{o}" for o in range(outputs))
    step = Step(op_type, domain, version, op_type, names, made, attrs)
    return Node(step, tuple(inputs), (None,) * outputs)


def has_nan(array: Array) -> bool:
    """Whether some entry is NaN at the point, or may be: at another point of a recording, or while
    JAX traces.

    A recording may suppose that there is none, and then holds only where that is so.
    """
    if not is_recorded(array):
        if dtype_of(array).kind not in "fV":
            return False
        library = library_of(array)
        with library.at_once(array):
            return not library.knows(array) or bool(library.IsNaN(array).any())
    return NAN in getattr(array, "meta", {}) and not recorder_of(array).supposes_numbers(array)


def recorder_of(value: Array) -> Any:
    """The reading of a graph value, which knows more of it than other readings of their arrays."""
    return reading(value)


@cache
def schema_defaults(op_type: str, domain: str, version: int) -> dict[str, Any]:
    """The default values of attributes in ONNX's schema."""
    try:
        schema = onnx.defs.get_schema(op_type, version, domain)
    except onnx.defs.SchemaError:
        return {}
    held = {name: a.default_value for name, a in schema.attributes.items()}
    return {name: _plain(value) for name, value in held.items() if value.type}


def _plain(attribute: onnx.AttributeProto) -> Any:
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, list):
        return tuple(v.decode() if isinstance(v, bytes) else v for v in value)
    return value.decode() if isinstance(value, bytes) else value


class Node:
    """A step as a rule sees it: `inputs` and `outputs` (arrays of the current reading; None where
    omitted), attributes by name with the schema's defaults, and which blocks are `wanted`.
    """

    def __init__(
        self, step: Step, inputs: tuple[Array | None, ...], outputs: tuple[Array | None, ...],
        wanted: frozenset[tuple[int, int]] | None = None,
    ) -> None:  # fmt: skip
        self.step, self.inputs, self.outputs = step, inputs, outputs
        self._wanted = wanted

    def __getattr__(self, name: str) -> Any:
        step = self.__dict__["step"]
        if name in step.attrs:
            return step.attrs[name]
        return schema_defaults(step.op_type, step.domain, step.version).get(name)

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes by name, with the schema's defaults."""
        step = self.step
        return {**schema_defaults(step.op_type, step.domain, step.version), **step.attrs}

    def input(self, i: int) -> Array | None:
        """Input i, or None if omitted."""
        return self.inputs[i] if i < len(self.inputs) else None

    def output(self, o: int) -> Array | None:
        """Output o, or None if omitted."""
        return self.outputs[o] if o < len(self.outputs) else None

    def wants(self, i: int, o: int = 0) -> bool:
        """Whether the block ∂output o / ∂input i is used; saves work, never changes results."""
        return self._wanted is None or (o, i) in self._wanted

    @property
    def x(self) -> Array:
        """The first input."""
        return self.inputs[0]

    @property
    def y(self) -> Array:
        """The first output."""
        return self.outputs[0]

    @property
    def x_shape(self) -> Shape:
        return shape_of(self.x)

    @property
    def y_shape(self) -> Shape:
        return shape_of(self.y)

    @property
    def dtype(self) -> np.dtype:
        """The floating dtype of tangents: the dtype of the output."""
        return dtype_of(self.y)

    def ints(self, i: int) -> tuple[int, ...] | None:
        """An integer input as numbers, symbolic where the recording tracks them."""
        value: Any = self.input(i)
        held = recorder_of(value).content(value) if hasattr(value, "meta") else None
        if held is None:
            held = self.number(i)
        return None if held is None else tuple(whole(n) for n in np.ravel(held))

    def fixed(self, i: int) -> tuple[int, ...] | None:
        """An integer input as its plain numbers at the point."""
        value = self.number(i)
        return None if value is None else tuple(int(n) for n in np.ravel(value))

    def number(self, i: int) -> np.ndarray | None:
        """The numbers of an input at the point; for a graph value, only of integers and constants.

        Raises `OnnxJacError` in a recording for points at which the numbers may differ.
        """
        value: Any = self.input(i)
        if not hasattr(value, "meta"):
            return on_host(value)
        recorder_of(value).pin(value, str(self.step))
        if AT not in value.meta and value.const_value is None:
            name = self.step.inputs[i] if i < len(self.step.inputs) else None
            raise OnnxJacError(
                f"{self.step} cannot be recorded: its input {i}, {name!r}, {dtype_of(value)}"
                f"{list(shape_of(value))}, may have other numbers at another point, and the "
                "derivative depends on them. Make it a constant of the model"
            )
        return value.meta[AT] if AT in value.meta else value.const_value.numpy()
