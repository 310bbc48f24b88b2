"""Contraction: the Jacobian of an einsum in one of its operands."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .arrays import Array, Op, Shape, dtype_of, factor, fits, shape_of, size
from .base import Jacobian
from .errors import InputError
from .symint import same


class Contraction(Jacobian):
    """y[out] = Σ x[in] ∏ₖ aₖ[termₖ], summed over the labels that `out` lacks.

    Every label of `in` stands in `out` or in some term, and every label of `out` in `in` or in
    some term, so that the transpose is the same contraction with `in` and `out` exchanged. Labels
    of `sizes` that stand nowhere are left out: they are no axes.
    """

    def __init__(
        self,
        factors: tuple[tuple[Array, str], ...],
        in_term: str,
        out_term: str,
        sizes: dict[str, int],
    ) -> None:
        factors = tuple((factor(a), term) for a, term in factors)
        check_terms(factors, in_term, out_term, sizes)
        dtype = np.result_type(*(dtype_of(a) for a, _ in factors))
        out_shape, in_shape = (tuple(sizes[label] for label in t) for t in (out_term, in_term))
        super().__init__(out_shape, in_shape, dtype)
        self.factors, self.in_term, self.out_term = factors, in_term, out_term
        labels = set(in_term + out_term).union(*(term for _, term in factors))
        self.sizes = {label: n for label, n in sizes.items() if label in labels}

    def _apply(self, op: Op, v: Array) -> Array:
        terms = ",".join((*(term for _, term in self.factors), f"...{self.in_term}"))
        return op.Einsum(*(a for a, _ in self.factors), v, equation=f"{terms}->...{self.out_term}")

    def _transpose(self) -> Jacobian:
        return Contraction(self.factors, self.out_term, self.in_term, self.sizes)

    def arrays(self) -> Iterator[Array]:
        yield from (a for a, _ in self.factors)

    @property
    def flops(self) -> int:
        return 2 * size(tuple(self.sizes.values()))

    def __repr__(self) -> str:
        terms = ", ".join(term for _, term in self.factors)
        return f"einsum({terms}; {self.in_term} → {self.out_term})"


def check_terms(
    factors: tuple[tuple[Array, str], ...], in_term: str, out_term: str, sizes: dict[str, int]
) -> None:
    """Raises `InputError` where labels and shapes do not make a `Contraction`."""
    shapes = [(shape_of(a), term) for a, term in factors]
    text = f"Contraction of {', '.join(f'{term} {list(s)}' for s, term in shapes)}; {in_term} to "
    text += f"{out_term}, sizes {sizes}"
    labels = {label for _, term in shapes for label in term}
    if not factors:
        raise InputError(f"{text}: it holds no array")
    if unknown := sorted((labels | {*in_term, *out_term}) - sizes.keys()):
        raise InputError(f"{text}: the size of {', '.join(unknown)} is not given")
    if alone := sorted(({*in_term} ^ {*out_term}) - labels):
        raise InputError(f"{text}: {', '.join(alone)} is in one of in and out only, in no factor")
    for shape, term in shapes:
        sized = tuple(sizes[label] for label in term)
        if len(sized) != len(shape) or not fits(shape, sized):
            raise InputError(f"{text}: {term} has shape {list(shape)}, not {list(sized)}")


def label_sizes(arrays: tuple[Shape, ...], terms: tuple[str, ...]) -> dict[str, int]:
    """The length of every label; a length of 1 gives way to any other, also to 0.

    >>> label_sizes(((2, 1), (0, 4)), ("ij", "jk"))
    {'i': 2, 'j': 0, 'k': 4}
    """
    sizes: dict[str, int] = {}
    if list(map(len, arrays)) != list(map(len, terms)):
        raise InputError(f"the terms {', '.join(terms)} do not fit arrays of shape "
                         f"{', '.join(str(list(shape)) for shape in arrays)}")  # fmt: skip
    for shape, term in zip(arrays, terms, strict=True):
        for label, n in zip(term, shape, strict=True):
            if same(sizes.get(label, 1), 1):
                sizes[label] = n
    return sizes
