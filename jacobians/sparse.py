"""Entries: the sparse matrix of an operator, entry by entry, with its numbers left symbolic.

Only positions are computed: entry k is weights[k] ∏ₐ a.ravel()[at[k]], a product of numbers that
the operator holds. Entries at the same place are added. The places suffice to refresh the matrix at
another point, where only the held arrays a change.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce, singledispatch
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from .arrays import reading, size
from .base import DENSE_LIMIT, Conjugate, Jacobian
from .contraction import EINSUMS, as_contraction, label_positions
from .convolution import Convolution, Geometry, kernel_patches
from .dag import Part
from .elementwise import Cast, Identity, Scalar, Zero
from .errors import LimitError
from .kron_sums import Sylvester
from .layout import Broadcast, Embed, Permutation, Reshape, Scatter, Slice, SumTo, Take
from .transforms import Circulant, Cumulative, Fourier

Held = tuple[np.ndarray, np.ndarray]
"""An array that an operator holds, and the ravelled position in it for every entry."""


@dataclass(frozen=True)
class Entries:
    """A[rows[k], columns[k]] += weights[k] ∏ₐ a.ravel()[at[k]] over the `held` (a, at)."""

    rows: np.ndarray
    columns: np.ndarray
    weights: np.ndarray | float = 1.0
    held: tuple[Held, ...] = ()

    @property
    def T(self) -> Entries:
        return Entries(self.columns, self.rows, self.weights, self.held)

    @property
    def values(self) -> np.ndarray:
        """The current numbers."""
        found = (a.ravel()[at] for a, at in self.held)
        return reduce(np.multiply, found, np.broadcast_to(self.weights, self.rows.shape))

    def known(self) -> Entries:
        """The entries with their current numbers as weights, and without zeros."""
        values = self.values
        kept = np.flatnonzero(values)
        if len(kept) == len(values):
            return Entries(self.rows, self.columns, values)
        return Entries(self.rows[kept], self.columns[kept], values[kept])


@singledispatch
def entries(operator: Jacobian) -> Entries:
    """The entries of an operator that is not a composite; for an unknown type, its whole matrix."""
    return everywhere(operator.toarray())


@entries.register
def _(operator: Part | Sylvester) -> Entries:
    return everywhere(operator.matrix)


def everywhere(matrix: np.ndarray) -> Entries:
    """An entry for each number of a matrix."""
    rows, columns = np.divmod(np.arange(matrix.size), max(matrix.shape[1], 1))
    return Entries(rows, columns, 1.0, ((matrix, np.arange(matrix.size)),))


@singledispatch
def count(operator: Jacobian) -> int:
    """An upper bound on the number of entries that `entries` makes."""
    return max(operator.shape)


@entries.register
def _(operator: Identity | Cast | Reshape) -> Entries:
    at = np.arange(operator.shape[0])
    return Entries(at, at)


@entries.register
def _(operator: Scalar) -> Entries:
    at = np.arange(operator.shape[0])
    return Entries(at, at, operator.factor)


@entries.register
def _(operator: Zero) -> Entries:
    none = np.arange(0)
    return Entries(none, none)


@entries.register
def _(operator: Broadcast | Permutation | Slice | Take) -> Entries:
    """Applied to the positions in x, the operator gives the position that each entry of y takes."""
    at = np.arange(operator.shape[1]).reshape(operator.in_shape)
    return Entries(np.arange(operator.shape[0]), np.ravel(operator._apply(reading(at), at)))


@entries.register
def _(operator: SumTo | Embed | Scatter) -> Entries:
    return entries(operator.T).T


@entries.register
def _(operator: Conjugate) -> Entries:
    found = entries(operator.operator)
    if operator.dtype.kind != "c":
        return found
    held = tuple((np.conj(a), at) for a, at in found.held)
    return Entries(found.rows, found.columns, np.conj(found.weights), held)


def _einsum(operator: Jacobian) -> Entries:
    """One entry for every combination of label values."""
    J = as_contraction(operator)
    shape = tuple(J.sizes.values())
    if 8 * size(shape) > DENSE_LIMIT:
        raise LimitError(
            f"the entries of {operator} are sums over {size(shape):,} products, too many to be "
            "listed: use toarray, or products"
        )
    rows, columns, *at = (
        np.broadcast_to(label_positions(term, tensor, J.sizes), shape).ravel()
        for term, tensor in (
            (J.out_term, J.out_shape), (J.in_term, J.in_shape),
            *((term, a.shape) for a, term in J.factors),
        )
    )  # fmt: skip
    return Entries(rows, columns, 1.0, tuple(zip((a for a, _ in J.factors), at, strict=True)))


def _labels(operator: Jacobian) -> int:
    return size(tuple(as_contraction(operator).sizes.values()))


for kind in EINSUMS:
    entries.register(kind, _einsum)
    count.register(kind, _labels)


@count.register
def _(operator: Cumulative | Fourier) -> int:
    """Each entry meets all of its line, in a transform both parts of each number."""
    parts = 2 if isinstance(operator, Fourier) else 1
    return operator.shape[0] * operator.in_shape[operator.axis] * parts


@entries.register
def _(operator: Cumulative | Fourier) -> Entries:
    """Fixed numbers along an axis, repeated over all other axes."""
    return _einsum(operator).known()


@entries.register
def _(operator: Circulant) -> Entries:
    """Entry (i, j) is c[i - j], along all axes at once, for every signal of the batch."""
    at = np.zeros((1, 1), np.intp)
    for n in operator.kernel.shape:
        index = np.arange(n)
        step = (index[:, None] - index) % n
        at = (n * at[:, None, :, None] + step[:, None, :]).reshape(len(at) * n, -1)
    n = operator.kernel.size
    start = n * np.arange(operator.count)
    rows, columns = (np.add.outer(start, k).ravel() for k in np.indices((n, n)).reshape(2, -1))
    return Entries(rows, columns, 1.0, ((operator.kernel, np.tile(at.ravel(), operator.count)),))


@count.register
def _(operator: Circulant) -> int:
    return operator.shape[0] * operator.kernel.size


@count.register
def _(operator: Part | Sylvester) -> int:
    return operator.shape[0] * operator.shape[1]


@count.register
def _(operator: Conjugate) -> int:
    return count(operator.operator)


@count.register
def _(operator: Convolution) -> int:
    return size(operator.geometry.u) * size(operator.geometry.w[1:])


@entries.register
def _(operator: Convolution) -> Entries:
    """One entry for every term of T(x, w, u) outside the margin."""
    x, w, u = meetings(operator.geometry)
    inside = np.flatnonzero(x >= 0)
    at = {"x": x[inside], "w": w[inside], "u": u[inside]}
    (held,) = at.keys() - {operator.source, operator.target}
    return Entries(at[operator.target], at[operator.source], 1.0, ((operator.held, at[held]),))


def meetings(g: Geometry) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The positions in x, w and u that each term of T(x, w, u) multiplies; x = -1 in the margin.

    Axes: sample, group, output of the group, kernel entry, output position.
    """
    n, m, k, p = g.u[0], g.w[0] // g.group, size(g.w[1:]), size(g.u[2:])
    x = 1 + np.arange(size(g.x)).reshape(g.x)  # 0 marks the margin
    x = kernel_patches(reading(x), g, x).reshape(g.group, k, n, p)
    x = x.transpose(2, 0, 1, 3)[:, :, None] - 1
    w = np.arange(size(g.w)).reshape(1, g.group, m, k, 1)
    u = np.arange(size(g.u)).reshape(n, g.group, m, 1, p)
    x, w, u = np.broadcast_arrays(x, w, u)
    return x.ravel(), w.ravel(), u.ravel()


# -- positions alone, from far fewer entries -------------------------------------------------------


def positions(operator: Jacobian, *, constant: bool) -> tuple[csr_array[Any], ...]:
    """Boolean matrices whose product has the pattern of an operator that is not a composite.

    Zeros among numbers that are `constant` are left out; other numbers may be nonzero anywhere.
    """
    found = factors(operator)
    if found and (not constant or all(np.all(a) for a in operator.arrays())):
        return found
    E = entries(operator)
    E = E.known() if constant or not E.held else E
    return (boolean(E.rows, E.columns, operator.shape),)


def boolean(rows: np.ndarray, columns: np.ndarray, shape: tuple[int, int]) -> csr_array[Any]:
    """The matrix that is true at some places."""
    narrow = np.int32 if max(*shape, len(rows)) < 2**31 else np.int64
    places = rows.astype(narrow), columns.astype(narrow)
    return csr_array((np.ones(len(rows), bool), places), shape)


@singledispatch
def factors(operator: Jacobian) -> tuple[csr_array[Any], ...]:
    """Sparse factors of the pattern where no held number is zero; none for other operators.

    Outputs with the same inputs are one row of the right factors, so that a convolution of c
    channels lists 1/c² of its entries, and a dense matrix one row.
    """
    return ()


def _shared(operator: Jacobian) -> tuple[csr_array[Any], ...]:
    """An output depends on the inputs that agree with it in the labels that both have."""
    J = as_contraction(operator)
    if 0 in J.sizes.values():
        return ()
    both = {label: J.sizes[label] for label in J.in_term if label in J.out_term}
    gather, spread = (
        boolean(np.broadcast_to(label_positions("".join(both), tuple(both.values()), sizes),
                                tuple(sizes.values())).ravel(),
                np.arange(size(tuple(sizes.values()))),
                (size(tuple(both.values())), size(tuple(sizes.values()))))
        for sizes in ({label: J.sizes[label] for label in term} for term in (J.in_term, J.out_term))
    )  # fmt: skip
    return spread.T.tocsr(), gather


for kind in EINSUMS:
    factors.register(kind, _shared)


@factors.register(Convolution)
def _(operator: Convolution) -> tuple[csr_array[Any], ...]:
    """All channels of a group meet: a convolution of one channel, between sums over channels."""
    g = operator.geometry
    if "w" in (operator.source, operator.target):
        return ()
    samples, group = g.u[0], g.group
    one = replace(g, x=(samples, group, *g.x[2:]), w=(group, 1, *g.w[2:]),
                  u=(samples, group, *g.u[2:]))  # fmt: skip
    x, _, u = meetings(one)
    inside = np.flatnonzero(x >= 0)
    conv = boolean(u[inside], x[inside], (size(one.u), size(one.x)))

    def channels(whole: tuple[int, ...], thin: tuple[int, ...]) -> csr_array[Any]:
        grid = samples, group, whole[1] // group, size(whole[2:])
        at = np.arange(size(thin)).reshape(samples, group, 1, -1)
        return boolean(np.arange(size(whole)), np.broadcast_to(at, grid).ravel(),
                       (size(whole), size(thin)))  # fmt: skip

    made = channels(g.u, one.u), conv, channels(g.x, one.x).T.tocsr()
    return made if operator.source == "x" else tuple(A.T.tocsr() for A in reversed(made))
