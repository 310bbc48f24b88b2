"""Explain: what an operator is made of, and how its products are computed.

`J.explain()` explains the Jacobian of a model, `J.explain("node")` one step, and `C.explain()` a
symmetric operator.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import groupby
from typing import Any, cast

from ...jacobians import Dag, Jacobian, prod_text
from ...jacobians.errors import UnknownTensor, closest
from ...jacobians.hooks import explain
from ...jacobians.products import Product, factors_of
from ...jacobians.sums import terms_of
from ...jacobians.text import bytes_text, time_text
from ...ops import Node, Step, find
from ...ops.rules.elementwise import Elementwise
from ..curvature.composition import inner, linearized, maker, origin
from ..linear.elimination.adaptive import Adaptive
from ..linear.elimination.cost import seconds
from ..linear.elimination.dense import orders
from ..linear.elimination.plan import eliminated, elimination_of, plan_of
from ..linear.explanation import (
    Composition,
    Cut,
    Explanation,
    Local,
    Mathematics,
    Part,
    Row,
    Stretch,
)
from ..linear.linearization import Linearization
from ..linear.products.compiled import Compiled
from ..linear.symmetric import Curvature
from ..linear.tape.active import cuts
from ..linear.tape.checkpoint import Checkpointed
from . import blocks
from .kinks import AtPoint, kinks_at

MIDDLES = {"gauss_newton": "loss Hessian", "fisher": "covariance", "empirical_fisher": "gradients"}
"""The function that was called -> what stands between Jᵀ and J."""


@explain.register(Linearization)
def _(J: Linearization, name: str | None = None) -> Explanation | Local:
    return explanation(J) if name is None else local(J, name)


def explanation(J: Linearization) -> Explanation:
    """The explanation of a Jacobian; runs the model where operators have kinks."""
    wrt, of = blocks.end_names(J)
    return Explanation(
        repr(J),
        *products_of(J),
        tuple(Cut(s.op_type, s.name, why)
              for s, why in cuts(J.route.steps, wrt, of, J.route.exact)),
        J.route.zeros(J.dag, of, wrt),
        kinks_at(J),
    )


def products_of(
    J: Linearization,
) -> tuple[tuple[Row, ...], tuple[Stretch, ...], tuple[str, ...]]:
    """The blocks, the stretches that replace blocks, and the choices that were made."""
    if any(isinstance(edge.operator, Checkpointed) for edge in J.dag.edges):
        why = "checkpointed: blocks are made again at every product, and never multiplied out"
        return (), (), (why,)
    if J.make:
        J.structure  # noqa: B018 - a plan that was asked for is made
    found, held = blocks.changes(J.dag), tuple(blocks.held_in(J))
    after, ops = blocks.fates(found), {h.ends: h.step.op_type for h in held}
    rows = tuple(blocks.row_of(h, after) for h in held)
    choices = (*choices_of(J.dag), *engine_of(J))
    return rows, tuple(blocks.stretches_of(found, blocks.tensor_names(J), ops)), choices


# -- choices: how products and the matrix are computed ---------------------------------------------


def choices_of(dag: Dag) -> Iterator[str]:
    """One line for each decision."""
    if 0 in dag.shape or not dag.edges:
        yield "nothing to decide: no product takes any work"
        return
    yield f"elimination: {elimination_of(dag)!r}"
    yield f"multiplying out: {planning(dag)}"
    yield f"toarray(): {matrix(dag)}"


def planning(dag: Dag) -> str:
    """What was multiplied out, or why nothing was."""
    plan = plan_of(dag)
    if plan is None:
        return "not considered yet, since J has given few products; J.plan(products=) says how many"
    if not plan.steps:
        return "nothing, since no stretch would repay it"
    count = f"{len(plan.steps)} stretch{'es' * (len(plan.steps) > 1)}"
    return f"{count}, which hold {bytes_text(plan.nbytes)}"


def matrix(dag: Dag) -> str:
    """The order of multiplication with the fewest flops, then the other orders."""
    found = sorted(orders(eliminated(dag)), key=lambda order: order.flops)
    best, *others = (f"{order.name} {order.flops:.2g} flops" for order in found)
    legend = "J0, J1 … are the operators that elimination left, from wrt on"
    named = [legend] if any("J0" in order.name for order in found) else []
    return "; ".join([f"by {best}, the least", *others, *named])


def engine_of(J: Linearization) -> Iterator[str]:
    """The engines of products with J and with Jᵀ, and the measured times behind the choice."""
    for side, kind in ((J, ""), (vars(J).get("T"), "Jᵀ ")):
        taken = vars(side).get("structure") if side is not None else None
        if isinstance(taken, Compiled):
            yield kind + taken.choice
        elif isinstance(taken, Adaptive) and taken.count:
            yield f"{kind}by the quickest way so far: {taken.choice}"


# -- local: one step -------------------------------------------------------------------------------


def local(J: Linearization, name: str) -> Local:
    """The step called `name`, or the step or graph input behind the tensor called `name`.

    Raises `UnknownTensor` where the model has neither.
    """
    route, _ = J.route.flat(J.point)
    steps = (*route.steps, *J.route.steps)
    step = next((s for s in steps if s.name == name), None)
    step = step or next((s for s in steps if name in s.outputs), None)
    if step is not None:
        return of_step(J, step)
    if name in route.model.inputs or name in route.model.initializers:
        return of_given(J, name)
    made = (known for s in steps for known in (s.name, *filter(None, s.outputs)))
    known = dict.fromkeys((*made, *route.model.inputs, *route.model.initializers))
    raise UnknownTensor(f"the model has no node and no tensor {name!r}.{closest(name, known)}")


def of_step(J: Linearization, step: Step) -> Local:
    """One step; each step of an unrolled loop has a name of its own."""
    held = [h for h in blocks.held_in(J) if h.step is step]
    return Local(
        str(step), mathematics(step), tensors_of(J, step), tuple(map(blocks.row_of, held)),
        tuple(legend(h.operator for h in held)), kinks_at(J, step),
        "" if held else why_none(J, step),
    )  # fmt: skip


def of_given(J: Linearization, name: str) -> Local:
    """An input or an initializer: the blocks that begin at it."""
    held = [h for h in blocks.held_in(J) if h.step.inputs[h.key[1]] == name]
    spec = J.route.model.spec(name)
    role = "an input" if name in J.route.model.inputs else "an initializer"
    why = "" if held else f"No block of this Jacobian begins at it: name it with wrt={name!r}."
    return Local(
        f"{spec}, {role}: nothing computes it", Mathematics("", ()), (),
        tuple(map(blocks.row_of, held)), tuple(legend(h.operator for h in held)), (), why,
    )  # fmt: skip


def why_none(J: Linearization, step: Step) -> str:
    """Why a step has no blocks."""
    if not J.entries:
        return "A checkpointed Jacobian holds no blocks: linearise without checkpoint= to see them."
    route, _ = J.route.flat(J.point)
    if step not in route.steps:
        return "At the point it is unrolled: its turns, or its branch, are steps of their own."
    wrt, of = map(", ".join, blocks.end_names(J))
    return f"It has no block here: it is not on a differentiable way from ({wrt}) to ({of})."


def tensors_of(J: Linearization, step: Step) -> tuple[tuple[str, ...], ...]:
    """Name, role, shape and type of the tensors of a step at the point."""
    route, _ = J.route.flat(J.point)
    if step not in route.steps:
        return ()
    values = AtPoint(J).values((step,))
    named = [*((n, f"input {k}") for k, n in enumerate(step.inputs) if n),
             *((n, f"output {k}") for k, n in enumerate(step.outputs) if n)]  # fmt: skip
    return tuple(
        (n, role, prod_text(values[n].shape), str(values[n].dtype)) for n, role in named
        if hasattr(values[n], "shape")
    )  # fmt: skip


def legend(operators: Iterable[Jacobian]) -> Iterator[str]:
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
        return by_formula(declared.rule, step)
    if declared.is_composed and declared.definition is not None:
        return written("a definition by other operators, whose rules apply", declared.definition)
    return written("a rule", declared.rule)


def written(what: str, rule: object) -> Mathematics:
    """A rule whose docstring begins with its formula."""
    text = inspect.getdoc(rule) or ""
    module = getattr(rule, "__module__", "").partition(".")[2]
    return Mathematics(f"{what} in {module}", tuple(filter(None, [text])))


def by_formula(declared: Elementwise, step: Step) -> Mathematics:
    """The formula and its derivatives, by SymPy."""
    from sympy import pretty

    lines, node = list(equations(declared, step)), Node(step, (), ())
    used = set(map(str, lines[0].free_symbols))
    held = {name: value for name, value in declared.values(node).items() if name in used}
    named = ", ".join(f"{name} = {value:g}" for name, value in held.items() if value is not None)
    shown = [str(pretty(line, use_unicode=True, wrap_line=False)) for line in lines]
    return Mathematics("a formula, differentiated by SymPy", tuple(filter(None, [*shown, named])))


def equations(declared: Elementwise, step: Step) -> Iterator[Any]:
    """Y = f(x, ...) and ∂Y/∂x = ... as equations of SymPy."""
    from sympy import Eq, Symbol

    from ...ops.symbols.formulas import derive, parse

    formula = parse(declared.formula(Node(step, (), ())))
    yield Eq(Symbol("Y"), formula, evaluate=False)
    for name in declared.variables:
        yield Eq(Symbol(f"∂Y/∂{name}"), derive(formula, name), evaluate=False)


def mathml(step: Step) -> tuple[str, ...]:
    """The formula of a step and its derivatives as MathML; empty where no formula is declared."""
    declared = find(step.op_type, step.domain)
    if declared is None or not isinstance(declared.rule, Elementwise):
        return ()
    return tuple(map(mathml_printer().doprint, equations(declared.rule, step)))


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
    kinks = dict.fromkeys(kink for J in linearized(made) for kink in kinks_at(J))
    parts = parts_of(inner(C), MIDDLES.get(maker(made)[0], ""))
    return Composition(repr(C), asked(made), cost_of(C), tuple(parts), tuple(kinks))


def parts_of(operator: Jacobian, middle: str) -> Iterator[Part]:
    """Every model Jacobian in every term; each run of other factors is one part."""
    for k, term in enumerate(terms_of(operator), 1):
        met = False
        for ours, group in groupby(factors_of(term), lambda J: isinstance(J, Linearization)):
            if ours:
                yield from (part(k, "Jᵀ" if J.transposed else "J", J) for J in cast(Any, group))
            else:
                factors = tuple(group)
                whole = factors[0] if len(factors) == 1 else Product(factors)
                yield part(k, middle if met else "", whole)
            met = met or ours


def part(term: int, name: str, J: Any) -> Part:
    """The row of an operator."""
    return Part(term, name, blocks.structure_text(repr(J)), J.shape, J.flops, J.nbytes)


def asked(C: Jacobian) -> str:
    """The call that made an operator, as far as it is known."""
    name, options = maker(C)
    plain = str | int | float | tuple | None
    said = ", ".join(f"{k}={value!r}" for k, value in options.items() if isinstance(value, plain))
    return f"made by {name}(model, inputs, {said})" if name else ""


def cost_of(C: Jacobian) -> str:
    """Work and memory; for an operator over data, the passes over the data."""
    dense = C.shape[0] * C.shape[1] * C.dtype.itemsize
    stream = getattr(inner(C), "stream", None)
    if stream is not None:
        count = f"{stream.batches.count:,} batches" if stream.batches.count else "the batches"
        return f"one product: a pass over {count}; {bytes_text(dense)} if it were dense"
    work = f"{C.flops:,} flops, {time_text(seconds(C))} by the cost model"
    return f"one product: {work}; {bytes_text(C.nbytes)} held, {bytes_text(dense)} if it were dense"
