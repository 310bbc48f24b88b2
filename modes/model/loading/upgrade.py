"""Upgrade: one working opset, no functions, and checked attributes, for rules and kernels.

Each repair was found by comparing the original with the converted model, as
`tests/suite/model/test_opsets.py` does for every opset from 7 on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import onnx
import onnx.helper
from onnx import checker, defs, numpy_helper, shape_inference, version_converter
from onnx.helper import make_attribute, make_graph, make_node, tensor_dtype_to_np_dtype

from ....jacobians.errors import LoadError, first_line, warn
from ....ops.registry import find, traits_of
from ..flow.contents import (
    WORKING_OPSET,
    graphs,
    nodes,
    nodes_inside,
    opset,
    owned,
    schema_in,
    schema_of,
)
from .bodies import add_import, align, brought_back, expand_bodies, inline, inline_local, set_aside

INFERRED_ENTRIES = 2**20
"""The longest vector that ONNX's shape inference may process entry by entry."""


def upgrade(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same model, checked, at opset 21 or above, with function calls replaced by their bodies.

    Tensors keep their names.
    """
    model = before_check(model)
    clear_unknown_dims(model)
    _check_rules(model)
    drop_empty_operands(model)
    name_outputs(model)
    check_attributes(model)
    if model.functions:
        model = inline_local(model)
        _check_rules(model)  # the inliner loses outputs of functions that return an input
        check_attributes(model)  # calls may have passed some to functions
    version = opset(model)
    if version is None:  # rules and definitions use ONNX's own operators
        add_import(model, "", WORKING_OPSET)
    elif version < WORKING_OPSET:
        model = _raise(model, version)
    model = brought_back(model)
    to_default_domain(model)
    model = expand_bodies(infer(model))
    check_attributes(model)  # bodies depend on the shapes of their inputs
    return infer(model)


def infer(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the types and shapes of its tensors, as far as ONNX infers them."""
    try:
        known = shape_inference.infer_shapes(model)
        joined = has_long_shape(known)  # data propagation would process every entry
        return known if joined else shape_inference.infer_shapes(model, data_prop=True)
    except Exception:  # it fails for some valid models; shapes are known at the point anyway
        return model


def has_long_shape(model: onnx.ModelProto) -> bool:
    """Whether some vector is too long to be a shape, indices or axes."""
    kinds = (
        value.type.tensor_type
        for graph in graphs(model.graph)
        for value in (*graph.input, *graph.value_info, *graph.output)
    )
    return any(len(kind.shape.dim) == 1 and kind.shape.dim[0].dim_value > INFERRED_ENTRIES
               for kind in kinds)  # fmt: skip


def _check_rules(model: onnx.ModelProto) -> None:
    newest = defs.onnx_opset_version()
    if (opset(model) or 0) > newest:
        raise LoadError(
            f"the model uses opset {opset(model)}, but onnx {onnx.__version__} knows {newest} at "
            "most: install a newer onnx."
        )
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for value in (*copy.graph.input, *copy.graph.output):
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.shape.SetInParent()  # only the checker requires a shape
    for value in copy.graph.output:
        if not value.HasField("type"):  # it is inferred
            value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
            value.type.tensor_type.shape.SetInParent()
    try:
        checker.check_model(copy)
    except Exception as error:  # ValidationError, and others of ONNX's C++ code
        raise LoadError(f"the model breaks ONNX's rules: {first_line(error)}") from error


def _raise(model: onnx.ModelProto, version: int) -> onnx.ModelProto:
    try:
        old = before_conversion(infer(model) if version < 11 else model, version)
        new = version_converter.convert_version(old, WORKING_OPSET)
        return after_conversion(new, (old, infer(new)) if version < 11 else (old,), version)
    except Exception as error:  # errors of ONNX's C++ code have no common class
        raise LoadError(
            f"the model cannot be raised from opset {version} to {WORKING_OPSET}: "
            f"{first_line(error)} Export it again at opset {WORKING_OPSET} or above."
        ) from error


MISSING_OUTPUTS = 1024
"""The most outputs that a node may leave out."""

AXES = frozenset({"axes", "axis", "batch_axis", "time_axis", "scan_input_axes", "scan_output_axes"})
"""Attributes that shape inference truncates to 32 bits, and may then index out of range with."""

COUNTS = frozenset({"dilations", "group", "kernel_shape", "num_groups", "offset_group", "strides"})
"""Attributes by which kernels divide or step."""

PADDING = frozenset({"output_padding", "pads"})
"""Padding of windows; the operator Pad may also crop, and is not checked for this."""

EQUATION = re.compile(rb"[A-Za-z,.\s]*(->[A-Za-z.\s]*)?")
"""The equations that Einsum accepts; ONNX loops forever on others."""


def check_attributes(model: onnx.ModelProto) -> None:
    """Raises `LoadError` for attributes that would crash the process, or that no rule supports.

    Such attributes are axes of more than 32 bits, counts, steps and padding that are too small, a
    wrong number of outputs, a `perm` that is not a permutation, malformed equations, random
    distributions without a width, and values that the declaration of an operator does not list.
    """
    for held in (model.graph.node, *(function.node for function in model.functions)):
        for node in nodes_inside(held):
            declared, own = find(node.op_type, node.domain), node.domain in ("", "ai.onnx")
            if own and traits_of(node).random:
                _check_range(node)
            for attribute in node.attribute:
                if attribute.ref_attr_name:  # its value comes with a call
                    continue
                known = declared and declared.values.get(attribute.name)
                if known and _value(attribute) not in known:
                    _refuse(node, attribute, f"it must be one of {', '.join(map(repr, known))}")
                if own:  # in other domains a name may mean anything
                    _check_attribute(node, attribute)


def _check_attribute(node: onnx.NodeProto, attribute: onnx.AttributeProto) -> None:
    held = (attribute.i, *attribute.ints)
    if attribute.name in AXES and not all(-(2**31) <= value < 2**31 for value in held):
        _refuse(node, attribute, "no tensor has so many axes")
    if attribute.name == "perm" and sorted(attribute.ints) != [*range(len(attribute.ints))]:
        _refuse(node, attribute, "it must have each axis once")
    if attribute.name == "num_outputs" and attribute.i != len(node.output):
        _refuse(node, attribute, f"it gives {len(node.output)}")
    if attribute.name == "equation" and not EQUATION.fullmatch(attribute.s):
        _refuse(node, attribute, "it must be letters, commas, dots and one arrow")
    least = 1 if attribute.name in COUNTS else 0 if attribute.name in PADDING else None
    given = (attribute.i,) if attribute.HasField("i") else attribute.ints
    if least is not None and node.op_type != "Pad" and min(given, default=1) < least:
        _refuse(node, attribute, f"it must be {least} or more")


def _value(attribute: onnx.AttributeProto) -> Any:
    """The value in Python; bytes become text."""
    value = onnx.helper.get_attribute_value(attribute)
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _check_range(node: onnx.NodeProto) -> None:
    """Raises `LoadError` for distributions without a width or with `low` above `high`.

    ONNX Runtime would end the process.
    """
    held = {a.name: a.f for a in node.attribute if not a.ref_attr_name}
    low, high, scale = held.get("low", 0.0), held.get("high", 1.0), held.get("scale", 1.0)
    if not low <= high:
        reason = f"low={low:g} and high={high:g}: low must not be above high"
    elif not scale > 0:
        reason = f"scale={scale:g}: it must be above 0"
    else:
        return
    raise LoadError(f"{node.op_type} (node {node.name!r}) draws with {reason}.")


def _refuse(node: onnx.NodeProto, attribute: onnx.AttributeProto, reason: str) -> None:
    value = _value(attribute)
    names = ", ".join(filter(None, node.input))
    raise LoadError(
        f"{node.op_type} (node {node.name!r}) of {names} has {attribute.name}={value!r}: {reason}."
    )


OPTIONAL = defs.OpSchema.FormalParameterOption.Optional


def drop_empty_operands(model: onnx.ModelProto) -> None:
    """Drop trailing empty input names, on which ONNX Runtime may crash.

    Raises `LoadError` where an empty name stands for an input that is not optional.
    """
    for node in nodes(model):
        schema = schema_in(model, node.domain, node.op_type) if "" in node.input else None
        if schema is None:
            continue
        for index, name in enumerate(node.input):
            port = formal(schema.inputs, index) if schema.inputs else None
            if not name and port is not None and port.option != OPTIONAL:
                raise LoadError(
                    f"{node.op_type} (node {node.name!r}) leaves out its input {port.name!r} "
                    f"(number {index}), which it needs."
                )
        while len(node.input) > schema.min_input and not node.input[-1]:
            del node.input[-1]


def name_outputs(model: onnx.ModelProto) -> None:
    """Name the outputs that a node leaves out though its operator always gives them, as Loop and
    Split do: ONNX Runtime would end the process.
    """
    held = (model.graph.node, *(function.node for function in model.functions))
    every = [node for part in held for node in nodes_inside(part)]
    taken = {v.name for graph in graphs(model.graph) for v in (*graph.input, *graph.initializer)}
    taken.update(name for node in every for name in (*node.input, *node.output))
    for node in every:
        count = next((a.i for a in node.attribute if a.name == "num_outputs"), 0)
        missing = min(count, MISSING_OUTPUTS) - len(node.output)  # onnx-ir drops them at the end
        node.output.extend([""] * missing if node.op_type == "Split" else [])
        schema = schema_in(model, node.domain, node.op_type) if "" in node.output else None
        for k, name in enumerate(node.output):
            if not name and schema and formal(schema.outputs, k).option != OPTIONAL:
                name = f"{node.op_type}_{k}"
                while name in taken:
                    name += "_"
                node.output[k] = name
                taken.add(name)


def formal(ports: Any, k: int) -> Any:
    """The port of a schema that input or output k belongs to; the last one may be variadic."""
    return ports[min(k, len(ports) - 1)]


def clear_unknown_dims(model: onnx.ModelProto) -> None:
    """Clear axis lengths of -1, and names without a letter such as `?`, which exporters write for
    an unknown length.

    Raises `LoadError` for other negative lengths, some of which crash shape inference.
    """
    for graph in graphs(model.graph):
        for value in (*graph.input, *graph.value_info, *graph.output):
            for dim in _dims(value.type):
                unnamed = dim.HasField("dim_param") and not re.search(r"[^\W\d_]", dim.dim_param)
                if dim.dim_value == -1 or unnamed:
                    dim.Clear()
                elif dim.dim_value < 0:
                    raise LoadError(f"{value.name!r} is declared with an axis of {dim.dim_value}.")


def _dims(kind: onnx.TypeProto) -> Iterator[onnx.TensorShapeProto.Dimension]:
    """The dims of a tensor, or of the tensors in a sequence, optional or map."""
    match kind.WhichOneof("value"):
        case "tensor_type":
            yield from kind.tensor_type.shape.dim
        case "sparse_tensor_type":
            yield from kind.sparse_tensor_type.shape.dim
        case "sequence_type":
            yield from _dims(kind.sequence_type.elem_type)
        case "optional_type":
            yield from _dims(kind.optional_type.elem_type)
        case "map_type":
            yield from _dims(kind.map_type.value_type)


# -- repairs: rewrites where ONNX's version converter would change what a model computes -----------

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
    for owner, node in owned(model):
        version = opset(owner) or WORKING_OPSET
        foreign = not defs.has(node.op_type) and find(node.op_type, MICROSOFT)
        early = node.op_type in SHARED and schema_of(node.op_type, "", version) is None
        if not node.domain and (foreign or early):
            node.domain = MICROSOFT
            add_import(owner, MICROSOFT)
            add_import(model, MICROSOFT)


def _import_domains(model: onnx.ModelProto) -> None:
    """Import the newest version of domains that nodes use and the model does not import.

    A model that imports nothing at all may be of any version, and is refused.
    """
    for domain in dict.fromkeys(node.domain for node in nodes(model) if model.opset_import):
        if opset(model, domain) is None:
            schemas = defs.get_all_schemas_with_history()
            newest = max((s.since_version for s in schemas if s.domain == domain), default=1)
            version = newest if domain else WORKING_OPSET
            add_import(model, domain, version)
            warn(f"the model does not import the domain {domain or 'ai.onnx'!r}: "
                 f"version {version} is taken")  # fmt: skip


def _count_axes(model: onnx.ModelProto) -> None:
    """Count the axes in `perm` of every Transpose from the first axis, also those below 0."""
    for _, node in owned(model):
        for a in node.attribute if (node.op_type, node.domain) == ("Transpose", "") else ():
            n = len(a.ints)
            a.ints[:] = [i + n if -n <= i < 0 else i for i in a.ints]


def to_default_domain(model: onnx.ModelProto) -> None:
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
