"""Series: the vocabulary over truncated power series a(t) = Σ aₖ tᵏ, whose coefficients are values
of a graph. This reading is Taylor mode.

No operator has a formula for its series. Its rule says what J depends on, and this says how:

| J(x) depends on | the operator is | coefficients |
|---|---|---|
| nothing that moves | linear | yₖ = J xₖ |
| the other moving input | bilinear | yₖ = Σⱼ J(bₖ₋ⱼ) aⱼ, as Cauchy's product |
| anything else | a solution of y′ = J(x, y) x′ | k yₖ = (J(x, y) x′)ₖ₋₁, by the rule read over series |

The last row is a recurrence: J is read over the series of x and y themselves, of which only the
first k coefficients are needed, and what a rule computes twice is computed once.

Many `directions` may move at once, r = 1 … R, from one x₀: coefficients of a positive degree have a
first axis for them, which no shape tells of. Where only Σᵣ wᵣ yₖ is asked for at the last degree,
this sum is propagated instead of its terms, which is right since yₖ is linear in xₖ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir

from ..jacobians import Array, Jacobian, Shape, between_types, dtype_of, reading, shape_of
from ..jacobians.base import arrays_of
from ..jacobians.errors import OnnxJacError, UnsupportedOp
from ..jacobians.readings import Reading
from ..jacobians.symint import same
from .graphs import Recorder, operands_of
from .node import Node, Step, node_of
from .registry import Blocks, find

Slot = tuple[int, int]
"""(output, input) of an operator."""

ALIGNED = frozenset({"Add", "Sub", "Sum", "Mul", "Where"})
"""Operators entry by entry, whose operands may have fewer axes than the result."""


class Term(NamedTuple):
    """A coefficient c f ∘ a: a number, an array without directions or None, and an array.

    Products with what stays put go to the factor, so that they are not repeated for each direction;
    the whole is multiplied out where an operator needs it.
    """

    array: Array
    number: float = 1.0
    factor: Array | None = None

    def times(self, number: float) -> Term:
        """The coefficient times a number."""
        return self._replace(number=self.number * number)


class Series:
    """Σ aₖ tᵏ with coefficients made when they are asked for; None is zero.

    A derivative of a series has a `degree` above 0: its coefficient k moves as t^(k + degree).
    """

    const_value = None

    def __init__(
        self, op: Taylor, shape: Shape, dtype: np.dtype, degree: int,
        make: Callable[[int], Term | None],
    ) -> None:  # fmt: skip
        self.op, self.shape, self.dtype, self.degree, self.make = op, shape, dtype, degree, make
        self.known: dict[int, Term | None] = {}
        self.meta: dict[str, Any] = {}
        self._derivative: Series | None = None

    def term(self, k: int) -> Term | None:
        """The coefficient of tᵏ."""
        if k not in self.known:
            self.known[k] = self.make(k)
        return self.known[k]

    def __getitem__(self, k: int) -> Array | None:
        """The coefficient of tᵏ, multiplied out."""
        term = self.term(k)
        return None if term is None else self.op.whole(term)

    def derivative(self) -> Series:
        """a′(t) = Σ k aₖ tᵏ⁻¹."""

        def make(k: int) -> Term | None:
            term = self.term(k + 1)
            return term and term.times(k + 1.0)

        if self._derivative is None:
            self._derivative = Series(self.op, self.shape, self.dtype, self.degree + 1, make)
        return self._derivative


class Taylor(Reading):
    """The vocabulary over series up to an `order`, recorded by `over`.

    `weights` are wᵣ for each of the directions, where their sum is what is asked for.
    """

    recurs = True

    def __init__(
        self, over: Recorder, order: int, directions: int | None = None,
        weights: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        self.over, self.order, self.directions, self.weights = over, order, directions, weights
        self.known: dict[Any, Any] = {}

    # -- calls of the vocabulary -------------------------------------------------------------------

    def call(self, op_type: str, *inputs: Any, outputs: int = 1, **attrs: Any) -> Any:
        """The series of an operator's outputs; a value where nothing moves or nothing can."""
        inputs = self.over.operands(op_type, inputs)
        if not any(isinstance(x, Series) for x in inputs):
            counted = {"outputs": outputs} if outputs > 1 else {}
            return self.over.call(op_type, *inputs, **counted, **attrs)
        if op_type == "Einsum" and sum(isinstance(x, Series) for x in inputs) > 2:
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
            made = Series(self, moved.shape, moved.dtype, 0,
                          lambda k: moved.term(k) if k else Term(first[0]))  # fmt: skip
            return made, *first[1:]
        return self.outputs(Node(step, inputs, (None,) * len(first)), first)

    def _name(self, x: Any) -> Any:
        """What equal operands have in common."""
        if x is None or isinstance(x, Series | ir.Value):
            return id(x)
        return repr(x) if not isinstance(x, np.ndarray) else (x.dtype.str, x.shape, x.tobytes())

    def content(self, value: Series) -> None:
        """No integers are known of a series."""

    def pin(self, value: Series, reader: str) -> None:
        """A series has no numbers that a recording could be restricted to."""
        raise OnnxJacError(f"{reader} asks for the numbers of a tensor that moves")

    # -- the series of a node ----------------------------------------------------------------------

    def first(self, node: Node, outputs: int) -> tuple[Any, ...]:
        """The outputs at t = 0; none where an input is a tangent, which is 0 there."""
        if any(isinstance(x, Series) and x.degree for x in node.inputs):
            return ()
        at = [x[0] if isinstance(x, Series) else x for x in node.inputs]
        counted = {"outputs": outputs} if outputs > 1 else {}
        made = self.over.call(node.step.op_type, *at, **counted, **node.step.attrs)
        return made if outputs > 1 else (made,)

    def outputs(self, node: Node, first: Sequence[Any]) -> tuple[Any, ...]:
        """The outputs of a node with these values at t = 0."""
        if first and not any(map(is_floating, first)):
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
        if node.step.op_type == "Div" and isinstance(node.inputs[1], Series):
            return (self.quotient(*node.inputs, first),)
        probe = Probe.of(self, node, declared.rule, first)
        if probe.is_linear:
            make = self.linear
        elif probe.is_bilinear:
            make = self.bilinear
        else:
            make = self.solution
        probe.series = tuple(
            y if not is_floating(y)
            else Series(self, shape_of(y), dtype_of(y), probe.degree, partial(make, probe, first, o))
            for o, y in enumerate(probe.outputs)
        )  # fmt: skip
        return probe.series

    def starting(self, y: Any, first: Any) -> Any:
        """A series with another value at t = 0, which is the same but for rounding."""
        if isinstance(y, Series) and isinstance(first, ir.Value):
            y.known[0] = Term(first)
        return y

    def linear(self, probe: Probe, first: Sequence[Any], o: int, k: int) -> Term | None:
        """yₖ = Σᵢ Jᵢ xᵢₖ."""
        if k == 0 and first:
            return Term(first[o])
        parts = ((J, probe.node.inputs[i].term(k)) for (p, i), J in probe.blocks.items() if p == o)
        return self.total(self.applied(J, x) for J, x in parts if x is not None)

    def bilinear(self, probe: Probe, first: Sequence[Any], o: int, k: int) -> Term | None:
        """yₖ = Σⱼ B(aⱼ, bₖ₋ⱼ) for each pair of inputs, and J cₖ for the others."""
        if k == 0 and first:
            return Term(first[o])
        single, each = list[Term](), list[Term]()
        for a, b in probe.pairs(o):
            for x, y, degrees in self.pairs(probe.node.inputs[a], probe.node.inputs[b], k):
                both = all(map(self.is_batched, degrees))
                multiply = probe.each if both else probe.product
                made = Term(multiply(o, a, b, self.bare(x), self.bare(y), degrees),
                            x.number * y.number)  # fmt: skip
                (each if both else single).append(made)
        alone = [(J, probe.node.inputs[i].term(k)) for (p, i), J in probe.blocks.items()
                 if p == o and not probe.behind[p, i]]  # fmt: skip
        single += [self.applied(J, x) for J, x in alone if x is not None]
        return self.gathered(single, each, probe.degree + k)

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
        kept = [c for c in labels(first + last) if c in labels(",".join([*rest, result]))]
        both = "".join(kept)
        product = self.Einsum(inputs[0], inputs[-1], equation=f"{first},{last}->{both}")
        return self.Einsum(product, *inputs[1:-1], equation=f"{','.join([both, *rest])}->{result}")

    # -- entry by entry ----------------------------------------------------------------------------

    def entrywise(self, node: Node, first: Sequence[Any]) -> Series:
        """A sum, a choice or a product, entry by entry."""
        kind, inputs = node.step.op_type, node.inputs
        moving = [x for x in inputs if isinstance(x, Series)]
        degree = sum(x.degree for x in moving) if kind == "Mul" else moving[0].degree
        like = first or (self.over.call(kind, *(self.placed(x) for x in inputs)),)
        shape = shape_of(like[0])

        def make(k: int) -> Term | None:
            if k == 0 and first:
                return Term(first[0])
            if kind == "Mul":
                return self.cauchy(*map(self.as_series, inputs), k)
            parts = [x.term(k) if isinstance(x, Series) else None for x in inputs]
            if all(part is None for part in parts):
                return None
            batched = self.is_batched(degree + k)
            lifted = [part and self.spread(part, x, shape, batched)
                      for part, x in zip(parts, inputs, strict=True)]  # fmt: skip
            if kind == "Where":
                zero = np.zeros((), dtype_of(like[0]))
                chosen = (zero if part is None else self.whole(part) for part in lifted[1:])
                return Term(self.over.Where(inputs[0], *chosen))
            signs = (1.0, -1.0) if kind == "Sub" else (1.0,) * len(lifted)
            return self.total(part.times(sign) for part, sign in zip(lifted, signs, strict=True)
                              if part is not None)  # fmt: skip

        return Series(self, shape, dtype_of(like[0]), degree, make)

    def spread(self, part: Term, x: Series, shape: Shape, batched: bool) -> Term:
        """A coefficient of x broadcast to a shape."""
        if len(x.shape) == len(shape) and all(map(same, x.shape, shape)):
            return part
        lead = (self.directions,) if batched else ()
        array = self.whole(part._replace(number=1.0))
        if batched:
            array = self.aligned(array, len(x.shape), len(shape))
        return Term(self.over.Expand(array, (*lead, *shape)), part.number)

    def as_series(self, x: Any) -> Series:
        """A factor that may not move, as a series."""
        if isinstance(x, Series):
            return x
        return Series(self, shape_of(x), dtype_of(x), 0, lambda k: None if k else Term(x))

    def cauchy(self, a: Series, b: Series, k: int, start: int = 0) -> Term | None:
        """Σⱼ aⱼ bₖ₋ⱼ, for j from `start` on; equal terms of a square are computed once."""
        single, each = list[Term](), list[Term]()
        for x, y, degrees in self.pairs(a, b, k, start):
            both = all(map(self.is_batched, degrees))
            made = self.product(x, y, (len(a.shape), len(b.shape)), degrees)
            (each if both else single).append(made)
        return self.gathered(single, each, a.degree + b.degree + k)

    def pairs(
        self, a: Any, b: Any, k: int, start: int = 0
    ) -> Iterator[tuple[Term, Term, tuple[int, int]]]:
        """The nonzero pairs (aⱼ, bₖ₋ⱼ), and their degrees; of a square 2 aⱼ with aₖ₋ⱼ, j < k − j."""
        square = a is b and not start
        for j in range(start, k // 2 + 1 if square else k + 1):
            x, y = a.term(j), b.term(k - j)
            if x is not None and y is not None:
                twice = x.times(2.0) if square and 2 * j != k else x
                yield twice, y, (a.degree + j, b.degree + k - j)

    def product(
        self, x: Term, y: Term, ranks: tuple[int, int], degrees: tuple[int, int]
    ) -> Term:
        """x ∘ y, either of which may have an axis of directions."""
        x_moves, y_moves = map(self.is_batched, degrees)
        number = x.number * y.number
        if x_moves:
            x = x._replace(array=self.aligned(x.array, *ranks))
        if y_moves:
            y = y._replace(array=self.aligned(y.array, *reversed(ranks)))
        if x_moves == y_moves:
            factors = [z.factor for z in (x, y) if z.factor is not None]
            factor = self.over.Mul(*factors) if len(factors) == 2 else next(iter(factors), None)
            return Term(self.over.Mul(x.array, y.array), number, factor)
        still, moving = (y, x) if x_moves else (x, y)
        factor = still.array if moving.factor is None else self.over.Mul(still.array, moving.factor)
        return Term(moving.array, number, factor)

    def quotient(self, a: Any, b: Series, first: Sequence[Any]) -> Series:
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

        y = Series(self, shape, dtype_of(like[0]), top.degree, make)
        return y

    # -- coefficients ------------------------------------------------------------------------------

    def is_batched(self, degree: int) -> bool:
        """Whether a coefficient of this degree has an axis of directions."""
        summed = self.weights is not None and degree == self.order
        return self.directions is not None and degree > 0 and not summed

    def aligned(self, x: Array, rank: int, least: int) -> Array:
        """A coefficient whose axes after the directions are at least so many."""
        return x if rank >= least else self.over.Unsqueeze(x, tuple(range(1, 1 + least - rank)))

    def bare(self, term: Term) -> Array:
        """A coefficient without its number."""
        return term.array if term.factor is None else self.over.Mul(term.array, term.factor)

    def whole(self, term: Term) -> Array:
        """A coefficient, multiplied out."""
        if term.number == 1.0:
            return self.bare(term)
        if term.factor is None:
            return self.over.Mul(term.array, term.number)
        return self.over.Mul(term.array, self.over.Mul(term.factor, term.number))

    def applied(self, J: Jacobian, term: Term) -> Term:
        """J times a coefficient."""
        return Term(J._apply(self.over, self.bare(term)), term.number)

    def total(self, terms: Iterable[Term]) -> Term | None:
        """The sum of coefficients of one shape; those of one array are one."""
        found = [*self.joined(terms)]
        if len(found) < 2:
            return found[0] if found else None
        numbers = {term.number for term in found}
        number = numbers.pop() if len(numbers) == 1 else 1.0
        parts = [self.whole(term.times(1.0 / number)) for term in found]
        return Term(self.over.Add(*parts) if len(parts) == 2 else self.over.Sum(*parts), number)

    def joined(self, terms: Iterable[Term]) -> Iterator[Term]:
        """The terms, those of the same array as one with the sum of their factors."""
        alike: dict[int, list[Term]] = {}
        for term in terms:
            alike.setdefault(id(term.array), []).append(term)
        for first, *rest in alike.values():
            factors = [self.over.Mul(t.factor, t.number) for t in (first, *rest)
                       if t.factor is not None] if rest else []  # fmt: skip
            number = sum(t.number for t in (first, *rest) if t.factor is None)
            if not rest:
                yield first
            elif not factors:
                yield Term(first.array, number)
            else:
                constant = [np.asarray(number, dtype_of(first.array))] if number else []
                yield Term(first.array, 1.0, self.over.Sum(*factors, *constant))

    def gathered(self, single: list[Term], each: list[Term], degree: int) -> Term | None:
        """The sum of terms, of which `each` are for each direction: at the last degree over these."""
        if self.weights is not None and degree == self.order:
            each = [Term(self.over_directions(t.array), t.number) if t.factor is None else
                    Term(self.over.Mul(self.over_directions(t.array), t.factor), t.number)
                    for t in self.joined(each)]  # fmt: skip
        return self.total([*single, *each])

    def over_directions(self, x: Array) -> Array:
        """Σᵣ wᵣ xᵣ."""
        assert self.weights is not None
        if not np.all(self.weights == 1):
            column = self.weights.astype(dtype_of(x)).reshape(-1, *(1,) * (len(shape_of(x)) - 1))
            x = self.over.Mul(x, column)
        return self.over.ReduceSum(x, (0,), keepdims=0)

    def placed(self, x: Any) -> Any:
        """A value of the shape and dtype of an operand, for a rule that looks at nothing else."""
        return self.over.new(x.shape, x.dtype) if isinstance(x, Series) else x


class Probe:
    """A node of the vocabulary, its blocks over stand-ins of what moves, and what these hold."""

    def __init__(
        self, op: Taylor, node: Node, rule: Callable[[Any, Node], Blocks],
        outputs: tuple[Any, ...], stand_ins: Mapping[int, Any], results: tuple[Any, ...],
    ) -> None:  # fmt: skip
        self.op, self.node, self.rule, self.outputs = op, node, rule, outputs
        self.stand_ins, self.results = stand_ins, results
        self.moving = frozenset(stand_ins)
        start = len(op.over.nodes)
        inputs = tuple(stand_ins.get(i, x) for i, x in enumerate(node.inputs))
        self.blocks = self.read(op.over, inputs, results)
        self.behind = self._behind(start)
        self.series: tuple[Any, ...] = ()
        self._slopes: dict[int, Series | None] | None = None
        self._each: dict[Any, Jacobian] = {}

    @classmethod
    def of(cls, op: Taylor, node: Node, rule: Any, first: Sequence[Any]) -> Probe:
        """The blocks of a node whose inputs are series and values."""
        made = {i: op.placed(x) for i, x in enumerate(node.inputs) if isinstance(x, Series)}
        outputs = tuple(first)
        if not outputs:
            inputs = [made.get(i, x) for i, x in enumerate(node.inputs)]
            count = len(node.step.outputs)
            counted = {"outputs": count} if count > 1 else {}
            found = op.over.call(node.step.op_type, *inputs, **counted, **node.step.attrs)
            outputs = found if count > 1 else (found,)
        results = tuple(op.over.new(shape_of(y), dtype_of(y)) if is_floating(y) else y
                        for y in outputs)  # fmt: skip
        return cls(op, node, rule, outputs, made, results)

    @property
    def degree(self) -> int:
        """The degree of the outputs: of a product, the sum of both."""
        degrees = [self.node.inputs[i].degree for i in self.moving]
        return max(degrees, default=0) if self.is_linear else sum(degrees)

    def read(self, op: Any, inputs: tuple[Any, ...], results: tuple[Any, ...]) -> dict[Slot, Any]:
        """The blocks of what moves, by the rule in a reading."""
        wanted = frozenset((o, i) for o, y in enumerate(results) if is_floating(y)
                           for i in self.moving)  # fmt: skip
        blocks = self.rule(op, Node(self.node.step, inputs, results, wanted))
        return {(o, i): between_types(blocks[o, i], inputs[i], results[o])
                for o, i in sorted(wanted & blocks.keys())}  # fmt: skip

    def _behind(self, start: int) -> dict[Slot, frozenset[int]]:
        """The inputs that each block depends on, −1 for an output."""
        known = {id(x): frozenset([i]) for i, x in self.stand_ins.items()}
        known |= {id(y): frozenset([-1]) for y in self.results if is_floating(y)}
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
        """Whether each block depends on one other input at most, and this one's block on it."""
        return all(
            not met or (len(met) == 1 and min(met) >= 0 and i not in met
                        and self.behind.get((o, min(met))) == {i})
            for (o, i), met in self.behind.items()
        )  # fmt: skip

    def pairs(self, o: int) -> Iterator[tuple[int, int]]:
        """The pairs of inputs whose product an output has."""
        for (p, i), met in self.behind.items():
            if p == o and met and i < min(met):
                yield i, min(met)

    def product(
        self, o: int, a: int, b: int, x: Array, y: Array, degrees: tuple[int, int]
    ) -> Array:
        """B(x, y), one of which may have an axis of directions."""
        if self.op.is_batched(degrees[1]):
            a, b, x, y = b, a, y, x
        return self.block(o, a, b, y)._apply(self.op.over, x)

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
        ranks = [len(self.node.inputs[i].shape) for i in (a, b)]
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

    def slope(self, o: int) -> Series | None:
        """y′ = Σᵢ Jᵢ(x, y) xᵢ′, by the rule over series."""
        if self._slopes is None:
            blocks = self.read(self.op, self.node.inputs, self.series)
            self._slopes = {}
            for k, _ in enumerate(self.results):
                parts = [J._apply(self.op, self.node.inputs[i].derivative())
                         for (p, i), J in blocks.items() if p == k]  # fmt: skip
                moving = [part for part in parts if isinstance(part, Series)]  # others are zero
                self._slopes[k] = self.op.Sum(*moving) if moving else None
        return self._slopes[o]


def is_floating(x: Any) -> bool:
    """Whether a value may have a tangent."""
    return hasattr(x, "dtype") and dtype_of(x).kind in "fV"


def labels(terms: str) -> list[str]:
    """The labels of an equation's terms, each once; those of an ellipsis, as one, come first.

    >>> labels("ab...,bc")
    ['...', 'a', 'b', 'c']
    """
    plain = terms.replace("...", "")
    return ["..."] * (plain != terms) + [*dict.fromkeys(c for c in plain if c.isalpha())]


def batched_equation(equation: str) -> str:
    """The equation of a product of two, for each r of a new first axis.

    >>> batched_equation("ij,jk->ik")
    'aij,ajk->aik'
    """
    free = next(c for c in "abcdefghijklmnopqrstuvwxyz" if c not in equation)
    left, result = equation.replace(" ", "").split("->")
    return ",".join(free + term for term in left.split(",")) + f"->{free}{result}"


@reading.register(Series)
def _reading(value: Series) -> Taylor:
    return value.op
