"""Bodies: functions of the model, and operators that ONNX defines, or once had, as nodes.

ONNX's inliner does the work, with two repairs. The inliner ignores the default of an attribute that
a body refers to and the call omits, so defaults are made explicit first. And it does not rename the
tensors that Gradient nodes name by strings (`xs`, `zs`, `y`): these become inputs of a node in our
own domain while functions are inlined.

ONNX's version converter knows none of these operators, and of those that broadcast along an `axis`,
before opset 7, only some whose shapes are written down. So these operators are in a domain of
their own, unknown to the converter, while it works.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, defs, helper, inliner, numpy_helper, parser, shape_inference

from ....jacobians.errors import LoadError, first_line
from ....ops import registry
from ....ops.node import TRAINING
from ..flow.contents import (
    assign,
    graphs,
    nodes,
    nodes_inside,
    opset,
    owned,
    schema_in,
    subgraphs,
    unique_name,
)
from ..programs.onnxruntime import installed, runtime

Key = tuple[str, str]

Types = Mapping[str, onnx.TypeProto]
UNKNOWN = onnx.TypeProto()

BODIES = "onnxjac.bodies"
"""The domain of bodies while they are inlined."""


def inline_local(model: onnx.ModelProto) -> onnx.ModelProto:
    """Replace every call of a function of the model by its body, at the opset of the model."""
    defaults = {(f.domain, f.name, f.overload): f.attribute_proto for f in model.functions}
    bodies = (node for function in model.functions for node in function.node)
    for node in (*nodes(model), *bodies):
        _spell_out(node, defaults.get((node.domain, node.op_type, node.overload), ()))
    name_by_inputs(model)
    model = _written_out(model, convert_version=True)
    name_by_strings(model)
    return model


def _written_out(model: onnx.ModelProto, *, convert_version: bool = False) -> onnx.ModelProto:
    try:
        return inliner.inline_local_functions(model, convert_version=convert_version)
    except RuntimeError as error:
        reason = first_line(error)
        raise LoadError(f"a function of the model cannot be written out: {reason}") from error


def expand_bodies(model: onnx.ModelProto) -> onnx.ModelProto:
    """Replace every operator that has a body but no rule by its body."""
    return inline(model, lambda domain, op_type: registry.find(op_type, domain) is None)


def inline(model: onnx.ModelProto, chosen: Callable[[str, str], bool]) -> onnx.ModelProto:
    """Replace the operators chosen by (domain, type) by their bodies, recursively."""
    while True:
        used = _used(model)
        found = {key: schema_in(model, *key) for key in used if chosen(*key)}
        bodies = {key: schema for key, schema in found.items() if schema and has_body(schema)}
        for node in nodes(model):
            if schema := bodies.get(_key(node)):
                _spell_out(node, (formal.default_value for formal in schema.attributes.values()))
        model = _inline(model, sorted(bodies)) if bodies else model
        if _used(model) == used:  # no body for these nodes, for example with symbolic shapes
            return model


def _key(node: onnx.NodeProto) -> Key:
    """The operator of a node."""
    return node.domain, node.op_type


def _used(model: onnx.ModelProto) -> Counter[Key]:
    return Counter(map(_key, nodes(model)))


def has_body(schema: Any) -> bool:
    """Whether ONNX defines the operator by others; the stubs of `OpSchema` lack these fields."""
    return bool(schema.has_function or schema.has_context_dependent_function)


def _spell_out(node: onnx.NodeProto, defaults: Iterable[onnx.AttributeProto]) -> None:
    present = {"", *(attribute.name for attribute in node.attribute)}  # "": there is no default
    node.attribute.extend(default for default in defaults if default.name not in present)


def _inline(model: onnx.ModelProto, keys: list[Key]) -> onnx.ModelProto:
    """Inline some operators; the types of initializers are declared for bodies that need them."""
    typed = {value.name for value in (*model.graph.input, *model.graph.value_info)}
    for tensor in model.graph.initializer:
        if tensor.name not in typed:
            info = helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            model.graph.value_info.append(info)
    try:
        return inliner.inline_selected_functions(model, keys, inline_schema_functions=True)
    except (RuntimeError, ValueError):  # it needs the type of every input, even of omitted ones
        made = _written_out(_with_bodies(model, keys))
        _forget(made, BODIES)
        return made


def add_import(model: onnx.ModelProto | onnx.FunctionProto, domain: str, version: int = 1) -> None:
    """Import a domain, unless it is imported."""
    if opset(model, domain) is None:
        model.opset_import.append(helper.make_opsetid(domain, version))


def _forget(model: onnx.ModelProto, domain: str) -> bool:
    """Drop the import of a domain; returns whether there was one."""
    kept = [entry for entry in model.opset_import if entry.domain != domain]
    found = len(kept) < len(model.opset_import)
    assign(model.opset_import, kept)
    return found


def _with_bodies(model: onnx.ModelProto, keys: list[Key]) -> onnx.ModelProto:
    """The chosen operators as calls of functions of the model, one per node."""
    known = typed_nodes(shape_inference.infer_shapes(model).graph, {})
    for count, (node, (_, types)) in enumerate(zip(nodes(model), known, strict=True)):
        if _key(node) in keys:
            function = _body(model, node, types)
            function.domain, function.name = BODIES, f"{node.op_type}_{count}"
            for entry in function.opset_import:  # as the inliner does with bodies of its own
                entry.version = opset(model, entry.domain) or entry.version
            node.domain, node.op_type = function.domain, function.name
            model.functions.append(function)
    add_import(model, BODIES)
    return model


def typed_nodes(
    graph: onnx.GraphProto, outer: Types
) -> Iterator[tuple[onnx.NodeProto, Types]]:
    """The nodes of a graph, as `nodes` lists them, each with the types of the tensors it sees."""
    held = {t.name: helper.make_tensor_type_proto(t.data_type, t.dims) for t in graph.initializer}
    told = {v.name: v.type for v in (*graph.input, *graph.value_info, *graph.output)}
    types = {**outer, **held, **told}
    yield from ((node, types) for node in graph.node)
    for node in graph.node:
        for inner in subgraphs(node):
            yield from typed_nodes(inner, types)


def _body(
    model: onnx.ModelProto, node: onnx.NodeProto, types: Types
) -> onnx.FunctionProto:
    """The body of a node, by the schema of its operator; without the type of an input that is
    given, ONNX's code may end the process.
    """
    schema: Any = schema_in(model, node.domain, node.op_type)
    if schema.has_function:
        return schema.function_body
    if unknown := [n for n in node.input if n and not types.get(n, UNKNOWN).WhichOneof("value")]:
        raise LoadError(
            f"the body of {node.op_type} (node {node.name!r}) depends on the type of "
            f"{unknown[0]!r}, which is not known: declare it in the model's value_info."
        )
    given = [types.get(name, UNKNOWN).SerializeToString() for name in node.input]
    try:
        made = schema.get_context_dependent_function(node.SerializeToString(), given)
    except (RuntimeError, ValueError) as error:
        raise LoadError(
            f"{node.op_type} (node {node.name!r}) of {', '.join(node.input)} has no body: "
            f"{first_line(error)}"
        ) from error
    return onnx.FunctionProto.FromString(made)


NAMED = "onnxjac.gradient"
"""The domain of nodes that stand for Gradient while functions are inlined."""


def name_by_inputs(model: onnx.ModelProto) -> None:
    """Turn the tensors that Gradient nodes in functions name by strings into inputs of these nodes.

    Parameters are replaced by aliases: two parameters are independent inside the function, even if
    a call passes the same tensor for both, or tensors that depend on one another.
    """
    for function in model.functions:
        inner = [node for node in nodes_inside(function.node) if is_gradient(node)]
        for node in inner:
            names = gradient_names(node)
            sizes = [len(node.input), len(names["xs"]), len(names["zs"])]
            node.input.extend(name for part in names.values() for name in part)
            del node.attribute[:]
            node.domain = NAMED
            node.attribute.append(helper.make_attribute("sizes", sizes))
        if inner:
            add_import(function, NAMED)
            add_import(model, NAMED)
            alias_parameters(function, inner)


def name_by_strings(model: onnx.ModelProto) -> None:
    """Restore the Gradient nodes, with the names that their tensors have after inlining."""
    for node in nodes(model):
        if node.domain != NAMED:
            continue
        given, xs, _ = node.attribute[0].ints
        operands = list(node.input)
        named = {"xs": operands[given : given + xs], "zs": operands[given + xs : -1]}
        del node.input[given:], node.attribute[:]
        node.domain = TRAINING
        parts = {**{key: part for key, part in named.items() if part}, "y": operands[-1]}
        node.attribute.extend(helper.make_attribute(*pair) for pair in parts.items())
    if _forget(model, NAMED):
        add_import(model, TRAINING)


def is_gradient(node: onnx.NodeProto) -> bool:
    """Whether a node is a Gradient with its own names, not attributes of its function."""
    named = node.domain == TRAINING and node.op_type == "Gradient"
    return named and not any(attribute.ref_attr_name for attribute in node.attribute)


def gradient_names(node: onnx.NodeProto) -> dict[str, list[str]]:
    """The names in a Gradient node, by attribute."""
    found: dict[str, list[str]] = {"xs": [], "zs": [], "y": [""]}
    for attribute in node.attribute:
        value = helper.get_attribute_value(attribute)
        strings = value if isinstance(value, list) else [value]
        found[attribute.name] = [text.decode() for text in strings]
    return found


def alias_parameters(function: onnx.FunctionProto, gradients: list[onnx.NodeProto]) -> None:
    """Give an alias to each parameter that a Gradient node names."""
    named = {name for node in gradients for name in node.input}
    taken = {name for node in nodes_inside(function.node) for name in (*node.input, *node.output)}
    taken.update(function.input)
    alias = {n: unique_name(f"{n}_parameter", taken) for n in function.input if n in named}
    for node in nodes_inside(function.node):
        for k, name in enumerate(node.input):
            node.input[k] = alias.get(name, name)
    copies = [helper.make_node("Identity", [name], [new]) for name, new in alias.items()]
    assign(function.node, [*copies, *function.node])
    if copies:
        add_import(function, "", 21)


LEGACY = "onnxjac.legacy"

FUNCTIONS = tuple(parser.parse_function(f'<domain: "{LEGACY}", opset_import: ["": 21]>{text}')
                  for text in (
    """ImageScaler <bias, scale: float = 1.0> (x) => (y) {
        b = Constant <value_floats: floats = @bias> ()
        s = Constant <value_float: float = @scale> ()
        shape = Constant <value_ints = [-1, 1, 1]> ()
        c = Reshape (b, shape)
        scaled = Mul (x, s)
        y = Add (scaled, c)
    }""",
    """Affine <alpha, beta> (x) => (y) {
        a = Constant <value_float: float = @alpha> ()
        b = Constant <value_float: float = @beta> ()
        ax = Mul (x, a)
        y = Add (ax, b)
    }""",
    """Scale <scale: float = 1.0> (x) => (y) {
        s = Constant <value_float: float = @scale> ()
        y = Mul (x, s)
    }""",
    """ScaledTanh <alpha, beta> (x) => (y) {
        a = Constant <value_float: float = @alpha> ()
        b = Constant <value_float: float = @beta> ()
        bx = Mul (x, b)
        t = Tanh (bx)
        y = Mul (t, a)
    }""",
    """ParametricSoftplus <alpha, beta> (x) => (y) {
        a = Constant <value_float: float = @alpha> ()
        b = Constant <value_float: float = @beta> ()
        bx = Mul (x, b)
        t = Softplus (bx)
        y = Mul (t, a)
    }""",
    """Crop <border, scale: ints = [0, 0]> (x) => (y) {
        b = Constant <value_ints: ints = @border> ()
        s = Constant <value_ints: ints = @scale> ()
        first = Constant <value_ints = [1, 0]> ()
        last = Constant <value_ints = [3, 2]> ()
        axes = Constant <value_ints = [2, 3]> ()
        zero = Constant <value_int = 0> ()
        from = Gather (b, first)
        margin = Gather (b, last)
        size = Shape <start = 2> (x)
        end = Sub (size, margin)
        given = Add (from, s)
        sized = Greater (s, zero)
        to = Where (sized, given, end)
        y = Slice (x, from, to, axes)
    }""",
    """DynamicSlice (x, starts, ends, axes) => (y) {
        y = Slice (x, starts, ends, axes)
    }""",
    """ReorderInput <size> (x) => (y) {
        s = Constant <value_ints: ints = @size> ()
        c = Shape <start = 1, end = 2> (x)
        minus = Neg (c)
        rest = Mod (minus, s)
        none = Constant <value_ints = [0]> ()
        axis = Constant <value_ints = [1]> ()
        pads = Concat <axis = 0> (none, rest)
        y = Pad (x, pads, , axis)
    }""",
    """ReorderOutput <channels> (x) => (y) {
        end = Constant <value_ints: ints = @channels> ()
        axis = Constant <value_ints = [1]> ()
        none = Constant <value_ints = [0]> ()
        y = Slice (x, none, end, axis)
    }""",
    """Upsample <scales, mode: string = "nearest",
                coordinate_transformation_mode: string = "asymmetric"> (x) => (y) {
        factors = Constant <value_floats: floats = @scales> ()
        y = Resize <mode: string = @mode, nearest_mode = "floor",
                    coordinate_transformation_mode: string = @coordinate_transformation_mode>
            (x, , factors)
    }""",
    """AlongAxis <axis> (a, b) => (c) {
        at = Constant <value_ints: ints = @axis> ()
        one = Constant <value_ints = [1]> ()
        inner = Shape (b)
        outer = Shape (a)
        behind = Size (inner)
        rank = Size (outer)
        rest = Sub (rank, behind)
        count = Sub (rest, at)
        ones = Expand (one, count)
        shape = Concat <axis = 0> (inner, ones)
        c = Reshape (b, shape)
    }""",
))  # fmt: skip
"""Operators that ONNX has no more, and `b` with axes behind it so that its first one is `axis`.

ReorderInput, ReorderOutput and Upsample are without the blocks of `unblocked`.
The border of Crop is left, top, right and bottom; a `scale` is the height and width that remain.
"""


def set_aside(model: onnx.ModelProto) -> None:
    """Move operators that the version converter does not know to the domain of their functions."""
    held = {function.name for function in FUNCTIONS}
    for owner, node in owned(model):
        if not node.domain and node.op_type in held and not defs.has(node.op_type):
            node.domain = LEGACY
            add_import(owner, LEGACY)
            add_import(model, LEGACY)


def align(model: onnx.ModelProto) -> None:
    """Write the `broadcast` and `axis` of operators, before opset 7, as shapes.

    The `to` of Cast, before opset 6, is the name of a type, and is written as its number.
    """
    for graph in graphs(model.graph):
        for index, node in reversed(list(enumerate(graph.node))):
            schema = None if node.domain else schema_in(model, "", node.op_type)
            if schema is not None and node.op_type == "Cast" and schema.since_version < 6:
                (to,) = (a for a in node.attribute if a.name == "to")
                to.CopyFrom(helper.make_attribute("to", TensorProto.DataType.Value(to.s.decode())))
                node.domain = LEGACY
            if schema is None or "broadcast" not in schema.attributes:
                continue
            given = {a.name: a.i for a in node.attribute}
            gone = ("axis", "broadcast", "consumed_inputs")
            assign(node.attribute, [a for a in node.attribute if a.name not in gone])
            node.domain = LEGACY
            if given.get("broadcast") and "axis" in given:
                a, b = node.input
                node.input[1] = f"{node.output[0]}_along_axis"
                turned = helper.make_node("AlongAxis", [a, b], [node.input[1]], domain=LEGACY,
                                          axis=[given["axis"]])  # fmt: skip
                graph.node.insert(index, turned)
    if any(node.domain == LEGACY for node in nodes(model)):
        add_import(model, LEGACY)


def brought_back(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model, now at the working opset, with what was set aside written out."""
    if opset(model, LEGACY) is None:
        return model
    held = {function.name for function in FUNCTIONS}
    for node in nodes(model):
        if node.domain == LEGACY and node.op_type not in held:
            node.domain = ""
    model.functions.extend(FUNCTIONS)
    return inline_local(model)


# -- models with channels in blocks of 8 or 16, which ONNX Runtime chose for a processor -----------

BLOCKED, MICROSOFT = "com.microsoft.nchwc", "com.microsoft"

PLAIN = {
    "Conv": ("FusedConv", MICROSOFT),
    **{name: (name, LEGACY) for name in ("ReorderInput", "ReorderOutput", "Upsample")},
}
"""Operators with blocks -> name and domain without; the others have the same name in ONNX."""


def unblocked(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model by operators without blocks, with weights in ONNX's order.

    At its highest level ONNX Runtime writes operators of its own for tensors in which the entries
    of a block of channels lie side by side, with weights in that order and zeros to fill the last
    block. The file does not say the size of a block, which suits the processor: ONNX Runtime tells
    the size for the processor here.

    Raises `LoadError` where ONNX Runtime, which knows the size of a block, is not installed.
    """
    if not any(node.domain == BLOCKED for node in model.graph.node):
        return model
    made = onnx.ModelProto()
    made.CopyFrom(model)
    kernels = {node.input[1] for node in made.graph.node
               if (node.domain, node.op_type) == (BLOCKED, "Conv")}  # fmt: skip
    del made.graph.value_info[:]
    assign(made.graph.node, (part for node in model.graph.node for part in without_blocks(node)))
    for tensor in made.graph.initializer:
        if tensor.name in kernels:
            by_channel = in_order(numpy_helper.to_array(tensor), block_size())
            tensor.CopyFrom(numpy_helper.from_array(by_channel, tensor.name))
    add_import(made, LEGACY)
    add_import(made, MICROSOFT)
    return made


def without_blocks(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    """The nodes without blocks that do what one node does."""
    if node.domain != BLOCKED:
        yield node
        return
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    turned = attributes.pop("channels_last", 0)
    source, target, between = [*node.input], [*node.output], [f"{node.output[0]}_turned"]
    match node.op_type:
        case "ReorderInput":
            attributes["size"] = [block_size()]
            if turned:
                yield helper.make_node("Transpose", source, between, perm=(0, 3, 1, 2))
                source = between
        case "ReorderOutput":
            attributes["channels"] = [attributes["channels"]]
            target = between if turned else target
        case "Upsample":
            attributes["scales"] = [*map(float, attributes["scales"])]
    op_type, domain = PLAIN.get(node.op_type, (node.op_type, ""))
    yield helper.make_node(op_type, source, target, node.name, domain=domain, **attributes)
    if target is between:
        yield helper.make_node("Transpose", between, node.output, perm=(0, 2, 3, 1))


def in_order(kernel: np.ndarray, size: int) -> np.ndarray:
    """A kernel whose blocks of output channels are its fastest axis, and of input channels the next
    one, unless there are fewer of them than a block.
    """
    outer, inner, *space = kernel.shape
    within = size if inner >= size else 1
    blocks = kernel.reshape(outer // size, inner // within, *space, within, size)
    last = blocks.ndim - 1
    return blocks.transpose(0, last, 1, last - 1, *range(2, last - 1)).reshape(kernel.shape)


@cache
def block_size() -> int:
    """How many channels this processor has in a block: ONNX Runtime fills one channel up to it."""
    if not installed():
        raise LoadError(
            "the model has channels in blocks, which ONNX Runtime chose for a processor: install "
            "ONNX Runtime (`pip install 'onnxjac[runtime]'`), or take the model as it was before."
        )
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in "xy")
    node = helper.make_node("ReorderInput", ["x"], ["y"], domain=BLOCKED)
    imports = [helper.make_opsetid("", 13), helper.make_opsetid(BLOCKED, 1)]
    model = helper.make_model(helper.make_graph([node], "g", [x], [y]), opset_imports=imports,
                              ir_version=8)  # fmt: skip
    session = runtime().InferenceSession(model.SerializeToString())
    (filled,) = session.run(None, {"x": np.zeros((1, 4, 1, 1), np.float32)})
    return int(filled.shape[1])
