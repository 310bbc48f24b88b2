"""Ranks: operators over the batches of all ranks, each of which linearises its own.

`ranked` makes the same operator on every rank, where all run the same script with data of their
own. A product is one all-reduce of the entries of its result, and of one number more, which counts
errors; rows of all ranks are added too, as every rank has zeros in place of other ranks' rows. When
it is made, ranks tell one another shapes, names and numbers of samples: never data or the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from operator import add
from typing import Any, TypeVar, final

import numpy as np

from ...jacobians import Jacobian, Shape
from ...jacobians.arguments import Count, Positive, validated
from ...jacobians.arrays import host, like, rounded, wide
from ...jacobians.errors import warn
from .batches import Batches, batches_of, samples
from .comm import Comm, agreed, all_reduced, as_comm, same_on_all, sum_arrays, tell_all
from .shares import Elsewhere, Reduction, Share, Size, compose, share_product
from .stream import Make, digest

T = TypeVar("T")
R = TypeVar("R")


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
    have the same result, by one all-reduce. The scaling is as in `streamed` over the batches of
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
    asked = f"reduction={reduction!r}, check={check}"
    shares = on_ranks(comm, partial(Share, make, keep, size), data, batch_size, asked)
    C = compose(shares, reduction, check)
    if check:
        warn_of_others(shares.comm, getattr(make, "shared", {}))
    return C


def warn_of_others(comm: Comm, shared: Mapping[str, Any]) -> None:
    """A warning of inputs that all batches share, but that differ between ranks."""
    prints = agreed(comm, lambda: {name: digest({name: x}) for name, x in shared.items()})
    other = [repr(name) for name in shared if len({known.get(name) for known in prints}) > 1]
    if other:
        warn(f"{', '.join(other)} differ between ranks, although all batches share them: send "
             "the values of one rank to the others")  # fmt: skip


def on_ranks(
    comm: Any, make: Callable[[Batches], T], data: Any, batch_size: int | None, asked: str = ""
) -> Ranks[T]:
    """make(batches) of the data of each rank; None on one without batches.

    Raises `InputError` where ranks `asked` for different things.
    """
    comm, own = as_comm(comm), list[T]()

    def found() -> str:
        batches = batches_of(data, batch_size)
        if next(iter(batches), None) is not None:
            own.append(make(batches))
        return asked

    same_on_all(dict(enumerate(agreed(comm, found))), "options")
    return Ranks(comm, own[0] if own else None)


@final
class Ranks(Elsewhere[T]):
    """The share of this rank, None without batches, where all ranks of `comm` have theirs."""

    name = "rank"

    def __init__(self, comm: Comm, share: T | None) -> None:
        self.comm, self.share = comm, share
        self.own, self.where = comm.rank, f"over {comm.size} ranks"

    def each(self, task: Callable[[T], R]) -> Ranks[R]:
        return Ranks(self.comm, tell_all(self.comm, partial(self._done, task)))

    def ask(self, task: Callable[[T], R]) -> list[R | None]:
        return agreed(self.comm, partial(self._done, task))

    def _done(self, task: Callable[[T], R]) -> R | None:
        return None if self.share is None else task(self.share)

    def summed(self, task: Callable[..., Any], *arguments: Any) -> Any:
        """Σ task(share, *arguments), whose arrays are added in one all-reduce, whatever their
        number, and the rest of which is gathered; a share may have None.
        """
        mine: list[Any] = []

        def found() -> tuple[list[np.ndarray], Any] | None:
            sums = self._done(lambda share: task(share, *arguments))
            if sums is None:
                return None
            arrays, rest = sums.apart()
            mine.extend(arrays)
            return [np.asarray(host(x)) for x in arrays], rest

        arrays, rests = sum_arrays(self.comm, found)
        placed = [like(x, y) for x, y in zip(arrays, mine or arrays, strict=True)]
        return reduce(add, rests).joined(placed)

    def total(self, task: Callable[[T], np.ndarray], shape: Shape, dtype: np.dtype) -> np.ndarray:
        found = all_reduced(self.comm, partial(self._done, task), shape, wide(dtype))
        return rounded(found, dtype)

    def product(
        self, v: np.ndarray, transposed: bool, ends: Sequence[int] | None, shape: Shape,
        dtype: np.dtype,
    ) -> np.ndarray:  # fmt: skip
        rows = slice(None) if ends is None else slice(*ends[self.own :][:2])

        def found(C: Any) -> np.ndarray:
            if transposed or ends is None:
                return share_product(C, v[:, rows] if transposed else v, transposed)
            every = np.zeros(shape, dtype)  # the rows of other ranks
            every[:, rows] = share_product(C, v, False)
            return every

        return self.total(found, shape, dtype)
