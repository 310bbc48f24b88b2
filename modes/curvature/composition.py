"""Composition: the factors of a symmetric operator, and what a product with it costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from itertools import groupby
from typing import Any

from ...jacobians import Jacobian, prod_text
from ...jacobians.hooks import Shown, explain
from ...jacobians.products import Product, factors_of
from ...jacobians.sums import terms_of
from ..elimination.cost import seconds
from ..explaining.blocks import structure_text
from ..explaining.explanation import kink_table, not_met
from ..explaining.kinks import Kink
from ..explaining.met import kinks_at
from ..linearization import Linearization
from ..reporting.tables import Table
from ..reporting.units import bytes_text, time_text
from .symmetric import Curvature

PARTS = ("term", "part", "what it is", "shape", "flops", "bytes")
MIDDLES = {"gauss_newton": "loss Hessian", "fisher": "covariance", "empirical_fisher": "gradients"}
"""The factor between Jᵀ and J, by the function that was called."""


@dataclass(frozen=True)
class Part:
    """One factor of one term: Jᵀ, J, or a factor between or beside them."""

    term: int
    name: str
    structure: str
    shape: tuple[int, int]
    flops: int
    nbytes: int

    @property
    def cells(self) -> tuple[str, ...]:
        amounts = f"{self.flops:,}", f"{self.nbytes:,}"
        return str(self.term), self.name, self.structure, prod_text(self.shape), *amounts


@dataclass(frozen=True)
class Composition(Shown):
    """The factors of a symmetric operator from left to right, and facts about the whole.

    `asked` is the call that made it, `cost` is the cost of one product, and `kinks` are the kinks
    that the linearisations inside hit at the point, where J is what is declared.
    """

    title: str
    asked: str
    cost: str
    parts: tuple[Part, ...]
    kinks: tuple[Kink, ...] = ()

    def tables(self) -> Iterator[Table]:
        """All tables that have rows."""
        parts = Table("parts", PARTS, tuple(part.cells for part in self.parts), PARTS[-2:])
        return (table for table in (parts, kink_table(self.kinks)) if table.rows)

    @property
    def lines(self) -> tuple[str, ...]:
        """The text beside the tables."""
        return *filter(None, [self.asked]), self.cost, *not_met(self.kinks)

    def to_dict(self) -> dict[str, Any]:
        """The composition as plain Python data, for JSON; memory in bytes."""
        return asdict(self)

    def __str__(self) -> str:
        return "\n\n".join([self.title, *map(str, self.tables()), "\n".join(self.lines)])

    __repr__ = __str__


@explain.register(Curvature)
def composition(C: Curvature) -> Composition:
    """The factors of C, and its cost."""
    made = origin(C)
    kinks = dict.fromkeys(kink for J in linearized(made) for kink in kinks_at(J))
    parts = parts_of(inner(C), MIDDLES.get(maker(made)[0], ""))
    return Composition(repr(C), asked(made), cost_of(C), tuple(parts), tuple(kinks))


def parts_of(operator: Jacobian, middle: str) -> Iterator[Part]:
    """Every Jacobian of a model in every term, and the product of the factors before or between."""
    for k, term in enumerate(terms_of(operator), 1):
        met = False
        for ours, group in groupby(factors_of(term), lambda f: isinstance(f, Linearization)):
            if ours:
                yield from (part(k, "Jᵀ" if J.transposed else "J", J) for J in group)
            else:
                factors = tuple(group)
                whole = factors[0] if len(factors) == 1 else Product(factors)
                yield part(k, middle if met else "", whole)
            met = met or ours


def part(term: int, name: str, J: Any) -> Part:
    """The row of an operator."""
    return Part(term, name, structure_text(repr(J)), J.shape, J.flops, J.nbytes)


def origin(C: Jacobian) -> Jacobian:
    """The operator as it was made, before it was planned, compiled, scaled, cut or damped."""
    again = getattr(C, "again", None)
    while isinstance(again, partial) and again.args and isinstance(again.args[0], Jacobian):
        C = again.args[0]
        again = getattr(C, "again", None)
    return C


def inner(C: Jacobian) -> Jacobian:
    """The operator without its names."""
    found = getattr(C, "operator", C)
    return found if isinstance(found, Jacobian) else C


def linearized(C: Jacobian) -> tuple[Linearization, ...]:
    """The Jacobians of a model among the factors, not their transposes."""
    factors = (factor for term in terms_of(inner(C)) for factor in factors_of(term))
    return tuple(J for J in factors if isinstance(J, Linearization) and not J.transposed)


def maker(C: Jacobian) -> tuple[str, dict[str, Any]]:
    """The name of the function that made an operator, and its options; empty if unknown."""
    again = getattr(C, "again", None)
    if not isinstance(again, partial) or not again.keywords:
        return "", {}
    return again.func.__name__, dict(again.keywords)


def asked(C: Jacobian) -> str:
    """The call that made an operator, as text; empty if unknown."""
    name, options = maker(C)
    plain = str | int | float | tuple | None
    said = ", ".join(f"{k}={value!r}" for k, value in options.items() if isinstance(value, plain))
    return f"made by {name}(model, inputs, {said})" if name else ""


def cost_of(C: Jacobian) -> str:
    """Work and memory of one product, or the passes over data that it takes."""
    dense = C.shape[0] * C.shape[1] * C.dtype.itemsize
    stream = getattr(inner(C), "stream", None)
    if stream is not None:
        count = f"{stream.batches.count:,} batches" if stream.batches.count else "the batches"
        return f"one product: a pass over {count}; {bytes_text(dense)} if it were dense"
    work = f"{C.flops:,} flops, {time_text(seconds(C))} by the cost model"
    return f"one product: {work}; {bytes_text(C.nbytes)} held, {bytes_text(dense)} if it were dense"
