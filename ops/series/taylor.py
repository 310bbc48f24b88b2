"""Taylor mode: the vocabulary over truncated power series a(t) = Σ aₖ tᵏ.

No operator has a formula for its series. Its rule says what J depends on, and this says how:

| J(x) depends on | the operator is | coefficients |
|---|---|---|
| nothing that moves | linear | yₖ = J xₖ |
| the other moving input | bilinear | yₖ = Σⱼ J(bₖ₋ⱼ) aⱼ, as Cauchy's product |
| anything else | a solution of y′ = J(x, y) x′ | k yₖ = (J(x, y) x′)ₖ₋₁, by the rule over series |

The last row is a recurrence: J is read over the series of x and y themselves, of which only the
first k coefficients are needed, and what a rule computes twice is computed once. Sums, choices,
products and quotients entry by entry are written out, as these are what most others come down to.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir

from ...jacobians import Shape, dtype_of, shape_of
from ...jacobians.errors import OnnxJacError, UnsupportedOp
from ...jacobians.readings import Reading
from ...jacobians.symint import same
from ..graphs import Recorder
from ..node import Node, Step, node_of
from ..registry import find
from .coefficients import Coefficients, Term
from .probe import Probe, may_move
from .series import PowerSeries

ALIGNED = frozenset({"Add", "Sub", "Sum", "Mul", "Where"})
"""Operators entry by entry, whose operands may have fewer axes than the result."""


class Taylor(Coefficients, Reading):
    """The vocabulary over series."""

    recurs = True
    over: Recorder

    def __init__(self, over: Recorder, order: int, *directions: Any) -> None:
        super().__init__(over, order, *directions)
        self.known: dict[Any, Any] = {}

    # -- calls of the vocabulary -------------------------------------------------------------------

    def call(self, op_type: str, *inputs: Any, outputs: int = 1, **attrs: Any) -> Any:
        """The series of an operator's outputs; a value where nothing moves or nothing can."""
        inputs = self.over.operands(op_type, inputs)
        if not any(isinstance(x, PowerSeries) for x in inputs):
            counted = {"outputs": outputs} if outputs > 1 else {}
            return self.over.call(op_type, *inputs, **counted, **attrs)
        if op_type == "Einsum" and sum(isinstance(x, PowerSeries) for x in inputs) > 2:
            return self.contracted(inputs, attrs["equation"])
        node = node_of(op_type, inputs, attrs, outputs=outputs)
        key = op_type, tuple(map(self._name, inputs)), outputs, repr(sorted(attrs.items()))
        if key not in self.known:
            made = self.outputs(node, self.first(node, outputs))
            self.known[key] = made, inputs  # which keeps the identities of the inputs
        made, _ = self.known[key]
        return made if outputs > 1 else made[0]

    def step(self, step: Step, inputs: tuple[Any, ...], first: tuple[Any, ...]) -> tuple[Any, ...]:
        """The series of the outputs of a model's step, which are `first` at t = 0."""
        if step.surrogate is not None:
            moved = inputs[step.surrogate]
            made = PowerSeries(self, moved.shape, moved.dtype, 0,
                          lambda k: moved.term(k) if k else Term(first[0]))  # fmt: skip
            return made, *first[1:]
        return self.outputs(Node(step, inputs, (None,) * len(first)), first)

    def _name(self, x: Any) -> Any:
        """What equal operands have in common."""
        if x is None or isinstance(x, PowerSeries | ir.Value):
            return id(x)
        return repr(x) if not isinstance(x, np.ndarray) else (x.dtype.str, x.shape, x.tobytes())

    def content(self, value: PowerSeries) -> None:
        """No integers are known of a series."""

    def pin(self, value: PowerSeries, reader: str) -> None:
        """A series has no numbers that a recording could be restricted to."""
        raise OnnxJacError(f"{reader} asks for the numbers of a tensor that moves")

    # -- the series of a node ----------------------------------------------------------------------

    def first(self, node: Node, outputs: int) -> tuple[Any, ...]:
        """The outputs at t = 0; none where an input is a tangent, which is 0 there."""
        if any(isinstance(x, PowerSeries) and x.degree for x in node.inputs):
            return ()
        at = [x[0] if isinstance(x, PowerSeries) else x for x in node.inputs]
        counted = {"outputs": outputs} if outputs > 1 else {}
        made = self.over.call(node.step.op_type, *at, **counted, **node.step.attrs)
        return made if outputs > 1 else (made,)

    def outputs(self, node: Node, first: Sequence[Any]) -> tuple[Any, ...]:
        """The outputs of a node with these values at t = 0."""
        if first and not any(map(may_move, first)):
            return tuple(first)
        declared = find(node.step.op_type, node.step.domain)
        if declared is None:
            raise UnsupportedOp(f"{node.step} has no rule")
        if declared.zero is not None:
            return tuple(first)
        if declared.is_composed:
            made = declared.outputs(self, node)
            return tuple(self.starting(y, y0) for y, y0 in zip(made, first, strict=False))
        if node.step.op_type == "Neg":
            return self.outputs(node_of("Sub", (np.zeros((), node.x.dtype), node.x), {}), first)
        if node.step.op_type in ALIGNED and not node.step.domain:
            return (self.entrywise(node, first),)
        if node.step.op_type == "Div" and isinstance(node.inputs[1], PowerSeries):
            a, b = tuple[Any, ...](node.inputs)
            return (self.quotient(a, b, first),)
        probe = Probe.of(self, node, declared.rule, first)
        make = (self.linear if probe.is_linear else
                self.bilinear if probe.is_bilinear else self.solution)  # fmt: skip
        terms = [partial(make, probe, first, o) for o, _ in enumerate(probe.outputs)]
        probe.series = tuple(
            PowerSeries(self, shape_of(y), dtype_of(y), probe.degree, term) if may_move(y) else y
            for y, term in zip(probe.outputs, terms, strict=True)
        )
        return probe.series

    def starting(self, y: Any, first: Any) -> Any:
        """A series with another value at t = 0, which is the same but for rounding."""
        if isinstance(y, PowerSeries) and isinstance(first, ir.Value):
            y.known[0] = Term(first)
        return y

    def linear(self, probe: Probe, first: Sequence[Any], o: int, k: int) -> Term | None:
        """yₖ = Σᵢ Jᵢ xᵢₖ."""
        if k == 0 and first:
            return Term(first[o])
        parts = ((J, probe.inputs[i].term(k)) for (p, i), J in probe.blocks.items() if p == o)
        return self.total(self.applied(J, x) for J, x in parts if x is not None)

    def bilinear(self, probe: Probe, first: Sequence[Any], o: int, k: int) -> Term | None:
        """yₖ = Σⱼ B(aⱼ, bₖ₋ⱼ) for each pair of inputs, and J cₖ for the others."""
        if k == 0 and first:
            return Term(first[o])
        single, each = list[Term](), list[Term]()
        for a, b in probe.pairs(o):
            for x, y, degrees in self.pairs(probe.inputs[a], probe.inputs[b], k):
                both = all(map(self.is_batched, degrees))
                made = (self.each(probe, o, a, b, x, y, degrees) if both else
                        self.moving(probe, o, a, b, x, y, degrees))  # fmt: skip
                (each if both else single).append(made)
        alone = [(J, probe.inputs[i].term(k)) for (p, i), J in probe.blocks.items()
                 if p == o and not probe.behind[p, i]]  # fmt: skip
        single += [self.applied(J, x) for J, x in alone if x is not None]
        return self.gathered(single, each, probe.degree + k)

    def each(
        self, probe: Probe, o: int, a: int, b: int, x: Term, y: Term, degrees: tuple[int, int]
    ) -> Term:
        """B(xᵣ, yᵣ) for each direction r."""
        x, y = self.dense(x), self.dense(y)
        made = probe.each(o, a, b, self.bare(x), self.bare(y), degrees)
        return Term(made, x.number * y.number)

    def moving(
        self, probe: Probe, o: int, a: int, b: int, x: Term, y: Term, degrees: tuple[int, int]
    ) -> Term:
        """B(x, y), one of which may have an axis of directions."""
        if self.is_batched(degrees[1]):
            a, b, x, y = b, a, y, x
        return self.applied(probe.block(o, a, b, self.bare(y)), x).times(y.number)

    def solution(self, probe: Probe, first: Sequence[Any], o: int, k: int) -> Term | None:
        """k yₖ = (J(x, y) x′)ₖ₋₁, with J by the rule over series."""
        if k == 0:
            return Term(first[o])
        slope = probe.slope(o)
        term = None if slope is None else slope.term(k - 1)
        return term and term.times(1.0 / k)

    def contracted(self, inputs: Sequence[Any], equation: str) -> Any:
        """A product of many by products of two, the first with the last."""
        terms, result = equation.replace(" ", "").split("->")
        first, *rest, last = terms.split(",")
        kept = [c for c in labels_in(first + last) if c in labels_in(",".join([*rest, result]))]
        both = "".join(kept)
        product = self.Einsum(inputs[0], inputs[-1], equation=f"{first},{last}->{both}")
        return self.Einsum(product, *inputs[1:-1], equation=f"{','.join([both, *rest])}->{result}")

    # -- entry by entry ----------------------------------------------------------------------------

    def entrywise(self, node: Node, first: Sequence[Any]) -> PowerSeries:
        """A sum, a choice or a product, entry by entry."""
        kind, inputs = node.step.op_type, tuple[Any, ...](node.inputs)
        moving = [x for x in inputs if isinstance(x, PowerSeries)]
        degree = sum(x.degree for x in moving) if kind == "Mul" else moving[0].degree
        like = first or (self.over.call(kind, *(self.placed(x) for x in inputs)),)
        shape = shape_of(like[0])

        def make(k: int) -> Term | None:
            if k == 0 and first:
                return Term(first[0])
            if kind == "Mul":
                a, b = map(self.as_series, inputs)
                return self.cauchy(a, b, k)
            parts = [x.term(k) if isinstance(x, PowerSeries) else None for x in inputs]
            if all(part is None for part in parts):
                return None
            batched = self.is_batched(degree + k)
            lifted = [part and self.spread(part, x, shape, batched)
                      for part, x in zip(parts, inputs, strict=True)]  # fmt: skip
            if kind == "Where":
                zero = np.zeros((), dtype_of(like[0]))
                moved = iter(self.united([part for part in lifted if part]))
                chosen = [part and next(moved) for part in lifted[1:]]
                made = self.over.Where(inputs[0], *(zero if part is None else self.whole(part)
                                                    for part in chosen))  # fmt: skip
                return Term(made, slots=next(part.slots for part in chosen if part))
            signs = (1.0, -1.0) if kind == "Sub" else (1.0,) * len(lifted)
            return self.total(part.times(sign) for part, sign in zip(lifted, signs, strict=True)
                              if part is not None)  # fmt: skip

        return PowerSeries(self, shape, dtype_of(like[0]), degree, make)

    def spread(self, part: Term, x: PowerSeries, shape: Shape, batched: bool) -> Term:
        """A coefficient of x broadcast to a shape."""
        if len(x.shape) == len(shape) and all(map(same, x.shape, shape)):
            return part
        whole = Term(self.whole(part._replace(number=1.0)), part.number, slots=part.slots)
        if batched:
            whole = self.lifted(whole, len(x.shape), len(shape))
        lead = (len(part.slots) if part.slots else self.directions,) if batched else ()
        return whole._replace(array=self.over.Expand(whole.array, (*lead, *shape)))

    def as_series(self, x: Any) -> PowerSeries:
        """A factor that may not move, as a series."""
        if isinstance(x, PowerSeries):
            return x
        return PowerSeries(self, shape_of(x), dtype_of(x), 0, lambda k: None if k else Term(x))

    def cauchy(self, a: PowerSeries, b: PowerSeries, k: int, start: int = 0) -> Term | None:
        """Σⱼ aⱼ bₖ₋ⱼ, for j from `start` on; equal terms of a square are computed once."""
        single, each = list[Term](), list[Term]()
        for x, y, degrees in self.pairs(a, b, k, start):
            both = all(map(self.is_batched, degrees))
            made = self.product(x, y, (len(a.shape), len(b.shape)), degrees)
            (each if both else single).append(made)
        return self.gathered(single, each, a.degree + b.degree + k)

    def quotient(self, a: Any, b: PowerSeries, first: Sequence[Any]) -> PowerSeries:
        """y = a / b: yₖ = (aₖ − Σⱼ bⱼ yₖ₋ⱼ) / b₀ over j ≥ 1."""
        like = first or (self.over.Div(self.placed(a), self.placed(b)),)
        top, shape = self.as_series(a), shape_of(like[0])

        def make(k: int) -> Term | None:
            if k == 0 and first:
                return Term(first[0])
            batched = self.is_batched(top.degree + k)
            rest, part = self.cauchy(b, y, k, 1), top.term(k)
            parts = [] if part is None else [self.spread(part, top, shape, batched)]
            difference = self.total([*parts, *([rest.times(-1.0)] if rest else [])])
            if difference is None:
                return None
            below = Term(self.over.Div(1.0, b[0]))
            return self.product(below, difference, (len(b.shape), len(shape)), (0, top.degree + k))

        y = PowerSeries(self, shape, dtype_of(like[0]), top.degree, make)
        return y

    def placed(self, x: Any) -> Any:
        """A value of the shape and dtype of an operand, for a rule that looks at nothing else."""
        return self.over.new(x.shape, x.dtype) if isinstance(x, PowerSeries) else x


def labels_in(terms: str) -> list[str]:
    """The labels of an equation's terms, each once; an ellipsis is one label, and comes first.

    >>> labels_in("ab...,bc")
    ['...', 'a', 'b', 'c']
    """
    plain = terms.replace("...", "")
    return ["..."] * (plain != terms) + [*dict.fromkeys(c for c in plain if c.isalpha())]
