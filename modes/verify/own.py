"""Own: cases for a user's operators, functions and models; symbolic Jacobians of models."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir

from ...jacobians.errors import InputError, OnnxJacWarning, UnsupportedOp
from ...ops import find
from ...ops.derive import Indexed
from ...ops.registry import Declaration
from ...ops.rules.elementwise import Elementwise
from ...ops.symbols import Symbols
from ...ops.trees import accesses
from ..model.loading.load import load
from ..model.primal.model import Model
from ..model.primal.names import distinct
from .definition import dense, read
from .transcriptions.case import Case, ModelCase, at, inside, node_case, positive

if TYPE_CHECKING:
    import sympy as sp

Shapes = Sequence[tuple[int, ...]]

LARGEST = 4096
"""The most entries of a Jacobian that is written out."""


def own_case(name: str, declared: Declaration, shapes: Shapes | None, attrs: Any) -> Case:
    """A case of an operator that a user declared."""
    if declared.definition is None:
        raise UnsupportedOp(f"{name} has a rule and no definition to compare it with: declare the "
                            "definition first, @onnxjac.defines, and then the rule")  # fmt: skip
    rule, inputs = declared.rule, list[Any](shapes or ())
    if isinstance(rule, Elementwise):
        inputs = inputs or [(2, 2), *[(2,)] * (len(rule.variables) - 1)]
    elif isinstance(rule, Indexed):
        inputs = inputs or [shape_in(rule, x) for x in rule.variables]
        inputs = [np.arange(int(np.prod(s))).reshape(s) % 2 if n in rule.integers else s
                  for n, s in zip(rule.variables, inputs, strict=True)]  # fmt: skip
    elif not inputs:
        raise InputError(f"give the shapes of the inputs: prove({name!r}, shapes=[(2, 3), (3,)])")
    for draw in DRAWS:
        made = (draw(*x, seed=k) if isinstance(x, tuple) else x for k, x in enumerate(inputs))
        if is_defined(case := node_case(name, *made, **attrs)):
            return case
    return node_case(name, *inputs, **attrs)


DRAWS = at, positive, inside, lambda *shape, seed: 1 + positive(*shape, seed=seed)
"""The points at which an operator is tried: a logarithm needs positive numbers, acos small ones."""


def is_defined(case: Case) -> bool:
    """Whether the values of a case are finite."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OnnxJacWarning)
        found = case.model.run(case.point, engine="numpy").values()
    return all(np.isfinite(np.asarray(y, float)).all() for y in found)


def shape_in(rule: Indexed, name: str) -> tuple[int, ...]:
    """A small shape of an input: two entries for every index, and as many as 2*i + k needs."""
    (access, *_) = (a for a in accesses(rule.stage) if a.name == name)
    return tuple(1 + sum(index.values()) if isinstance(index, Mapping) else 2
                 for index in access.indices)  # fmt: skip


def function_case(function: onnx.FunctionProto, shapes: Shapes | None, attrs: Any) -> ModelCase:
    """A function of a model: its body, against the rule declared for it or the rules inside."""
    inputs = shapes or [(2, 2)] * len(function.input)
    name = f"{function.domain}::{function.name}"
    case = node_case(name, *inputs, outputs=len(function.output), **attrs)
    proto = onnx.ModelProto.FromString(case.proto.SerializeToString())
    known = {entry.domain for entry in proto.opset_import}
    proto.opset_import.extend(e for e in function.opset_import if e.domain not in known)
    proto.functions.append(function)
    body = load(proto, dtype="float64")
    declared = find(function.name, function.domain)
    return ModelCase(function.name, case.inputs, attrs, tensors=case.names, made=case.results,
                     domain=function.domain, whole=case.model if declared else body, truth=body,
                     second=declared is None or declared.definition is not None)  # fmt: skip


def model_case(
    source: Any, inputs: Mapping[str, Any] | None, of: Any = None, wrt: Any = None
) -> ModelCase:  # fmt: skip
    """A small model in double precision, at a point that is made up where it is not given."""
    proto = ir.to_proto(source.ir) if isinstance(source, Model) else source
    model = load(proto, dtype="float64")
    given, point = dict(inputs or {}), dict[str, np.ndarray]()
    for k, (name, spec) in enumerate(model.inputs.items()):
        shape = tuple(n if isinstance(n, int) else 2 for n in spec.shape or ())
        floats = spec.dtype is None or spec.dtype.kind == "f"
        drawn = at(*shape, seed=k) if floats else np.zeros(shape, spec.dtype)
        point[name] = np.asarray(given.get(name, drawn), spec.dtype)
    names = tuple(n for n, x in point.items() if x.dtype.kind == "f")
    names = names if wrt is None else distinct(wrt, "wrt")
    tensors = {**point, **{n: np.asarray(model.constants[n]) for n in names if n not in point}}
    made = distinct(of, "of") if of is not None else tuple(model.outputs)
    for name in (*names, *made):
        model.spec(name)
    order, rows = tuple(tensors), model.run(point, engine="numpy")
    m, n = (sum(np.size(held[name]) for name in some)
            for held, some in (({**tensors, **rows}, made), (tensors, names)))  # fmt: skip
    if m * n > LARGEST:
        raise InputError(f"the matrix has {m} × {n} entries, and symbols are for at "
                         f"most {LARGEST}: choose smaller sizes, or fewer tensors")  # fmt: skip
    return ModelCase(str(model.ir.graph.name), tuple(tensors.values()), tensors=order, made=made,
                     whole=model, wrt=tuple(map(order.index, names)), second=False)  # fmt: skip


def symbolic(
    model: Any, inputs: Mapping[str, Any] | None = None, *, of: str | Iterable[str] | None = None,
    wrt: str | Iterable[str] | None = None,
) -> sp.Matrix:  # fmt: skip
    """The symbolic Jacobian of a small model: `onnxjac.symbolic`."""
    case, op = model_case(model, inputs, of, wrt), Symbols()
    symbols = {n: op.variables(n, case.point[n]) for n in case.floating(None)}
    found = read(case.model, case.point, case.results, symbols, op)
    return dense(found.dag(case.floating(case.wrt), case.results), op)
