"""Probe: what the Jacobian of an operator depends on, read off its rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...jacobians import Array, Jacobian, between_types, dtype_of, shape_of
from ...jacobians.base import arrays_of
from ..graphs import operands_of
from ..node import Node
from ..registry import Blocks
from .series import PowerSeries

Slot = tuple[int, int]
"""(output, input) of an operator."""

BILINEAR = frozenset({"MatMul", "Gemm", "Einsum", "Conv", "ConvTranspose"})
"""Operators of which two inputs are multiplied as they are; (x - m) w would be affine in x."""


class Probe:
    """A node of the vocabulary, its blocks over stand-ins of what moves, and what these hold."""

    def __init__(
        self, op: Any, node: Node, rule: Callable[[Any, Node], Blocks],
        outputs: tuple[Any, ...], stand_ins: Mapping[int, Any], results: tuple[Any, ...],
    ) -> None:  # fmt: skip
        self.op, self.node, self.rule, self.outputs = op, node, rule, outputs
        self.inputs: tuple[Any, ...] = node.inputs
        self.stand_ins, self.results = stand_ins, results
        self.moving = frozenset(stand_ins)
        start = len(op.over.nodes)
        inputs = tuple(stand_ins.get(i, x) for i, x in enumerate(node.inputs))
        self.blocks = self.read(op.over, inputs, results)
        self.behind = self._behind(start)
        self.series: tuple[Any, ...] = ()
        self._slopes: dict[int, PowerSeries | None] | None = None
        self._each: dict[Any, Jacobian] = {}

    @classmethod
    def of(cls, op: Any, node: Node, rule: Any, first: Sequence[Any]) -> Probe:
        """The blocks of a node whose inputs are series and values."""
        made = {i: op.placed(x) for i, x in enumerate(node.inputs) if isinstance(x, PowerSeries)}
        outputs = tuple(first)
        if not outputs:
            inputs = [made.get(i, x) for i, x in enumerate(node.inputs)]
            count = len(node.step.outputs)
            counted = {"outputs": count} if count > 1 else {}
            found = op.over.call(node.step.op_type, *inputs, **counted, **node.step.attrs)
            outputs = found if count > 1 else (found,)
        results = tuple(op.over.new(shape_of(y), dtype_of(y)) if may_move(y) else y
                        for y in outputs)  # fmt: skip
        return cls(op, node, rule, outputs, made, results)

    @property
    def degree(self) -> int:
        """The degree of the outputs: of a product, the sum of both."""
        degrees = [self.inputs[i].degree for i in self.moving]
        return max(degrees, default=0) if self.is_linear else sum(degrees)

    def read(self, op: Any, inputs: tuple[Any, ...], results: tuple[Any, ...]) -> dict[Slot, Any]:
        """The blocks of what moves, by the rule in a reading."""
        wanted = frozenset((o, i) for o, y in enumerate(results) if may_move(y)
                           for i in self.moving)  # fmt: skip
        blocks = self.rule(op, Node(self.node.step, inputs, results, wanted))
        return {(o, i): between_types(blocks[o, i], inputs[i], results[o])
                for o, i in sorted(wanted & blocks.keys())}  # fmt: skip

    def _behind(self, start: int) -> dict[Slot, frozenset[int]]:
        """The inputs that each block depends on, −1 for an output."""
        known = {id(x): frozenset([i]) for i, x in self.stand_ins.items()}
        known |= {id(y): frozenset([-1]) for y in self.results if may_move(y)}
        none = frozenset[int]()
        for node in self.op.over.nodes[start:]:
            met = none.union(*(known.get(id(x), none) for x in operands_of(node)))
            known |= {id(y): met for y in node.outputs} if met else {}
        return {slot: none.union(*(known.get(id(x), none) for x in arrays_of([J])))
                for slot, J in self.blocks.items()}  # fmt: skip

    @property
    def is_linear(self) -> bool:
        return not any(self.behind.values())

    @property
    def is_bilinear(self) -> bool:
        """Whether each block depends on one other input at most, and this one's block on it.

        A block without entries depends on nothing, whatever the other one does.
        """
        return self.node.step.op_type in BILINEAR and all(
            not met or (len(met) == 1 and min(met) >= 0 and i not in met
                        and (self.behind.get((o, min(met))) == frozenset([i])
                             or 0 in self.blocks[o, i].shape))
            for (o, i), met in self.behind.items()
        )  # fmt: skip

    def pairs(self, o: int) -> Iterator[tuple[int, int]]:
        """The pairs of inputs whose product an output has."""
        for (p, i), met in self.behind.items():
            if p == o and met and i < min(met):
                yield i, min(met)

    def block(self, o: int, a: int, b: int, y: Array) -> Any:
        """B(·, y): the block of input a where input b is y."""
        key = o, a, b, id(y)
        if key not in self._each:
            inputs = tuple(y if i == b else self.stand_ins.get(i, x)
                           for i, x in enumerate(self.node.inputs))  # fmt: skip
            self._each[key] = self.read(self.op.over, inputs, self.results)[o, a]
        return self._each[key]

    def each(
        self, o: int, a: int, b: int, x: Array, y: Array, degrees: tuple[int, int]
    ) -> Array:
        """B(xᵣ, yᵣ) for each direction r."""
        op, kind, attrs = self.op.over, self.node.step.op_type, self.node.step.attrs
        ranks = [len(self.inputs[i].shape) for i in (a, b)]
        if kind == "MatMul" and min(ranks) > 1:
            return op.MatMul(self.op.aligned(x, ranks[0], ranks[1]),
                             self.op.aligned(y, ranks[1], ranks[0]))  # fmt: skip
        if kind == "Einsum" and len(self.node.inputs) == 2:
            return op.Einsum(x, y, equation=batched_equation(attrs["equation"]))
        assert self.op.directions is not None
        rows = []
        for r in range(self.op.directions):
            one, other = (op.Gather(z, np.array(r), axis=0) for z in (x, y))
            made = self.read(op, tuple(
                other if i == b else self.stand_ins.get(i, z)
                for i, z in enumerate(self.node.inputs)), self.results)[o, a]  # fmt: skip
            rows.append(op.Unsqueeze(made._apply(op, one), (0,)))
        return op.Concat(*rows, axis=0)

    def slope(self, o: int) -> PowerSeries | None:
        """y′ = Σᵢ Jᵢ(x, y) xᵢ′, by the rule over series."""
        if self._slopes is None:
            blocks = self.read(self.op, self.node.inputs, self.series)
            self._slopes = {}
            for k, _ in enumerate(self.results):
                parts = [J._apply(self.op, self.inputs[i].derivative())
                         for (p, i), J in blocks.items() if p == k]  # fmt: skip
                moving = [y for y in parts if isinstance(y, PowerSeries)]  # others are zero
                self._slopes[k] = self.op.Sum(*moving) if moving else None
        return self._slopes[o]


def may_move(x: Any) -> bool:
    """Whether a value may have a tangent."""
    return hasattr(x, "dtype") and dtype_of(x).kind in "fV"


def batched_equation(equation: str) -> str:
    """The equation of a product of two, for each r of a new first axis.

    >>> batched_equation("ij,jk->ik")
    'aij,ajk->aik'
    """
    free = next(c for c in "abcdefghijklmnopqrstuvwxyz" if c not in equation)
    left, result = equation.replace(" ", "").split("->")
    return ",".join(free + term for term in left.split(",")) + f"->{free}{result}"
