"""Graph: a random ONNX graph that grows node by node, with the values of its tensors at one point.

Each node is evaluated by ONNX's reference as it is added, so that later nodes can be chosen by
shapes and values: no overflow, no kink nearby, small tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import defs, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

LARGEST = 64
"""The maximum number of elements of a tensor."""

REACH = 1e-3
"""The minimum distance of values to kinks."""


Fits = Callable[[tuple[int, ...]], bool]


class Unfit(Exception):
    """A node that cannot be added: its operands do not fit, or its values are too large."""


@dataclass
class Graph:
    """A graph under construction."""

    rng: np.random.Generator
    opset: int
    symbolic: bool
    """Whether the first dimension of the float inputs is a parameter N."""

    batch: int = 1
    dtype: Any = np.float64
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: dict[str, np.ndarray] = field(default_factory=dict)
    initializers: dict[str, np.ndarray] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    functions: list[onnx.FunctionProto] = field(default_factory=list)
    count: int = 0
    spelled: Callable[[onnx.ModelProto], onnx.ModelProto] = lambda model: model
    """A model as ONNX's reference can evaluate it."""

    # --- randomness

    def integer(self, low: int, high: int) -> int:
        """A random integer from low to high, inclusive."""
        return int(self.rng.integers(low, high + 1))

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def one_of(self, choices: Sequence[Any]) -> Any:
        return choices[self.integer(0, len(choices) - 1)]

    def uniform(self, shape: Sequence[int], dtype: Any = None) -> np.ndarray:
        """Random numbers of either sign, with magnitudes between 0.2 and 1.5."""
        size = self.rng.uniform(0.2, 1.5, shape) * self.rng.choice([-1.0, 1.0], shape)
        return np.asarray(size, dtype or self.dtype)

    # --- tensors

    def name(self, stem: str = "t") -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def input(self, value: np.ndarray) -> str:
        name = self.name("x")
        self.inputs[name] = self.values[name] = np.asarray(value)
        return name

    def initializer(self, value: Any, stem: str = "w") -> str:
        name = self.name(stem)
        self.initializers[name] = self.values[name] = np.asarray(value)
        return name

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        """A constant operand of a node: an initializer, or a Constant node."""
        value = np.asarray(value, dtype)
        if self.chance(0.2):
            return self.node("Constant", [], value=numpy_helper.from_array(value))
        return self.initializer(value, "c")

    def fresh(self, shape: Sequence[int], dtype: Any = None) -> str:
        """A new tensor of the given shape: a weight, or occasionally an input."""
        if len(self.inputs) < 4 and self.chance(0.2):
            return self.input(self.uniform(shape, dtype))
        return self.initializer(self.uniform(shape, dtype))

    def shape(self, name: str) -> tuple[int, ...]:
        return self.values[name].shape

    def rank(self, name: str) -> int:
        return self.values[name].ndim

    def arrays(self, kind: str = "f") -> list[str]:
        """The tensors of a dtype kind, in order of creation."""
        return [
            name for name, value in self.values.items()
            if isinstance(value, np.ndarray) and value.dtype.kind == kind
            and (kind != "f" or value.dtype == self.dtype) and not name.startswith("c")
        ]  # fmt: skip

    def pick(self, fits: Fits = lambda _: True, kind: str = "f") -> str:
        """A tensor whose shape fits, more likely a recent one; raises `Unfit` if there is none."""
        found = [name for name in self.arrays(kind) if fits(self.shape(name))]
        if not found:
            raise Unfit
        made = [name for name in found if name not in self.initializers]
        found = made if made and self.chance(0.8) else found
        return found[-1 - min(int(self.rng.geometric(0.35)) - 1, len(found) - 1)]

    def ranked(self, *ranks: int, full: bool = False) -> str:
        """A tensor of one of the given ranks: an existing one, a reshaped one, or a new one."""
        try:
            if self.chance(0.75):
                return self.pick(lambda s: len(s) in ranks and (not full or 0 not in s))
            x = self.pick(lambda s: 0 not in s)
        except Unfit:
            return self.fresh([self.integer(2, 3) for _ in range(self.one_of(ranks))])
        return self.reshaped(x, self.one_of(ranks))

    def reshaped(self, x: str, rank: int) -> str:
        """x reshaped to another rank: axes of length 1 are added, or the last axes are merged."""
        shape = self.shape(x)
        if len(shape) == rank:
            return x
        if len(shape) > rank:
            return self.node("Reshape", [x, self.constant([*shape[: rank - 1], -1][:rank])])
        if len(shape) and self.chance(0.5) and max(shape[-1:]) in (2, 4, 6):
            target = [*shape[:-1], 2, shape[-1] // 2] + [1] * rank
        else:
            target = [*shape] + [1] * rank
        target = target[:rank]
        keep = self.symbolic and len(shape) and shape[0] == self.batch and rank
        return self.node("Reshape", [x, self.constant([-1, *target[1:]] if keep else target)])

    def clear(self, x: str, *kinks: float) -> str:
        """x, or x plus noise, with all values away from the given kinks."""
        for _ in range(2):
            value = self.values[x]
            if all(np.all(np.abs(value - k) > REACH) for k in kinks):
                return x
            noise = self.initializer(self.uniform(value.shape[1:] if value.ndim else ()) / 3)
            x = self.node("Add", [x, noise])
        raise Unfit

    def distinct(self, x: str) -> str:
        """x, or x plus noise, with no two values equal."""
        for _ in range(2):
            value = np.sort(self.values[x], axis=None)
            if value.size < 2 or np.diff(value).min() > REACH:
                return x
            noise = self.initializer(self.uniform(self.shape(x)) / 3)
            x = self.node("Add", [x, noise])
        raise Unfit

    def bounded(self, x: str, size: float = 2.0) -> str:
        """x, or its tanh where it is large."""
        value = self.values[x]
        if value.size and np.abs(value).max() > size:
            return self.node("Tanh", [x])
        return x

    def axis(self, x: str, least: int = 0) -> int:
        """An axis of x, counted from either end."""
        rank = self.rank(x)
        if rank <= least:
            raise Unfit
        axis = self.integer(least, rank - 1)
        return axis - rank if self.opset >= 11 and self.chance(0.4) else axis

    # --- nodes

    def node(self, op: str, inputs: Sequence[str], outputs: int = 1, **attributes: Any) -> Any:
        """Add a node and return the names of its outputs; raises `Unfit` if it is not allowed.

        The outputs numbered in `without` get no names.
        """
        domain, gone = attributes.pop("domain", ""), attributes.pop("without", ())
        names = [self.name() for _ in range(outputs)]
        self.add(helper.make_node(op, list(inputs), names, domain=domain, **attributes), gone)
        return names[0] if outputs == 1 else ["" if k in gone else n for k, n in enumerate(names)]

    def add(self, made: onnx.NodeProto, without: Sequence[int] = ()) -> None:
        """Add a node as it stands, but for names of outputs."""
        if not made.domain:
            self._typed(made.op_type, made.input)
        results = self._evaluated(made)
        for value in results:
            self._wanted(value)
        for k in without:
            made.output[k] = ""
        self.nodes.append(made)
        self.values.update((n, v) for n, v in zip(made.output, results, strict=True) if n)

    def _typed(self, op: str, inputs: Sequence[str]) -> None:
        """Raise `Unfit` unless the operator takes these types at this opset."""
        try:
            schema = defs.get_schema(op, self.opset, "")
        except defs.SchemaError:
            raise Unfit from None
        kinds = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
        for k, name in enumerate(inputs):
            formal = schema.inputs[min(k, len(schema.inputs) - 1)]
            allowed, value = kinds.get(formal.type_str), self.values.get(name)
            if allowed and isinstance(value, np.ndarray) and type_text(value) not in allowed:
                raise Unfit

    def _evaluated(self, node: onnx.NodeProto) -> list[Any]:
        names = [n for n in dict.fromkeys((*node.input, *captured(node))) if n]
        feeds = {name: self.values[name] for name in names}
        graph = helper.make_graph(
            [node], "one", [helper.make_value_info(n, type_of(feeds[n])) for n in names],
            [onnx.ValueInfoProto(name=n) for n in node.output],
        )  # fmt: skip
        model = helper.make_model(graph, opset_imports=self.imports(), functions=self.functions)
        try:
            with np.errstate(all="ignore"):
                return ReferenceEvaluator(self.spelled(model)).run(None, feeds)
        except Exception as error:
            raise Unfit(str(error)) from None

    def _wanted(self, value: Any) -> None:
        for array in value if isinstance(value, list) else [value]:
            if array is None or not hasattr(array, "dtype"):
                continue
            if array.size > LARGEST:
                raise Unfit
            if array.dtype.kind == "f" and not (np.abs(array) < 100).all():
                raise Unfit

    # --- the model

    def imports(self) -> list[onnx.OperatorSetIdProto]:
        """The domains of the operators, with their versions."""
        more = {"local", *(node.domain for node in self.nodes)} - {""}
        versions = {"": self.opset, **dict.fromkeys(sorted(more), 1)}
        return [helper.make_opsetid(*pair) for pair in versions.items()]

    def dims(self, name: str, value: np.ndarray) -> list[Any]:
        free = self.symbolic and value.dtype.kind == "f" and value.ndim
        free = free and value.shape[0] == self.batch
        return ["N", *value.shape[1:]] if free else list(value.shape)

    def model(self, outputs: Sequence[str]) -> onnx.ModelProto:
        """The graph as a model."""
        infos = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(value.dtype), self.dims(name, value)
            )
            for name, value in self.inputs.items()
        ]  # fmt: skip
        graph = helper.make_graph(
            self.nodes, "random", infos, [self.output(name) for name in outputs],
            [numpy_helper.from_array(v, n) for n, v in self.initializers.items()],
        )  # fmt: skip
        imports = self.imports()
        if not self.functions:
            imports = [i for i in imports if i.domain != "local"]
        return helper.make_model(
            graph, opset_imports=imports, functions=self.functions,
            ir_version=max(8, helper.find_min_ir_version_for(imports, True)),
        )  # fmt: skip

    def output(self, name: str) -> onnx.ValueInfoProto:
        value = self.values[name]
        dims = [None] * value.ndim if self.symbolic else list(value.shape)
        return helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(value.dtype), dims
        )


def type_text(value: np.ndarray) -> str:
    kind = helper.np_dtype_to_tensor_dtype(value.dtype)
    return f"tensor({onnx.TensorProto.DataType.Name(kind).lower()})"


def type_of(value: Any) -> onnx.TypeProto:
    """The type of a tensor, or of a sequence of tensors."""
    if isinstance(value, list):
        return helper.make_sequence_type_proto(type_of(value[0]))
    value = np.asarray(value)
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)


def captured(node: onnx.NodeProto) -> list[str]:
    """The outer tensors that the subgraphs of a node capture."""
    names: list[str] = []
    for attribute in node.attribute:
        graph = attribute.g
        made = {v.name for v in (*graph.input, *graph.initializer)}
        for inner in graph.node:
            names += [n for n in (*inner.input, *captured(inner)) if n and n not in made]
            made |= set(inner.output)
        names += [o.name for o in graph.output if o.name not in made]
    return names


def contained(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes and those of their subgraphs."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            yield from contained(attribute.g.node)
