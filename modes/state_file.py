"""State file: the arrays of a work in an npz file, read without trust and replaced as a whole.

Nothing is unpickled. States are mapped, and copied only where they are no larger than what the work
holds anyway: no size that a file claims takes memory.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final
from zipfile import ZipFile, ZipInfo

import numpy as np
from numpy.lib import format as npy

from ..jacobians.arrays import dtype_of, like, shape_of
from ..jacobians.errors import InputError, first_line
from ..jacobians.readings import is_kept
from .data.batches import map_npz
from .model.save import refusals

FORMAT = 1
"""The format of the files; other formats are refused."""

ABOUT = "about"
"""The array of a file that is JSON: the format, the work, and how arrays were laid out."""

ABOUT_BYTES = 2**26
"""The most bytes of this array that are read."""


@final
@dataclass
class FileContents:
    """What a file has; `states` are the arrays of its loops, as they lie on the disk."""

    kind: str
    options: dict[str, Any]
    count: int
    checks: dict[str, np.ndarray]
    states: list[tuple[str, list[np.ndarray]]]
    mark: list[int]
    """The checksums of its arrays."""

    @classmethod
    def read(cls, file: Path) -> FileContents:
        """The contents of a file, of which no array is read yet; raises `InputError`."""
        try:
            arrays = map_npz(os.fspath(file))
            with ZipFile(file) as archive:
                if archive.testzip() is not None:
                    raise InputError("it is damaged")
                mark = [member.CRC for member in archive.infolist()]
            if arrays[ABOUT].nbytes > ABOUT_BYTES:
                raise InputError("its description is too long")
            about = json.loads(arrays[ABOUT].tobytes())
            if about["format"] != FORMAT:
                raise InputError(f"its format is {about['format']!r}, not {FORMAT}")
            states = [(str(name), [arrays[f"{d}.{i}"].transpose(np.argsort(axes).astype(int))
                                   for i, axes in enumerate(layouts)])
                      for d, (name, layouts) in enumerate(about["loops"])]  # fmt: skip
            checks = {str(name): np.array(arrays[f"check{i}"])
                      for i, name in enumerate(about["checks"])}  # fmt: skip
            return cls(about["work"], dict(about["options"]), int(about["count"]), checks, states,
                       mark)  # fmt: skip
        except Exception as error:  # whatever torn or foreign files make the readers raise
            raise InputError(
                f"{os.fspath(file)!r} is no file that a ResumeFile wrote, or not all of one "
                f"({first_line(error)}): remove it, or give a file of another name"
            ) from error

    def next(self, path: str, name: str, start: tuple[Any, ...]) -> tuple[Any, ...]:
        """The state of the next loop; raises `InputError` where it is not like the start."""
        known, found = self.states.pop(0)
        if known != name or len(found) != len(start) or not all(map(fits_into, found, start)):
            raise InputError(f"{path} has no state of this work: remove it, or give a file of "
                             "another name")  # fmt: skip
        return tuple(map(put_into, found, start))


def fits_into(found: np.ndarray, start: Any) -> bool:
    """Whether an array of a file has the dtype of the start, and is nowhere longer."""
    start = np.asarray(start) if is_python_number(start) else start
    shape = shape_of(start)
    alike = found.dtype == dtype_in_file(dtype_of(start)) and found.ndim == len(shape)
    return alike and all(n <= m for n, m in zip(found.shape, shape, strict=True))


def put_into(found: np.ndarray, start: Any) -> Any:
    """An array of a file as the start is: a number, an array in its own layout, or a tensor."""
    if is_python_number(start):
        return type(start)(found[()])
    array = np.array(found).view(dtype_of(start))
    if array.shape == shape_of(start):
        return like(array, start) if is_kept(start) else array[()] if not array.ndim else array
    start[tuple(map(slice, array.shape))] = like(array, start) if is_kept(start) else array
    return start


def is_python_number(x: Any) -> bool:
    """Whether x is a bool, an int or a float, and not a scalar of NumPy."""
    return type(x) in (bool, int, float)


def dtype_in_file(dtype: np.dtype) -> np.dtype:
    """The dtype in a file: dtypes that are not NumPy's own, such as bfloat16, as bits."""
    return dtype if dtype.isbuiltin == 1 else np.dtype(f"u{dtype.itemsize}")


def as_written(x: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """An array as it is written, with its axes from the longest stride to the shortest: products of
    BLAS round by the layout of their arrays.

    >>> as_written(np.zeros((2, 3)).T)[1]
    [1, 0]
    """
    axes = sorted(range(x.ndim), key=lambda axis: -abs(x.strides[axis]))
    return x.view(dtype_in_file(x.dtype)).transpose(axes), axes


def replace_file(path: Path, arrays: Iterator[tuple[str, np.ndarray]]) -> None:
    """Write an npz file of arrays by name, one by one, which then takes the place of the old one.

    It holds no time of writing. Raises `OnnxJacError` where it cannot be written.
    """
    target = path.resolve()  # a link stays, and leads to the new file
    draft = target.with_name(f"{target.name}.part")
    with refusals(path):
        with open(draft, "wb") as file:
            with ZipFile(file, "w") as archive:
                for name, array in arrays:
                    with archive.open(ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                        npy.write_array(member, array, allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, target)
