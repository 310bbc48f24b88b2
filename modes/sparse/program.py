"""Program: the numbers of a sparse Jacobian, from the arrays that its operators hold.

Every entry is coefficient · x[variable]. x[0] = 1 is the variable of the constants, then come the
arrays that change with the point, then what stages compute of those before: products of two
variables, and sums of several. Where the entries stand, and all that is constant, was worked out
once; at another point only x is computed anew.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...jacobians import Jacobian
from ...jacobians.arrays import size
from ...jacobians.errors import LimitError
from ...jacobians.sparse import entries
from .products import Product
from .reading import Key, identity
from .stages import Index, Multiplied, Stage, added
from .terms import Terms

KEPT = 2**24
"""Bytes of room for variables that are kept from one point to the next."""

IN_X = -1
"""Where x itself stands in the list of all arrays."""


class Program:
    """The variables: which arrays they are read from, and the stages that compute the others.

    `fixed` are the ids of the operators whose numbers never change; None for all of them.
    `products` are arrays that are products of two others, and computed from these.
    """

    def __init__(
        self, dtype: Any, fixed: Container[int] | None, limit: int,
        products: Sequence[Product] = (),
    ) -> None:  # fmt: skip
        self.dtype, self.fixed, self.limit = np.dtype(dtype), fixed, limit
        self.products = {product: (left, right) for left, right, product in products
                         if product[-1] == self.dtype and product not in (left, right)}  # fmt: skip
        self.length, self.stages = 1, list[Stage]()
        self.starts: dict[Key, int] = {}
        self.read: dict[Key, slice] = {}
        self.copied: set[int] = set()
        self.direct: dict[tuple[int, int], tuple[int, slice]] = {}
        self._idle: deque[np.ndarray] = deque()

    def entries(self, operator: Jacobian) -> Terms:
        """The entries of an operator that is no composite."""
        E = entries(operator)
        if not E.held or self.fixed is None or id(operator) in self.fixed:
            E = E.known()
        variable = np.zeros(len(E.rows), np.int64)
        for array, at in E.held:
            variable = self.product(variable, np.int64(self.start(identity(array))) + at)
        return Terms(E.rows, E.columns, variable, np.broadcast_to(E.weights, E.rows.shape))

    def start(self, key: Key) -> int:
        """Where an array of this identity stands in x; the same one stands there once."""
        if key not in self.starts:
            self.starts[key] = self._multiplied(key) if key in self.products else self._read(key)
        return self.starts[key]

    def _read(self, key: Key) -> int:
        start, self.length = self.length, self.length + size_of(key)
        self.read[key] = slice(start, self.length)
        return start

    def _multiplied(self, key: Key) -> int:
        at = np.arange(size_of(key))
        left, right = (self.start(factor) + at for factor in self.products[key])
        return int(self.multiplied(left, right)[0])

    def product(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """The variables left · right, other ones where neither is constant."""
        product = np.maximum(left, right).astype(np.int64, copy=False)
        new = np.flatnonzero(np.minimum(left, right))
        if len(new):
            known = self.known(left[new], right[new])
            product[new] = self.multiplied(left[new], right[new]) if known is None else known
        return product

    def known(self, left: np.ndarray, right: np.ndarray) -> np.ndarray | None:
        """The variables left · right where they stand in the product of two arrays."""
        for product, (a, b) in self.products.items():
            for first, second in ((a, b), (b, a)):
                at, same = self.places(left, first), self.places(right, second)
                if at is not None and same is not None and np.array_equal(at, same):
                    return self.start(product) + at
        return None

    def places(self, variable: np.ndarray, key: Key) -> np.ndarray | None:
        """Where in an array the variables stand, if they all do."""
        if key not in self.starts:
            return None
        at: np.ndarray = variable - np.int64(self.starts[key])
        return at if at.min() >= 0 and at.max() < size_of(key) else None

    def multiplied(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """New variables, left · right."""
        made = self.reserve(len(left))
        self.stages.append(Multiplied(left, right, made))
        return np.arange(made.start, made.stop)

    def total(
        self, variable: np.ndarray, coefficient: np.ndarray, starts: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Variables and coefficients of the sums of consecutive terms, a sum at each start."""
        counts = np.diff(starts, append=len(variable))
        first, total = variable[starts], np.add.reduceat(coefficient, starts)
        alike = np.logical_and.reduceat(variable == np.repeat(first, counts), starts)
        new = np.flatnonzero(~alike)
        if len(new):
            made = self.reserve(len(new))
            terms = np.repeat(~alike, counts)
            self.stages.append(added(variable[terms], coefficient[terms], counts[new], made))
            first[new], total[new] = np.arange(made.start, made.stop), 1
        return first, total

    def reserve(self, n: int) -> slice:
        """The next n variables."""
        self.length += n
        check_length(self.length, self.dtype, self.limit)
        return slice(self.length - n, self.length)

    def close(self, reads: Iterable[Index]) -> None:
        """All stages are known, and what is read of x afterwards: which arrays need a copy in x.

        A stretch of one array is read where it is; an index, or what spans several, in x.
        """
        spans = [(span.start, span.stop) for span in self.read.values()]
        indices = [*(read for stage in self.stages for read in stage.reads), *reads]
        for index in indices:
            touched = [k for k, span in enumerate(spans) if meets(index, span)]
            if isinstance(index, slice) and len(touched) == 1 and inside(index, spans[touched[0]]):
                start = spans[touched[0]][0]
                where = slice(index.start - start, index.stop - start)
                self.direct[index.start, index.stop] = touched[0], where
            else:
                self.copied.update(touched)
        for stage in self.stages:
            self._write_over(stage, indices)

    def _write_over(self, stage: Stage, indices: Iterable[Index]) -> None:
        """What nobody else reads has the room that the numbers of a stage take."""
        made, over = stage.made, stage.over
        if over is None or all(over != before.made for before in self.stages):
            return
        readers = sum(meets(index, (over.start, over.stop)) for index in indices)
        others = (index for index in indices if meets(index, (made.start, made.stop)))
        if readers == 1 and all(isinstance(index, slice) and index == made for index in others):
            place = self.direct.get((over.start, over.stop), (IN_X, over))
            self.direct[made.start, made.stop] = place

    def run(self, arrays: Iterable[np.ndarray]) -> Variables:
        """All variables, where the arrays have these values, in room that `done` takes back."""
        x, flat = self.room(arrays)
        variables = Variables(x, [*flat, x], self.direct)
        for stage in self.stages:
            stage(variables)
        return variables

    def room(self, arrays: Iterable[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
        """Room for all variables, with those that must be copied, and the arrays as vectors."""
        flat = [np.ascontiguousarray(array, self.dtype).reshape(-1) for array in arrays]
        try:
            x = self._idle.pop()  # without asking first: another thread may take the last one
        except IndexError:
            x = np.empty(self.length, self.dtype)
        x[0] = 1
        spans = list(self.read.values())
        for k in self.copied:
            x[spans[k]] = flat[k]
        return x, flat

    def done(self, x: np.ndarray) -> None:
        """The room may be used again, if it is not so large that it had better be given back."""
        if x.nbytes <= KEPT:
            self._idle.append(x)


class Variables:
    """The numbers x, some in the arrays that they come from, some in the room of others."""

    def __init__(
        self, x: np.ndarray, flat: list[np.ndarray],
        direct: Mapping[tuple[int, int], tuple[int, slice]],
    ) -> None:  # fmt: skip
        self.x, self.flat, self.direct = x, flat, direct

    def __getitem__(self, index: Index) -> np.ndarray:
        if isinstance(index, slice) and (index.start, index.stop) in self.direct:
            source, where = self.direct[index.start, index.stop]
            return self.flat[source][where]
        return self.x[index]


def size_of(key: Key) -> int:
    """How many numbers an array of this identity has."""
    _, shape, *_ = key
    return size(shape)


def meets(index: Index, span: tuple[int, int]) -> bool:
    """Whether an index reads something between two places."""
    start, stop = span
    if isinstance(index, slice):
        return bool(index.start < stop and start < index.stop)
    return bool(np.any((index >= start) & (index < stop)))


def inside(index: slice, span: tuple[int, int]) -> bool:
    """Whether a stretch lies between two places."""
    return bool(span[0] <= index.start and index.stop <= span[1])


def check_length(variables: int, dtype: np.dtype[Any], limit: int) -> None:
    """Raises `LimitError` where the variables alone would take more than the limit."""
    need = variables * dtype.itemsize
    if need > limit:
        raise LimitError(
            f"accumulating the sparse Jacobian takes {need} bytes of intermediate numbers, more "
            f"than the limit of {limit}: keep it lazy, take a block, or raise tosparse(limit=...)"
        )
