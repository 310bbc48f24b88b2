"""Opsets: the lowest that suffice for a model, since a runtime may refuse newer opsets outright."""

from __future__ import annotations

import onnx_ir as ir
from onnx import defs

from .contents import Contents

WORKING_OPSET = 21
"""The opset of the default domain that models are raised to."""


def lowest_opsets(model: Contents) -> dict[str, int]:
    """The opset of each domain that the model uses; for the default domain, the lowest opset, from
    `WORKING_OPSET` on, in which all of the model's operators keep their meaning.

    The default domain is always included: derivatives are made of its operators.
    """
    nodes = list(ir.traversal.RecursiveGraphIterator(model.ir.graph))
    used = {node.op_type for node in nodes if not node.domain}
    lowest = max([WORKING_OPSET, *(_since(op_type, model.opset) for op_type in used)])
    given = model.ir.opset_imports.get("", lowest)
    domains = {node.domain for node in nodes}
    others = {d: v for d, v in model.ir.opset_imports.items() if d in domains}
    return {**others, "": min(given, lowest)}


def _since(op_type: str, opset: int) -> int:
    return defs.get_schema(op_type, opset).since_version if defs.has(op_type, opset) else opset
