"""Contractions: what weights meet, as one einsum whose labels can be sorted."""

from __future__ import annotations

from string import ascii_letters

import numpy as np

from ...jacobians import Broadcast, Contraction, Diagonal, Identity, Jacobian, Take
from ...jacobians.base import DENSE_LIMIT
from ...jacobians.contraction import as_contraction
from ...jacobians.errors import LimitError


def contraction(operator: Jacobian) -> Contraction:
    """The operator as a contraction whose factors have no axis that they do not vary along."""
    if isinstance(operator, Identity):
        operator = Diagonal(np.ones((), operator.dtype), operator.out_shape)
    c = as_contraction(operator)
    factors = tuple(varying(a, term, c.sizes) for a, term in c.factors)
    return Contraction(factors, c.in_term, c.out_term, c.sizes)


def one_hot(rows: Take) -> Contraction:
    """A table whose rows are looked up: X has a 1 where the index points."""
    index, n = np.asarray(rows.index), rows.in_shape[rows.axis]
    if n * n * rows.dtype.itemsize > DENSE_LIMIT:
        raise LimitError(f"a table of {n} rows has a Kronecker factor of {n}×{n}: leave it out")
    labels, k = ascii_letters, index.ndim
    places, v, others = labels[:k], labels[k], labels[k + 1 : k + len(rows.in_shape)]
    at = len(rows.in_shape) + rows.axis
    in_term, out_term = (others[:at] + label + others[at:] for label in (v, places))
    sizes = dict(zip(in_term + out_term, rows.in_shape + rows.out_shape, strict=True))
    return Contraction(((np.eye(n, dtype=rows.dtype)[index], places + v),), in_term, out_term,
                       sizes)  # fmt: skip


def varying(a: np.ndarray, term: str, sizes: dict[str, int]) -> tuple[np.ndarray, str]:
    """A factor without its axes of length 1 whose label is longer: those are repeated."""
    axes = tuple(k for k, label in enumerate(term) if a.shape[k] != sizes[label])
    return np.squeeze(a, axes), "".join(k for i, k in enumerate(term) if i not in axes)


def after_broadcast(c: Contraction, repeat: Broadcast) -> Contraction:
    """A contraction of a tensor that is first repeated: it is 1 along the labels that are new."""
    shape = (1,) * (len(repeat.out_shape) - len(repeat.in_shape)) + repeat.in_shape
    ends = zip(c.in_term, shape, repeat.out_shape, strict=True)
    kept = "".join(label for label, n, m in ends if n == m)
    new = "".join(label for label in c.in_term if label not in kept)
    ones = np.ones(tuple(c.sizes[label] for label in new), c.dtype)
    return Contraction((*c.factors, (ones, new)), kept, c.out_term, c.sizes)
