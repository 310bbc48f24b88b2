"""Comm: what ranks send one another where all of them run the same script.

`as_comm` makes a `Comm` of what MPI, PyTorch or JAX gives. All ranks enter every collective here,
also one whose own part has failed: then `all_reduced`, `agreed`, `sum_arrays` and `joined_arrays`
raise the error on all ranks, with the number of the rank that failed.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol, TypeVar, final

import numpy as np

from ...jacobians.arrays import Shape
from ...jacobians.errors import InputError, OnnxJacError, first_line

T = TypeVar("T")


class Comm(Protocol):
    """The ranks of a group, each a process with data of its own."""

    @property
    def rank(self) -> int:
        """The number of this process in the group, from 0."""

    @property
    def size(self) -> int:
        """The number of processes."""

    def allreduce(self, array: np.ndarray, /) -> np.ndarray:
        """Σ over the ranks of a vector, the same bits on all of them; it may overwrite `array`."""

    def allgather(self, value: Any, /) -> list[Any]:
        """The small objects of all ranks, in their order."""


@final
@dataclass(frozen=True)
class Mpi:
    """A communicator of mpi4py."""

    group: Any

    @property
    def rank(self) -> int:
        return int(self.group.Get_rank())

    @property
    def size(self) -> int:
        return int(self.group.Get_size())

    def allreduce(self, array: np.ndarray) -> np.ndarray:
        self.group.Allreduce(sys.modules["mpi4py.MPI"].IN_PLACE, array)
        return array

    def allgather(self, value: Any) -> list[Any]:
        return list(self.group.allgather(value))


@final
@dataclass(frozen=True)
class Torch:
    """A process group of torch.distributed, `None` for the default one; NCCL sums on the GPU."""

    group: Any

    @property
    def rank(self) -> int:
        return int(self._library.get_rank(self.group))

    @property
    def size(self) -> int:
        return int(self._library.get_world_size(self.group))

    def allreduce(self, array: np.ndarray) -> np.ndarray:
        there = "cuda" if self._library.get_backend(self.group) == "nccl" else "cpu"
        total = sys.modules["torch"].from_numpy(array).to(there)
        self._library.all_reduce(total, group=self.group)
        return np.asarray(total.cpu().numpy())

    def allgather(self, value: Any) -> list[Any]:
        found: list[Any] = [None] * self.size
        self._library.all_gather_object(found, value, group=self.group)
        return found

    @property
    def _library(self) -> Any:
        return sys.modules["torch.distributed"]


@final
@dataclass(frozen=True)
class JaxProcesses:
    """The processes of jax.distributed. Bytes are gathered, and added here: JAX itself may have no
    numbers of 64 bits.
    """

    @property
    def rank(self) -> int:
        return int(sys.modules["jax"].process_index())

    @property
    def size(self) -> int:
        return int(sys.modules["jax"].process_count())

    def allreduce(self, array: np.ndarray) -> np.ndarray:
        return np.asarray(sum(row.view(array.dtype) for row in self._rows(array.view(np.uint8))))

    def allgather(self, value: Any) -> list[Any]:
        sent = np.frombuffer(pickle.dumps(value), np.uint8)
        lengths = self._rows(np.array([len(sent)], np.int64).view(np.uint8)).view(np.int64).ravel()
        rows = self._rows(np.pad(sent, (0, lengths.max() - len(sent))))
        return [pickle.loads(row[:n].tobytes()) for row, n in zip(rows, lengths, strict=True)]

    def _rows(self, sent: np.ndarray) -> np.ndarray:
        """The bytes of all processes, (size, bytes)."""
        from jax.experimental.multihost_utils import process_allgather

        return np.ascontiguousarray(process_allgather(sent)).reshape(self.size, -1)


def as_comm(comm: Any) -> Comm:
    """The `Comm` of a communicator of mpi4py, of a process group of torch.distributed, or of the
    module `torch.distributed` for its default group, or of `"jax"` where jax.distributed has
    several processes; an object with the four methods is one itself.

    Raises `InputError` for anything else.
    """
    if hasattr(comm, "Allreduce") and hasattr(comm, "Get_rank"):
        return Mpi(comm)
    library: Any = sys.modules.get("torch.distributed")
    if library is not None and library.is_available():
        if comm is library and library.is_initialized():
            return Torch(None)
        if comm is not library and isinstance(comm, library.ProcessGroup):
            return Torch(comm)
    given = (getattr(comm, name, None) for name in ("rank", "size"))
    if all(isinstance(n, int) for n in given) and hasattr(comm, "allgather"):
        made: Comm = comm
        return made
    if isinstance(comm, str) and comm in sys.modules.keys() & {"jax"} and JaxProcesses().size > 1:
        return JaxProcesses()
    raise InputError(
        f"comm={comm!r} is no communicator: give mpi4py.MPI.COMM_WORLD, or, after "
        "torch.distributed.init_process_group(), torch.distributed.group.WORLD"
    )


def all_reduced(
    comm: Comm, find: Callable[[], np.ndarray | None], shape: Shape, dtype: np.dtype
) -> np.ndarray:
    """Σ over ranks of find(), of a known shape, in one all-reduce; None counts as zeros.

    Its last entry counts the ranks on which `find` raised, for the error that all of them raise.
    """
    count = prod(shape)
    sent = np.empty(count + 1, dtype)

    def fill() -> None:
        found = find()
        sent[:-1] = 0 if found is None else found.reshape(count)
        sent[-1] = 0

    _, failed = attempt(fill)
    if failed is not None:
        sent[:-1], sent[-1] = 0, 1
    total = collective(comm.allreduce, sent)
    if total[-1]:
        exchange(comm, None, failed)
    return total[:-1].reshape(shape)


def agreed(comm: Comm, find: Callable[[], T]) -> list[T]:
    """The small results find() of all ranks; where it raises on some, an error on all of them."""
    return exchange(comm, *attempt(find))


def attempt(find: Callable[[], T]) -> tuple[Any, Exception | None]:
    """The result of find(), or the error that it raised."""
    try:
        return find(), None
    except Exception as error:  # whatever it is, the other ranks wait for this one
        return None, error


def exchange(comm: Comm, result: Any, failed: Exception | None) -> list[Any]:
    """The results of all ranks; raises the error of the first rank that has failed."""
    every = collective(comm.allgather, (result, failed and told(failed)))
    for rank, (_, error) in enumerate(every):
        if error:
            kind, text = error
            raise kind(f"rank {rank}: {text}") from failed
    return [result for result, _ in every]


def tell_all(comm: Comm, find: Callable[[], T]) -> T:
    """The result find() of this rank; where it raises on some, an error on all of them."""
    found: list[T] = []
    agreed(comm, lambda: found.append(find()))
    return found[0]


def sum_arrays(
    comm: Comm, find: Callable[[], tuple[Sequence[np.ndarray], T] | None]
) -> tuple[list[np.ndarray], list[T]]:
    """Σ over ranks of the arrays of find(), of shapes that one rank knows, in one all-reduce.

    Beside the arrays, find() gives a small object, and all of these are returned; a rank without
    data gives None. Raises `InputError` where no rank has data, and where shapes differ.
    """
    mine: list[np.ndarray] = []

    def layout() -> tuple[list[tuple[Shape, np.dtype]], T] | None:
        if (found := find()) is None:
            return None
        mine.extend(found[0])
        return [(x.shape, x.dtype) for x in mine], found[1]

    known = {rank: x for rank, x in enumerate(agreed(comm, layout)) if x is not None}
    form = same_on_all({rank: form for rank, (form, _) in known.items()})
    dtype = np.result_type(*(dtype for _, dtype in form)) if form else np.dtype(float)
    ends = np.cumsum([0, *(prod(shape) for shape, _ in form)])
    sent = np.zeros(ends[-1], dtype)
    for x, start, end in zip(mine, ends[:-1], ends[1:], strict=bool(mine)):
        sent[start:end] = x.reshape(-1)
    total = collective(comm.allreduce, sent)
    parts = zip(form, np.split(total, ends[1:-1]), strict=bool(form))
    arrays = [x.reshape(shape).astype(dtype) for (shape, dtype), x in parts]  # none keeps `total`
    return arrays, [beside for _, beside in known.values()]


def joined_arrays(
    comm: Comm | None, find: Callable[[], np.ndarray | None], axis: int = 0
) -> np.ndarray:
    """The arrays find() of all ranks one after the other along an axis, in one all-reduce.

    A rank without data has None; without a `comm`, there is this array alone. Raises `InputError`
    where there is no array, and where other axes differ.
    """
    mine = list[np.ndarray]()

    def layout() -> tuple[Shape, np.dtype] | None:
        if (found := find()) is None:
            return None
        mine.append(np.moveaxis(found, axis, 0))
        return mine[0].shape, mine[0].dtype

    if comm is None:
        if layout() is None:
            raise InputError("there are no batches")
        return np.moveaxis(mine[0], 0, axis)
    every = agreed(comm, layout)
    known = {rank: form for rank, form in enumerate(every) if form is not None}
    rest = same_on_all({rank: shape[1:] for rank, (shape, _) in known.items()}, "other axes")
    ends = np.cumsum([0, *(form[0][0] if form else 0 for form in every)])
    whole = np.zeros((ends[-1], *rest), np.result_type(*(dtype for _, dtype in known.values())))
    if mine:
        whole[ends[comm.rank] : ends[comm.rank + 1]] = mine[0]
    total = collective(comm.allreduce, whole.reshape(-1))
    return np.moveaxis(total.reshape(whole.shape), 0, axis)


def same_on_all(
    found: dict[int, T], what: str = "arrays", name: str = "rank", show: Callable[[T], str] = str
) -> T:
    """What all ranks with data found, by number; raises `InputError` where it differs.

    `name` is for parts of the data that are no ranks.
    """
    if not found:
        raise InputError(f"no {name} has a batch")
    first, *others = found
    for k in others:
        if found[k] != found[first]:
            one, other = show(found[first]), show(found[k])
            raise InputError(
                f"the {what} of {name} {first} and of {name} {k} differ, {one} and {other}: what "
                f"{name}s compose is of one shape, dtype and name on all of them"
            )
    return found[first]


def collective(send: Callable[[Any], T], value: Any) -> T:
    """The result of a collective; raises `OnnxJacError` where the connection to a rank is lost."""
    try:
        return send(value)
    except RuntimeError as error:  # the errors of mpi4py, PyTorch and JAX are of this type
        raise OnnxJacError(
            f"a rank did not answer ({first_line(error)}): see whether one of them ended"
        ) from error


def told(error: BaseException) -> tuple[type[OnnxJacError], str]:
    """The type and the text of an error, for other ranks."""
    if isinstance(error, OnnxJacError):
        return type(error), str(error)
    return OnnxJacError, f"{type(error).__name__}: {error}"
