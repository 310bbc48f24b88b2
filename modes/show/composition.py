"""Composition: `C.explain()`, what a symmetric operator is made of and what a product costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from ...jacobians import Jacobian, prod_text
from ...jacobians.hooks import explain
from ...jacobians.products import Product, factors_of
from ...jacobians.sums import terms_of
from ...jacobians.text import Table, bytes_text, time_text
from ..curvature.composition import inner, linearized, maker, origin
from ..curvature.symmetric import Curvature
from ..elimination.cost import seconds
from ..explanation import Kink, Tables, kink_table, not_met
from ..linearization import Linearization
from .blocks import structure_text
from .kinks import kinks_at

PARTS = ("term", "part", "what it is", "shape", "flops", "bytes")
MIDDLES = {"gauss_newton": "loss Hessian", "fisher": "covariance", "empirical_fisher": "gradients"}
"""The function that was called -> what stands between Jᵀ and J."""


@dataclass(frozen=True)
class Part:
    """One factor of one term: Jᵀ, J, or what stands between or beside them."""

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


@dataclass(frozen=True, repr=False)
class Composition(Tables):
    """The factors of a symmetric operator from left to right, and its cost.

    `asked` is the call that made the operator, `cost` the cost of one product, and `kinks` are the
    kinks of the Jacobians inside at their point, where J is what is declared there.
    """

    asked: str
    cost: str
    parts: tuple[Part, ...]
    kinks: tuple[Kink, ...] = ()

    def tables(self) -> Iterator[Table]:
        parts = Table("parts", PARTS, tuple(part.cells for part in self.parts), PARTS[-2:])
        return (table for table in (parts, kink_table(self.kinks)) if table.rows)

    @property
    def lines(self) -> tuple[str, ...]:
        return *filter(None, [self.asked]), self.cost, *not_met(self.kinks)

    def __str__(self) -> str:
        return "\n\n".join([self.title, *map(str, self.tables()), "\n".join(self.lines)])


@explain.register(Curvature)
def composition(C: Curvature) -> Composition:
    """The factors of C, and the cost of a product."""
    made = origin(C)
    kinks = dict.fromkeys(kink for J in linearized(made) for kink in kinks_at(J))
    parts = parts_of(inner(C), MIDDLES.get(maker(made)[0], ""))
    return Composition(repr(C), asked(made), cost_of(C), tuple(parts), tuple(kinks))


def parts_of(operator: Jacobian, middle: str) -> Iterator[Part]:
    """Every Jacobian of a model in every term, and in one piece what stands before or between."""
    for k, term in enumerate(terms_of(operator), 1):
        met = False
        for ours, group in groupby(factors_of(term), lambda J: isinstance(J, Linearization)):
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
