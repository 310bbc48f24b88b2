"""An interpreter of ONNX graphs over torch tensors: graphs, functions, scopes, types.

Every floating tensor is float64, whatever its declared width. Integers and booleans are tensors of
their own type, strings are NumPy arrays of objects, sequences are lists, an empty optional is None.
"""

from __future__ import annotations

import copy
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, defs, helper, numpy_helper

Kernel = Callable[..., Any]
KERNELS: dict[str, Kernel] = {}
TAKES_STRINGS: set[str] = set()

FLOATS = {TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16}
DTYPES = {
    **dict.fromkeys(FLOATS, torch.float64),
    TensorProto.BOOL: torch.bool,
    TensorProto.INT8: torch.int8,
    TensorProto.INT16: torch.int16,
    TensorProto.INT32: torch.int32,
    TensorProto.INT64: torch.int64,
    TensorProto.UINT8: torch.uint8,
    TensorProto.UINT16: torch.uint16,
    TensorProto.UINT32: torch.uint32,
    TensorProto.UINT64: torch.uint64,
    TensorProto.COMPLEX64: torch.complex128,
    TensorProto.COMPLEX128: torch.complex128,
}
ELEMENTS = {dtype: element for element, dtype in reversed(DTYPES.items())}
ELEMENTS[torch.float64] = TensorProto.DOUBLE
READ_AS = {  # by their names in NumPy and ml_dtypes
    **dict.fromkeys(("float16", "bfloat16", "float32", "float64"), np.float64),
    **dict.fromkeys(("complex64", "complex128"), np.complex128),
    **{name: np.dtype(name) for name in ("bool", "int8", "int16", "int32", "int64")},
    **{name: np.dtype(name) for name in ("uint8", "uint16", "uint32", "uint64")},
}


class NoKernel(NotImplementedError):
    """The operator, with this opset or these attributes, has no kernel here."""


def kernel(*op_types: str, strings: bool = False) -> Callable[[Kernel], Kernel]:
    """Register a kernel for operators: a function of the node and its inputs.

    An omitted input is None. A single output is returned as it is, several as a tuple.
    """

    def declare(function: Kernel) -> Kernel:
        for op_type in op_types:
            assert op_type not in KERNELS, op_type
            KERNELS[op_type] = function
            if strings:
                TAKES_STRINGS.add(op_type)
        return function

    return declare


class Node:
    """A node as its kernel sees it: `node["axis"]` is an attribute, its default, or None."""

    def __init__(self, proto: onnx.NodeProto, opset: int, call: Callable[..., list[Any]]) -> None:
        self.proto, self.opset, self.call = proto, opset, call
        self.op_type = proto.op_type
        self.outputs = len(proto.output)
        self.given = {a.name: a for a in proto.attribute}

    def __getitem__(self, name: str) -> Any:
        if name in self.given:
            return value_of(self.given[name])
        return default(self.op_type, self.opset, self.proto.domain, name)

    def __contains__(self, name: str) -> bool:
        return name in self.given

    def wants(self, k: int) -> bool:
        """Whether output k is named."""
        return k < self.outputs and bool(self.proto.output[k])


@cache
def default(op_type: str, opset: int, domain: str, name: str) -> Any:
    """The default of an attribute in the schema."""
    attributes = defs.get_schema(op_type, opset, domain).attributes
    if name not in attributes or not attributes[name].default_value.name:
        return None
    return value_of(attributes[name].default_value)


def value_of(attribute: onnx.AttributeProto) -> Any:
    """An attribute as a Python value; tensors stay protobufs."""
    value = helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode()
    if attribute.type == onnx.AttributeProto.STRINGS:
        return [v.decode() if isinstance(v, bytes) else v for v in value]
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value


def dtype_of(element: int) -> torch.dtype:
    """The torch type of one of ONNX's types of elements."""
    if element not in DTYPES:
        raise NoKernel(f"elements of type {TensorProto.DataType.Name(element)}")
    return DTYPES[element]


def value(data: Any) -> Any:
    """A value of the interpreter from an array, a protobuf, a list of them, a tensor or None."""
    if data is None:
        return None
    if isinstance(data, list | tuple):
        return [value(x) for x in data]
    if isinstance(data, onnx.SparseTensorProto):
        return dense(data)
    if isinstance(data, TensorProto):
        if data.data_type != TensorProto.STRING:
            dtype_of(data.data_type)
        data = numpy_helper.to_array(data)
    if isinstance(data, torch.Tensor):
        return data.to(torch.float64) if data.dtype.is_floating_point else data
    array = np.asarray(data)
    if array.dtype.kind in "OUST":
        return array.astype(object)
    if array.dtype.name not in READ_AS:
        raise NoKernel(f"elements of type {array.dtype.name}")
    return torch.from_numpy(np.array(array, dtype=READ_AS[array.dtype.name], order="C"))


def dense(sparse: onnx.SparseTensorProto) -> torch.Tensor:
    """A sparse constant as a dense tensor."""
    values, indices = value(sparse.values), value(sparse.indices)
    if indices.ndim == 2:
        indices = torch.from_numpy(np.ravel_multi_index(indices.numpy().T, tuple(sparse.dims)))
    flat = torch.zeros(int(np.prod(sparse.dims)), dtype=values.dtype)
    return flat.index_put((indices,), values).reshape(tuple(sparse.dims))


def integers(x: torch.Tensor | None) -> list[int] | None:
    """A tensor of axes, sizes or indices as Python integers."""
    return None if x is None else [int(k) for k in x.reshape(-1).tolist()]


class Interpreter:
    """Runs the graphs of one model. `seen(name, value)` may replace values of the main graph."""

    def __init__(self, model: onnx.ModelProto, seen: Callable[[str, Any], Any] | None = None):
        self.model, self.seen = model, seen or (lambda name, x: x)
        self.opsets = {i.domain: i.version for i in model.opset_import}
        self.functions = {(f.domain, f.name, f.overload): f for f in model.functions}

    def main(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Every value of the main graph by name."""
        graph = self.model.graph
        scope: ChainMap[str, Any] = ChainMap()
        for name, constant in initializers(graph).items():
            if name not in feeds:
                scope[name] = self.seen(name, constant)
        for name, x in feeds.items():
            scope[name] = self.seen(name, value(x))
        self.steps(graph.node, scope, self.opsets, self.seen)
        return dict(scope)

    def graph(
        self, graph: onnx.GraphProto, args: Sequence[Any], scope: ChainMap[str, Any],
        opsets: Mapping[str, int],
    ) -> list[Any]:
        """The outputs of a subgraph, which sees the scope around it."""
        inner = scope.new_child()
        inner.update(initializers(graph))
        inner.update(zip((i.name for i in graph.input), args, strict=True))
        self.steps(graph.node, inner, opsets)
        return [inner[output.name] for output in graph.output]

    def function(
        self, function: onnx.FunctionProto, node: onnx.NodeProto, args: Sequence[Any],
        opsets: Mapping[str, int],
    ) -> list[Any]:
        """The outputs of a function, which sees its inputs and attributes only."""
        given = {a.name: a for a in function.attribute_proto}
        given |= {a.name: a for a in node.attribute}
        nodes = [filled(n, given) for n in function.node]
        padded = [*args, *[None] * (len(function.input) - len(args))]
        scope = ChainMap(dict(zip(function.input, padded, strict=True)))
        own = {i.domain: i.version for i in function.opset_import}
        self.steps(nodes, scope, {**opsets, **own})
        return [scope[name] for name in function.output]

    def steps(
        self, nodes: Sequence[onnx.NodeProto], scope: ChainMap[str, Any], opsets: Mapping[str, int],
        seen: Callable[[str, Any], Any] = lambda name, x: x,
    ) -> None:
        """Run nodes in their order and write their outputs into the scope."""
        for node in nodes:
            args = [scope[name] if name else None for name in node.input]
            outputs = self.step(node, args, scope, opsets)
            for name, y in zip(node.output, outputs, strict=False):
                if name:
                    scope[name] = seen(name, y)

    def step(
        self, node: onnx.NodeProto, args: list[Any], scope: ChainMap[str, Any],
        opsets: Mapping[str, int],
    ) -> Sequence[Any]:
        """The outputs of one node: by a function of the model, a kernel, or the schema's body."""
        domain = "" if node.domain == "ai.onnx" else node.domain
        named = self.functions.get((domain, node.op_type, node.overload))
        if named is not None:
            return self.function(named, node, args, opsets)
        opset = opsets.get(domain, opsets.get("ai.onnx", 1) if not domain else 1)
        if domain or node.op_type not in KERNELS:
            return self.function(body(node, domain, opset, args), node, args, opsets)
        if any(isinstance(x, np.ndarray) for x in args) and node.op_type not in TAKES_STRINGS:
            raise NoKernel(f"{node.op_type} of strings")
        call = lambda graph, args: self.graph(graph, args, scope, opsets)  # noqa: E731
        try:
            y = KERNELS[node.op_type](Node(node, opset, call), *args)
        except RuntimeError as error:
            if "not implemented for" in str(error):
                raise NoKernel(f"{node.op_type}-{opset}: {error}") from error
            raise
        return y if isinstance(y, tuple) else (y,)


def initializers(graph: onnx.GraphProto) -> dict[str, Any]:
    """The constants that a graph holds."""
    held = {tensor.name: value(tensor) for tensor in graph.initializer}
    return held | {t.values.name: value(t) for t in graph.sparse_initializer}


def filled(node: onnx.NodeProto, given: Mapping[str, onnx.AttributeProto]) -> onnx.NodeProto:
    """A node of a function body, with attribute references resolved."""
    result = copy.deepcopy(node)
    del result.attribute[:]
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            if attribute.ref_attr_name in given:
                taken = result.attribute.add()
                taken.CopyFrom(given[attribute.ref_attr_name])
                taken.name = attribute.name
            continue
        kept = result.attribute.add()
        kept.CopyFrom(attribute)
        for graph in (kept.g, *kept.graphs):
            inner = [filled(n, given) for n in graph.node]
            del graph.node[:]
            graph.node.extend(inner)
    return result


def body(
    node: onnx.NodeProto, domain: str, opset: int, args: Sequence[Any]
) -> onnx.FunctionProto:
    """The function body in the schema of an operator, at an opset."""
    where = f"{domain or 'ai.onnx'}.{node.op_type}-{opset}"
    try:
        schema = defs.get_schema(node.op_type, opset, domain)
    except defs.SchemaError as error:
        raise NoKernel(where) from error
    made = onnx.FunctionProto()
    versions = [v for v in schema.function_opset_versions if v <= opset]
    by_context = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
    if versions:
        made.ParseFromString(schema.get_function_with_opset_version(max(versions)))
    elif by_context:
        types = [type_of(x).SerializeToString() for x in args]
        made.ParseFromString(
            schema.get_context_dependent_function_with_opset_version(
                max(by_context), node.SerializeToString(), types
            )
        )
    else:
        raise NoKernel(where)
    if not made.attribute_proto:
        made.attribute_proto.extend(
            a.default_value for a in schema.attributes.values() if a.default_value.name
        )
    return made


def type_of(x: Any) -> onnx.TypeProto:
    """The ONNX type of a value, with its shape."""
    if x is None:
        return onnx.TypeProto()
    if isinstance(x, list):
        return helper.make_sequence_type_proto(type_of(x[0]))
    if isinstance(x, np.ndarray):
        return helper.make_tensor_type_proto(TensorProto.STRING, x.shape)
    return helper.make_tensor_type_proto(ELEMENTS[x.dtype], tuple(x.shape))
