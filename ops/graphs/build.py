"""Build: graphs taken out of a recording, without unused nodes; an onnx-ir model of one."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from ...jacobians import Array, Shape, dtype_of, shape_of
from ...jacobians.threads import cached_property
from .recorder import Recorder
from .shapes import READING, as_shape
from .simplify import TABLE, Rewrite

IR_VERSION = 10
"""The IR version of opset 21; newer opsets raise it below."""


V = ""
"""The key of v among the inputs of a product: no residual has it."""


@dataclass(frozen=True)
class Graph:
    """inputs ↦ outputs, by name: what an engine compiles.

    A part of a model, whose shapes may be unknown; or a product, v and residuals ↦ y, whose shapes
    are static: v, (*columns, *in_shape), is one of its inputs, and y, (*columns, *out_shape), its
    output. Constants are values with numbers. Recorders of this `kind` add to the nodes.
    """

    kind: type[Recorder]
    opset_imports: dict[str, int]
    nodes: list[ir.Node]
    inputs: Mapping[str, ir.Value]
    outputs: Mapping[str, ir.Value]

    @property
    def v(self) -> ir.Value:
        """The argument of a product."""
        return self.inputs[V]

    @property
    def residuals(self) -> dict[str, ir.Value]:
        """The further inputs of a product, by the names of their tensors at a point."""
        return {name: x for name, x in self.inputs.items() if name != V}

    @property
    def y(self) -> ir.Value:
        """The result of a product."""
        return next(iter(self.outputs.values()))

    @cached_property
    def constants(self) -> dict[int, np.ndarray]:
        """The numbers of the constants, by the identities of their values."""
        met = (*self.outputs.values(), *(x for node in self.nodes for x in operands_of(node)))
        return {id(x): x.const_value.numpy() for x in met if x.const_value is not None}

    def array(self, value: ir.Value) -> np.ndarray | None:
        """The numbers of a constant; None where the value is computed."""
        return self.constants.get(id(value))

    @property
    def has_bodies(self) -> bool:
        """Whether a node has subgraphs."""
        return next(nested_graphs(self.nodes), None) is not None

    @property
    def meets_nothing(self) -> bool:
        """Whether some tensor has no elements: engines fail at empty tensors in many ways."""
        met = (x for node in self.nodes for x in (*node.inputs, *node.outputs) if x is not None)
        return any(0 in shape_of(x) and dtype_of(x).kind not in "iu" for x in met)

    def new(self, shape: Shape, dtype: np.dtype, name: str | None = None) -> ir.Value:
        """A new value."""
        kind = ir.TensorType(ir.DataType.from_numpy(dtype))
        return ir.Value(name=name, shape=as_shape(shape), type=kind)

    def uses(self, value: ir.Value) -> list[tuple[ir.Node, int]]:
        """The nodes that read a value, each with the index of the input."""
        return [(use.node, use.idx) for use in value.uses() if id(use.node) in self._present]

    @cached_property
    def _present(self) -> frozenset[int]:
        """The identities of the nodes, also of those inside subgraphs."""
        return frozenset(map(id, every(self.nodes)))


def simplify_graph(graph: Graph, *engines: str) -> Graph:
    """A copy of a graph, on values of its own, with the rewrites for some engines.

    A value that is given as an input is not computed. Inputs of products are numbered, as are all
    values in them later: their names may be the same.
    """
    nodes, known, op = list[ir.Node](), dict[int, ir.Value](), None
    for k, (name, x) in enumerate(graph.inputs.items()):
        named = name if graph.kind.is_model else f"input_{k}"
        known[id(x)] = ir.Value(name=named, shape=x.shape, type=x.type)
        known[id(x)].meta.update(x.meta)
    given = frozenset(known)
    for node in graph.nodes:
        made, y = None, node.outputs[0]
        for row in (row for e in engines for row in TABLE.get((node.op_type, e), ())):
            if made is None and not node.domain and matches_pattern(row, node):
                if op is None:
                    op = graph.kind(graph.opset_imports)
                    op.nodes = nodes
                operands = [x and copied_value(x, known) for x in node.inputs]
                attrs = {key: attribute.value for key, attribute in node.attributes.items()}
                made = row.rule(op, *operands, **attrs)
        if made is None:
            nodes.append(copied_node(node, known, given))
            continue
        if made.shape is None:  # not inferred
            made.shape, made.type = y.shape, y.type
            made.meta.update(y.meta)
        if id(y) not in given:
            known[id(y)] = made
    outputs = {name: copied_value(y, known) for name, y in graph.outputs.items()}
    inputs = {name: known[id(x)] for name, x in graph.inputs.items()}
    copy = replace(graph, nodes=nodes, inputs=inputs, outputs=outputs)
    if graph.kind.is_model and op is None:
        return copy
    needed, used = reachable(copy, [*outputs.values()])
    for value in () if graph.kind.is_model else used:
        if value.producer() is not None or value.const_value is not None:
            value.name = None
    return replace(copy, nodes=needed)


def matches_pattern(row: Rewrite, node: ir.Node) -> bool:
    """Whether a node has the pattern of a row."""
    if row.after is None:
        return True
    k, op_type = row.after
    x = node.inputs[k]
    before = None if x is None else x.producer()
    return before is not None and before.op_type == op_type and not before.domain


def build(
    recorder: Recorder | Graph, inputs: Iterable[ir.Value], outputs: Mapping[str, Array], name: str,
    kept: Iterable[ir.Value] = (),
) -> ir.Model:  # fmt: skip
    """The model from some inputs to some outputs, each output under its given name.

    The `kept` values stay in the model even if no output needs them.
    """
    entries = list(inputs)
    results = [name_value(recorder, value, text) for text, value in outputs.items()]
    wanted = [*results, *kept]
    nodes, used = reachable(recorder, wanted)
    trim(nodes, wanted)
    inside = {id(v) for body in nested_graphs(nodes) for v in body.initializers.values()}
    initializers = [v for v in used if v.const_value is not None and id(v) not in inside]
    give_names(entries, initializers, nodes)
    if isinstance(recorder, Recorder) or not recorder.kind.is_model:  # a model has names inside
        name_nodes(nodes)
        name_inside(entries, initializers, nodes)
    graph = ir.Graph(
        entries, results, nodes=nodes, initializers=initializers, name=name,
        opset_imports=recorder.opset_imports,
    )  # fmt: skip
    version = ir_version(recorder.opset_imports.get("", 1))
    return ir.Model(graph, ir_version=version, producer_name="onnxjac")


def ir_version(opset: int) -> int:
    """The IR version that an opset of the default domain was released with."""
    return {21: 10, 22: 10, 23: 11, 24: 11, 25: 12}.get(opset, 13 if opset > 25 else IR_VERSION)


def name_value(recorder: Recorder | Graph, value: Array, name: str) -> ir.Value:
    """The value under a name: renamed if it has none yet, else copied."""
    value = recorder.value(value) if isinstance(recorder, Recorder) else value
    if value.producer() is None:
        return copy_value(recorder, value, name)
    value.name = value.name or name
    return value if value.name == name else copy_value(recorder, value, name)


def copy_value(recorder: Recorder | Graph, value: ir.Value, name: str) -> ir.Value:
    made = recorder.new((), dtype_of(value), name)
    made.shape = value.shape  # some sizes may be symbolic
    recorder.nodes.append(ir.Node("", "Identity", [value], outputs=[made]))
    return made


def reachable(
    recorder: Recorder | Graph, results: list[ir.Value], given: Iterable[ir.Value] = ()
) -> tuple[list[ir.Node], list[ir.Value]]:
    """The nodes that the results need beside the `given` values, in recorded order, and every value
    these read.
    """
    known = {id(value) for value in given}
    needed = {id(value) for value in results} - known
    nodes: list[ir.Node] = []
    used: dict[int, ir.Value] = {id(value): value for value in results}
    for node in reversed(recorder.nodes):
        if any(id(value) in needed for value in node.outputs):
            nodes.append(node)
            present = list(operands_of(node))
            needed.update(id(value) for value in present if id(value) not in known)
            used.update((id(value), value) for value in present)
    return nodes[::-1], list(used.values())


def part(
    recorder: Recorder, inputs: Iterable[ir.Value], outputs: Iterable[ir.Value],
    kept: Iterable[ir.Value] = (), name: str = "part",
) -> ir.Model:  # fmt: skip
    """A copy of the nodes from some values to others, as a model; the recording goes on."""
    entries, results, kept = list(inputs), list(outputs), list(kept)
    nodes, used = reachable(recorder, [*results, *kept], entries)
    give_all_names(recorder, entries)
    known: dict[int, ir.Value] = {}
    made = [copied_node(node, known) for node in nodes]
    trim(made, [known[id(value)] for value in (*results, *kept) if id(value) in known])
    graph = ir.Graph(
        [copied_value(value, known) for value in entries],
        [copied_value(value, known) for value in results], nodes=made,
        initializers=[copied_value(x, known) for x in used if x.const_value is not None],
        name=name, opset_imports=recorder.opset_imports,
    )  # fmt: skip
    version = ir_version(recorder.opset_imports.get("", 1))
    return ir.Model(graph, ir_version=version, producer_name="onnxjac")


def copied_value(value: ir.Value, known: dict[int, ir.Value]) -> ir.Value:
    """A value like another one, which `known` has by its identity from then on."""
    if id(value) not in known:
        made = ir.Value(name=value.name, shape=value.shape, type=value.type,
                        const_value=value.const_value)  # fmt: skip
        if (op := value.meta.get(READING)) is not None:
            made.meta[READING] = op
        known[id(value)] = made
    return known[id(value)]


def copied_node(
    node: ir.Node, known: dict[int, ir.Value], given: Container[int] = ()
) -> ir.Node:  # fmt: skip
    """A copy of a node with its bodies, on the `known` copies of its operands.

    Its outputs that are `given`, by identity, are computed under other names.
    """
    attributes = [
        ir.AttrGraph(name, copied_graph(attribute.value, known))
        if attribute.type is ir.AttributeType.GRAPH else attribute
        for name, attribute in node.attributes.items()
    ]  # fmt: skip
    inputs = [None if x is None else copied_value(x, known) for x in node.inputs]
    outputs = [ir.Value() if id(y) in given else copied_value(y, known) for y in node.outputs]
    return ir.Node(node.domain, node.op_type, inputs, attributes, outputs=outputs, name=node.name)


def copied_graph(graph: ir.Graph, known: dict[int, ir.Value]) -> ir.Graph:
    """A body like another one."""
    inputs = [copied_value(value, known) for value in graph.inputs]
    held = [copied_value(value, known) for value in graph.initializers.values()]
    nodes = [copied_node(node, known) for node in graph]
    outputs = [copied_value(value, known) for value in graph.outputs]
    return ir.Graph(inputs, outputs, nodes=nodes, initializers=held, name=graph.name,
                    opset_imports=graph.opset_imports)  # fmt: skip


def give_all_names(recorder: Recorder, inputs: Iterable[ir.Value]) -> None:
    """Name all values and nodes of a recording that have no name yet."""
    entries, held = list(inputs), list[ir.Value]()
    for node in recorder.nodes:
        held += (x for x in operands_of(node) if x.const_value is not None)
    constants = [*{id(x): x for x in held}.values()]
    give_names(entries, constants, recorder.nodes)
    name_nodes(recorder.nodes)
    name_inside(entries, constants, recorder.nodes)


def trim(nodes: Iterable[ir.Node], wanted: Iterable[ir.Value] = ()) -> None:
    """Leave out the statistics of LayerNormalization that nothing reads: ONNX has no type for them
    in double.
    """
    for node in (n for n in nodes if n.op_type == "LayerNormalization"):
        read = [k for k, value in enumerate(node.outputs) if value.uses() or value in wanted]
        node.resize_outputs(read[-1] + 1)


def operands_of(node: ir.Node) -> Iterator[ir.Value]:
    """The values that a node reads: its inputs, and what its subgraphs capture."""
    yield from (value for value in node.inputs if value is not None)
    for graph in graphs_of(node):
        own = {*graph.inputs, *(value for node in graph for value in node.outputs)}
        used = (*graph.outputs, *(value for node in graph for value in operands_of(node)))
        yield from (value for value in used if value not in own)


def graphs_of(node: ir.Node) -> Iterator[ir.Graph]:
    for attribute in node.attributes.values():
        if attribute.type is ir.AttributeType.GRAPH:
            yield attribute.value


def give_names(inputs: list[ir.Value], initializers: list[ir.Value], nodes: list[ir.Node]) -> None:
    """Name unnamed values: constants by number, node outputs after their operator."""
    made = [value for node in nodes for value in node.outputs]
    taken = {value.name for value in (*inputs, *initializers, *made) if value.name}
    for value in initializers:
        if not value.name:
            value.name = fresh("constant", taken)
    for node in nodes:
        for value in node.outputs:
            if value.name is None:
                value.name = fresh(node.op_type.lower(), taken)


def name_nodes(nodes: list[ir.Node]) -> None:
    """Give unnamed nodes unique names: those chosen by onnx-ir may repeat an existing one."""
    taken = {node.name for node in nodes if node.name}
    for node in nodes:
        node.name = node.name or fresh(node.op_type, taken)


def name_inside(
    inputs: list[ir.Value], initializers: list[ir.Value], nodes: list[ir.Node]
) -> None:
    """Make the names in subgraphs unique, outside of them and across all subgraphs."""
    made = [value for node in nodes for value in node.outputs]
    taken = {str(value.name) for value in (*inputs, *initializers, *made)}
    called = {str(node.name) for node in nodes}
    for graph in nested_graphs(nodes):
        for node in graph:
            if not node.name or node.name in called:
                node.name = fresh(node.op_type, called)
            called.add(node.name)
        for value in (*graph.inputs, *(value for node in graph for value in node.outputs)):
            producer = value.producer()
            if not value.name or value.name in taken:
                value.name = fresh(producer.op_type.lower() if producer else "formal", taken)
            taken.add(value.name)


def every(nodes: Iterable[ir.Node]) -> Iterator[ir.Node]:
    """The nodes, each followed by the nodes of its subgraphs."""
    for node in nodes:
        yield node
        for graph in graphs_of(node):
            yield from every(graph)


def nested_graphs(nodes: Iterable[ir.Node]) -> Iterator[ir.Graph]:
    """The subgraphs of nodes, each before the subgraphs nested in it."""
    for node in nodes:
        for graph in graphs_of(node):
            yield graph
            yield from nested_graphs(graph)


def body_of(
    recorder: Recorder, inputs: Iterable[ir.Value], outputs: Iterable[Array], name: str
) -> ir.Graph:
    """The subgraph recorded in a `body()`, each output a different value that it computes."""
    results, formals = list[ir.Value](), list(inputs)
    for value in map(recorder.value, outputs):
        if value.producer() in recorder.nodes and value not in results:
            results.append(value)
        else:
            made = copy_value(recorder, value, "")
            made.name = None
            results.append(made)
    nodes, _ = reachable(recorder, results)
    for value in (*formals, *(value for node in nodes for value in node.outputs)):
        node = value.producer()
        value.name = value.name or fresh(f"{node.op_type.lower() if node else 'formal'}_in",
                                         recorder.inside)  # fmt: skip
    return ir.Graph(formals, results, nodes=nodes, name=name)


def fresh(stem: str, taken: set[str]) -> str:
    """A name that is not taken yet, added to the names taken."""
    k = len(taken)
    while f"{stem}_{k}" in taken:
        k += 1
    taken.add(f"{stem}_{k}")
    return f"{stem}_{k}"
