"""Coefficients of series: their sums and products, for one direction or for many at once.

Many directions may move at once, r = 1 … R, from one x₀: coefficients of a positive degree have a
first axis for them, which no shape tells of. Where only Σᵣ wᵣ yₖ is asked for at the last degree,
this sum is propagated instead of its terms, which is right since yₖ is linear in xₖ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ...jacobians import Array, Jacobian, dtype_of, shape_of
from ..graphs import Recorder


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


class Coefficients:
    """Sums and products of coefficients, recorded by `over`, of series up to an `order`.

    `weights` are wᵣ for each of the `directions`, where their sum is what is asked for.
    """

    def __init__(
        self, over: Recorder, order: int, directions: int | None = None,
        weights: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        self.over, self.order, self.directions, self.weights = over, order, directions, weights

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
        """The sum of coefficients of one shape, joined first where they share an array."""
        found = [*self.joined(terms)]
        if len(found) < 2:
            return found[0] if found else None
        numbers = {term.number for term in found}
        number = numbers.pop() if len(numbers) == 1 else 1.0
        parts = [self.whole(term.times(1.0 / number)) for term in found]
        return Term(self.over.Add(*parts) if len(parts) == 2 else self.over.Sum(*parts), number)

    def joined(self, terms: Iterable[Term]) -> Iterator[Term]:
        """The terms; several of the same array become one, with the sum of their factors."""
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
        """The sum of terms, with those `each` for a direction, at the last degree over these."""
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
