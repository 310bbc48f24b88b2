"""Kinks: how many entries lie, at this very point, where an operator is not differentiable.

Where that is, the proofs know: for a formula by its one-sided limits, for other operators in
words. What is given there is declared in `ops.given`. Here both are only counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...ops import Node, Step
from ...ops.given import GIVEN
from ...ops.rules.elementwise import FORMULAS
from .jumps import COUNTED_JUMPS, JUMPS
from .lines import LINES
from .marks import MARKS
from .ties import TIES, Count, Counts

COUNTS: Counts = TIES | MARKS | LINES | COUNTED_JUMPS
"""How many entries of an operator lie on a kink, where its formula does not tell."""


@dataclass(frozen=True)
class Kink:
    """A kink of a step: `count` of `size` entries lie on it, and `declared` is what is given there.

    `tensor` is whose entries are looked at; `within` is the node whose definition the step is of.
    """

    op: str
    node: str
    tensor: str
    where: str
    count: int
    size: int
    declared: str
    within: str = ""

    @property
    def met(self) -> bool:
        """Whether the point lies on the kink."""
        return self.count > 0

    @property
    def cells(self) -> tuple[str, ...]:
        node = f"{self.node} of {self.within}" if self.within else self.node
        count = f"{self.count:,} of {self.size:,}"
        return self.op, node, self.tensor, self.where, count, self.declared


def key(step: Step) -> str:
    """How the tables of counts call the operator of a step."""
    domain = "" if step.domain == "ai.onnx" else step.domain
    return f"{domain}::{step.op_type}" if domain else step.op_type


def has_kinks(step: Step) -> bool:
    """Whether the operator of a step has kinks of its own; a definition has those of its parts."""
    from ...ops.symbols.kinks import kink_set

    return key(step) in COUNTS or (key(step) in FORMULAS and bool(kink_set(step.op_type)))


def kinks_of(node: Node, within: str = "") -> Iterator[Kink]:
    """The kinks of a node, with what is given there."""
    step, said = node.step, GIVEN.get(node.step.op_type, "")
    names = [step.inputs[k] for k in MOVING.get(step.op_type, ()) if node.wants(k)]
    tensor = next(filter(None, (*names, *step.inputs)), "")
    for where, count in counted(node):
        yield Kink(step.op_type, step.name, tensor, where, *count, said, within)


MOVING = {"GridSample": (1,), "DeformConv": (2,), "RoiAlign": (1,), "Resize": (2, 1)}
"""The inputs that move what is sampled, which is what lies on a line."""


def node_of(step: Step, values: Mapping[str, Any], wanted: frozenset[tuple[int, int]]) -> Node:
    """A step with its tensors, as a rule sees it."""
    inputs, outputs = (tuple(None if n is None else values.get(n) for n in names)
                       for names in (step.inputs, step.outputs))  # fmt: skip
    return Node(step, inputs, outputs, wanted)


def counted(node: Node) -> Iterator[tuple[str, Count]]:
    """Each kink in words, with how many entries of how many lie on it."""
    from ...ops.symbols.kinks import kink_set

    name = key(node.step)
    if name in FORMULAS:
        yield from of_formula(node)
    elif name in COUNTS:
        yield JUMPS.get(name) or kink_set(node.step.op_type), COUNTS[name](node)


def of_formula(node: Node) -> Iterator[tuple[str, Count]]:
    """The kinks of a formula in its first derivative, by the numbers of the node."""
    from ...ops.symbols.kinks import GENERIC, SECOND, kinks

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
