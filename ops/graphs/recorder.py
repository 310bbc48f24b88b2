"""Recorder: vocabulary calls on graph values become nodes of an ONNX graph, or simpler ones.

Equal calls share a node, constants are folded, and every value has a shape and a dtype. NumPy
arrays are constants: an operator on constants alone is run by the numbers reading and never
becomes a node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from ...jacobians import Array, Op, Shape, dtype_of, reading, shape_of
from ...jacobians.arrays import zeros
from ...jacobians.conditions import Condition
from ...jacobians.errors import OnnxJacError
from ...jacobians.readings import Reading
from ...jacobians.symint import (
    Number,
    Ratio,
    Symbols,
    SymInt,
    at,
    depth_of,
    is_symbolic,
    lowered,
    lowered_ratio,
)
from ..node import AT, NAN, Node, Step, has_nan, schema_defaults
from ..numbers import numbers
from ..registry import find, full_name
from .infer import has_open_operand, output_types, symbolic_shapes
from .shapes import (
    CONTENT,
    DEPTH,
    READING,
    STILL,
    Known,
    as_shape,
    content,
    depth_in,
    integers,
    objects,
)
from .simplify import COPIES, rewritten

COMPARED_ELEMENTS = 4096
"""Constants of up to this many elements are compared by content, larger ones by address."""


class Recorder(Reading):
    """One method per ONNX operator, as every reading of the vocabulary has.

    With `symbols`, shapes and small integer tensors are tracked symbolically.
    """

    is_model = True
    """Whether the graph is a model: differentiated again, and executed by any runtime, which may
    reduce ScatterND rows for one place concurrently. A product is neither.
    """

    convolves_samples = False
    """Whether correlations are recorded as convolutions: PyTorch has its fastest kernels there."""

    supposed: list[Condition] | None = None
    """Where rules may suppose that a value has no NaN: the conditions that this left."""

    def __init__(self, opset_imports: Mapping[str, int], symbols: Symbols | None = None) -> None:
        self.opset_imports = dict(opset_imports)
        self.symbols = symbols
        self.nodes: list[ir.Node] = []
        self.constants: dict[Any, ir.Value] = {}
        self._known: dict[Any, tuple[ir.Value, ...]] = {}
        self.inside: set[str] = set()  # the names in subgraphs
        self.depth = 0  # of the subgraph being recorded
        self._arrays: list[np.ndarray] = []  # keeps alive the `constants` known by address

    def call(self, op_type: str, *inputs: Any, outputs: int = 1, **attrs: Any) -> Any:
        """An operator's result: a value, or an array if all is constant; a tuple if several."""
        arrays = self.operands(op_type, inputs)
        attrs = {name: unsymbolic(v) for name, v in attrs.items() if v is not None}
        counted = attrs if outputs == 1 else {**attrs, "outputs": outputs}
        if all(map(is_known, arrays)):
            arrays = tuple(a.meta[AT] if isinstance(a, ir.Value) else a for a in arrays)
            return getattr(numbers, op_type)(*arrays, **counted)
        simpler = rewritten(self, op_type, arrays, counted)
        if simpler is not None:
            return simpler
        values = tuple(map(self.value, arrays))
        key = self._key(op_type, "", values, attrs)
        known = self._known.get(key, ())
        if len(known) < outputs:
            version = self.opset_imports[""]
            types = output_types(op_type, "", version, values, attrs, outputs)
            made = tuple(self.new(shape, dtype) for shape, dtype in types[len(known) :])
            self._known[key] = self._recorded(op_type, values, attrs, (*known, *made))
            if self.symbols is not None and has_open_operand(values):
                fresh = (*(None for _ in known), *self._known[key][len(known) :])
                self._follow(op_type, "", version, values, attrs, fresh)
        results = self._known[key][:outputs]
        return results if outputs > 1 else results[0]

    def operands(self, op_type: str, inputs: tuple[Any, ...]) -> tuple[Array | None, ...]:
        """The inputs as arrays and values; a Python number takes the dtype of its type variable.

        Other integers and tuples of integers, such as axes and shapes, become int64.
        """
        if all(map(is_operand, inputs)):
            return inputs
        pairs = [*zip(type_variables(op_type, self.opset_imports[""], len(inputs)), inputs,
                      strict=True)]  # fmt: skip
        dtypes = {v: dtype_of(x) for v, x in pairs if x is not None and is_operand(x)}
        return tuple(
            x if is_operand(x)
            else self._as_value(x, dtypes.get(v, np.dtype(np.int64))) if holds_symbol(x)
            else as_constant(x, dtypes.get(v))
            for v, x in pairs
        )  # fmt: skip

    def _as_value(self, x: Any, dtype: np.dtype) -> ir.Value:
        """A symbolic number, or several, as a graph value of a dtype."""
        if isinstance(x, Ratio):
            kind = dtype if dtype.kind == "f" else np.dtype(np.float64)
            return self.value(lowered_ratio(self, x, kind))
        if isinstance(x, SymInt):
            made, held = self.Reshape(lowered(self, x), ()), objects([x]).reshape(())
        else:
            numbers_ = list(x.ravel()) if isinstance(x, np.ndarray) else list(x)
            shape = x.shape if isinstance(x, np.ndarray) else (len(numbers_),)
            joined = self.Concat(*(lowered(self, n) for n in numbers_), axis=0)
            made, held = self.Reshape(joined, shape), objects(numbers_).reshape(shape)
        value = self.value(made if dtype == np.int64 else self.CastLike(made, np.zeros((), dtype)))
        if dtype == np.int64:
            value.meta.setdefault(CONTENT, held)
        return value

    def _follow(
        self, op_type: str, domain: str, version: int, values: tuple[ir.Value | None, ...],
        attrs: Mapping[str, Any], made: tuple[ir.Value | None, ...],
    ) -> None:  # fmt: skip
        """Set the symbolic shapes and integers of the outputs of a node."""
        found = symbolic_shapes(op_type, domain, version, values, attrs, len(made))
        for value, sizes in zip(made, found, strict=True):
            if value is not None and value.shape is not None:
                self.shape(value, sizes)
        if made and made[0] is not None:
            held = integers(op_type, domain, values, attrs, made[0])
            if held is not None:
                made[0].meta[CONTENT] = held

    def shape(self, value: ir.Value, sizes: Known | None) -> None:
        """Replace the shape of a value, known at the point, by its symbolic shape.

        A size that is unknown, or unknown in this subgraph, becomes an atom read off the value.
        """
        if self.symbols is None:
            return
        here = at(shape_of(value))
        if not is_symbolic(sizes) and here == sizes:
            return
        if sizes is None or len(sizes) != len(here):
            sizes = (None,) * len(here)
        whole = tuple(
            n if n is not None and at(n) == m and depth_of(n) <= depth_in(value)
            else self.dimension(value, k, m)
            for k, (n, m) in enumerate(zip(sizes, here, strict=True))
        )
        value.shape = as_shape(whole)

    def dimension(self, value: ir.Value, axis: int, here: int, name: str = "") -> Number:
        """The size of a value along an axis: an atom, or the number at the point if it is fixed."""
        assert self.symbols is not None
        name, free = name or f"{value.name or 'tensor'}.shape[{axis}]", bool(name)
        if name in self.symbols.fixed:
            return here

        def lower(op: Op) -> Any:
            return op.Shape(value, start=axis, end=axis + 1)

        least = 1 if free and here else 0
        return self.symbols.atom(
            name, here, lower, least=least, tensor=value.name or "", axis=axis, free=free,
            depth=depth_in(value),
        )  # fmt: skip

    def open(self, inputs: Iterable[ir.Value], free: Mapping[str, Mapping[int, str]]) -> None:
        """Make atoms of the free sizes of inputs; sizes of the same name share one."""
        assert self.symbols is not None
        known: dict[str, Number] = {}
        for value in inputs:
            sizes = list(shape_of(value))
            for axis, name in free.get(value.name or "", {}).items():
                if name not in known:
                    known[name] = self.dimension(value, axis, int(sizes[axis]), name)
                sizes[axis] = known[name]
            value.shape = as_shape(sizes)

    def _recorded(
        self, op_type: str, values: tuple[ir.Value | None, ...], attrs: dict[str, Any], made: Any
    ) -> tuple[ir.Value, ...]:
        """A new node with these outputs, or the node of the first output with more outputs."""
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

    def content(self, value: ir.Value) -> np.ndarray | None:
        """The integers of a small value, symbolic if it is not constant."""
        return None if self.symbols is None else content(value)

    def pin(self, value: ir.Value, reader: str) -> None:
        """Restrict the recording to the numbers that a value has at the point."""
        if self.symbols is None or value.const_value is not None or STILL in value.meta:
            return
        self.symbols.reader = reader
        [int(n) for n in shape_of(value)]
        held = content(value)
        if held is None:
            if depth_in(value):
                raise OnnxJacError(f"{reader} asks for numbers that another turn may change")
            self.symbols.pin(value.name or "", reader, value)
        else:
            [int(n) for n in held.ravel()]

    def supposes_numbers(self, value: ir.Value) -> bool:
        """Whether the recording supposes that there is no NaN in a value outside of subgraphs."""
        if self.supposed is None or depth_in(value):
            return False
        self.supposed.append(Condition("none", "NaN", of=value))
        return True

    def fix(self, values: Iterable[Any]) -> None:
        """Restrict the recording to the sizes and integers that values have at the point."""
        for value in values:
            if isinstance(value, ir.Value) and value.const_value is None:
                [int(n) for n in shape_of(value)]
                if content(value) is not None:
                    self.pin(value, self.symbols.reader if self.symbols else "")

    def copy(
        self, step: Step, inputs: Iterable[Array | None], ats: Iterable[Any],
        names: tuple[str | None, ...] | None = None,
    ) -> tuple[Any, ...]:  # fmt: skip
        """A copy of a model's step; its outputs, with old or new names, are shaped like `ats`.

        An operator with a rule and a definition is recorded as its definition, so that any runtime
        knows what is recorded; others as rows of the table of rewrites say.
        """
        declared, inputs, count = find(step.op_type, step.domain), tuple(inputs), len(step.outputs)
        if declared and declared.definition and not declared.is_composed:
            simpler: Any = declared.outputs(self, Node(step, inputs, (None,) * count))
        else:
            counted = {**step.attrs, "outputs": count}
            simpler = rewritten(self, full_name(step.op_type, step.domain), inputs, counted, COPIES)
        if simpler is not None:
            made = simpler if isinstance(simpler, tuple) else (simpler,)
            plain = replace(step, op_type="Identity", domain="", attrs={})
            copies = zip(made, ats, names or step.outputs, strict=False)
            return tuple(n and self.copy(plain, (y,), (at,), (n,))[0] for y, at, n in copies)
        values = tuple(map(self.value, inputs))
        made = tuple(
            None if name is None else self.like(at, name)
            for name, at in zip(names or step.outputs, ats, strict=True)
        )
        shown = tuple(ir.Value(name="") if value is None else value for value in made)
        self._append(step.op_type, step.domain, values, spelled_out(step), shown)
        if self.symbols is not None:
            self.symbols.reader = str(step)
            if is_still(step, values):
                for value in filter(None, made):
                    value.meta[STILL] = True
            elif not has_bodies(step):  # else the caller that recorded them sets the shapes
                self._follow(
                    step.op_type, step.domain, step.version, values, spelled_out(step), made
                )
        present = tuple(value for value in made if value is not None)
        key = self._key(step.op_type, step.domain, values, step.attrs)
        if present == made:
            self._known.setdefault(key, present)
        return made

    def emit(
        self, op_type: str, inputs: Iterable[Array | None], attrs: Mapping[str, Any],
        types: Sequence[tuple[Shape, np.dtype]],
    ) -> list[ir.Value]:  # fmt: skip
        """A new node with outputs of these shapes and dtypes, without shape inference."""
        names = tuple(f"{k}" for k in range(len(types)))
        step = Step(op_type, "", self.opset_imports[""], op_type, (), names, attrs)
        likes = [zeros(at(tuple(shape)), dtype) for shape, dtype in types]
        made = self.copy(step, inputs, likes)
        for value, (shape, _) in zip(made, types, strict=True):
            value.name = None
            value.meta.pop(AT, None)
            self.shape(value, shape)
        return list(made)

    def recall(self, step: Step, inputs: Iterable[Array | None]) -> tuple[ir.Value, ...] | None:
        """The outputs of a step on some inputs, if they are already recorded."""
        values = tuple(map(self.value, inputs))
        found = self._known.get(self._key(step.op_type, step.domain, values, step.attrs), ())
        return found if len(found) == len(step.outputs) else None

    @contextmanager
    def body(self) -> Iterator[None]:
        """A context in which a subgraph is recorded, which sees the values recorded before.

        Sizes are tracked symbolically from then on, as another iteration may change them; raises
        `OnnxJacError` where the recording holds only for some of them.
        """
        self.symbols = self.symbols or Symbols()
        outer = self.nodes, self._known, self.depth
        self.nodes, self._known, self.depth = [], dict(self._known), self.depth + 1
        try:
            yield
        finally:
            self.nodes, self._known, self.depth = outer
        self.symbols.check_depth(self.depth)

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
        """A new value with the shape and dtype of an array; integers keep their numbers."""
        array = np.asarray(at)
        value = self.new(array.shape, array.dtype, name)
        if array.dtype.kind in "iub":
            value.meta[AT] = array
        elif self.symbols is not None or has_nan(array):  # other points may have one
            value.meta[NAN] = True
        return value

    def new(self, shape: Iterable[Number], dtype: np.dtype, name: str | None = None) -> ir.Value:
        kind = ir.TensorType(ir.DataType.from_numpy(np.dtype(dtype)))
        value = ir.Value(name=name, shape=as_shape(tuple(shape)), type=kind)
        value.meta[READING] = self
        if self.depth:
            value.meta[DEPTH] = self.depth
        return value

    def value(self, array: Array | None) -> Any:
        """The graph value of an operand, None if omitted; equal arrays become one initializer."""
        if array is None or isinstance(array, ir.Value):
            return array
        array = np.asarray(array)
        if array.size > 1 and not any(array.strides):
            return self._repeated(array)
        where = array.__array_interface__["data"][0], array.strides
        content: Any = array.tobytes() if array.size <= COMPARED_ELEMENTS else where
        key = (array.dtype.str, array.shape, content)
        if key not in self.constants:
            self.constants[key] = self.initializer(array)
        return self.constants[key]

    def _repeated(self, array: np.ndarray) -> ir.Value:
        """A tensor filled with one number: an Expand node, not an initializer full of copies."""
        operands = self.value(array.ravel()[:1].reshape(())), self.value(np.array(array.shape))
        key = self._key("Expand", "", operands, {})
        if key not in self._known:
            made = (self.new(array.shape, array.dtype),)
            self._known[key] = self._recorded("Expand", operands, {}, made)
        return self._known[key][0]

    def initializer(self, array: np.ndarray, name: str | None = None) -> ir.Value:
        """A new initializer that holds an array."""
        value = self.like(array, name)
        held = np.ascontiguousarray(array).reshape(array.shape)
        value.const_value = ir_tensor(held, name)
        self._arrays.append(array)
        return value


def ir_tensor(array: np.ndarray, name: str | None = None) -> ir.TensorProtocol:
    """An array as onnx-ir holds it: strings are bytes."""
    if array.dtype != object:
        return ir.Tensor(array, name=name, dtype=ir.DataType.from_numpy(array.dtype))
    texts = np.char.encode(array.astype(str), "utf-8", "surrogateescape").astype(object)
    return ir.StringTensor(texts, shape=ir.Shape(array.shape), name=name)


def spelled_out(step: Step) -> Mapping[str, Any]:
    """The attributes, with defaults if the operator is a function: ONNX's checker omits them."""
    known = onnx.defs.has(step.op_type, step.version, step.domain)
    schema = onnx.defs.get_schema(step.op_type, step.version, step.domain) if known else None
    bodies = ("has_function", "has_context_dependent_function")  # missing in onnx's stubs
    if not any(getattr(schema, body, False) for body in bodies):
        return step.attrs
    return {**schema_defaults(step.op_type, step.domain, step.version), **step.attrs}


def is_still(step: Step, values: Sequence[ir.Value | None]) -> bool:
    """Whether a step computes constants: from constants, or from a shape without free sizes."""
    if step.op_type in ("Shape", "Size") and not step.domain and values[0] is not None:
        return not is_symbolic(shape_of(values[0]))
    known = (v is None or v.const_value is not None or STILL in v.meta for v in values)
    return not has_bodies(step) and all(known)


def has_bodies(step: Step) -> bool:
    """Whether a step has subgraphs."""
    return any(isinstance(value, ir.Graph) for value in step.attrs.values())


@cache
def type_variables(op_type: str, version: int, count: int) -> tuple[str, ...]:
    """The type variable of every input, the last one repeated where the operator is variadic."""
    names = [port.type_str for port in onnx.defs.get_schema(op_type, version, "").inputs]
    return tuple(names[min(k, len(names) - 1)] for k in range(count))


def is_operand(x: Any) -> bool:
    """Whether an input is an array of plain numbers, a graph value, or left out."""
    return x is None or (hasattr(x, "dtype") and not holds_symbol(x))


def as_constant(number: Any, dtype: np.dtype | None) -> np.ndarray:
    """A Python number or tuple as an array."""
    if dtype is not None:
        return np.asarray(number, dtype)
    array = np.asarray(number)
    return array.astype(np.int64) if array.dtype.kind in "iu" or array.size == 0 else array


def holds_symbol(x: Any) -> bool:
    """Whether an operand is a symbolic number, or a tuple or array with one."""
    if isinstance(x, np.ndarray):
        return x.dtype == object and is_symbolic(list(x.ravel()))
    return is_symbolic(x)


def is_known(array: Array | None) -> bool:
    """Whether an operand is a constant: an array, or an integer initializer."""
    return not isinstance(array, ir.Value) or (array.const_value is not None and AT in array.meta)


def unsymbolic(value: Any) -> Any:
    """An attribute with plain numbers, as attributes cannot be symbolic."""
    if isinstance(value, tuple | list):
        return tuple(map(unsymbolic, value))
    return int(value) if isinstance(value, SymInt) else value


def _plain(value: Any) -> Any:
    """An attribute as onnx-ir takes it."""
    if isinstance(value, np.ndarray):
        return ir_tensor(value)
    return tuple(value) if isinstance(value, list) else value


def _hashable(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    return tuple(value) if isinstance(value, list | tuple) else value


@reading.register(ir.Value)
def _reading(value: ir.Value) -> Recorder:
    return value.meta[READING]
