"""Legacy: what ONNX had once, as functions of the operators that it has now.

ONNX's version converter knows none of these operators, and of those that broadcast along an `axis`,
before opset 7, only some whose shapes are written down. So while it works they are in a domain of
their own, which it leaves alone.
"""

from __future__ import annotations

import onnx
from onnx import TensorProto, defs, parser
from onnx.helper import make_attribute, make_node, make_opsetid

from ..flow.protos import graphs, nodes, opset, schema_in
from .bodies import inline_local

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

ReorderInput, ReorderOutput and Upsample are without the blocks of `blocked.py`.
The border of Crop is left, top, right and bottom; a `scale` is the height and width that remain.
"""


def set_aside(model: onnx.ModelProto) -> None:
    """Move operators that the version converter does not know to the domain of their functions."""
    held = {function.name for function in FUNCTIONS}
    for node in nodes(model):
        if not node.domain and node.op_type in held and not defs.has(node.op_type):
            node.domain = LEGACY
    _import(model)


def align(model: onnx.ModelProto) -> None:
    """Write the `broadcast` and `axis` of operators, before opset 7, as shapes.

    The `to` of Cast, before opset 6, is the name of a type, and is written as its number.
    """
    for graph in graphs(model.graph):
        for index, node in reversed(list(enumerate(graph.node))):
            schema = None if node.domain else schema_in(model, "", node.op_type)
            if schema is not None and node.op_type == "Cast" and schema.since_version < 6:
                (to,) = (a for a in node.attribute if a.name == "to")
                to.CopyFrom(make_attribute("to", TensorProto.DataType.Value(to.s.decode())))
                node.domain = LEGACY
            if schema is None or "broadcast" not in schema.attributes:
                continue
            given = {a.name: a.i for a in node.attribute}
            kept = [a for a in node.attribute
                    if a.name not in ("axis", "broadcast", "consumed_inputs")]  # fmt: skip
            del node.attribute[:]
            node.attribute.extend(kept)
            node.domain = LEGACY
            if given.get("broadcast") and "axis" in given:
                a, b = node.input
                node.input[1] = f"{node.output[0]}_along_axis"
                turned = make_node("AlongAxis", [a, b], [node.input[1]], domain=LEGACY,
                                   axis=[given["axis"]])  # fmt: skip
                graph.node.insert(index, turned)
    _import(model)


def _import(model: onnx.ModelProto) -> None:
    used = any(node.domain == LEGACY for node in nodes(model))
    if used and opset(model, LEGACY) is None:
        model.opset_import.append(make_opsetid(LEGACY, 1))


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
