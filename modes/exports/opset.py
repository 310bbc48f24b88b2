"""Opset: an export in an earlier version of ONNX, for a runtime that does not know the newest.

From opset 13 to 21 operators gained attributes, inputs and types, and a few gained values of an
attribute. A node without these additions means the same in the earlier version, so that only the
version changes; other nodes are written otherwise here, or named in an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import onnx
from onnx import checker, helper, numpy_helper

from ...jacobians.errors import InputError, first_line
from ..model.flow.contents import (
    WORKING_OPSET,
    assign,
    graphs,
    nodes,
    opset,
    schema_of,
    unique_name,
)

EARLIEST = 13
"""From here on, axes of a sum and lengths of a split are inputs, as recorded graphs have them."""

NEW_VALUES: dict[tuple[str, str], dict[bytes, int]] = {
    ("ScatterElements", "reduction"): {b"max": 18, b"min": 18},
    ("ScatterND", "reduction"): {b"max": 18, b"min": 18},
    ("Resize", "coordinate_transformation_mode"): {b"half_pixel_symmetric": 19},
    ("Pad", "mode"): {b"wrap": 19},
    ("GridSample", "mode"): {b"linear": 20, b"cubic": 20},
}
"""Values of attributes, and the opset they came with."""

NEW_MEANING = {"DFT": 20}
"""Operators whose inputs changed, and the opset since when they are as now."""

REDUCTIONS = frozenset({
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
    "ReduceMin", "ReduceProd", "ReduceSumSquare",
})  # fmt: skip
"""Their axes are an attribute before opset 18."""

Arrays = Mapping[str, onnx.TensorProto]


def at_opset(model: onnx.ModelProto, version: int) -> onnx.ModelProto:
    """The same model at this opset of the default domain, or at its own where that is lower.

    Raises `InputError` for an operator, input, attribute or type that the opset does not have, and
    names the lowest opset that has all operators, inputs and attributes.
    """
    if version >= (opset(model) or 0):
        return model
    if version < EARLIEST:
        raise InputError(f"opset={version} is too low: derivatives need {EARLIEST} or above")
    made = onnx.ModelProto()
    made.CopyFrom(model)
    taken, known = {name for node in nodes(made) for name in node.output}, constants(made)
    for graph in graphs(made.graph):
        each = (earlier(node, version, known, taken) for node in graph.node)
        assign(graph.node, [node for several in each for node in several])
    require_known(made, version)
    others = [entry for entry in made.opset_import if entry.domain not in ("", "ai.onnx")]
    assign(made.opset_import, [helper.make_opsetid("", version), *others])
    made.ir_version = helper.find_min_ir_version_for(made.opset_import)
    try:
        checker.check_model(made, full_check=True)
    except Exception as error:  # errors of ONNX's C++ code have no common class
        raise InputError(f"opset {version} has no such types: {first_line(error)} "
                         "Ask for a later opset.") from error  # fmt: skip
    return made


def constants(model: onnx.ModelProto) -> Arrays:
    """The constants of a model by name."""
    made = {tensor.name: tensor for graph in graphs(model.graph) for tensor in graph.initializer}
    values = ((node, a.t) for node in nodes(model) for a in node.attribute if a.name == "value")
    return made | {node.output[0]: t for node, t in values if node.op_type == "Constant"}


def require_known(model: onnx.ModelProto, version: int) -> None:
    """Raises `InputError` for nodes that an opset does not have."""
    own = [node for node in nodes(model) if not node.domain]
    later = {node.op_type: lowest_for(node) for node in own if lowest_for(node) > version}
    if later:
        listed = ", ".join(f"{name} from {since}" for name, since in later.items())
        raise InputError(f"opset={version} is too low for some operators, or inputs or attributes "
                         f"of them: {listed}. Ask for {max(later.values())}.")  # fmt: skip


def lowest_for(node: onnx.NodeProto) -> int:
    """The lowest opset whose operator has the inputs and attributes of this node."""
    given = {attribute.name for attribute in node.attribute}
    since = [NEW_VALUES.get((node.op_type, a.name), {}).get(a.s, EARLIEST) for a in node.attribute]
    lowest = max([NEW_MEANING.get(node.op_type, EARLIEST), *since])
    schemas = ((v, schema_of(node.op_type, "", v)) for v in range(lowest, WORKING_OPSET))
    return next((v for v, schema in schemas if schema and given <= {*schema.attributes}
                 and len(node.input) <= schema.max_input), WORKING_OPSET)  # fmt: skip


def earlier(
    node: onnx.NodeProto, version: int, known: Arrays, taken: set[str]
) -> Iterator[onnx.NodeProto]:
    """The node without what an earlier opset does not have, where it can do without."""
    schema = schema_of(node.op_type, "", version)
    if schema is None or node.domain:
        yield node
        return
    new = {a.name: helper.get_attribute_value(a) for a in node.attribute
           if a.name not in schema.attributes and not is_default(node.op_type, a)}  # fmt: skip
    if node.op_type == "Shape" and new:
        yield from slice_of_shape(node, new, taken)
        return
    if node.op_type == "Reshape":  # without it, 0 is the input's size: the same shape, or an error
        new.pop("allowzero", None)
    kept = schema.attributes.keys() | new.keys()
    assign(node.attribute, [a for a in node.attribute if a.name in kept])
    if node.op_type in REDUCTIONS and len(node.input) > schema.max_input:
        axes_as_attribute(node, known)
    yield node


def is_default(op_type: str, given: onnx.AttributeProto) -> bool:
    """Whether an attribute says what holds without it."""
    schema = schema_of(op_type, "", WORKING_OPSET)
    known = {} if schema is None else schema.attributes
    return given.name in known and given == known[given.name].default_value


def axes_as_attribute(node: onnx.NodeProto, known: Arrays) -> None:
    """Write constant axes of a reduction as its attribute; no axes are all of them."""
    data, axes = node.input
    if axes and axes not in known:
        return
    listed = numpy_helper.to_array(known[axes]).tolist() if axes else []
    if listed:
        node.attribute.append(helper.make_attribute("axes", listed))
    assign(node.input, [data])


def slice_of_shape(
    node: onnx.NodeProto, bounds: Mapping[str, int], taken: set[str]
) -> Iterator[onnx.NodeProto]:
    """A part of a shape, as the whole shape and a Slice."""
    whole, first, last = (unique_name(f"{node.output[0]}_{part}", taken)
                          for part in ("whole", "start", "end"))  # fmt: skip
    yield helper.make_node("Shape", [*node.input], [whole])
    for name, bound in ((first, bounds.get("start", 0)), (last, bounds.get("end", 2**31 - 1))):
        entry = numpy_helper.from_array(np.array([bound]), name)
        yield helper.make_node("Constant", [], [name], value=entry)
    yield helper.make_node("Slice", [whole, first, last], [*node.output], name=node.name)
