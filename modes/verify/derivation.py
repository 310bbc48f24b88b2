"""Derivation: from the equation of an operator to its Jacobian, in index notation."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import sympy as sp

from ...jacobians import Jacobian
from ...jacobians.errors import OnnxJacError, OnnxJacWarning
from ...jacobians.text import clipped
from ...ops import Node, Step, find
from ...ops.derive import find_derivation
from ...ops.formulas import derive, parse
from ...ops.indexed import Indexed
from ...ops.registry import Declaration, full_name
from ...ops.rules.elementwise import Elementwise
from ...ops.symbols import Tensor
from ..linearize import linearize
from .case import Case, ModelCase
from .check import CaseCheck
from .definition import exprs_of, run_symbolically
from .flow_cases import BODIES
from .page import WIDTH, Monospace, Part, wrapped_lines
from .steps import (
    Names,
    entry_text,
    index_labels,
    plain_text,
    without_units,
    write_entry,
    write_product,
)

INDEX_ENTRIES = 40
"""A case for index notation has up to this many entries in its inputs."""

STEPS_SHOWN, OWN_SHOWN = 8, 4
"""Monospace of a long definition, and of numbers that a formula names, on a short page."""

LEGEND = (
    "Indices i, j, k … are of y, primed ones of x; an axis of length 1 has none. δ_ii′ is 1 for "
    "i = i′ and else 0; [c] is 1 where c holds and else 0; an entry outside its tensor is 0."
)
OWN = (
    " T are places, in row-major order where one index stands for several, and D numbers, as the "
    "rule computes them at this case."
)


def derivation(op_type: str, domain: str, cases: Sequence[Case], full: bool) -> Iterator[Part]:
    """y_i = …, then ∂y_i/∂x_i′ = … for every block; or the structure, where there is no formula."""
    declared = find(op_type, domain)
    rule = declared.rule if declared else None
    if isinstance(rule, Elementwise):
        yield Monospace(tuple(pointwise_lines(op_type, domain, rule)))
        return
    said = "" if isinstance(rule, Indexed) else declaration_text(declared)
    if said:
        yield f"As declared: {said}"
    if model := BODIES.get(full_name(op_type, domain)):
        yield Monospace(tuple(line.strip() for line in model.splitlines()))
    case, least = plainest(cases), least_case(cases)
    composed = isinstance(case, ModelCase) or declared is None or declared.is_composed
    if text := derived_from(op_type, domain):
        yield Monospace(tuple(text.replace(" or ", "; ").split("; ")))
    try:
        blocks = () if composed else tuple(in_indices(case, full, not text))
    except (OnnxJacError, NotImplementedError):  # no general entry: the structure is shown instead
        blocks = ()
    if blocks:
        yield Monospace(tuple(line for block in blocks for line in wrapped_lines(block)))
        own = OWN if any(line.startswith("  with") for line in blocks) else ""
        yield f"At `{case}`, read from the operators that the rule returns. {LEGEND}{own}"
        return
    yield Monospace(tuple(definition_lines(least, full)))
    yield (
        f"No single formula: J is the chain of these steps at `{least}`, each with its own proof; "
        "beside a step, ∂result/∂operand as operators that are applied and never formed."
    )


def derived_from(op_type: str, domain: str) -> str:
    """The text of which SymPy makes the rule, while it is declared; empty for any other rule."""
    found = find_derivation(op_type, domain)
    return " or ".join(found.texts) if found else ""


def declaration_text(declared: Declaration | None) -> str:
    """What the declaration says of itself: the first paragraph of its documentation."""
    if declared is None:
        return ""
    made: Any = declared.definition if declared.is_composed else declared.rule
    return " ".join(inspect.cleandoc(made.__doc__ or "").partition("\n\n")[0].split())


def pointwise_lines(op_type: str, domain: str, rule: Elementwise) -> Iterator[str]:
    """y_i = f(x_i, …) and ∂y_i/∂x_i′ = δ_ii′ f′, with ONNX's broadcasting."""
    node = Node(Step(op_type, domain, 21, "", tuple(rule.variables), ("y",)), (), ())
    function = parse(rule.formula(node))
    at = {sp.Symbol(x): sp.Symbol(f"{x}_i") for x in rule.variables} | {
        sp.Symbol("Y"): sp.Symbol("y_i")
    }
    free = {s: at[sp.Symbol(s.name)] for s in function.free_symbols if sp.Symbol(s.name) in at}
    yield from wrapped_lines(f"y_i = {plain_text(function.subs(free))}")
    for x in rule.variables:
        slope = derive(function, x, shortest=True)
        free = {s: at[sp.Symbol(s.name)] for s in slope.free_symbols if sp.Symbol(s.name) in at}
        said = plain_text(slope.subs(free))
        said = f"({said})" if slope.is_Add else said
        yield from wrapped_lines(f"∂y_i/∂{x}_i′ = δ_ii′ {said}")
    held = {k: v for k, v in rule.values(node).items() if v is not None}
    used = {k: v for k, v in held.items() if sp.Symbol(k) in {sp.Symbol(s.name) for s in
            function.free_symbols}}  # fmt: skip
    if used:
        yield "by default " + ", ".join(f"{k} = {v:g}" for k, v in used.items())
    if len(rule.variables) > 1:
        yield "where an operand is repeated, i counts its own entries: see broadcasting in ONNX"


def plainest(cases: Sequence[Case]) -> Case:
    """The case for index notation: few attributes, many axes longer than 1, few entries."""

    def key(case: Case) -> tuple[Any, ...]:
        held = [case.point[name] for name in case.floating(case.wrt)]
        size = sum(x.size for x in held)
        axes = sum(n > 1 for x in held for n in x.shape)
        return size > INDEX_ENTRIES, len(case.attrs) > 1, -axes, size

    return min(cases, key=key)


def least_case(cases: Sequence[Case]) -> Case:
    """The case with the fewest entries."""
    return min(cases, key=lambda c: sum(c.point[n].size for n in c.floating(c.wrt)))


def in_indices(case: Case, full: bool, with_equation: bool) -> Iterator[str]:
    """The equation and every block of a case as formulas; nothing where a block is no operator."""
    check, outputs, blocks = opaque(case)
    if any(J is None for J in blocks.values()):
        return
    names = Names({**check.symbols, **outputs})
    lines = [f"{left(o, J.out_shape)[1:]}/{left(i, J.in_shape, '′')} = {write_entry(J, names)}"
             for (o, i), J in blocks.items() if J is not None]  # fmt: skip
    if not lines:
        return
    equations = {}
    for o in check.of if with_equation else ():
        first = exprs_of(check.definition.outputs[o], check.op).ravel()[:1]
        if said := equation(check, o, blocks, names):
            equations[o] = f"{left(o, outputs[o].shape)[1:]} = {said}"
        elif len(first) and len(said := plain_text(first[0])) < WIDTH:
            equations[o] = f"{outputs[o].exprs.ravel()[0]} = {said}, and so on"
    yield from equations.values()
    yield from (f"∂{line}" for line in lines)
    own = [f"{name} = {clipped(str(array.tolist()), 10 * WIDTH if full else WIDTH - 10)}"
           for name, array in names.own.items()]  # fmt: skip
    shown = own if full else own[:OWN_SHOWN]
    yield from (f"  with {line}" for line in shown)
    if len(own) > len(shown):
        yield f"  and {len(own) - len(shown)} more tensors of numbers"


def left(name: str, shape: Any, prime: str = "") -> str:
    """∂name_ij."""
    return f"∂{entry_text(name, without_units(index_labels(shape, prime), shape))}"


def opaque(case: Case) -> tuple[CaseCheck, dict[str, Tensor], dict[Any, Jacobian | None]]:
    """A case whose outputs are symbols of their own, and its blocks; None where one is a chain."""
    check = CaseCheck(case)
    outputs = {n: check.op.variables(n, t.values) for n, t in check.definition.outputs.items()
               if isinstance(t, Tensor)}  # fmt: skip
    given = outputs if len(case.model.steps) == 1 else {}
    read = run_symbolically(case.model, case.point, case.results, check.symbols, check.op, given)
    blocks: dict[Any, Jacobian | None] = {}
    for o in check.of:
        for i in check.wrt:
            dag = read.dag((i,), (o,))
            if len(dag.edges) == 1:
                blocks[o, i] = dag.edges[0].operator
            elif dag.edges:
                blocks[o, i] = None
    return check, outputs, blocks


def equation(check: CaseCheck, o: str, blocks: Any, names: Names) -> str:
    """y = J x where y is linear in x; else the expression that gives every entry; else nothing."""
    y = exprs_of(check.definition.outputs[o], check.op)
    for i in check.wrt:
        J = blocks.get((o, i))
        if J is None:
            continue
        made = exprs_of(J._apply(check.op, check.symbols[i]), check.op)
        pairs = zip(made.ravel(), y.ravel(), strict=True) if made.shape == y.shape else [(1, 0)]
        if all(sp.expand(a - b) == 0 for a, b in pairs):
            return write_product(J, names, i)
    found = names.generalised(y, index_labels(y.shape))
    return "" if found is None else plain_text(found)


def definition_lines(case: Case, full: bool) -> Iterator[str]:
    """The steps that a composed operator runs, one line each, with the operators of J."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OnnxJacWarning)
        J = linearize(case.model, case.point, of=case.chosen, wrt=case.floating(case.wrt),
                      engine="numpy")  # fmt: skip
        route, _ = J.route.flat(J.point)
    known, short, lines = {*case.names, *case.results}, dict[str, str](), []
    for held in J.entries:
        for name in (*held.step.inputs, *held.step.outputs):
            if name and name not in known and name not in short:
                constant = name in route.model.constants
                short[name] = f"{'c' if constant else 't'}{len(short) + 1}"
        said = ", ".join(short.get(n, n) for n in held.step.inputs if n)
        made = ", ".join(short.get(n, n) for n in held.step.outputs if n)
        slopes = ", ".join(repr(J) for J in held.blocks.values())
        text = f"{made} = {held.step.op_type}({said})".ljust(32)
        lines.append(clipped(f"{text}  {slopes}", WIDTH))
    shown = lines if full else lines[:STEPS_SHOWN]
    yield from shown
    if len(lines) > len(shown):
        yield f"… and {len(lines) - len(shown)} more steps, which the full page shows"
