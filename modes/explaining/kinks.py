"""Kinks: how many entries lie, at this very point, where an operator is not differentiable.

Where that is, the proofs know: for a formula by its one-sided limits, for other operators in
words. What is given there is declared in `ops.conventions`. Here both are only counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...ops import Node, Step
from ...ops.rules.elementwise import FORMULAS
from .ties import COUNTS, Count

UNCOUNTED = "not counted"


@dataclass(frozen=True)
class Kink:
    """A kink of a step: `count` of `size` entries of `tensor` lie on it, None where that is not
    counted; `declared` is what is given there, and why.
    """

    op: str
    node: str
    tensor: str
    where: str
    count: int | None
    size: int
    declared: str

    @property
    def met(self) -> bool:
        """Whether the point lies on the kink."""
        return bool(self.count)

    @property
    def cells(self) -> tuple[str, ...]:
        count = UNCOUNTED if self.count is None else f"{self.count:,} of {self.size:,}"
        return self.op, self.node, self.tensor, self.where, count, self.declared


def kinked_steps(steps: Iterable[Step]) -> Iterator[Step]:
    """The steps whose operator has kinks."""
    from ..proofs.kinked import kink_set

    return (s for s in steps if not s.domain and kink_set(s.op_type))


def kinks_of(steps: Iterable[Step], values: Mapping[str, Any]) -> Iterator[Kink]:
    """The kinks of the steps whose operator has some; `values` are those of their tensors."""
    from ..proofs.kinks import kinks_of as declared

    for step in steps:
        said = "; ".join(declared(step.op_type))
        tensor = next(filter(None, step.inputs), "")
        for where, count in counted(node_of(step, values)):
            yield Kink(step.op_type, step.name, tensor, where, *count, said)


def node_of(step: Step, values: Mapping[str, Any]) -> Node:
    """A step with its tensors, as a rule sees it."""
    inputs, outputs = (tuple(None if n is None else values.get(n) for n in names)
                       for names in (step.inputs, step.outputs))  # fmt: skip
    return Node(step, inputs, outputs)


def counted(node: Node) -> Iterator[tuple[str, Count]]:
    """Each kink in words, with how many entries of how many lie on it."""
    from ..proofs.kinked import kink_set

    op_type = node.step.op_type
    if op_type in FORMULAS:
        yield from of_formula(node)
    else:
        count = COUNTS.get(op_type)
        yield kink_set(op_type), count(node) if count else (None, np.size(node.x))


def of_formula(node: Node) -> Iterator[tuple[str, Count]]:
    """The kinks of a formula in its first derivative, by the numbers of the node."""
    from ..proofs.pieces import GENERIC, SECOND, kinks

    attributes = {s: v for s in GENERIC if (v := getattr(node, str(s))) is not None}
    for kink in kinks(node.step.op_type):
        smooth = any(attributes.get(s) == float(value) for s, value in kink.unless)
        if not smooth and not str(kink).endswith(SECOND):
            yield str(kink), (on_kink(kink, node, attributes), np.size(node.x))


def on_kink(kink: Any, node: Node, attributes: Mapping[Any, Any]) -> int:
    """How many entries lie on a kink of a formula, a root in x or a whole quotient."""
    from sympy import lambdify

    from ...ops.symbols.formulas import NAMES

    if kink.whole:
        quotient = lambdify([NAMES["x"], NAMES["y"]], kink.where)(*map(np.asarray, node.inputs[:2]))
        return int(np.count_nonzero(quotient == np.floor(quotient)))
    x, root = np.asarray(node.x), float((NAMES["x"] - kink.where).subs(attributes))
    return int(np.count_nonzero(x == np.asarray(root, x.dtype)))
