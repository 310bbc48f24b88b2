"""Repairs: rewrites where ONNX's version converter would change what a model computes.

Each was found by comparing the original with the converted model, as `tests/modes/test_opsets` does
for every opset from 7 on.
"""

from __future__ import annotations

import onnx
from onnx import defs, numpy_helper
from onnx.helper import (
    make_attribute,
    make_graph,
    make_node,
    make_opsetid,
    tensor_dtype_to_np_dtype,
)

from ....jacobians.errors import warn
from ....ops.registry import find
from ..flow.protos import WORKING_OPSET, graphs, inside, nodes, opset, schema_of
from .bodies import align, inline, set_aside

MICROSOFT = "com.microsoft"

SHARED = frozenset({
    "DequantizeLinear", "GatherND", "LayerNormalization", "Pad", "QuantizeLinear",
    "ThresholdedRelu", "Trilu",
})  # fmt: skip
"""Operators of ONNX Runtime, also in early opsets, that mean the same in the working opset."""

BOUNDED = {"Clip": 1, "Pad": 2}
"""Operators, and their first input that was an attribute before opset 11."""


def before_check(model: onnx.ModelProto) -> onnx.ModelProto:
    """Rewrite parts of a model that the checker rejects but ONNX Runtime runs.

    A graph may have no name and a domain no import, and ONNX Runtime adds its own operators to
    the default domain. Axes in `perm` may count from the last. GroupNormalization 18 to 20 scaled
    by group, not by channel.
    """
    model.graph.name = model.graph.name or "graph"
    _import_domains(model)
    _name_domains(model)
    set_aside(model)
    _count_axes(model)
    if (opset(model) or 0) in range(18, 21):
        model = inline(model, lambda domain, op_type: op_type == "GroupNormalization")
    return model


def _name_domains(model: onnx.ModelProto) -> None:
    """Move operators of ONNX Runtime, or from a later opset, from the default domain to its own."""
    version = opset(model) or WORKING_OPSET
    for node in nodes(model):
        foreign = not defs.has(node.op_type) and find(node.op_type, MICROSOFT)
        early = node.op_type in SHARED and schema_of(node.op_type, "", version) is None
        if not node.domain and (foreign or early):
            node.domain = MICROSOFT
            if opset(model, MICROSOFT) is None:
                model.opset_import.append(make_opsetid(MICROSOFT, 1))


def _import_domains(model: onnx.ModelProto) -> None:
    """Import the newest version of domains that nodes use and the model does not import.

    A model that imports nothing at all may be of any version, and is refused.
    """
    for domain in dict.fromkeys(node.domain for node in nodes(model) if model.opset_import):
        if opset(model, domain) is None:
            schemas = defs.get_all_schemas_with_history()
            newest = max((s.since_version for s in schemas if s.domain == domain), default=1)
            version = newest if domain else WORKING_OPSET
            model.opset_import.append(make_opsetid(domain, version))
            warn(f"the model does not import the domain {domain or 'ai.onnx'!r}: "
                 f"version {version} is taken")  # fmt: skip


def _count_axes(model: onnx.ModelProto) -> None:
    """Count the axes in `perm` of every Transpose from the first axis, also those below 0."""
    for node in (*nodes(model), *(node for f in model.functions for node in inside(f.node))):
        for a in node.attribute if (node.op_type, node.domain) == ("Transpose", "") else ():
            n = len(a.ints)
            a.ints[:] = [i + n if -n <= i < 0 else i for i in a.ints]


def share(model: onnx.ModelProto) -> None:
    """Move operators that both domains have, with the same meaning, to the default domain."""
    for node in nodes(model):
        if node.domain == MICROSOFT and node.op_type in SHARED:
            node.domain = ""


def before_conversion(model: onnx.ModelProto, version: int) -> onnx.ModelProto:
    """Rewrite, in the old opset, operators whose change of meaning the converter ignores."""
    if version < 7:
        _slope_by_channel(model.graph)
        align(model)
    if version < 13:
        for graph in graphs(model.graph):
            _flatten_hardmax(graph)
    return model


def after_conversion(
    model: onnx.ModelProto, typed: tuple[onnx.ModelProto, ...], version: int
) -> onnx.ModelProto:
    """Make defaults of the old opset explicit on converted nodes.

    `typed` are the old model and, for early opsets, the converted one, with their inferred types.
    """
    if version == 8:
        restore_batches(model, typed[0])
    constants = _constants(model)
    if version < 11:
        _type_bounds(model, typed, constants)
    for node in nodes(model):
        if node.op_type != "Resize" or node.domain:
            continue
        for index in (1, 2):  # before opset 13, an empty tensor stood for an omitted input
            tensor = constants.get(node.input[index]) if index < len(node.input) else None
            if tensor is not None and 0 in tensor.dims:
                node.input[index] = ""
        if version < 11:  # x_original = x / scale, rounded down, or up where the image shrinks
            scales = constants.get(node.input[2])
            shrinks = scales is not None and bool((numpy_helper.to_array(scales) < 1).any())
            rounding = "ceil" if shrinks else "floor"
            node.attribute.append(make_attribute("coordinate_transformation_mode", "asymmetric"))
            node.attribute.append(make_attribute("nearest_mode", rounding))
    return model


def _slope_by_channel(graph: onnx.GraphProto) -> None:
    """Before opset 7, the slopes of PRelu were per channel: along axis 1, not the last axis."""
    ranks = {v.name: len(v.type.tensor_type.shape.dim) for v in (*graph.input, *graph.value_info)}
    for index, node in reversed(list(enumerate(graph.node))):
        if node.op_type != "PRelu" or node.domain:
            continue
        x, slope = node.input
        if ranks.get(slope) == 1 and ranks.get(x, 0) > 2:
            node.input[1] = f"{node.output[0]}_slope"
            axes = list(range(1, ranks[x] - 1))
            graph.node.insert(index, make_node("Unsqueeze", [slope], [node.input[1]], axes=axes))


def _flatten_hardmax(graph: onnx.GraphProto) -> None:
    """Before opset 13, Hardmax flattened its input to a matrix, split before `axis`."""
    for index, node in reversed(list(enumerate(graph.node))):
        if node.op_type == "Hardmax" and not node.domain:
            axis = next((a.i for a in node.attribute if a.name == "axis"), 1)
            x, y = node.input[0], node.output[0]
            shape, flat, peak = (f"{y}_{part}" for part in ("shape", "flat", "peak"))
            node.CopyFrom(make_node("Reshape", [peak, shape], [y], name=node.name))
            graph.node.insert(index, make_node("Hardmax", [flat], [peak], axis=1))
            graph.node.insert(index, make_node("Flatten", [x], [flat], axis=axis))
            graph.node.insert(index, make_node("Shape", [x], [shape]))


def _type_bounds(
    model: onnx.ModelProto, typed: tuple[onnx.ModelProto, ...],
    constants: dict[str, onnx.TensorProto],
) -> None:  # fmt: skip
    """Cast attributes that became inputs to their operator's dtype: the converter makes float32.

    Type inference may exist for the old operator only, or for the new operator only.
    """
    types: dict[str, int] = {}
    for graph in (g for whole in typed for g in graphs(whole.graph)):
        values = (*graph.input, *graph.value_info, *graph.output)
        types |= {v.name: kind for v in values if (kind := v.type.tensor_type.elem_type)}
        types |= {t.name: t.data_type for t in graph.initializer}
    for node in nodes(model):
        bounded = node.op_type in BOUNDED and not node.domain
        for name in node.input[BOUNDED[node.op_type] :] if bounded else ():
            wanted = types.get(node.input[0])
            if wanted and name in constants and constants[name].data_type != wanted:
                held = numpy_helper.to_array(constants[name])
                dtype = tensor_dtype_to_np_dtype(wanted)
                constants[name].CopyFrom(numpy_helper.from_array(held.astype(dtype)))


def _constants(model: onnx.ModelProto) -> dict[str, onnx.TensorProto]:
    known = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in nodes(model):
        for attribute in node.attribute if node.op_type == "Constant" else ():
            if attribute.name == "value":
                known[node.output[0]] = attribute.t
    return known


def restore_batches(model: onnx.ModelProto, old: onnx.ModelProto) -> None:
    """Wrap each Scan of opset 8 in a Scan over the batch, and restore the shapes of tensors.

    The converter drops the batch axis of Scan from every tensor.
    """
    shapes = {value.name: value.type for value in (*old.graph.input, *old.graph.output)}
    for value in (*model.graph.input, *model.graph.output):
        if value.name in shapes:
            value.type.CopyFrom(shapes[value.name])
    for graph in list(graphs(model.graph)):
        del graph.value_info[:]
        for node in graph.node:
            if node.op_type == "Scan" and not node.domain:
                node.CopyFrom(over_batch(node))


def over_batch(node: onnx.NodeProto) -> onnx.NodeProto:
    """A Scan along the first axis of all inputs and outputs, with the given Scan as its body."""
    inner = onnx.NodeProto()
    inner.CopyFrom(node)
    for names, part in ((inner.input, "row"), (inner.output, "result")):
        renamed = [f"{node.output[0]}_{part}_{k}" for k in range(len(names))]
        names[:] = renamed
    inputs, outputs = ([onnx.ValueInfoProto(name=n) for n in names]
                       for names in (inner.input, inner.output))  # fmt: skip
    body = make_graph([inner], f"{node.output[0]}_sample", inputs, outputs)
    return make_node(
        "Scan", node.input, node.output, name=node.name, body=body, num_scan_inputs=len(node.input)
    )
