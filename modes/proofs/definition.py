"""Definition: what an operator computes, read in symbols, by what ONNX says and not by the rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import onnx
import onnx_ir as ir

from ...ops.numbers.pointwise import UFUNCS
from ...ops.symbols import Symbols, Tensor
from ...ops.symbols.table import KERNELS
from ..loading.bodies import has_body, inline
from ..loading.precision import to_double
from ..model import Model
from .case import Case
from .reading import read

BODY = "the function body that ONNX gives"
FORMULA = "the formula of ONNX's specification"
KERNEL = "the NumPy code of the operator, which tests compare with ONNX Runtime"


@dataclass(frozen=True)
class Definition:
    """The outputs of a node as expressions, and where they come from."""

    outputs: Mapping[str, Any]
    source: str


def defined(case: Case, symbols: Mapping[str, Tensor], op: Symbols) -> Definition:
    """The definition of a case: ONNX's own body where one can be read, else a formula."""
    schema = onnx.defs.get_schema(case.op_type, case.version, case.domain)
    if has_body(schema) and case.op_type not in FORMULAS_FIRST:
        try:
            return by_body(case, symbols, op)
        except NotImplementedError:  # of what the body is made, or this node's, cannot be read
            pass
    return by_kernel(case, symbols, op)


FORMULAS_FIRST = frozenset({"Range", "Clip", "AffineGrid", "CenterCropPad"})
"""Operators whose body loops, asks for integers, or is undecided at the bounds."""


def by_body(case: Case, symbols: Mapping[str, Tensor], op: Symbols) -> Definition:
    """The function body, its own operators by their formulas."""
    key = (case.domain, case.op_type)
    own = onnx.ModelProto()
    own.CopyFrom(case.proto)  # inlining writes to it
    plain = inline(own, lambda domain, op_type: (domain, op_type) == key)
    if any(node.op_type == case.op_type for node in plain.graph.node):
        raise NotImplementedError(f"{case} has no body")
    model = Model(to_double(ir.from_proto(plain)))
    found = read(model, case.point, case.results, symbols, op)
    return Definition({name: found.values[name] for name in case.results}, BODY)


def by_kernel(case: Case, symbols: Mapping[str, Tensor], op: Symbols) -> Definition:
    """The operator itself in the symbols reading."""
    values = {**case.point, **symbols}
    inputs = [values.get(name) for name in case.names]
    attrs = next((s.attrs for s in case.model.steps if s.op_type == case.op_type), case.attrs)
    made = op.run(case.op_type, inputs, attrs, domain=case.domain, outputs=case.outputs)
    name = f"{case.domain}::{case.op_type}" if case.domain else case.op_type
    source = FORMULA if name in KERNELS or name in UFUNCS else KERNEL
    return Definition(dict(zip(case.results, made, strict=False)), source)
