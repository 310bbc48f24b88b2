"""Check: the rule of a node against SymPy's derivative of its definition, entry by entry."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import sympy as sp

from ...jacobians import Dag, Jacobian
from ...jacobians.cached import cached_property
from ...ops.symbols import Symbols, Tensor
from ...ops.symbols.number import closed_form
from ..recording.derive import vjp_graph
from .definition import Reading, blocks, defined, dense, exprs_of, read
from .identity import DIGITS, EXACT, REFUTED, verdict
from .transcriptions.case import Case

Pair = tuple[str, str]


@dataclass(frozen=True)
class Verdict:
    """The outcome for one block of the Jacobian, and the entry that failed."""

    pair: Pair
    shape: tuple[int, int]
    outcome: str
    failure: str = ""

    def __bool__(self) -> bool:
        return self.outcome != REFUTED

    def __str__(self) -> str:
        m, n = self.shape
        return f"∂{self.pair[0]}/∂{self.pair[1]}, {m}×{n}: {self.outcome}{self.failure}"


class Check:
    """A case over symbols, and its derivative in two ways: by the rules, and by SymPy."""

    def __init__(self, case: Case) -> None:
        self.case, self.op = case, Symbols()
        self.wrt = case.floating(case.wrt)
        self.symbols = {name: self.op.variables(name, case.point[name], **case.assumed(name))
                        for name in self.wrt}  # fmt: skip
        self.definition = defined(case, self.symbols, self.op)
        tensors = self.definition.outputs
        self.of = tuple(n for n in case.chosen if isinstance(tensors.get(n), Tensor))

    @cached_property
    def reading(self) -> Reading:
        """The model over symbols; where it is a single step, the definition gives its outputs."""
        model = self.case.model
        given = self.definition.outputs if len(model.steps) == 1 else {}
        return read(model, self.case.point, self.case.results, self.symbols, self.op, given)

    @cached_property
    def dag(self) -> Dag:
        """The derivative by the rules."""
        return self.reading.dag(self.wrt, self.of)

    @cached_property
    def matrix(self) -> sp.Matrix:
        """The derivative by the rules, entry by entry."""
        return dense(self.dag, self.op)

    @cached_property
    def truth(self) -> sp.Matrix:
        """The derivative of the definition, by SymPy."""
        outputs = self.definition.outputs
        rows = [y for name in self.of for y in exprs_of(outputs[name], self.op).ravel()]
        return slopes(rows, [x for name in self.wrt for x in self.reading.exprs(name)])

    @cached_property
    def point(self) -> tuple[tuple[sp.Symbol, sp.Expr], ...]:
        """The symbols with their values."""
        return tuple(
            (number.expr, closed_form(float(number.at)))
            for tensor in self.symbols.values() for number in tensor.entries.ravel()
        )  # fmt: skip

    def compare(self, found: sp.Matrix, truth: sp.Matrix, places: Any) -> list[Verdict]:
        """Block by block, whether two matrices are identically equal."""
        return [self._block(pair, found[rows, columns], truth[rows, columns])
                for pair, (rows, columns) in places.items()]  # fmt: skip

    def _block(self, pair: Pair, found: sp.Matrix, truth: sp.Matrix) -> Verdict:
        worst = EXACT
        for k, (a, b) in enumerate(zip(found, truth, strict=True)):
            outcome = verdict(a - b, self.op.conditions, self.point)
            if outcome == REFUTED:
                place = divmod(k, found.shape[1])
                return Verdict(pair, found.shape, REFUTED, f" at {place}: {a}, not {b}")
            worst = DIGITS if outcome == DIGITS else worst
        return Verdict(pair, found.shape, worst)

    def first(self) -> list[Verdict]:
        """Verdicts on the Jacobian, and on its transpose, which is a separate operator."""
        adjoint = dense(self.dag.T, self.op).T
        places = blocks(self.reading.values, self.of, self.wrt)
        found = self.compare(self.matrix, self.truth, places)
        mirrored = self.compare(adjoint, self.matrix, places)
        return [w if v and not w else v for v, w in zip(found, mirrored, strict=True)]

    def second(self) -> list[Verdict]:
        """The recorded VJP as a model: Jᵀu and its derivative, against SymPy's."""
        case = self.case
        model = vjp_graph(case.model, case.point, self.of, self.wrt, "numpy").model("vjp")
        names = tuple(f"{name}_cotangent" for name in self.of)
        seeds = {n: self.op.variables(f"u{k or ''}", ones_like(self.reading.values[o]))
                 for k, (n, o) in enumerate(zip(names, self.of, strict=True))}  # fmt: skip
        point = {**case.point, **{n: t.values for n, t in seeds.items()}}
        slopes_of = tuple(f"{name}_cotangent" for name in self.wrt)
        again = read(model, point, slopes_of, {**self.symbols, **seeds}, self.op)
        u = sp.Matrix([x for n in names for x in again.exprs(n)])
        pulled = self.truth.T * u
        variables = [x for name in self.wrt for x in again.exprs(name)]
        whole = sp.Matrix([x for n in slopes_of for x in again.exprs(n)])
        column = {("Jᵀu", "".join(self.wrt)): (slice(None), slice(None))}
        found = self.compare(whole, pulled, column)
        hessian = dense(again.dag(self.wrt, slopes_of), self.op)
        places = blocks(again.values, slopes_of, self.wrt)
        return found + self.compare(hessian, slopes(list(pulled), variables), places)


def slopes(rows: list[Any], variables: list[Any]) -> sp.Matrix:
    """∂rows/∂variables."""
    return sp.Matrix(len(rows), len(variables), [sp.diff(y, x) for y in rows for x in variables])


def ones_like(value: Any) -> np.ndarray:
    """Cotangents without special values."""
    return 1 + np.arange(value.entries.size).reshape(value.shape) / 8


def operators(check: Check) -> dict[Pair, Jacobian]:
    """(output, input) -> the structured operator that the rule gives for this block."""
    edges = {}
    for o, i in product(check.of, check.wrt):
        one = check.reading.dag((i,), (o,))
        if len(one.edges) == 1:
            edges[o, i] = one.edges[0].operator
    return edges
