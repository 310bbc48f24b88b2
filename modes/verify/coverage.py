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
from ..model.flow.control import CONTROL, SEQUENCES
from ..model.loading.bodies import has_body
from ..model.loading.upgrade import MICROSOFT, SHARED
from ..training.optimizers import OPERATORS as OPTIMIZERS

RULE, BODY, ZERO, NOT_A_FUNCTION = "rule", "body", "zero", "not a function of real numbers"

REFUSED = "refused"
"""The kind of an operator that a model may not have on a differentiable path."""

DOMAINS = ("", "ai.onnx.ml", "ai.onnx.preview", TRAINING)


def status(op_type: str, domain: str = "") -> tuple[str, str]:
    """(kind, reason), where kind is RULE, BODY, ZERO, NOT_A_FUNCTION or REFUSED."""
    declared = find(op_type, domain)
    if declared is not None:
        if declared.refused is not None:
            return REFUSED, declared.refused
        if declared.zero is not None:
            return (NOT_A_FUNCTION if declared.zero in NOT_REAL else ZERO), declared.zero
        defined = declared.definition is not None
        return RULE, "defined by other operators" if defined else "a rule gives its Jacobian blocks"
    if not domain and op_type in CONTROL:
        return RULE, "its branch, or its turns, at the point are differentiated: tests/modes"
    if not domain and op_type in SEQUENCES:
        return RULE, "a sequence or optional stands for the tensors that it holds: tests/modes"
    if domain == TRAINING and (op_type == "Gradient" or op_type in OPTIMIZERS):
        return RULE, "replaced by plain operators"
    if domain == MICROSOFT and op_type in SHARED:
        return RULE, "it means the same as ONNX's own"
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


@cache
def runtime_operators() -> dict[str, bool]:
    """Operators of com.microsoft in ONNX Runtime -> whether it has a kernel for CPUs."""
    from onnxruntime.capi import onnxruntime_pybind11_state as runtime

    kernels = {k.op_name for k in runtime.get_all_opkernel_def()
               if k.domain == MICROSOFT and k.provider.startswith("CPU")}  # fmt: skip
    found = {s.name for s in runtime.get_all_operator_schema() if s.domain == MICROSOFT}
    return {name: name in kernels for name in sorted(found)}


def beyond() -> Iterator[tuple[str, str, str, str]]:
    """(domain, operator, kind, reason) of every operator outside ONNX's default domain."""
    for domain in DOMAINS[1:]:
        for op_type in operators(domain):
            yield domain, op_type, *status(op_type, domain)
    for op_type, runs in runtime_operators().items():
        try:
            yield MICROSOFT, op_type, *status(op_type, MICROSOFT)
        except UnsupportedOp:
            why = "it has no rule yet" if runs else "ONNX Runtime has no kernel of it for CPUs"
            yield MICROSOFT, op_type, REFUSED, why
