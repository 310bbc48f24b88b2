"""Opsets: a runtime may refuse a new opset although it knows all the operators that are used."""

from __future__ import annotations

import onnx_ir as ir
from onnx import defs

from ..loading.upgrade import WORKING_OPSET
from .contents import Contents


def lowest_opsets(model: Contents) -> dict[str, int]:
    """The lowest opset in which every operator of the model means what it means in its own.

    The default domain is always among them: derivatives are made of its operators.
    """
    nodes = ir.traversal.RecursiveGraphIterator(model.ir.graph)
    used = {node.op_type for node in nodes if not node.domain}
    lowest = max([WORKING_OPSET, *(_since(op_type, model.opset) for op_type in used)])
    given = model.ir.opset_imports.get("", lowest)
    return {**model.ir.opset_imports, "": min(given, lowest)}


def _since(op_type: str, opset: int) -> int:
    return defs.get_schema(op_type, opset).since_version if defs.has(op_type, opset) else opset
