"""Batches: what counts as data, and passes over it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from numbers import Real
from os import PathLike
from struct import unpack_from
from typing import IO, Any, final
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import numpy as np
from numpy.lib import format as npy

from ...jacobians.arrays import is_foreign
from ...jacobians.errors import InputError

Batch = Mapping[str, Any]
"""The inputs of a model by name, for some samples."""


class Batches(ABC):
    """The batches of a data set; every pass starts anew, and holds at most one batch."""

    @abstractmethod
    def __iter__(self) -> Iterator[Batch]:
        """A fresh pass."""

    @property
    def count(self) -> int | None:
        """The number of batches, or None if it takes a pass to count them."""
        return None

    def counted(self) -> int:
        """The number of batches, by a pass over them if need be."""
        return sum(1 for _ in self) if self.count is None else self.count

    def part(self, start: int, stop: int) -> Batches:
        """Batches `start` to `stop`."""
        return DataSlice(self, start, stop)


@final
@dataclass(frozen=True)
class DataSlice(Batches):
    """Consecutive batches of other data."""

    whole: Batches
    start: int
    stop: int

    def __iter__(self) -> Iterator[Batch]:
        return islice(self.whole, self.start, self.stop)


@final
@dataclass(frozen=True)
class Listed(Batches):
    """Batches in a list."""

    batches: tuple[Batch, ...]

    def __iter__(self) -> Iterator[Batch]:
        return iter(self.batches)

    @property
    def count(self) -> int | None:
        return len(self.batches)

    def part(self, start: int, stop: int) -> Batches:
        return Listed(self.batches[start:stop])


@final
@dataclass(frozen=True)
class Made(Batches):
    """Batches from a function that is called in every pass, such as a generator function."""

    make: Callable[[], Iterable[Batch]]

    def __iter__(self) -> Iterator[Batch]:
        made = self.make()
        if not isinstance(made, Iterable):
            raise InputError(f"the function that makes batches returned {type(made).__name__}, "
                             "not an iterator")  # fmt: skip
        return iter(made)


@final
@dataclass(frozen=True)
class MappedRows(Batches):
    """Consecutive blocks of `batch_size` rows of arrays, which may be memory-mapped.

    The last batch may be smaller. A scalar is the same in every batch.
    """

    arrays: Mapping[str, np.ndarray]
    batch_size: int

    def __iter__(self) -> Iterator[Batch]:
        for start in range(0, samples(self.arrays), self.batch_size):
            yield self._rows(start, start + self.batch_size)

    @property
    def count(self) -> int | None:
        return -(-samples(self.arrays) // self.batch_size)

    def part(self, start: int, stop: int) -> Batches:
        return MappedRows(
            self._rows(start * self.batch_size, stop * self.batch_size), self.batch_size
        )

    def _rows(self, start: int, stop: int) -> dict[str, np.ndarray]:
        return {name: a[start:stop] if np.ndim(a) else a for name, a in self.arrays.items()}


def npz_rows(path: str, batch_size: int) -> MappedRows:
    """Blocks of rows of an `.npz` file, which every pass opens; workers receive only its path."""
    return MappedRows(map_npz(path), batch_size)


def samples(batch: Batch) -> int:
    """The length of the first axis, which all tensors of a batch share, except scalars.

    >>> samples({"x": np.zeros((5, 2)), "y": np.zeros(5), "rate": 0.1})
    5
    """
    lengths = {name: np.shape(a)[0] for name, a in as_batch(batch).items() if np.ndim(a)}
    if len(set(lengths.values())) != 1:
        shown = ", ".join(f"{name!r}: {n}" for name, n in lengths.items()) or "only scalars"
        raise InputError(f"a batch has no common number of samples ({shown}): say it with size=")
    return next(iter(lengths.values()))


def as_batch(batch: Any) -> Batch:
    """The batch itself; raises `InputError` if it is not a mapping, such as a PyTorch tuple."""
    if not isinstance(batch, Mapping):
        raise InputError(f"a batch is a dict from name to array, not {type(batch).__name__}: a "
                         "point is {'x': x}, and what a loader gives is named by a function, "
                         "lambda: ({'x': x} for x, _ in loader)")  # fmt: skip
    return batch


def is_data(inputs: Any, batch_size: int | None = None) -> bool:
    """Whether inputs are data: with a `batch_size`, or neither a mapping nor an array.

    Raises `InputError` for a list or tuple of anything but mappings.
    """
    if batch_size is not None:
        return True
    if isinstance(inputs, list | tuple):
        first: Any = next(iter(inputs), {})
        if hasattr(first, "dtype") or is_foreign(first) or isinstance(first, list | Real):
            return False  # arrays in the order of the inputs, or an array
        as_batch(first)
    path = isinstance(inputs, str | PathLike)
    return not (path or isinstance(inputs, Mapping | np.ndarray | Real) or is_foreign(inputs))


def batches_of(data: Any, batch_size: int | None = None) -> Batches:
    """The batches in a mapping, a list of mappings, a function that returns an iterator, or a path.

    A mapping is one batch, or, with `batch_size`, arrays that are split along their first axis; the
    path of an `.npz` file needs a `batch_size` too.

    >>> [samples(batch) for batch in batches_of({"x": np.zeros((5, 2))}, batch_size=2)]
    [2, 2, 1]
    """
    if isinstance(data, str | PathLike):
        if batch_size is None:
            raise InputError("an .npz file needs batch_size=")
        return Made(partial(npz_rows, str(data), batch_size))
    if isinstance(data, Mapping):
        return Listed((data,)) if batch_size is None else MappedRows(data, batch_size)
    if batch_size is not None:
        raise InputError("batch_size= cuts arrays by name or an .npz file; other data is cut")
    if isinstance(data, Batches):
        return data
    if isinstance(data, list | tuple):
        return Listed(tuple(data))
    if callable(data):
        return Made(data)
    if isinstance(data, Iterator):
        raise InputError("an iterator can be read once only: give the function that makes it")
    if isinstance(data, Iterable):  # a data loader: every iter() is a pass
        return Made(data.__iter__)
    raise InputError(f"data is a dict, a list, a function or a path, not a {type(data).__name__}")


HEADER = 30
"""The length of a local header in a zip file, before the name and the extra field."""


def map_npz(path: str) -> dict[str, np.ndarray]:
    """name -> memory-mapped array, for every array of an `.npz` file.

    Raises `InputError` for compressed arrays, which can only be read as a whole, for arrays of
    Python objects, and for members that are no arrays.
    """
    try:
        with ZipFile(path) as archive:
            members = archive.infolist()
        with open(path, "rb") as file:
            return {m.filename.removesuffix(".npy"): _member(file, m) for m in members}
    except (OSError, BadZipFile) as error:
        raise InputError(f"{path!r} is not an .npz file that can be read: {error}") from error


def _member(file: IO[bytes], member: ZipInfo) -> np.ndarray:
    """One array, mapped at its position in the file."""
    if member.compress_type != ZIP_STORED:
        raise InputError(f"{member.filename!r} is compressed: write the file with np.savez")
    file.seek(member.header_offset)
    name, extra = unpack_from("<HH", file.read(HEADER), HEADER - 4)
    file.seek(member.header_offset + HEADER + name + extra)
    try:
        version = npy.read_magic(file)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = read(file)
    except ValueError as error:
        raise InputError(f"{member.filename!r} in {file.name!r} is no array: write the file with "
                         "np.savez") from error  # fmt: skip
    if dtype.hasobject:  # pointers of another process
        raise InputError(f"{member.filename!r} in {file.name!r} holds Python objects: save numbers")
    if 0 in shape or not shape:  # nothing to map; a scalar is shared by all batches
        return np.fromfile(file, dtype, count=int(np.prod(shape))).reshape(shape)
    return np.memmap(file.name, dtype, "r", file.tell(), shape, "F" if fortran else "C")
