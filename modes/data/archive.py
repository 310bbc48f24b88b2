"""Archive: the arrays of an `.npz` file, mapped into memory and not read."""

from __future__ import annotations

from struct import unpack_from
from typing import IO
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import numpy as np
from numpy.lib import format as npy

from ...jacobians.errors import InputError

HEADER = 30
"""Bytes of a local header in a zip file, before the name and the extra field."""


def mapped(path: str) -> dict[str, np.ndarray]:
    """name -> memory-mapped array, for every array of the file.

    Raises `InputError` where they are compressed: these can only be read as a whole.
    """
    try:
        with ZipFile(path) as archive:
            members = archive.infolist()
        with open(path, "rb") as file:
            return {m.filename.removesuffix(".npy"): _member(file, m) for m in members}
    except (OSError, BadZipFile) as error:
        raise InputError(f"{path!r} is not an .npz file that can be read: {error}") from error


def _member(file: IO[bytes], member: ZipInfo) -> np.ndarray:
    """One array, where it lies in the file."""
    if member.compress_type != ZIP_STORED:
        raise InputError(f"{member.filename!r} is compressed: write the file with np.savez")
    file.seek(member.header_offset)
    name, extra = unpack_from("<HH", file.read(HEADER), HEADER - 4)
    file.seek(member.header_offset + HEADER + name + extra)
    version = npy.read_magic(file)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, fortran, dtype = read(file)
    if 0 in shape or not shape:  # nothing to map; a scalar is shared by all batches
        return np.fromfile(file, dtype, count=int(np.prod(shape))).reshape(shape)
    return np.memmap(file.name, dtype, "r", file.tell(), shape, "F" if fortran else "C")
