"""Explain: what an operator is made of, and how its products are computed.

`J.explain()` explains the Jacobian of a model, `J.explain("node")` one step, and `C.explain()` a
symmetric operator.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import groupby
from typing import Any

from ...jacobians import Dag, Jacobian, prod_text
from ...jacobians.errors import UnknownTensor, closest
from ...jacobians.hooks import explain
from ...jacobians.products import Product, factors_of
from ...jacobians.sums import terms_of
from ...jacobians.text import bytes_text, time_text
from ...ops import Node, Step, find
from ...ops.rules.elementwise import Elementwise
from ..curvature.checked import conditions_of, find_linearizations, inner, maker, origin
from ..linear.derivatives.checkpoint import is_checkpointed
from ..linear.derivatives.record import cuts
from ..linear.elimination.adaptive import Adaptive
from ..linear.elimination.cost import seconds
from ..linear.elimination.dense import orders
from ..linear.elimination.plan import eliminated, new_edges, plan_of, spent
from ..linear.explanation import (
    Composition,
    Cut,
    Explanation,
    Factor,
    Local,
    Mathematics,
    Row,
    Stretch,
)
from ..linear.linearization import Linearization
from ..linear.products.compiled import Compiled
from ..linear.symmetric import Curvature
from . import blocks
from .kinks import AtPoint, kinks_at

MIDDLES = {"gauss_newton": "loss Hessian", "fisher": "covariance", "empirical_fisher": "gradients"}
"""The function that was called -> what stands between Jᵀ and J."""


@explain.register(Linearization)
def _(J: Linearization, name: str | None = None) -> Explanation | Local:
    """The explanation of a Jacobian or a step; runs the model where operators have kinks."""
    if name is not None:
        return local(J, name)
    wrt, of = blocks.end_names(J)
    cut = (Cut(s.op_type, s.name, why) for s, why in cuts(J.route.steps, wrt, of, J.route.exact))
    zeros = J.route.zeros(J.dag, of, wrt)
    conditions = tuple(map(str, J.route.conditions_at(J.point, J.at)))
    return Explanation(repr(J), *explain_products(J), tuple(cut), zeros, kinks_at(J), conditions)


def explain_products(
    J: Linearization,
) -> tuple[tuple[Row, ...], tuple[Stretch, ...], tuple[str, ...]]:
    """The blocks, the stretches that replace blocks, and the choices that were made."""
    if any(is_checkpointed(edge.operator) for edge in J.dag.edges):
        why = "checkpointed: blocks are made again at every product, and never multiplied out"
        return (), (), (why,)
    if J.make:
        J.structure  # noqa: B018 - a plan that was asked for is made
    held = tuple(blocks.held_in(J))
    ops = {h.ends: h.step.op_type for h in held}
    stretches, after = blocks.stretches_of(J.dag, blocks.tensor_names(J), ops)
    rows = tuple(blocks.block_row(h, after) for h in held)
    return rows, stretches, (*choices_of(J.dag), *engine_of(J))


# -- choices: how products and the matrix are computed ---------------------------------------------


def choices_of(dag: Dag) -> Iterator[str]:
    """One line for each decision."""
    if 0 in dag.shape or not dag.edges:
        yield "nothing to decide: no product takes any work"
        return
    yield f"elimination: {eliminating(dag)}"
    yield f"multiplying out: {planning(dag)}"
    yield f"toarray(): {explain_order(dag)}"


def eliminating(dag: Dag) -> str:
    """How many tensors a product computes, and its estimated time, before and after."""
    sides = dag, eliminated(dag)
    m, n = (len({v for e in side.edges for v in (e.start, e.end)}) for side in sides)
    s, t = (1e6 * seconds(side) for side in sides)
    return f"{m} → {n} tensors, {s:.0f} → {t:.0f} µs per product (estimated)"


def planning(dag: Dag) -> str:
    """What was multiplied out, or why nothing was."""
    plan, before = plan_of(dag), eliminated(dag)
    if plan is None:
        return "nothing yet: J has had few products; J.plan(products=) says how many will follow"
    if not (n := len(new_edges(plan, before))):
        return "nothing, since no stretch would repay it"
    return f"{n} stretch{'es' * (n > 1)}, which hold {bytes_text(spent(plan, before))}"


def explain_order(dag: Dag) -> str:
    """The order of multiplication with the fewest flops, then the other orders."""
    found = sorted(orders(eliminated(dag)), key=lambda order: order.flops)
    best, *others = (f"{order.name} {order.flops:.2g} flops" for order in found)
    legend = "J0, J1 … are the operators that elimination left, from wrt on"
    named = [legend] if any("J0" in order.name for order in found) else []
    return "; ".join([f"cheapest order {best}", *others, *named])


def engine_of(J: Linearization, name: str = "") -> Iterator[str]:
    """How products with J, which has a `name` in an operator, and with Jᵀ are taken, and why."""
    for side, kind in ((J, name), (vars(J).get("T"), "Jᵀ ")):
        taken = vars(side).get("structure") if side is not None else None
        if isinstance(taken, Compiled | Adaptive):
            is_said = taken.choice.startswith("compiled")
            yield f"{kind}{'' if is_said else 'products: '}{taken.choice}"
        elif taken is None and side is J:
            yield f"{kind}products: none yet; the first ones go through the DAG"


# -- local: one step -------------------------------------------------------------------------------


def local(J: Linearization, name: str) -> Local:
    """The step called `name`, or the step or graph input behind the tensor called `name`.

    Each step of an unrolled loop has a name of its own. Raises `UnknownTensor` where the model has
    neither.
    """
    route, _ = J.route.flat(J.point)
    steps, model = (*route.steps, *J.route.steps), route.model
    step = next((s for s in steps if s.name == name), None)
    step = step or next((s for s in steps if name in s.outputs), None)
    if step is not None:
        held = [h for h in blocks.held_in(J) if h.step.key == step.key]
        title, rule, tensors = str(step), mathematics(step), step_tensors(J, step)
        kinks, why = kinks_at(J, step), why_none(J, step)
    elif name in model.inputs or name in model.initializers:
        held = [h for h in blocks.held_in(J) if h.step.inputs[h.key[1]] == name]
        role = "an input" if name in J.route.model.inputs else "an initializer"
        title = f"{J.route.model.spec(name)}, {role}: nothing computes it"
        rule, tensors, kinks = Mathematics("", ()), (), ()
        why = f"No block of this Jacobian begins at it: name it with wrt={name!r}."
    else:
        made = (known for s in steps for known in (s.name, *filter(None, s.outputs)))
        known = dict.fromkeys((*made, *model.inputs, *model.initializers))
        raise UnknownTensor(f"the model has no node and no tensor {name!r}.{closest(name, known)}")
    legend = tuple(legend_of(h.operator for h in held))
    rows = tuple(map(blocks.block_row, held))
    return Local(title, rule, tensors, rows, legend, kinks, "" if held else why)


def why_none(J: Linearization, step: Step) -> str:
    """Why a step has no blocks."""
    if not J.entries:
        return "A checkpointed Jacobian holds no blocks: linearise without checkpoint= to see them."
    route, _ = J.route.flat(J.point)
    if step not in route.steps:
        return "At the point it is unrolled: its turns, or its branch, are steps of their own."
    wrt, of = map(", ".join, blocks.end_names(J))
    return f"It has no block here: it is not on a differentiable way from ({wrt}) to ({of})."


def step_tensors(J: Linearization, step: Step) -> tuple[tuple[str, ...], ...]:
    """Name, role, shape and type of the tensors of a step at the point."""
    route, _ = J.route.flat(J.point)
    if step not in route.steps:
        return ()
    values = AtPoint(J).values((step,))
    return tuple(
        (name, f"{side} {k}", prod_text(values[name].shape), str(values[name].dtype))
        for side, names in (("input", step.inputs), ("output", step.outputs))
        for k, name in enumerate(names) if name and hasattr(values[name], "shape")
    )  # fmt: skip


def legend_of(operators: Iterable[Jacobian]) -> Iterator[str]:
    """One line for each type of operator in the given operators: what it does."""
    parts = (f for J in operators for term in terms_of(J) for f in factors_of(term))
    for kind in dict.fromkeys(map(type, parts)):
        said = inspect.getdoc(kind) or ""
        yield f"{kind.__name__}: {said.partition(chr(10))[0]}"


# -- mathematics: the rule of an operator ----------------------------------------------------------


def mathematics(step: Step) -> Mathematics:
    """The rule of a step, as a formula that SymPy prints or as its documentation states it.

    >>> print(*mathematics(Step("Sin", "", 21, "s", ("x",), ("y",))).formulas, sep="; ")
    Y = sin(x); ∂Y/∂x = cos(x)
    """
    declared = find(step.op_type, step.domain)
    if declared is None:
        return Mathematics("none: it has neither a rule nor a function body", ())
    if declared.zero is not None:
        return Mathematics("declared to be zero", (f"∂Y/∂X = 0: {declared.zero}",))
    if declared.refused is not None:
        return Mathematics("declared to be refused", (f"no ∂Y/∂X: {declared.refused}",))
    if isinstance(declared.rule, Elementwise):
        return explain_formula(declared.rule, step)
    what = "a rule"
    rule: object = declared.rule
    if declared.is_composed and declared.definition is not None:
        what, rule = "a definition by other operators, whose rules apply", declared.definition
    module, text = getattr(rule, "__module__", "").partition(".")[2], inspect.getdoc(rule) or ""
    return Mathematics(f"{what} in {module}", tuple(filter(None, [text])))


def explain_formula(declared: Elementwise, step: Step) -> Mathematics:
    """The formula and its derivatives, by SymPy."""
    from sympy import pretty

    lines = list(formula_equations(declared, step))
    used = set(map(str, lines[0].free_symbols))
    values = declared.values(Node(step, (), ())).items()
    named = ", ".join(f"{k} = {v:g}" for k, v in values if k in used and v is not None)
    shown = [str(pretty(line, use_unicode=True, wrap_line=False)) for line in lines]
    return Mathematics("a formula, differentiated by SymPy", tuple(filter(None, [*shown, named])))


def formula_equations(declared: Elementwise, step: Step) -> Iterator[Any]:
    """Y = f(x, ...) and ∂Y/∂x = ... as equations of SymPy."""
    from sympy import Eq, Symbol

    from ...ops.formulas import derive, parse

    formula = parse(declared.formula(Node(step, (), ())))
    yield Eq(Symbol("Y"), formula, evaluate=False)
    for name in declared.variables:
        yield Eq(Symbol(f"∂Y/∂{name}"), derive(formula, name, shortest=True), evaluate=False)


def mathml(step: Step) -> tuple[str, ...]:
    """The formula of a step and its derivatives as MathML; empty where no formula is declared."""
    declared = find(step.op_type, step.domain)
    if declared is None or not isinstance(declared.rule, Elementwise):
        return ()
    return tuple(map(mathml_printer().doprint, formula_equations(declared.rule, step)))


@cache
def mathml_printer() -> Any:
    """SymPy's printer, with cases below each other and ∂Y/∂x as a fraction."""
    from sympy import true
    from sympy.printing.mathml import MathMLPresentationPrinter

    class Printer(MathMLPresentationPrinter):
        def element(self, tag: str, *parts: Any) -> Any:
            made = self.dom.createElement(tag)
            for part in parts:
                made.appendChild(self.dom.createTextNode(part) if isinstance(part, str) else part)
            return made

        def _print_Symbol(self, symbol: Any, style: str = "plain") -> Any:
            names = symbol.name.split("/")
            if len(names) == 1:
                return super()._print_Symbol(symbol, style)
            return self.element("mfrac", *(self.element("mi", name) for name in names))

        def _print_Piecewise(self, cases: Any) -> Any:
            rows = (
                self.element("mtr", self.element("mtd", self._print(value)), self.element("mtd", *(
                    [self.element("mtext", "otherwise")] if when == true
                    else [self.element("mtext", "for\N{NO-BREAK SPACE}"), self._print(when)])))
                for value, when in cases.args
            )  # fmt: skip
            return self.element("mrow", self.element("mo", "{"), self.element("mtable", *rows))

    return Printer()


# -- composition: a symmetric operator -------------------------------------------------------------


@explain.register(Curvature)
def composition(C: Curvature) -> Composition:
    """The factors of C, and the cost of a product."""
    made = origin(C)
    within = find_linearizations(made)
    kinks = dict.fromkeys(kink for J in within for kink in kinks_at(J))
    parts = split_terms(inner(C), MIDDLES.get(maker(made)[0], ""))
    conditions = tuple(dict.fromkeys(map(str, conditions_of(made))))
    choices = dict.fromkeys(line for J in within for line in engine_of(J, "J "))
    return Composition(repr(C), asked(made), cost_of(C), tuple(parts), tuple(kinks), conditions,
                       tuple(choices))  # fmt: skip


def split_terms(operator: Jacobian, middle: str) -> Iterator[Factor]:
    """Every model Jacobian in every term; each run of other factors is one part."""
    for k, term in enumerate(terms_of(operator), 1):
        name = ""
        for ours, group in groupby(factors_of(term), lambda J: isinstance(J, Linearization)):
            factors: Any = tuple(group)
            if not ours:
                factors = (factors[0] if len(factors) == 1 else Product(factors),)
            for J in factors:
                said = ("Jᵀ" if J.transposed else "J") if ours else name
                yield Factor(k, said, blocks.structure_text(repr(J)), J.shape, J.flops, J.nbytes)
            name = middle if ours or name else ""


def asked(C: Jacobian) -> str:
    """The call that made an operator, as far as it is known."""
    name, options = maker(C)
    plain = str | int | float | tuple | None
    said = ", ".join(f"{k}={value!r}" for k, value in options.items() if isinstance(value, plain))
    return f"made by {name}(model, inputs, {said})" if name else ""


def cost_of(C: Jacobian) -> str:
    """Work and memory; for an operator over data, the passes over the data."""
    stream = getattr(inner(C), "stream", None)
    if stream is not None:
        count = f"{stream.batches.count:,} batches" if stream.batches.count else "the batches"
        dense = bytes_text(C.shape[0] * C.shape[1] * C.dtype.itemsize)
        return f"one product: a pass over {count}; {dense} if it were dense"
    work = f"{C.flops:,} flops, {time_text(seconds(C))} by the cost model"
    return f"one product: {work}; {blocks.memory_text(C)}"
