"""Definition: what an operator computes, as SymPy expressions from ONNX's specification.

The definition is ONNX's function body, a formula, or a transcription of the specification, and
never a rule. Nor do kernels of the numbers reading run over expressions here, because the products
of rules call them.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from itertools import accumulate, pairwise, product
from typing import Any, TypeGuard

import numpy as np
import onnx
import onnx_ir as ir
import sympy as sp

from ...jacobians import Dag, Jacobian, shape_of, size
from ...jacobians.errors import InputError, OnnxJacWarning, UnsupportedOp
from ...ops import find
from ...ops.formulas import Total, parse
from ...ops.indexed import Indexed, sizes_of
from ...ops.numbers.pointwise import UFUNCS
from ...ops.registry import Declaration, full_name
from ...ops.rules.elementwise import Elementwise
from ...ops.symbols import REFERRED, SymbolReading, Tensor, each
from ...ops.symbols.number import KERNELS, Kernel, nearby_closed_form
from ...ops.symbols.pointwise import by_entries, exactly
from ...ops.trees import accesses
from ..linear.derivatives.record import active_steps, dag_of, has_tangent, record_entries
from ..linear.derivatives.unroll import unrolled
from ..model.flow.contents import schema_of
from ..model.flow.steps import steps_needed
from ..model.loading.bodies import add_import, has_body, inline
from ..model.loading.load import load
from ..model.loading.precision import to_double
from ..model.primal.inputs import distinct
from ..model.primal.model import Model
from .case import Case, ModelCase, inside, node_case, positive, signed
from .transcriptions import TRANSCRIPTIONS, tabulate

BODY = "the function body that ONNX gives"
FORMULA = "the formula of ONNX's specification"
TRANSCRIPTION = "a transcription of the specification, index by index"
STATED = "its definition in ONNX's operators"
WRITTEN = "its formula, entry by entry"
PARTS = "the definitions of its operators"
REFERENCE = "ONNX's reference implementation, run over symbols"

FORMULAS_FIRST = frozenset({"Range", "Clip", "AffineGrid", "CenterCropPad"})
"""Operators whose body loops, needs integers, or is undecided at the bounds."""

Names = tuple[str, ...]


@dataclass(frozen=True)
class Definition:
    """The outputs of a node as expressions, and the source of these expressions."""

    outputs: Mapping[str, Any]
    source: str


def defined(case: Case, symbols: Mapping[str, Tensor], op: SymbolReading) -> Definition:
    """The definition of a case: ONNX's own body, else a formula, else a transcription."""
    spec, found = Specification(op.notes), None
    declared = find(case.op_type, case.domain)
    if isinstance(case, ModelCase):
        found = by_parts(case, symbols, spec)
    elif (declared and is_written(declared.rule)
          and spec.kernel(full_name(case.op_type, case.domain)) is None):  # fmt: skip
        inputs = [spec.operand({**case.point, **symbols}[name]) for name in case.names]
        of: Any = by_entries if isinstance(declared.rule, Elementwise) else evaluate_indexed
        y = of(declared.rule, inputs, {**declared.rule.defaults, **case.attrs})
        found = Definition({case.results[0]: Tensor(each(spec.number, y), op)}, WRITTEN)
    schema = schema_of(case.op_type, case.domain, case.version)
    if not found and schema and has_body(schema) and case.op_type not in FORMULAS_FIRST:
        with suppress(NotImplementedError):  # this node has no body, or its body cannot be read
            found = by_body(case, symbols, spec)
    found = found or define_by_formula(case, symbols, spec)
    owned = {n: Tensor(y.entries, op) if isinstance(y, Tensor) else y
             for n, y in found.outputs.items()}  # fmt: skip
    return Definition(owned, found.source)


def is_written(rule: Any) -> TypeGuard[Elementwise | Indexed]:
    """Whether a formula, or a line of index notation, says all that the operator computes."""
    return isinstance(rule, Elementwise) or (isinstance(rule, Indexed) and rule.is_plain)


class Specification(SymbolReading):
    """The symbols reading by formulas and transcriptions, without kernels of the numbers reading.

    This reading adds its decisions to the notes of another reading.
    """

    def __init__(self, notes: dict[Any, None]) -> None:
        self.notes = notes

    def kernel(self, op_type: str) -> Kernel | None:
        """A formula, NumPy's own function of the entries, or a transcription."""
        return KERNELS.get(op_type) or UFUNCS.get(op_type) or TRANSCRIPTIONS.get(op_type)


def by_body(case: Case, symbols: Mapping[str, Tensor], spec: Specification) -> Definition:
    """The function body; its operators by formulas and transcriptions, or by their own bodies."""
    key = (case.domain, case.op_type)
    own = deepcopy(case.proto)  # inlining writes to it
    plain = inline(own, lambda *found: found == key or spec.kernel(found[1]) is None)
    if any(node.op_type == case.op_type for node in plain.graph.node):
        raise NotImplementedError(f"{case} has no body")
    model = Model(to_double(ir.from_proto(plain)))
    found = run_symbolically(model, case.point, case.results, symbols, spec)
    return Definition({name: found.values[name] for name in case.results}, BODY)


def define_by_formula(case: Case, symbols: Mapping[str, Tensor], spec: Specification) -> Definition:
    """The operator by its formula or its transcription."""
    values = {**case.point, **symbols}
    inputs = [values.get(name) for name in case.names]
    attrs = next((s.attrs for s in case.model.steps if s.op_type == case.op_type), case.attrs)
    made = spec.run(case.op_type, inputs, attrs, domain=case.domain, outputs=case.outputs)
    name = full_name(case.op_type, case.domain)
    source = FORMULA
    if (kernel := spec.kernel(name)) is None:
        source = STATED
    elif kernel is TRANSCRIPTIONS.get(name):
        source = REFERENCE if name in REFERRED else TRANSCRIPTION
    return Definition(dict(zip(case.results, made, strict=False)), source)


def by_parts(case: ModelCase, symbols: Mapping[str, Tensor], spec: Specification) -> Definition:
    """A model, its operators by formulas, transcriptions or bodies."""
    proto = ir.to_proto(case.truth.ir)
    plain = inline(proto, lambda *found: not found[0] and spec.kernel(found[1]) is None)
    found = run_symbolically(
        Model(to_double(ir.from_proto(plain))), case.point, case.results, symbols, spec
    )
    return Definition({name: found.values[name] for name in case.results}, PARTS)


def evaluate_indexed(rule: Indexed, inputs: list[Any], attrs: Mapping[str, Any]) -> Any:
    """A formula at every entry of y, with its sums in full: no code of the rule is run."""
    arrays = dict(zip(rule.variables, map(np.asarray, inputs), strict=True))
    expr, sizes = parse(rule.term), sizes_of(rule, arrays)
    known = {sp.Symbol(n, real=True): nearby_closed_form(v) for n, v in attrs.items()}

    def entry(e: sp.Expr, at: Mapping[str, int]) -> Any:
        if isinstance(e, Total):
            places = product(*(range(sizes[n]) for n in e.over))
            inner = (dict(zip(e.over, place, strict=True)) for place in places)
            return sp.Add(*(entry(e.term, {**at, **more}) for more in inner))
        if isinstance(e, sp.Indexed) or (e.is_Symbol and e.name in arrays):
            place = tuple(int(entry(i, at)) for i in getattr(e, "indices", ()))
            x = arrays[str(getattr(e, "base", e))][place]
            if isinstance(x, np.integer):
                return sp.Integer(int(x))
            known[symbol := sp.Symbol(f"v{id(x)}", real=True)] = x
            return symbol
        if e.is_Symbol and e.name in at:
            return sp.Integer(at[e.name])
        return e.func(*(entry(a, at) for a in e.args)) if e.args else e

    def value(place: tuple[int, ...]) -> Any:
        made = entry(expr, dict(zip(rule.out, place, strict=True)))
        return exactly(list(known), made)(*known.values())

    return tabulate((sizes[n] for n in rule.out), value)


# -- a model over symbols ------------------------------------------------------------------------


@dataclass(frozen=True)
class SymbolicTensors:
    """The tensors of a model as expressions."""

    op: SymbolReading
    model: Model
    values: dict[str, Any]

    def dag(self, wrt: Names, of: Names) -> Dag:
        """∂of/∂wrt, by the rules."""
        active = active_steps(self.model.steps, wrt, of)
        entries = record_entries(active, dict(self.values), op=self.op)
        shapes = {n: shape_of(value) for n, value in self.values.items() if has_tangent(value)}
        return dag_of(entries, shapes, wrt, of, np.dtype(np.float64))

    def exprs(self, name: str) -> np.ndarray:
        """The entries of a tensor, row-major."""
        return exprs_of(self.values[name], self.op).ravel()


def run_symbolically(
    model: Model, point: Mapping[str, np.ndarray], of: Names, symbols: Mapping[str, Tensor],
    op: SymbolReading, given: Mapping[str, Tensor] | None = None,
) -> SymbolicTensors:  # fmt: skip
    """Run the steps that `of` needs over symbols; tensors in `given` are not computed again."""
    flat = unrolled(model, point, of)
    values: dict[str, Any] = {**flat.constants, **point, **symbols}
    for step in (flat.steps[k] for k in steps_needed(flat.steps, of)[0]):
        known = {n: y for n, y in (given or {}).items() if n in step.outputs}
        values.update(known)
        if known.keys() >= set(filter(None, step.outputs)):
            continue
        made = op.run(
            step.op_type, [n and values[n] for n in step.inputs], step.attrs,
            domain=step.domain, version=step.version, outputs=len(step.outputs),
        )  # fmt: skip
        made_of = zip(step.outputs, made, strict=False)
        values.update((n, known.get(n, y)) for n, y in made_of if n)
    return SymbolicTensors(op, flat, values)


def exprs_of(array: Any, op: SymbolReading) -> np.ndarray:
    """The expressions in a tensor; numbers are exact."""
    return (array if isinstance(array, Tensor) else op.constant(array)).exprs


def symbolic_matrix(J: Jacobian, op: SymbolReading) -> sp.Matrix:
    """The matrix of an operator: its columns are J eᵢ, all computed in one call."""
    m, n = J.shape
    if not m * n:
        return sp.zeros(m, n)
    units = op.constant(np.eye(n, dtype=int).reshape(n, *J.in_shape))
    columns = np.broadcast_to(exprs_of(J._apply(op, units), op), (n, *J.out_shape))
    return sp.Matrix(n, m, columns.ravel().tolist()).T


def block_slices(
    values: Mapping[str, Any], of: Names, wrt: Names
) -> dict[tuple[str, str], tuple[slice, slice]]:
    """(output, input) -> the rows and columns of their block in the whole matrix."""
    rows, columns = (spans(values, names) for names in (of, wrt))
    return {(o, i): (rows[o], columns[i]) for o in of for i in wrt}


def spans(values: Mapping[str, Any], names: Names) -> dict[str, slice]:
    """The place of each tensor among the concatenated tensors."""
    ends = accumulate((size(shape_of(values[name])) for name in names), initial=0)
    return {name: slice(*span) for name, span in zip(names, pairwise(ends), strict=True)}


Shapes = Sequence[tuple[int, ...]]


# -- cases of operators, functions and models of a user --------------------------------------------

SYMBOLIC_ENTRIES = 4096
"""The most entries of a Jacobian that is written out."""


def own_case(name: str, declared: Declaration, shapes: Shapes | None, attrs: Any) -> Case:
    """A case of an operator that a user declared."""
    if declared.definition is None:
        raise UnsupportedOp(f"{name} has a rule and no definition to compare it with: declare the "
                            "definition first, @onnxjac.defines, and then the rule")  # fmt: skip
    rule, inputs = declared.rule, list[Any](shapes or ())
    if isinstance(rule, Elementwise):
        inputs = inputs or [(2, 2), *[(2,)] * (len(rule.variables) - 1)]
    elif isinstance(rule, Indexed) and rule.is_plain:
        inputs = inputs or [small_shape(rule, x) for x in rule.variables]
        inputs = [np.arange(int(np.prod(s))).reshape(s) % 2 if n in rule.integers else s
                  for n, s in zip(rule.variables, inputs, strict=True)]  # fmt: skip
    elif not inputs:
        raise InputError(f"give the shapes of the inputs: prove({name!r}, shapes=[(2, 3), (3,)])")
    for draw in DRAWS:
        made = (draw(*x, seed=k) if isinstance(x, tuple) else x for k, x in enumerate(inputs))
        case = node_case(name, *made, **attrs)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OnnxJacWarning)
            found = case.model.run(case.point, engine="numpy").values()
        if all(np.isfinite(np.asarray(y, float)).all() for y in found):
            return case
    return node_case(name, *inputs, **attrs)


DRAWS = signed, positive, inside, lambda *shape, seed: 1 + positive(*shape, seed=seed)
"""The points at which an operator is tried: a logarithm needs positive numbers, acos small ones."""


def small_shape(rule: Indexed, name: str) -> tuple[int, ...]:
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
    for entry in function.opset_import:
        add_import(proto, entry.domain, entry.version)
    proto.functions.append(function)
    body = load(proto, dtype="float64")
    declared = find(function.name, function.domain)
    return ModelCase(function.name, case.inputs, attrs, names=case.names, results=case.results,
                     domain=function.domain, model=case.model if declared else body, truth=body,
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
        drawn = signed(*shape, seed=k) if floats else np.zeros(shape, spec.dtype)
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
    if m * n > SYMBOLIC_ENTRIES:
        raise InputError(f"the matrix has {m} × {n} entries, and symbols are "
                         f"for at most {SYMBOLIC_ENTRIES}: choose smaller sizes, or fewer "
                         "tensors")  # fmt: skip
    return ModelCase(str(model.ir.graph.name), tuple(tensors.values()), names=order,
                     results=made, model=model, truth=model, wrt=tuple(map(order.index, names)),
                     second=False)  # fmt: skip


def symbolic(
    model: Any, inputs: Mapping[str, Any] | None = None, *, of: str | Iterable[str] | None = None,
    wrt: str | Iterable[str] | None = None,
) -> sp.Matrix:  # fmt: skip
    """The symbolic Jacobian of a small model: `onnxjac.symbolic`."""
    case, op = model_case(model, inputs, of, wrt), SymbolReading()
    symbols = {n: op.variables(n, case.point[n]) for n in case.floating(None)}
    found = run_symbolically(case.model, case.point, case.results, symbols, op)
    return symbolic_matrix(found.dag(case.floating(case.wrt), case.results), op)
