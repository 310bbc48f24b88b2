"""Definition: what an operator computes, read in symbols, by what ONNX says and not by the rule.

No code of the numbers reading runs over expressions here, since the rule's products call it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import onnx
import onnx_ir as ir

from ...ops.symbols import Symbols, Tensor
from ..loading.bodies import has_body, inline
from ..loading.precision import to_double
from ..model import Model
from .case import Case
from .reading import read
from .transcriptions import TRANSCRIPTIONS, Specification

BODY = "the function body that ONNX gives"
FORMULA = "the formula of ONNX's specification"
TRANSCRIPTION = "a transcription of ONNX's specification, index by index"
DOCUMENTED = "a transcription of ONNX Runtime's documentation, index by index"


@dataclass(frozen=True)
class Definition:
    """The outputs of a node as expressions, and where they come from."""

    outputs: Mapping[str, Any]
    source: str


def defined(case: Case, symbols: Mapping[str, Tensor], op: Symbols) -> Definition:
    """The definition of a case: ONNX's own body, else a formula, else a transcription."""
    spec = Specification(op.notes)
    found = specified(case, symbols, spec)
    owned = {n: Tensor(y.entries, op) if isinstance(y, Tensor) else y
             for n, y in found.outputs.items()}  # fmt: skip
    return Definition(owned, found.source)


def specified(case: Case, symbols: Mapping[str, Tensor], spec: Specification) -> Definition:
    """The same, of tensors that still know the specification as their reading."""
    known = onnx.defs.has(case.op_type, case.version, case.domain)
    schema = onnx.defs.get_schema(case.op_type, case.version, case.domain) if known else None
    if schema and has_body(schema) and case.op_type not in FORMULAS_FIRST:
        try:
            return by_body(case, symbols, spec)
        except NotImplementedError:  # of what the body is made, or this node's, cannot be read
            pass
    return by_formula(case, symbols, spec)


FORMULAS_FIRST = frozenset({"Range", "Clip", "AffineGrid", "CenterCropPad"})
"""Operators whose body loops, asks for integers, or is undecided at the bounds."""


def by_body(case: Case, symbols: Mapping[str, Tensor], spec: Specification) -> Definition:
    """The function body, its own operators by formulas and transcriptions, or by their bodies."""
    key = (case.domain, case.op_type)
    own = onnx.ModelProto()
    own.CopyFrom(case.proto)  # inlining writes to it
    plain = inline(own, lambda *found: found == key or spec.kernel(found[1]) is None)
    if any(node.op_type == case.op_type for node in plain.graph.node):
        raise NotImplementedError(f"{case} has no body")
    model = Model(to_double(ir.from_proto(plain)))
    found = read(model, case.point, case.results, symbols, spec)
    return Definition({name: found.values[name] for name in case.results}, BODY)


def by_formula(case: Case, symbols: Mapping[str, Tensor], spec: Specification) -> Definition:
    """The operator by its formula, or by its transcription."""
    values = {**case.point, **symbols}
    inputs = [values.get(name) for name in case.names]
    attrs = next((s.attrs for s in case.model.steps if s.op_type == case.op_type), case.attrs)
    made = spec.run(case.op_type, inputs, attrs, domain=case.domain, outputs=case.outputs)
    name = f"{case.domain}::{case.op_type}" if case.domain else case.op_type
    if case.schema is None:
        return Definition(dict(zip(case.results, made, strict=False)), DOCUMENTED)
    source = TRANSCRIPTION if spec.kernel(name) is TRANSCRIPTIONS.get(name) else FORMULA
    return Definition(dict(zip(case.results, made, strict=False)), source)
