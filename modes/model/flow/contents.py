"""Contents: the tensors of a model by name, its steps in order, its weights as arrays.

A pickle holds the graph as bytes and large weights as arrays. Arrays can be pickled out of band, so
that no weight is copied on the way to another process, and they are not subject to protobuf's limit
of 2 GiB per message.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
import onnx
import onnx_ir as ir
from onnx import defs

from ....jacobians.errors import UnknownTensor, closest
from ....jacobians.hooks import Shown
from ....jacobians.text import joined
from ....jacobians.threads import Latest, Lock, cached_property
from ....ops.node import Step
from ....ops.registry import version
from .steps import Limits, array_of, steps_of

Dim = int | str | None


class TensorSpec(NamedTuple):
    """The `name`, `shape` and `dtype` that a model declares for a tensor; None if it does not."""

    name: str
    shape: tuple[Dim, ...] | None
    dtype: np.dtype[Any] | None

    def __str__(self) -> str:
        dims = ["..."] if self.shape is None else ["?" if d is None else str(d) for d in self.shape]
        return f"{self.name} {self.dtype or '?'}[{','.join(dims)}]"


KINDS = {"route": 16, "gradient": 8, "forecast": 64, "linear": 1024, "unkept": sys.maxsize}
"""The kinds of results that are cached with a model, and how many of each: the one that was used
least recently goes first.

A `"forecast"` says whether all sizes are known before a run, a `"route"` has the derivatives
between some tensors, a `"gradient"` is a recorded graph, `"linear"` says whether a step is linear
in some inputs, and `"unkept"` are outputs of control flow with the reason to unroll it.
"""


class Contents(Shown):
    """A model at opset 21 or above, with its functions inlined, as engines and rules see it."""

    def __init__(self, model: ir.Model, limits: Limits | None = None) -> None:
        self.ir = model
        self.limits = limits or Limits()
        self.name = model.graph.name or ""
        self.opset = model.opset_imports.get("", 1)
        self.sessions: Latest[Any, Any] = Latest(4)  # of ONNX Runtime
        self._cache = version(), caches()
        self.lock = Lock()  # of the sessions and the routes
        self.tensors: dict[str, dict[str, Any]] = {}  # device -> the constants as tensors there
        self.programs: Latest[Any, Any] = Latest(8)  # of PyTorch, by names and shapes
        self.lean = False  # whether runs should save memory rather than time
        self._bodies: dict[ir.Graph, tuple[Step, ...]] = {}
        self._variants: Latest[Any, Any] = Latest(8)

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickle without the cached results: sessions cannot be pickled."""
        return restored, (type(self), self.limits, self.lean, *pack_model(self.ir))

    @property
    def cache(self) -> dict[str, Latest[Any, Any]]:
        """The cached results for the current declarations, by kind and key."""
        if self._cache[0] != version():
            self._cache = version(), caches()
        return self._cache[1]

    @cached_property
    def inputs(self) -> dict[str, TensorSpec]:
        """The graph inputs, which the caller must give."""
        return _specs(self.ir.graph.inputs)

    @cached_property
    def outputs(self) -> dict[str, TensorSpec]:
        """The graph outputs."""
        return _specs(self.ir.graph.outputs)

    @cached_property
    def initializers(self) -> dict[str, TensorSpec]:
        """The weights and other constants stored in the model."""
        return _specs(self.ir.graph.initializers.values())

    @cached_property
    def intermediates(self) -> dict[str, TensorSpec]:
        """All tensors that are computed on the way to the outputs."""
        made = _specs(value for node in self.ir.graph for value in node.outputs)
        return {name: spec for name, spec in made.items() if name not in self.outputs}

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The nodes, in the order they run."""
        return steps_of(self.ir.graph, self.ir.opset_imports)

    def body(self, graph: ir.Graph) -> tuple[Step, ...]:
        """The nodes of a subgraph `graph` (of If, Loop, Scan), in the order they run."""
        if graph not in self._bodies:
            self._bodies[graph] = steps_of(graph, self.ir.opset_imports)
        return self._bodies[graph]

    @cached_property
    def constants(self) -> dict[str, np.ndarray]:
        """The initializers as read-only arrays."""
        values = self.ir.graph.initializers.items()
        return {name: _frozen(array_of(value)) for name, value in values}

    @cached_property
    def turned(self) -> dict[str, tuple[str, Any]]:
        """Intermediates that are transposed constants: name -> (constant, permutation)."""
        steps = (step for step in self.steps if step.op_type == "Transpose" and not step.domain)
        found = ((str(s.outputs[0]), str(s.inputs[0]), s.attrs.get("perm")) for s in steps)
        return {
            name: (source, order)
            for name, source, order in found
            if source in self.constants and name not in self.outputs
        }

    @cached_property
    def patterns(self) -> tuple[frozenset[str], ...]:
        """The tensors inside each pattern that was written in a stable form at loading."""
        held = (node.metadata_props.get(INSIDE) for node in self.ir.graph)
        return tuple(frozenset(names.splitlines()) for names in held if names)

    def literal(self, names: Iterable[str]) -> Self:
        """The model in which the patterns around the tensors `names` are as they were stored."""
        found = frozenset(names).intersection(frozenset[str]().union(*self.patterns))
        if not found:
            return self
        return self.variant(found, partial(restore, names=found))

    def variant(self, key: Any, change: Callable[[ir.Model], None]) -> Self:
        """The model after a `change` of a copy of its graph, cached by a `key`."""
        with self.lock:
            if key not in self._variants:
                copy = self.ir.clone()
                change(copy)
                self._variants[key] = type(self)(copy, self.limits)
            found: Self = self._variants[key]
            return found

    @cached_property
    def changed(self) -> dict[str, str]:
        """Parameters that the exporter merged or folded, some of them gone -> what to know."""
        found: dict[str, str] = json.loads(self.ir.metadata_props.get(CHANGED, "{}"))
        return found

    @property
    def estimates(self) -> bool:
        """Whether tangents pass roundings, in all derivatives of the model."""
        return ESTIMATES in self.ir.metadata_props

    @property
    def estimating(self) -> Self:
        """The same model, with straight-through estimators in its derivatives."""
        if self.estimates:
            return self
        return self.variant(ESTIMATES, lambda copy: copy.metadata_props.update({ESTIMATES: "1"}))

    def redeclare(self, name: str, shape: tuple[int, ...]) -> None:
        """Take from the shape of the tensor `name` the sizes that are others in `shape`."""
        with self.lock:
            values = ir.convenience.create_value_mapping(self.ir.graph, include_subgraphs=False)
            value = values[name]
            known = value.shape or ir.Shape([])
            known = known if len(known) == len(shape) else ir.Shape([None] * len(shape))
            pairs = zip(known, shape, strict=True)
            value.shape = ir.Shape([None if isinstance(n, int) and n != m else n for n, m in pairs])
            for kind in ("outputs", "intermediates"):
                vars(self).pop(kind, None)
            self.sessions.clear()
            self._cache = version(), caches()

    def forget(self, sizes: Container[str]) -> None:
        """Take the names of some `sizes` from all shapes, with what is cached of these."""
        made = (value for node in ir.traversal.RecursiveGraphIterator(self.ir.graph)
                for value in node.outputs)  # fmt: skip
        with self.lock:
            for value in (*self.ir.graph.inputs, *made):
                if value.shape is not None:
                    dims = (d if isinstance(d, int) else d.value for d in value.shape)
                    value.shape = ir.Shape(None if d in sizes else d for d in dims)
            for name in ("inputs", "outputs", "intermediates"):
                vars(self).pop(name, None)
            self.sessions.clear()
            self._cache = version(), caches()

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of all tensors."""
        graph = self.ir.graph
        made = (value for node in graph for value in node.outputs)
        found = (*graph.inputs, *graph.initializers.values(), *made, *graph.outputs)
        return frozenset(value.name for value in found if value.name)

    def __contains__(self, name: object) -> bool:
        """Whether the model has a tensor of this name."""
        return name in self.names

    def spec(self, name: str) -> TensorSpec:
        """The tensor with this `name`, wherever in the model it is."""
        kinds = (self.inputs, self.outputs, self.initializers, self.intermediates)
        for kind in kinds:
            if name in kind:
                return kind[name]
        known = [tensor for kind in kinds for tensor in kind]
        hint, parts = closest(name, known), name.replace(",", " ").split()
        if len(parts) > 1 and set(parts) <= set(known):
            hint = f" {' and '.join(map(repr, parts))} are names of their own: name each."
        hint += f" {self.changed[name]}" if name in self.changed else ""
        if folded := next((each for each in self.initializers if each.startswith("onnx::")), None):
            hint += (f" Weights that PyTorch's exporter folded have names such as {folded!r}: "
                     "torch.onnx.export(..., do_constant_folding=False) keeps theirs.")  # fmt: skip
        raise UnknownTensor(f"the model has no tensor {name!r}.{hint}")

    def __repr__(self) -> str:
        size = sum(array.size for array in self.constants.values())
        inputs, outputs = (joined(tuple(specs.values()), ", ", width=80)
                           for specs in (self.inputs, self.outputs))  # fmt: skip
        return (
            f"{type(self).__name__} {self.name!r}: ({inputs}) ↦ ({outputs}), opset {self.opset}, "
            f"{len(self.steps):,} nodes, {size:,} numbers in {len(self.constants)} initializers"
        )


def caches() -> dict[str, Latest[Any, Any]]:
    """An empty cache of each kind."""
    return {kind: Latest(most) for kind, most in KINDS.items()}


def restored(
    kind: type[Contents], limits: Limits, lean: bool, graph: bytes, large: dict[str, Any]
) -> Contents:
    """A model from the parts of a pickle."""
    model = kind(unpack_model(graph, large), limits)
    model.lean = lean
    return model


def _specs(values: Iterable[ir.Value]) -> dict[str, TensorSpec]:
    return {value.name: _spec(value) for value in values if value.name}


def _spec(value: ir.Value) -> TensorSpec:
    dims = value.shape
    shape = None if dims is None else tuple(d if isinstance(d, int) else d.value for d in dims)
    kind = value.dtype if isinstance(value.type, ir.TensorType) else None  # not a sequence, a map
    return TensorSpec(value.name or "", shape, np.dtype(kind.numpy()) if kind else None)


def _frozen(array: np.ndarray) -> np.ndarray:
    array = array.view()
    array.flags.writeable = False
    return array


def free_sizes(inputs: Mapping[str, TensorSpec]) -> dict[str, dict[int, str]]:
    """The sizes that inputs leave open, by axis: the symbol, or a name where it has none."""
    return {
        name: {
            axis: n or f"{name}.shape[{axis}]"
            for axis, n in enumerate(spec.shape or ()) if not isinstance(n, int)
        }
        for name, spec in inputs.items() if spec.dtype is not None
    }  # fmt: skip


CHANGED = "onnxjac.changed"
"""Key of the metadata with JSON: parameters that an exporter merged or folded -> what to know."""

ESTIMATES = "onnxjac.straight_through"
"""Key of the metadata of a model in whose derivatives roundings are straight-through estimators."""

STORED, INSIDE = "onnxjac.stored", "onnxjac.inside"
"""Keys of the metadata of a node that was the last one of a pattern: its operator and inputs as
they were stored, and the tensors inside the pattern, one a line.
"""


def restore(model: ir.Model, names: frozenset[str]) -> None:
    """Write the patterns around some tensors as they were stored."""
    values = ir.convenience.create_value_mapping(model.graph, include_subgraphs=False)
    for node in list(model.graph):
        if not names.isdisjoint(node.metadata_props.get(INSIDE, "").splitlines()):
            del node.metadata_props[INSIDE]
            op_type, *operands = node.metadata_props[STORED].split("\n")
            become(node, op_type, [values.get(name) for name in operands])


def become(node: ir.Node, op_type: str, operands: Sequence[ir.Value | None]) -> None:
    """Turn a node into another operator of other inputs, without attributes."""
    node.op_type = op_type
    node.resize_inputs(len(operands))
    for index, value in enumerate(operands):
        node.replace_input_with(index, value)
    node.attributes.clear()


GRAPH_BYTES = 1024
"""Bytes up to which a weight stays in the graph."""


def pack_model(model: ir.Model) -> tuple[bytes, dict[str, np.ndarray]]:
    """The graph as bytes without its large weights, and these weights by name."""
    proto, large = ir.to_proto(model), {}
    for tensor in proto.graph.initializer:
        array = array_of(model.graph.initializers[tensor.name])
        if array.nbytes > GRAPH_BYTES and array.dtype.kind in "fiub":
            large[tensor.name] = np.ascontiguousarray(array)
            hollow = {"name": tensor.name, "data_type": tensor.data_type, "dims": tensor.dims}
            tensor.CopyFrom(onnx.TensorProto(**hollow))
    return proto.SerializeToString(), large


def unpack_model(graph: bytes, large: dict[str, np.ndarray]) -> ir.Model:
    """The model from the results of `pack_model`."""
    model = ir.from_proto(onnx.load_model_from_string(graph))
    for name, array in large.items():
        model.graph.initializers[name].const_value = ir.Tensor(array, name=name)
    return model


# -- protobuf graphs, with their subgraphs; schemas; the lowest opsets that suffice ----------------


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs in the attributes of a node (If, Loop, Scan)."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def nodes_inside(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes, each followed by the nodes of its subgraphs."""
    for node in nodes:
        yield node
        for graph in subgraphs(node):
            yield from nodes_inside(graph.node)


def graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """The graph and every graph inside it."""
    yield graph
    for node in graph.node:
        for inner in subgraphs(node):
            yield from graphs(inner)


def nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Every node of the model, graph by graph."""
    for graph in graphs(model.graph):
        yield from graph.node


def owned(
    model: onnx.ModelProto,
) -> Iterator[tuple[onnx.ModelProto | onnx.FunctionProto, onnx.NodeProto]]:
    """Every node of the model and of its functions, each with the model or function it is in."""
    yield from ((model, node) for node in nodes(model))
    yield from (
        (function, node) for function in model.functions for node in nodes_inside(function.node)
    )


def names_in_graph(graph: onnx.GraphProto) -> set[str]:
    """The names of all tensors in the graph and in every graph inside it."""
    return {
        name for g in graphs(graph) for name in (
            *(value.name for value in (*g.input, *g.output, *g.initializer)),
            *(name for node in g.node for name in (*node.input, *node.output)),
        )
    }  # fmt: skip


def unique_name(name: str, taken: set[str]) -> str:
    """The name, numbered if it is taken; the result is added to `taken`."""
    chosen, k = name, 1
    while chosen in taken:
        chosen, k = f"{name}_{k}", k + 1
    taken.add(chosen)
    return chosen


def opset(model: onnx.ModelProto | onnx.FunctionProto, domain: str = "") -> int | None:
    """The version of a domain that the model imports; the default domain has two names."""
    aliases = ("", "ai.onnx") if domain in ("", "ai.onnx") else (domain,)
    return next((o.version for o in model.opset_import if o.domain in aliases), None)


def assign(repeated: Any, values: Iterable[Any]) -> None:
    """Replace the values of a repeated field of a protobuf."""
    kept = list(values)  # which may come from the field itself
    del repeated[:]
    repeated.extend(kept)


def schema_in(model: onnx.ModelProto, domain: str, op_type: str) -> defs.OpSchema | None:
    """The ONNX schema of an operator at the version that the model imports; None if none."""
    return schema_of(op_type, domain, opset(model, domain) or 1)


def schema_of(op_type: str, domain: str, version: int) -> defs.OpSchema | None:
    """The ONNX schema of an operator at a version of its domain; None if there is none."""
    if not 0 < version < 2**31 or not defs.has(op_type, version, domain):
        return None
    return defs.get_schema(op_type, version, domain)


WORKING_OPSET = 21
"""The opset of the default domain that models are raised to."""


def lowest_opsets(model: Contents) -> dict[str, int]:
    """The opset of each domain that the model uses; for the default domain, the lowest opset, from
    `WORKING_OPSET` on, in which all of the model's operators keep their meaning.

    The default domain is always included: derivatives are made of its operators.
    """
    nodes = list(ir.traversal.RecursiveGraphIterator(model.ir.graph))
    used = {node.op_type for node in nodes if not node.domain}
    lowest = max([WORKING_OPSET, *(
        defs.get_schema(op_type, model.opset).since_version
        if defs.has(op_type, model.opset) else model.opset for op_type in used
    )])  # fmt: skip
    given = model.ir.opset_imports.get("", lowest)
    domains = {node.domain for node in nodes}
    others = {d: v for d, v in model.ir.opset_imports.items() if d in domains}
    return {**others, "": min(given, lowest)}
