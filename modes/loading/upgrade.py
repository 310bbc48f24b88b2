"""One working opset, and no functions: what rules and kernels may rely on."""

from __future__ import annotations

import onnx
from onnx import checker, defs, shape_inference, version_converter
from onnx.helper import make_opsetid

from ...jacobians.errors import LoadError
from .attributes import settle_attributes
from .bodies import expand, inline_local
from .dims import settle_dims
from .messages import first_line
from .operands import settle_operands
from .protos import graphs, opset
from .repairs import after_conversion, before_check, before_conversion

WORKING_OPSET = 21

LONGEST = 2**20
"""Entries of a vector through which ONNX's shape inference may go one by one."""


def upgrade(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same model, checked, at opset 21 or above, every call of a function replaced by its body.

    Tensors keep their names.
    """
    model = before_check(model)
    settle_dims(model)
    _check(model)
    settle_operands(model)
    settle_attributes(model)
    if model.functions:
        model = inline_local(model)
        _check(model)  # of a function that gives what it was given, the inliner loses the output
        settle_attributes(model)  # functions may have been handed some
    version = opset(model)
    if version is None:  # rules and definitions use ONNX's own operators
        model.opset_import.append(make_opsetid("", WORKING_OPSET))
    elif version < WORKING_OPSET:
        model = _raise(model, version)
    model = expand(infer(model))
    settle_attributes(model)  # bodies follow the shapes of what they are given
    return infer(model)


def infer(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the types and shapes of its tensors, as far as ONNX can tell."""
    try:
        known = shape_inference.infer_shapes(model)
        joined = has_long_shape(known)  # data propagation would go through every entry
        return known if joined else shape_inference.infer_shapes(model, data_prop=True)
    except Exception:  # some valid models defeat it; shapes are known at the point anyway
        return model


def has_long_shape(model: onnx.ModelProto) -> bool:
    """Whether some vector, of whatever type, is longer than any shape, indices or axes."""
    kinds = (
        value.type.tensor_type
        for graph in graphs(model.graph)
        for value in (*graph.input, *graph.value_info, *graph.output)
    )
    return any(len(kind.shape.dim) == 1 and kind.shape.dim[0].dim_value > LONGEST for kind in kinds)


def _check(model: onnx.ModelProto) -> None:
    newest = defs.onnx_opset_version()
    if (opset(model) or 0) > newest:
        raise LoadError(
            f"the model uses opset {opset(model)}, but onnx {onnx.__version__} knows {newest} at "
            "most: install a newer onnx."
        )
    try:
        checker.check_model(_with_shapes(model))
    except Exception as error:
        raise LoadError(f"the model breaks ONNX's rules: {first_line(error)}") from error


def _with_shapes(model: onnx.ModelProto) -> onnx.ModelProto:
    """The checker asks for shapes of graph inputs and outputs that ONNX lets a model leave out."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for value in (*copy.graph.input, *copy.graph.output):
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.shape.SetInParent()
    return copy


def _raise(model: onnx.ModelProto, version: int) -> onnx.ModelProto:
    try:
        old = before_conversion(infer(model) if version < 11 else model, version)
        new = version_converter.convert_version(old, WORKING_OPSET)
        return after_conversion(new, (old, infer(new)) if version < 11 else (old,), version)
    except Exception as error:
        raise LoadError(
            f"the model cannot be raised from opset {version} to {WORKING_OPSET}: "
            f"{first_line(error)} Export it again at opset {WORKING_OPSET} or above."
        ) from error
