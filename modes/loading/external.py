"""External data: the weights that a model keeps in files of their own, read into memory.

A file that is mapped instead costs no memory until it is needed; but whoever writes to it changes
the weights of a loaded model, and who cuts it short ends the process that looks at them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeGuard

import numpy as np
import onnx_ir as ir

from ...jacobians.errors import LoadError
from .weights import Weights

BLOCK = 512
"""Bytes in which the system counts what a file takes."""


def in_memory(weights: Weights) -> Weights:
    """The weights, those in files read; mapped stays what would take more than its files do.

    Tensors that share their bytes, or lie in a hole of a file, could fill any memory.
    """
    mapped = [tensor for tensor in weights.values() if is_mapped(tensor)]
    if sum(tensor.nbytes for tensor in mapped) > bytes_of({tensor.path for tensor in mapped}):
        return weights
    return {name: read(tensor) if is_mapped(tensor) else tensor for name, tensor in weights.items()}


def is_mapped(tensor: ir.TensorProtocol) -> TypeGuard[ir.ExternalTensor]:
    """Whether a tensor looks into a file; one of less than a byte a number was unpacked."""
    return isinstance(tensor, ir.ExternalTensor) and tensor.dtype.bitwidth >= 8


def bytes_of(paths: Iterable[str]) -> int:
    """What files take on the disk; what they hold, where the system does not say."""
    try:
        found = [os.stat(path) for path in paths]
    except OSError as error:
        raise LoadError(f"the data of the model cannot be read: {error}.") from error
    return sum(getattr(s, "st_blocks", 0) * BLOCK or s.st_size for s in found)


def read(tensor: ir.ExternalTensor) -> ir.Tensor:
    """A tensor out of its file."""
    dtype = tensor.dtype.numpy()
    try:
        flat = np.fromfile(
            tensor.path, dtype.newbyteorder("<"), tensor.size, offset=tensor.offset or 0
        )
    except (OSError, MemoryError) as error:
        raise LoadError(
            f"the data of {tensor.name!r} cannot be read: {error}; oj.load(..., mmap=True) maps it."
        ) from error
    if flat.size < tensor.size:
        raise LoadError(f"the data of {tensor.name!r} cannot be read: {tensor.path!r} has changed.")
    array = flat.astype(dtype, copy=False).reshape(tensor.shape.numpy())
    tensor.release()
    return ir.Tensor(array, dtype=tensor.dtype, name=tensor.name)
