"""Check: the rule of a node against SymPy's derivative of its definition, entry by entry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy as sp

from ...jacobians import Dag, Jacobian
from ...jacobians.cached import cached_property
from ...ops.symbols import Symbols, Tensor
from ...ops.symbols.exact import closed_form
from ..recording.derive import vjp_graph
from .case import Case
from .definition import defined
from .identity import DIGITS, EXACT, REFUTED, verdict
from .reading import Reading, dense, exprs_of, pairs, read

Pair = tuple[str, str]


@dataclass(frozen=True)
class Verdict:
    """What was found of one block: its entries, how they were decided, and which failed."""

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
    """A case read in symbols, and its derivative twice: by the rules, and by SymPy."""

    def __init__(self, case: Case) -> None:
        self.case, self.op = case, Symbols()
        self.wrt = case.floating(case.wrt)
        self.symbols = self._symbols()
        self.definition = defined(case, self.symbols, self.op)
        self.of = self._of()

    def _symbols(self) -> dict[str, Tensor]:
        case = self.case
        return {
            name: self.op.variables(name, x, **assumed(case, name))
            for name, x in case.point.items()
            if name in self.wrt
        }

    def _of(self) -> tuple[str, ...]:
        chosen = self.case.of or range(self.case.outputs)
        tensors = self.definition.outputs
        made = (n for k, n in enumerate(self.case.results) if k in chosen)
        return tuple(n for n in made if isinstance(tensors.get(n), Tensor))

    @cached_property
    def reading(self) -> Reading:
        """The model over symbols; a single step has the outputs of the definition."""
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
        rows = [
            y for name in self.of for y in exprs_of(self.definition.outputs[name], self.op).ravel()
        ]
        return slopes(rows, [x for name in self.wrt for x in self.reading.exprs(name)])

    @cached_property
    def point(self) -> tuple[tuple[sp.Symbol, sp.Expr], ...]:
        """The symbols with their values."""
        found = []
        for tensor in self.symbols.values():
            found += [(n.expr, closed_form(float(n.at))) for n in tensor.entries.ravel()]
        return tuple(found)

    def compare(self, found: sp.Matrix, truth: sp.Matrix, blocks: Any) -> list[Verdict]:
        """Block by block, whether two matrices are identically equal."""
        return [
            self._block(pair, found[rows, columns], truth[rows, columns])
            for pair, (rows, columns) in blocks.items()
        ]

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
        """The Jacobian, and its transpose as an operator of its own."""
        adjoint = dense(self.dag.T, self.op).T
        blocks = pairs(self.reading.values, self.of, self.wrt)
        found = self.compare(self.matrix, self.truth, blocks)
        mirrored = self.compare(adjoint, self.matrix, blocks)
        return [v if v.outcome == REFUTED else w if w.outcome == REFUTED else v
                for v, w in zip(found, mirrored, strict=True)]  # fmt: skip

    def second(self) -> list[Verdict]:
        """The recorded VJP as a model: Jᵀu, and its derivative, against SymPy's second one."""
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
        blocks = pairs(again.values, slopes_of, self.wrt)
        return found + self.compare(hessian, slopes(list(pulled), variables), blocks)


def assumed(case: Case, name: str) -> dict[str, bool]:
    """What holds of the symbols of an input."""
    return {"positive": True} if case.names.index(name) in case.positive else {}


def slopes(rows: list[Any], variables: list[Any]) -> sp.Matrix:
    """∂rows/∂variables."""
    return sp.Matrix(len(rows), len(variables), [sp.diff(y, x) for y in rows for x in variables])


def ones_like(value: Any) -> np.ndarray:
    """Cotangents that are not special."""
    return 1 + np.arange(value.entries.size).reshape(value.shape) / 8


def blocks_of(check: Check) -> dict[Pair, Jacobian]:
    """The structured operators of a node with a rule, by (output, input)."""
    edges = {}
    for o, i in [(o, i) for o in check.of for i in check.wrt]:
        one = check.reading.dag((i,), (o,))
        if len(one.edges) == 1:
            edges[o, i] = one.edges[0].operator
    return edges
