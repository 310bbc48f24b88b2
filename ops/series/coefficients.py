"""Coefficients of series: their sums and products, for one direction or for many at once.

Many directions may move at once, r = 1 … R, from one x₀: coefficients of a positive degree have a
first axis for them, which no shape tells of. Where only Σᵣ wᵣ yₖ is asked for at the last degree,
this sum is propagated instead of its terms, which is right since yₖ is linear in xₖ.

Where each entry moves in few of the directions, the first axis has slots for these alone. Sums and
products bring coefficients to common slots; a linear operator is applied to each slot by itself if
all that an entry of its output depends on has the same directions, else to all directions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from string import ascii_lowercase
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir

from ...jacobians import Array, Jacobian, Product, SumTo, dtype_of, shape_of
from ...jacobians.layout import summed_axes
from ...jacobians.products import factors_of
from ...jacobians.symint import Atom, is_symbolic
from ..graphs import Recorder
from .replay import Replay, Unknown
from .slots import Slots


class Term(NamedTuple):
    """A coefficient c f ∘ a: a number, an array without directions or None, and an array.

    Products with what stays put go to the factor, so that they are not repeated for each direction;
    the whole is multiplied out where an operator needs it. The first axis of the array is over
    `slots`, if any, else over all directions.
    """

    array: Array
    number: float = 1.0
    factor: Array | None = None
    slots: Slots | None = None

    def times(self, number: float) -> Term:
        """The coefficient times a number."""
        return self._replace(number=self.number * number)


class Coefficients:
    """Sums and products of coefficients, recorded by `over`, of series up to an `order`.

    `weights` are wᵣ for each of the `directions`, where their sum is what is asked for. The free
    sizes `samples` are of batches, whose samples move alike and do not mix.
    """

    def __init__(
        self, over: Recorder, order: int, directions: int | None = None,
        weights: np.ndarray | None = None, samples: frozenset[Atom] = frozenset(),
    ) -> None:  # fmt: skip
        self.over, self.order, self.directions, self.weights = over, order, directions, weights
        self.replay = Replay(over, samples)
        self.spread_out: dict[Any, tuple[Term, Term]] = {}
        self.most_slots = 0

    def is_batched(self, degree: int) -> bool:
        """Whether a coefficient of this degree has an axis of directions."""
        summed = self.weights is not None and degree == self.order
        return self.directions is not None and degree > 0 and not summed

    def aligned(self, x: Array, rank: int, least: int) -> Array:
        """A coefficient whose axes after the directions are at least so many."""
        return x if rank >= least else self.over.Unsqueeze(x, tuple(range(1, 1 + least - rank)))

    def lifted(self, term: Term, rank: int, least: int) -> Term:
        """A term with `aligned` array and slots."""
        slots = term.slots and term.slots.aligned(max(rank, least))
        return term._replace(array=self.aligned(term.array, rank, least), slots=slots)

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
        if term.slots is None:
            return Term(J._apply(self.over, self.bare(term)), term.number)
        first, *others = reversed(factors_of(J))
        try:
            made = self.by_slots(first, term)
        except Unknown:
            if not isinstance(first, SumTo):
                return self.applied(J, self.dense(term))
            made = self.summed(first, term)
        return self.applied(Product(tuple(reversed(others))), made) if others else made

    def total(self, terms: Iterable[Term]) -> Term | None:
        """The sum of coefficients of one shape, joined first where they share an array."""
        found = [*self.joined(terms)]
        if len(found) < 2:
            return found[0] if found else None
        found = self.united(found)
        numbers = {term.number for term in found}
        number = numbers.pop() if len(numbers) == 1 else 1.0
        parts = [self.whole(term.times(1.0 / number)) for term in found]
        made = self.over.Add(*parts) if len(parts) == 2 else self.over.Sum(*parts)
        return Term(made, number, slots=found[0].slots)

    def joined(self, terms: Iterable[Term]) -> Iterator[Term]:
        """The terms; several of the same array become one, with the sum of their factors."""
        alike: dict[Any, list[Term]] = {}
        for term in terms:
            alike.setdefault(key_of(term), []).append(term)
        for first, *rest in alike.values():
            factors = [self.over.Mul(t.factor, t.number) for t in (first, *rest)
                       if t.factor is not None] if rest else []  # fmt: skip
            number = sum(t.number for t in (first, *rest) if t.factor is None)
            if not rest:
                yield first
            elif not factors:
                yield Term(first.array, number, slots=first.slots)
            else:
                constant = [np.asarray(number, dtype_of(first.array))] if number else []
                yield Term(first.array, 1.0, self.over.Sum(*factors, *constant), first.slots)

    def gathered(self, single: list[Term], each: list[Term], degree: int) -> Term | None:
        """The sum of terms, with those `each` for a direction, at the last degree over these."""
        if self.weights is not None and degree == self.order:
            each = [Term(self.over_directions(t), t.number) if t.factor is None else
                    Term(self.over.Mul(self.over_directions(t), t.factor), t.number)
                    for t in self.joined(each)]  # fmt: skip
        return self.total([*single, *each])

    def over_directions(self, term: Term) -> Array:
        """Σᵣ wᵣ xᵣ."""
        assert self.weights is not None
        x = term.array
        if not np.all(self.weights == 1):
            rank = len(shape_of(x)) - 1
            index = (term.slots or Slots.every(len(self.weights), rank)).index
            x = self.over.Mul(x, np.where(index < 0, 0, self.weights[index]).astype(dtype_of(x)))
        return self.over.ReduceSum(x, (0,), keepdims=0)

    def pairs(
        self, a: Any, b: Any, k: int, start: int = 0
    ) -> Iterator[tuple[Term, Term, tuple[int, int]]]:
        """The nonzero pairs (aⱼ, bₖ₋ⱼ) and their degrees; of a square, 2 aⱼ and aₖ₋ⱼ, j < k − j."""
        square = a is b and not start
        for j in range(start, k // 2 + 1 if square else k + 1):
            x, y = a.term(j), b.term(k - j)
            if x is not None and y is not None:
                twice = x.times(2.0) if square and 2 * j != k else x
                yield twice, y, (a.degree + j, b.degree + k - j)

    def product(self, x: Term, y: Term, ranks: tuple[int, int], degrees: tuple[int, int]) -> Term:
        """x ∘ y, either of which may have an axis of directions."""
        x_moves, y_moves = map(self.is_batched, degrees)
        number = x.number * y.number
        if x_moves:
            x = self.lifted(x, *ranks)
        if y_moves:
            y = self.lifted(y, *reversed(ranks))
        if x_moves == y_moves:
            x, y = self.crossed(x, y)
            factors = [z.factor for z in (x, y) if z.factor is not None]
            factor = self.over.Mul(*factors) if len(factors) == 2 else next(iter(factors), None)
            return Term(self.over.Mul(x.array, y.array), number, factor, x.slots)
        still, moving = (y, x) if x_moves else (x, y)
        factor = still.array if moving.factor is None else self.over.Mul(still.array, moving.factor)
        return Term(moving.array, number, factor, moving.slots)

    # -- slots -------------------------------------------------------------------------------------

    def along_lines(self, array: Array, vectors: np.ndarray, shape: Any) -> Term:
        """The directions of a tensor of a shape, by slots where `vectors` have many zeros."""
        slots = Slots.of(vectors != 0)
        if not self.few(slots):
            return Term(array)
        numbers = np.take_along_axis(vectors, np.maximum(slots.index, 0), 0)
        lead = self.over.Expand(np.where(slots.index < 0, 0, numbers), (len(slots), *shape))
        made = Term(lead, slots=slots)
        self.spread_out[key_of(made)] = made, Term(array)
        return made

    def few(self, slots: Slots) -> bool:
        """Whether slots are so few of the directions that they spare work."""
        return self.directions is not None and 2 * len(slots) <= self.directions

    def dense(self, term: Term) -> Term:
        """A term with all directions on its first axis."""
        if term.slots is None:
            return term
        if key_of(term) not in self.spread_out:
            assert self.directions is not None
            bare = Term(term.array, slots=term.slots)
            every = Slots.every(self.directions, len(shape_of(term.array)) - 1)
            self.spread_out[key_of(term)] = bare, self.moved(bare, every)._replace(slots=None)
        return term._replace(array=self.spread_out[key_of(term)][1].array, slots=None)

    def moved(self, term: Term, slots: Slots) -> Term:
        """A term in other slots, which have all that it has, or all that is asked for."""
        assert term.slots is not None
        if term.slots == slots:
            return term._replace(slots=slots)
        parts = []
        for source, mask in term.slots.moves(slots):
            part = term.array
            if len(term.slots) > 1 and not np.array_equal(source, np.arange(len(term.slots))):
                part = self.over.Gather(part, source, axis=0)
            if not mask.all():
                part = self.over.Mul(part, mask.astype(dtype_of(part)))
            elif len(term.slots) == 1 < len(slots):
                part = self.over.Expand(part, (len(slots), *shape_of(part)[1:]))
            parts.append(part)
        whole = self.over.Sum(*parts) if len(parts) > 1 else parts[0]
        return term._replace(array=whole, slots=slots)

    def united(self, terms: list[Term]) -> list[Term]:
        """Terms in the slots of all; in all directions where one is, or slots would be many."""
        slots = [term.slots for term in terms if term.slots is not None]
        if not slots:
            return terms
        if len(slots) == len(terms):
            joined = slots[0]
            for other in slots[1:]:
                joined = joined if joined == other else joined | other
            if self.few(joined):
                return [self.moved(term, joined) for term in terms]
        return [self.dense(term) for term in terms]

    def crossed(self, x: Term, y: Term) -> tuple[Term, Term]:
        """Two terms in the slots of both."""
        if x.slots is None or y.slots is None:
            return self.dense(x), self.dense(y)
        both = x.slots if x.slots == y.slots else x.slots & y.slots
        self.most_slots = max(self.most_slots, len(both))
        return self.moved(x, both), self.moved(y, both)

    def by_slots(self, J: Jacobian, term: Term) -> Term:
        """J times a term of slots: by slots where J mixes no directions, or after x is moved to the
        slots of all that it meets; raises `Unknown` elsewhere.
        """
        assert term.slots is not None
        made = self.slot_by_slot(J, term)
        if made is None:
            made = self.slot_by_slot(J, self.moved(term, self.meeting(J, term.slots)))
        if made is None:
            raise Unknown(J)
        return made

    def slot_by_slot(self, J: Jacobian, term: Term) -> Term | None:
        """J times each slot, if all that an entry depends on has one direction there; else None.

        Weighted means of the directions are integers where they are means of one.
        """
        assert term.slots is not None
        index = term.slots.index
        weights = self.replay.weights((len(index), *J.in_shape))
        there, means = self.replay.product(J, weights * (index >= 0), weights * (index + 1))
        found = np.divide(means, there, where=there != 0, out=np.zeros_like(means))
        directions = np.rint(found).astype(int) - 1
        ordered = np.sort(directions, axis=0)
        twice = (ordered[1:] == ordered[:-1]) & (ordered[1:] >= 0)
        if twice.any() or np.abs(found - directions - 1).max(initial=0) > 1e-6:
            return None
        slots = self.along_free_sizes(Slots(directions), J.out_shape)
        made = Term(J._apply(self.over, self.bare(term)), term.number, slots=slots)
        _, whole = self.spread_out.get(key_of(term), (None, None))
        if whole is not None and term.factor is None:
            y = J._apply(self.over, whole.array)
            if is_repeated_constant(y):  # which needs less than its slots
                self.spread_out[key_of(made)] = made, Term(y)
        self.most_slots = max(self.most_slots, len(slots))
        return made

    def meeting(self, J: Jacobian, slots: Slots) -> Slots:
        """The slots of all directions that an entry of x meets in the entries of J x."""
        assert self.directions is not None
        n = self.directions
        (out,) = self.replay.product(J, self.replay.weights((n, *J.in_shape)) * slots.met(n))
        found = Slots.of(out != 0)
        if not self.few(found):
            raise Unknown(found)
        weights = self.replay.weights((n, *J.out_shape))
        (back,) = self.replay.product(J.T, weights * (out != 0))
        found = self.along_free_sizes(Slots.of(back != 0), J.in_shape)
        if not self.few(found) or found == slots:
            raise Unknown(found)
        return found

    def summed(self, J: SumTo, term: Term) -> Term:
        """Sums of entries whose directions differ, for all directions, as one product of matrices:
        yᵣ = Σ x[s, e] ∘ (index[s, e] = r) over slots s and entries e.
        """
        assert term.slots is not None
        assert self.directions is not None
        x, index = self.bare(term), term.slots.index
        labels = ascii_lowercase[: len(J.in_shape)]
        gone = {labels[axis] for axis in summed_axes(J.out_shape, J.in_shape)}
        varying = "".join(c for c, n in zip(labels, index.shape[1:], strict=True) if n > 1)
        all_of_it = index.reshape(len(index), *(n for n in index.shape[1:] if n > 1))
        chosen = all_of_it[:, None] == np.arange(self.directions).reshape(-1, *(1,) * len(varying))
        kept = "".join(c for c in labels if c not in gone)
        y = self.over.Einsum(chosen.astype(dtype_of(x)), x,
                             equation=f"SR{varying},S{labels}->R{kept}")  # fmt: skip
        return Term(self.over.Reshape(y, (self.directions, *J.out_shape)), term.number)

    def along_free_sizes(self, slots: Slots, shape: Any) -> Slots:
        """The slots, if they repeat along axes of free sizes."""
        if any(m > 1 and is_symbolic(n) for m, n in zip(slots.index.shape[1:], shape, strict=True)):
            raise Unknown(slots)
        return slots


def key_of(term: Term) -> Any:
    """What terms have in common that differ in numbers and factors; equal constants may be one
    array, and belong to other directions.
    """
    return id(term.array), term.slots


def is_repeated_constant(x: Array) -> bool:
    """Whether a value is a constant, which may be repeated along new axes."""
    if not isinstance(x, ir.Value) or x.const_value is not None:
        return True
    node = x.producer()
    return node is not None and node.op_type == "Expand" and is_repeated_constant(node.inputs[0])
