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
from typing import Any

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


class Series:
    """Σ aₖ tᵏ with coefficients made when they are asked for; None is zero.

    A derivative of a series has a `degree` above 0: its coefficient k moves as t^(k + degree).
    """

    const_value = None

    def __init__(
        self, op: Taylor, shape: Shape, dtype: np.dtype, degree: int,
        make: Callable[[int], Array | None],
    ) -> None:  # fmt: skip
        self.op, self.shape, self.dtype, self.degree, self.make = op, shape, dtype, degree, make
        self.known: dict[int, Array | None] = {}
        self.meta: dict[str, Any] = {}
        self._derivative: Series | None = None

    def __getitem__(self, k: int) -> Array | None:
        """The coefficient of tᵏ."""
        if k not in self.known:
            self.known[k] = self.make(k)
        return self.known[k]

    def derivative(self) -> Series:
        """a′(t) = Σ k aₖ tᵏ⁻¹."""

        def make(k: int) -> Array | None:
            return self.op.scaled(self[k + 1], k + 1.0)

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
            made = Series(self, moved.shape, moved.dtype, 0, lambda k: moved[k] if k else first[0])
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
            y.known[0] = first
        return y

    def linear(self, probe: Probe, first: Sequence[Any], o: int, k: int) -> Array | None:
        """yₖ = Σᵢ Jᵢ xᵢₖ."""
        if k == 0 and first:
            return first[o]
        parts = ((J, probe.node.inputs[i][k]) for (p, i), J in probe.blocks.items() if p == o)
        return self.total(J._apply(self.over, x) for J, x in parts if x is not None)

    def bilinear(self, probe: Probe, first: Sequence[Any], o: int, k: int) -> Array | None:
        """yₖ = Σⱼ B(aⱼ, bₖ₋ⱼ) for each pair of inputs, and J cₖ for the others."""
        if k == 0 and first:
            return first[o]
        whole, apart = list[Array](), list[Array]()
        for a, b in probe.pairs(o):
            for x, y, degree in self.pairs(probe.node.inputs[a], probe.node.inputs[b], k):
                both = self.is_batched(degree[0]) and self.is_batched(degree[1])
                made = probe.each(o, a, b, x, y) if both else probe.product(o, a, b, x, y, degree)
                (apart if both else whole).append(made)
        alone = [(J, probe.node.inputs[i][k]) for (p, i), J in probe.blocks.items()
                 if p == o and not probe.behind[p, i]]  # fmt: skip
        whole += [J._apply(self.over, x) for J, x in alone if x is not None]
        return self.gathered(whole, apart, probe.degree + k)

    def solution(self, probe: Probe, first: Sequence[Any], o: int, k: int) -> Array | None:
        """k yₖ = (J(x, y) x′)ₖ₋₁, with J by the rule over series."""
        if k == 0:
            return first[o]
        slope = probe.slope(o)
        return None if slope is None else self.scaled(slope[k - 1], 1.0 / k)

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
        shape, dtype = shape_of(like[0]), dtype_of(like[0])

        def make(k: int) -> Array | None:
            if k == 0 and first:
                return first[0]
            if kind == "Mul":
                return self.cauchy(*inputs, k) if len(moving) == 2 else self.times_constant(inputs, k)
            return self.combined(kind, inputs, shape, dtype, degree, k)

        return Series(self, shape, dtype, degree, make)

    def combined(
        self, kind: str, inputs: Sequence[Any], shape: Shape, dtype: np.dtype, degree: int, k: int
    ) -> Array | None:
        """The coefficient of a sum or choice of which the constants count only at t = 0."""
        batched, zero = self.is_batched(degree + k), np.zeros((), dtype)
        parts = [x[k] if isinstance(x, Series) else None for x in inputs]
        if all(part is None for part in parts):
            return None
        ranks = [len(getattr(x, "shape", None) or ()) for x in inputs]
        lifted = [p if p is None else self.aligned(p, r, len(shape) if batched else 0)
                  for p, r in zip(parts, ranks, strict=True)]  # fmt: skip
        if kind == "Where":
            chosen = [zero if part is None else part for part in lifted[1:]]
            return self.full(self.over.Where(inputs[0], *chosen), shape, batched)
        if kind == "Sub" and lifted[0] is None:
            return self.full(self.over.Neg(lifted[1]), shape, batched)
        present = [part for part in lifted if part is not None]
        made = self.total(present) if None in lifted else self.over.call(kind, *present)
        return self.full(made, shape, batched)

    def full(self, x: Array, shape: Shape, batched: bool) -> Array:
        """An array of the whole shape, where what would broadcast it is zero."""
        have = shape_of(x)[1:] if batched else shape_of(x)
        if len(have) == len(shape) and all(map(same, have, shape)):
            return x
        lead = (self.directions,) if batched else ()
        return self.over.Expand(self.aligned(x, len(have), len(shape) if batched else 0),
                                (*lead, *shape))  # fmt: skip

    def times_constant(self, inputs: Sequence[Any], k: int) -> Array | None:
        """c aₖ."""
        a, c = inputs if isinstance(inputs[0], Series) else reversed(inputs)
        x = a[k]
        if x is None:
            return None
        if self.is_batched(a.degree + k):
            x = self.aligned(x, len(a.shape), len(getattr(c, "shape", None) or ()))
        return self.over.Mul(x, c)

    def cauchy(self, a: Series, b: Series, k: int, start: int = 0) -> Array | None:
        """Σⱼ aⱼ bₖ₋ⱼ, for j from `start` on; equal terms of a square are computed once."""
        whole, apart = list[Array](), list[Array]()
        for x, y, degree in self.pairs(a, b, k, start):
            both = self.is_batched(degree[0]) and self.is_batched(degree[1])
            (apart if both else whole).append(self.times(x, y, a, b, degree))
        return self.gathered(whole, apart, a.degree + b.degree + k)

    def pairs(
        self, a: Any, b: Any, k: int, start: int = 0
    ) -> Iterator[tuple[Array, Array, tuple[int, int]]]:
        """The nonzero pairs (aⱼ, bₖ₋ⱼ), and their degrees; of a square 2 aⱼ with aₖ₋ⱼ, j < k − j."""
        square = a is b and not start
        for j in range(start, k // 2 + 1 if square else k + 1):
            x, y = a[j], b[k - j]
            if x is not None and y is not None:
                twice = self.scaled(x, 2.0) if square and 2 * j != k else x
                yield twice, y, (a.degree + j, b.degree + k - j)

    def times(
        self, x: Array, y: Array, a: Series, b: Series, degree: tuple[int, int]
    ) -> Array:
        """x ∘ y, where either may have an axis of directions."""
        ranks = len(a.shape), len(b.shape)
        if self.is_batched(degree[0]):
            x = self.aligned(x, ranks[0], ranks[1])
        if self.is_batched(degree[1]):
            y = self.aligned(y, ranks[1], ranks[0])
        return self.over.Mul(x, y)

    def quotient(self, a: Any, b: Series, first: Sequence[Any]) -> Series:
        """y = a / b: yₖ = (aₖ − Σⱼ bⱼ yₖ₋ⱼ) / b₀ over j ≥ 1."""
        like = first or (self.over.Div(self.placed(a), self.placed(b)),)
        shape, dtype = shape_of(like[0]), dtype_of(like[0])
        degree = a.degree if isinstance(a, Series) else 0

        def make(k: int) -> Array | None:
            if k == 0 and first:
                return first[0]
            batched = self.is_batched(degree + k)
            rest = self.cauchy(b, y, k, 1)
            top = a[k] if isinstance(a, Series) else None
            if top is not None and batched:
                top = self.aligned(top, len(a.shape), len(shape))
            if top is None and rest is None:
                return None
            difference = top if rest is None else (
                self.over.Neg(rest) if top is None else self.over.Sub(top, rest))  # fmt: skip
            return self.full(self.over.Div(difference, b[0]), shape, batched)

        y = Series(self, shape, dtype, degree, make)
        return y

    # -- coefficients ------------------------------------------------------------------------------

    def is_batched(self, degree: int) -> bool:
        """Whether a coefficient of this degree has an axis of directions."""
        summed = self.weights is not None and degree == self.order
        return self.directions is not None and degree > 0 and not summed

    def aligned(self, x: Array, rank: int, least: int) -> Array:
        """A coefficient whose axes after the directions are at least so many."""
        return x if rank >= least else self.over.Unsqueeze(x, tuple(range(1, 1 + least - rank)))

    def scaled(self, x: Array | None, by: float) -> Array | None:
        """c x."""
        return x if x is None or by == 1.0 else self.over.Mul(x, by)

    def total(self, parts: Iterable[Array]) -> Array | None:
        """The sum of coefficients of one shape; None for no parts."""
        found = list(parts)
        if len(found) < 2:
            return found[0] if found else None
        return self.over.Add(*found) if len(found) == 2 else self.over.Sum(*found)

    def gathered(self, whole: list[Array], apart: list[Array], degree: int) -> Array | None:
        """The sum of terms, those `apart` for each direction; at the last degree over these."""
        if apart and self.weights is not None and degree == self.order:
            each = self.total(apart)
            return self.total([*whole, self.over_directions(each)])
        return self.total([*whole, *apart])

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
        self, o: int, a: int, b: int, x: Array, y: Array, degree: tuple[int, int]
    ) -> Array:
        """B(x, y), one of which may have an axis of directions."""
        if self.op.is_batched(degree[1]):
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

    def each(self, o: int, a: int, b: int, x: Array, y: Array) -> Array:
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
