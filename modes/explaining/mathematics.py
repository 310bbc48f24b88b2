"""Mathematics: the rule of an operator, as a formula that SymPy prints or as it is written down."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ...jacobians import Jacobian
from ...jacobians.products import factors_of
from ...jacobians.sums import terms_of
from ...ops import Node, Step, find
from ...ops.rules.elementwise import FORMULAS, Elementwise


@dataclass(frozen=True)
class Mathematics:
    """Where a derivative comes from, and what it is, each formula in one or more lines."""

    source: str
    formulas: tuple[str, ...]


def mathematics(step: Step) -> Mathematics:
    """The rule of a step.

    >>> print(*mathematics(Step("Sin", "", 21, "s", ("x",), ("y",))).formulas, sep="; ")
    Y = sin(x); ∂Y/∂x = cos(x)
    """
    declared = find(step.op_type, step.domain)
    if declared is None:
        return Mathematics("none: it has neither a rule nor a function body", ())
    if declared.zero is not None:
        return Mathematics("declared to be zero", (f"∂Y/∂X = 0: {declared.zero}",))
    if not step.domain and step.op_type in FORMULAS:
        return by_formula(FORMULAS[step.op_type], step)
    if declared.definition is not None:
        return written("a definition by other operators, whose rules apply", declared.definition)
    return written("a rule", declared.rule)


def written(what: str, rule: object) -> Mathematics:
    """A rule whose formula is the head of its documentation."""
    text = inspect.getdoc(rule) or ""
    module = getattr(rule, "__module__", "").partition(".")[2]
    return Mathematics(f"{what} in {module}", tuple(filter(None, [text])))


def by_formula(declared: Elementwise, step: Step) -> Mathematics:
    """The formula and its derivatives, each by SymPy or, where that is not stable, by hand."""
    from ...ops.symbols.formulas import ATTRIBUTES, derive, parse

    node = Node(step, (), ())
    text = declared.formulas[getattr(node, declared.by) if declared.by else ""]
    formula, lines = parse(text), [equation("Y", parse(text))]
    for name in declared.variables:
        by_hand = declared.given.get(name)
        found = parse(by_hand) if by_hand else derive(formula, name)
        lines.append(equation(f"∂Y/∂{name}", found))
    by = "by hand, proved equal to SymPy's" if declared.given else "by SymPy"
    held = {name: getattr(node, name) for name in ATTRIBUTES if name in text}
    named = ", ".join(f"{name} = {value:g}" for name, value in held.items() if value is not None)
    return Mathematics(f"a formula, differentiated {by}", tuple(filter(None, [*lines, named])))


def equation(left: str, right: object) -> str:
    """left = right as SymPy prints it, over several lines where it is high."""
    from sympy import Eq, Symbol, pretty

    return str(pretty(Eq(Symbol(left), right, evaluate=False), use_unicode=True, wrap_line=False))


def legend(operators: Iterable[Jacobian]) -> Iterator[str]:
    """What each kind of operator in some structures does."""
    parts = (f for J in operators for term in terms_of(J) for f in factors_of(term))
    for kind in dict.fromkeys(map(type, parts)):
        said = inspect.getdoc(kind) or ""
        yield f"{kind.__name__}: {said.partition(chr(10))[0]}"
