"""Recorder: calls of the vocabulary over graph values become nodes of an ONNX graph.

Nothing is recorded twice, what is constant is computed at once, and every value knows its shape
and dtype. NumPy arrays are constants: an operator of constants alone is run by the numbers
reading and never becomes a node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from ...jacobians import Array, reading
from ..node import AT, NAN, Step, has_nan, schema_defaults
from ..numbers import numbers
from .infer import output_types
from .operands import operands
from .shortcuts import shortcut

READING = "onnxjac.reading"
"""Key, in a value's metadata, of the recorder that it belongs to."""

SHARED = 4096
"""Constants of up to so many elements are compared by content, larger ones by where they lie."""


class Recorder:
    """One method per ONNX operator, as every reading of the vocabulary has."""

    def __init__(self, opset_imports: Mapping[str, int]) -> None:
        self.opset_imports = dict(opset_imports)
        self.nodes: list[ir.Node] = []
        self.constants: dict[Any, ir.Value] = {}
        self._known: dict[Any, tuple[ir.Value, ...]] = {}
        self.inside: set[str] = set()  # the names in subgraphs
        self._arrays: list[np.ndarray] = []  # keeps alive what `constants` names by its place

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not name[0].isupper():
            raise AttributeError(name)
        return partial(self.call, name)

    def call(self, op_type: str, *inputs: Any, outputs: int = 1, **attrs: Any) -> Any:
        """Result of an operator: a value; an array where all is constant; several as a tuple."""
        arrays = operands(op_type, self.opset_imports[""], inputs)
        attrs = {name: value for name, value in attrs.items() if value is not None}
        if all(map(is_known, arrays)):
            arrays = tuple(map(number, arrays))
            counted = {"outputs": outputs} if outputs > 1 else {}
            return getattr(numbers, op_type)(*arrays, **attrs, **counted)
        simpler = shortcut(self, op_type, arrays, attrs)
        if simpler is not None:
            return simpler
        values = tuple(map(self.value, arrays))
        key = self._key(op_type, "", values, attrs)
        known = self._known.get(key, ())
        if len(known) < outputs:
            types = output_types(op_type, "", self.opset_imports[""], values, attrs, outputs)
            made = tuple(self.new(shape, dtype) for shape, dtype in types[len(known) :])
            self._known[key] = self._recorded(op_type, values, attrs, (*known, *made))
        results = self._known[key][:outputs]
        return results if outputs > 1 else results[0]

    def _recorded(
        self, op_type: str, values: tuple[ir.Value | None, ...], attrs: dict[str, Any], made: Any
    ) -> tuple[ir.Value, ...]:
        """A new node with these outputs, or more outputs of the node that has the first of them."""
        node = made[0].producer()
        if node is None:
            self._append(op_type, "", values, attrs, made)
            return made
        node.resize_outputs(len(made))
        for value, fresh in zip(node.outputs, made, strict=True):
            if value is not fresh:
                value.shape, value.type = fresh.shape, fresh.type
                value.meta[READING] = self
        return tuple(node.outputs)

    def copy(
        self,
        step: Step,
        inputs: Iterable[Array | None],
        ats: Iterable[Any],
        names: tuple[str | None, ...] | None = None,
    ) -> tuple[Any, ...]:
        """A step of a model; its outputs, named as there or anew, are shaped like `ats`."""
        values = tuple(map(self.value, inputs))
        made = tuple(
            None if name is None else self.like(at, name)
            for name, at in zip(names or step.outputs, ats, strict=True)
        )
        shown = tuple(ir.Value(name="") if value is None else value for value in made)
        self._append(step.op_type, step.domain, values, spelled_out(step), shown)
        present = tuple(value for value in made if value is not None)
        key = self._key(step.op_type, step.domain, values, step.attrs)
        if present == made:
            self._known.setdefault(key, present)
        return made

    def recall(self, step: Step, inputs: Iterable[Array | None]) -> tuple[ir.Value, ...] | None:
        """What a step gives on some inputs, where that is recorded already."""
        values = tuple(map(self.value, inputs))
        found = self._known.get(self._key(step.op_type, step.domain, values, step.attrs), ())
        return found if len(found) == len(step.outputs) else None

    @contextmanager
    def body(self) -> Iterator[None]:
        """What is recorded inside is for a subgraph, which sees what came before."""
        outer = self.nodes, self._known
        self.nodes, self._known = [], dict(self._known)
        try:
            yield
        finally:
            self.nodes, self._known = outer

    def _append(
        self, op_type: str, domain: str, values: Any, attrs: Mapping[str, Any], made: Any
    ) -> None:
        attributes = ir.convenience.convert_attributes({k: _plain(v) for k, v in attrs.items()})
        self.nodes.append(ir.Node(domain, op_type, values, attributes, outputs=made))

    def _key(self, op_type: str, domain: str, values: Any, attrs: Mapping[str, Any]) -> Any:
        defaults = schema_defaults(op_type, domain, self.opset_imports.get(domain, 1))
        said = ((k, _hashable(v)) for k, v in sorted(attrs.items()))
        chosen = tuple((k, v) for k, v in said if v != _hashable(defaults.get(k)))
        return op_type, domain, tuple(map(id, values)), chosen

    def like(self, at: Any, name: str | None = None) -> ir.Value:
        """A new value of the shape and dtype of an array; integers keep their numbers."""
        array = np.asarray(at)
        value = self.new(array.shape, array.dtype, name)
        if array.dtype.kind in "iub":
            value.meta[AT] = array
        elif has_nan(array):
            value.meta[NAN] = True
        return value

    def new(self, shape: Iterable[int], dtype: np.dtype, name: str | None = None) -> ir.Value:
        """A new value of this graph."""
        kind = ir.TensorType(ir.DataType.from_numpy(np.dtype(dtype)))
        value = ir.Value(name=name, shape=ir.Shape(tuple(shape)), type=kind)
        value.meta[READING] = self
        return value

    def value(self, array: Array | None) -> ir.Value | None:
        """The graph value of an operand; an array becomes an initializer, one for equal arrays."""
        if array is None or isinstance(array, ir.Value):
            return array
        array = np.asarray(array)
        if array.size > 1 and not any(array.strides):
            return self._repeated(array)
        where = array.__array_interface__["data"][0], array.strides
        content: Any = array.tobytes() if array.size <= SHARED else where
        key = (array.dtype.str, array.shape, content)
        if key not in self.constants:
            self.constants[key] = self.initializer(array)
        return self.constants[key]

    def _repeated(self, array: np.ndarray) -> ir.Value:
        """One number that fills a tensor: a node, not a file full of copies."""
        operands = self.value(array.ravel()[:1].reshape(())), self.value(np.array(array.shape))
        key = self._key("Expand", "", operands, {})
        if key not in self._known:
            made = (self.new(array.shape, array.dtype),)
            self._known[key] = self._recorded("Expand", operands, {}, made)
        return self._known[key][0]

    def initializer(self, array: np.ndarray, name: str | None = None) -> ir.Value:
        """A new initializer that holds an array."""
        value = self.like(array, name)
        value.const_value = ir.tensor(np.ascontiguousarray(array).reshape(array.shape), name=name)
        self._arrays.append(array)
        return value


def spelled_out(step: Step) -> Mapping[str, Any]:
    """The attributes, with defaults if the operator has a body: ONNX's checker forgets them."""
    known = onnx.defs.has(step.op_type, step.version, step.domain)
    schema = onnx.defs.get_schema(step.op_type, step.version, step.domain) if known else None
    bodies = ("has_function", "has_context_dependent_function")  # which the stubs of onnx miss
    if not any(getattr(schema, body, False) for body in bodies):
        return step.attrs
    return {**schema_defaults(step.op_type, step.domain, step.version), **step.attrs}


def is_known(array: Array | None) -> bool:
    """Whether an operand is a constant: an array, or an integer initializer."""
    return not isinstance(array, ir.Value) or (array.const_value is not None and AT in array.meta)


def number(array: Array | None) -> np.ndarray | None:
    """A constant operand as an array."""
    return array.meta[AT] if isinstance(array, ir.Value) else array


def _plain(value: Any) -> Any:
    """An attribute as onnx-ir takes it."""
    if isinstance(value, np.ndarray):
        return ir.tensor(value)
    return tuple(value) if isinstance(value, list) else value


def _hashable(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    return tuple(value) if isinstance(value, list | tuple) else value


@reading.register(ir.Value)
def _reading(value: ir.Value) -> Recorder:
    return value.meta[READING]
