"""Ranks: operators over the batches of all ranks, each of which linearises its own.

`ranked` makes an `OverRanks`: the same operator on every rank, where all run the same script with
data of their own. A product is one all-reduce, with n columns, m rows, K right-hand sides and s
bytes per number:

| | per product and rank | |
|---|---|---|
| arithmetic | a pass over this rank's batches | the slowest rank counts |
| a sum, C v | s m K + s bytes into the all-reduce | s for a count of errors |
| rows of all ranks, J v | s m K + s | every rank has all entries of J v |
| their transpose, Jᵀ u | s n K + s | |

Once, when it is made: shapes, names and numbers of samples. Data, model and point are never sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, chain
from math import prod
from operator import methodcaller
from typing import Any, final

import numpy as np

from ...jacobians import Array, Jacobian, Op, lead
from ...jacobians.arguments import Count, Positive, validated
from ...jacobians.arrays import host, rounded, wide
from ...jacobians.errors import InputError, warn
from ...jacobians.readings import is_kept, library_of
from ...ops import numbers
from .batches import Batches, batches_of, samples
from .comm import Comm, agreed, all_reduced, as_comm, same_on_all, tell_all
from .stream import (
    Make,
    Outline,
    OverData,
    Reduction,
    Size,
    Stream,
    compose_stream,
    difference,
    digest,
    with_names,
)


@validated
def ranked(
    make: Make,
    data: Any,
    comm: Any,
    *,
    reduction: Reduction,
    batch_size: Positive | None = None,
    keep: Count = 0,
    size: Size = samples,
    check: bool = True,
) -> Jacobian:
    """C = Σ_r C_r or [C_1; C_2; …], with C_r the operator of `streamed` of the data of rank r.

    Every rank calls this, with its own `data`, which may be empty; a dict is one batch. C is the
    same operator on all ranks: all of them enter its products, with the same right-hand sides, and
    have the same result, by one all-reduce. The scaling is that of `streamed` over the batches of
    all ranks, and rows of `"stack"` are in the order of the ranks: `C.rows` are this rank's rows.

    `make`, `reduction`, `batch_size`, `keep` (bytes on each rank), `size` and `check` are as for
    `streamed`; `check` also compares the values of `make.shared`, if it has any. `comm` is a
    communicator of mpi4py, a process group of torch.distributed, the module `torch.distributed` for
    its default group, or an object with `rank`, `size`, `allreduce(array)` and `allgather(object)`,
    where `allreduce` adds vectors. With `client=` in place of `comm=`, one process has the data and
    workers compute: see `distributed`.

    Shapes: as for `streamed`, with the rows and samples of all ranks.

    An error on one rank is raised on all of them, and names it. Raises the errors of `streamed`,
    and `InputError` where the shapes or names of two ranks differ, or where no rank has a batch.
    """
    comm, stacked, own = as_comm(comm), reduction == "stack", list[Any]()

    def share() -> tuple[str, Sequence[Outline], float, dict[str, str]]:
        asked = f"reduction={reduction!r}, check={check}"
        batches, sizes, C = batches_of(data, batch_size), list[float](), None
        if not has_none(batches):
            sizes = [size(batch) for batch in batches] if reduction == "mean" else sizes
            C = compose_stream(Stream(make, batches, keep), reduction, None)
        own.extend((C, sizes))
        shared = getattr(make, "shared", {}) if check else {}
        prints = {name: digest({name: host(x)}) for name, x in shared.items()}
        return asked, C.outlines if C else (), sum(sizes), prints

    options, outlines, counts, prints = zip(*agreed(comm, share), strict=True)
    local, sizes = own
    same_on_all(dict(enumerate(options)), "options")
    starts = {rank: some[0] for rank, some in enumerate(outlines) if some}
    alike = {rank: shared_outline(o, stacked) for rank, o in starts.items()}
    first = same_on_all(alike, "operators", shown)
    if reduction == "mean":
        if not (total := sum(counts)):
            raise InputError("the batches have no samples, and so no mean: take reduction='sum'")
        local = local and local.weighed(tuple(n / total for n in sizes))
    if check:
        found = agreed(comm, lambda: local and difference(local))
        for message in warnings_of(prints, found):
            warn(message)
    every = list(chain(*outlines)) if stacked else [first]
    ends = list(accumulate((sum(o.shape[0] for o in some) for some in outlines), initial=0))
    rows = slice(ends[comm.rank], ends[comm.rank + 1]) if stacked else None
    return with_names(OverRanks(comm, local, every, rows), first.domain)


def has_none(batches: Batches) -> bool:
    """Whether there are no batches, from the first one where they are not counted."""
    return next(iter(batches), None) is None if batches.count is None else not batches.count


def warnings_of(prints: Sequence[dict[str, str]], found: list[str | None]) -> Iterator[str]:
    """What is to be told on all ranks: shared inputs that differ, and products that do."""
    other = [name for name, known in prints[0].items() if {p.get(name) for p in prints} != {known}]
    if other:
        yield (
            f"{', '.join(map(repr, other))} differ between ranks, although all batches share them: "
            "send those of one rank to the others"
        )
    yield from (f"rank {rank}: {text}" for rank, text in enumerate(found) if text)


def shown(outline: Outline) -> str:
    """An outline in an error: m×n, dtype, and the tensors of the columns."""
    tensors = ", ".join(map(str, outline.domain or ())) or "no names"
    return f"{outline.shape[0]}×{outline.shape[1]} {outline.dtype} ({tensors})"


def shared_outline(outline: Outline, stacked: bool) -> Outline:
    """What the outlines of all ranks have in common."""
    if not stacked:
        return replace(outline, codomains=(), text="C")
    return replace(outline, shape=(0, outline.shape[1]), codomains=(), text="J", symmetric=False)


@final
class OverRanks(OverData):
    """C = Σ_r C_r, or [C_1; C_2; …] with this rank's `rows`, for the `local` C_r of every rank r.

    `local` is None on a rank without batches. A product, entered by all ranks with the same
    vectors, is one all-reduce, and has the same bits on all of them.
    """

    def __init__(
        self, comm: Comm, local: Jacobian | None, outlines: Sequence[Outline], rows: slice | None,
        *, transposed: bool = False,
    ) -> None:  # fmt: skip
        self.comm, self.local, self.rows = comm, local, rows
        super().__init__(outlines, rows is not None, transposed=transposed)

    def _apply(self, op: Op, v: Array) -> Array:
        if is_kept(v):
            return library_of(v).by_numbers("ranks", partial(self._apply, numbers), v)
        if op is not numbers:
            raise InputError("a product over ranks cannot be written into a graph")
        k = prod(lead(v, self.in_shape))
        columns = np.reshape(v, (k, self.shape[1]))

        def product(C: Jacobian) -> np.ndarray:
            if not self.transposed:
                return self._placed((k, self.shape[0]), C._flat_product(columns, (k,)))
            part = columns if self.rows is None else columns[:, self.rows]
            return np.asarray(C.T._flat_product(part, (k,)))

        y = self._reduced(product, (k, self.shape[0]), np.result_type(self.dtype, v.dtype))
        return y.reshape((*lead(v, self.in_shape), self.shape[0]))

    def _placed(self, shape: tuple[int, ...], found: np.ndarray, axis: int = -1) -> np.ndarray:
        """The rows of this rank among the rows of all ranks, which are zero."""
        if self.rows is None:
            return found
        every = np.zeros(shape, found.dtype)
        every.swapaxes(axis, -1)[..., self.rows] = found.swapaxes(axis, -1)
        return every

    def _reduced(
        self, find: Callable[[Jacobian], np.ndarray], shape: tuple[int, ...], dtype: np.dtype
    ) -> np.ndarray:
        """Σ over ranks of find(C_r), in one all-reduce."""
        C = self.local
        total = all_reduced(self.comm, lambda: None if C is None else find(C), shape, wide(dtype))
        return rounded(total, dtype)

    def again(self, parts: Any = None, *, transposed: bool | None = None) -> OverData:
        turned = self.transposed if transposed is None else transposed
        local = self.local if parts is None else parts
        return OverRanks(self.comm, local, self.outlines, self.rows, transposed=turned)

    def _dense(self, limit: int) -> np.ndarray:
        shape = self.shape[::-1] if self.transposed else self.shape

        def dense(C: Jacobian) -> np.ndarray:
            return self._placed(shape, C.toarray(limit=limit), 0)

        found = self._reduced(dense, shape, self.dtype)
        return found.T if self.transposed else found

    def _diagonal(self) -> np.ndarray:
        if self.stacked:
            return super()._diagonal()
        return self._reduced(lambda C: C.diagonal(), (min(self.shape),), self.dtype)

    @validated
    def compile(
        self, engine: str | None = None, *, products: Count = 100, memory: Count | None = None
    ) -> Jacobian:
        """The same operator, with that of each rank compiled: see `OverBatches.compile`."""
        compiled = methodcaller("compile", engine, products=products, memory=memory)
        return self.again(tell_all(self.comm, lambda: self.local and compiled(self.local)))

    def __repr__(self) -> str:
        C = "[C_0; C_1; …]" if self.stacked else "Σ_r C_r"
        return f"{C}{'ᵀ' if self.transposed else ''} over {self.comm.size} ranks"
