"""Coverage: how every operator of ONNX is differentiated, or why it has no derivative.

>>> status("MatMul"), status("SoftmaxCrossEntropyLoss")[0], status("Attention")[0]
(('rule', 'a rule gives its Jacobian blocks'), 'rule', 'body')
>>> status("Floor")
('zero', 'the result is piecewise constant')
>>> status("StringConcat")
('not a function of real numbers', 'there is no floating input')
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from onnx import defs

from ...jacobians.errors import UnsupportedOp
from ...ops import find
from ...ops.node import TRAINING
from ...ops.rules.zeros import NOT_REAL
from ..flow.control import CONTROL
from ..flow.sequences import SEQUENCES
from ..loading.bodies import has_body
from ..training.optimizers import OPERATORS as OPTIMIZERS

RULE, BODY, ZERO, NOT_A_FUNCTION = "rule", "body", "zero", "not a function of real numbers"

DOMAINS = ("", "ai.onnx.ml", "ai.onnx.preview", TRAINING)


def status(op_type: str, domain: str = "") -> tuple[str, str]:
    """(kind, reason), where kind is RULE, BODY, ZERO or NOT_A_FUNCTION."""
    declared = find(op_type, domain)
    if declared is not None:
        if declared.zero is not None:
            return (NOT_A_FUNCTION if declared.zero in NOT_REAL else ZERO), declared.zero
        defined = declared.definition is not None
        return RULE, "defined by other operators" if defined else "a rule gives its Jacobian blocks"
    if not domain and op_type in CONTROL:
        return RULE, "its turns or its branch at the point are differentiated"
    if not domain and op_type in SEQUENCES:
        return RULE, "a sequence stands for its tensors at the point"
    if domain == TRAINING and (op_type == "Gradient" or op_type in OPTIMIZERS):
        return RULE, "replaced by plain operators"
    if (op_type, domain) in schemas() and has_body(schemas()[op_type, domain]):
        return BODY, "ONNX defines it by other operators"
    raise UnsupportedOp(f"{domain or 'ai.onnx'}::{op_type} has no rule, no body and no reason")


@cache
def schemas() -> dict[tuple[str, str], defs.OpSchema]:
    """The newest schema of every operator, deprecated ones included."""
    return {(schema.name, schema.domain): schema for schema in defs.get_all_schemas()}


def operators(domain: str = "") -> Iterator[str]:
    """The operators of a domain, without ONNX's deprecated ones; `ai.onnx.ml` keeps them."""
    for (op_type, held), schema in sorted(schemas().items()):
        if held == domain and (not schema.deprecated or domain):
            yield op_type
