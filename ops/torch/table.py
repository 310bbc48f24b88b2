"""The table of torch kernels, and how arrays and dtypes come from NumPy and go back.

Shapes, axes and other numbers that a kernel decides by stay on the host, as Python's or NumPy's. An
array of a dtype that torch cannot compute with stays NumPy's too, a constant of this reading.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakValueDictionary

import ml_dtypes
import numpy as np
import torch

from ...jacobians.arrays import Array
from ..library import KernelTable
from ..numbers import table as numbers_table
from ..numbers.table import Kernel

Tensor = Any

TABLE = KernelTable()
KERNELS, HOSTED = TABLE.kernels, TABLE.hosted
INDEXED: set[str] = set()
"""The operators whose kernels can be told that the second operand, indices, is `nonnegative`; and
with updates, the third one, that the first one is `blank`: zeros."""
STATIC: dict[str, Kernel] = {}
"""Hosted operator -> (shape of x, *operands on the host) ↦ its kernel at these."""
SAME: dict[str, Kernel] = {}
"""Operator -> the shapes of its operands, tensors of one float dtype ↦ the function of torch."""
OF_TRUTH: dict[str, Kernel] = {}
"""Operator -> its attributes ↦ the function of a tensor of truth values, if torch has it."""

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)

DTYPES: dict[np.dtype, torch.dtype] = {
    **{np.dtype(name): getattr(torch, name) for name in (
        "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64",
        "complex64", "complex128",
    )},
    BFLOAT16: torch.bfloat16,
}  # fmt: skip
NUMPY = {known: dtype for dtype, known in DTYPES.items()}


def kernel(
    name: str, *, hosted: bool = False, wide: bool = False, indexed: bool = False
) -> Callable[[Kernel], Kernel]:
    """Register a function as the kernel of operator `name`, as `Table.kernel`.

    An `indexed` one takes `nonnegative`: no index counts from the end. Looking for such indices
    takes as long as reading the entries.
    """
    if indexed:
        INDEXED.add(name)
    return TABLE.kernel(name, hosted=hosted, wide=wide)


def promote(*operands: Any) -> tuple[Any, ...]:
    """Tensors of one dtype, the one that NumPy would promote them to; numbers as they are."""
    dtypes = {x.dtype for x in operands if isinstance(x, torch.Tensor)}
    if len(dtypes) < 2:
        return operands
    dtype = functools.reduce(torch.promote_types, dtypes)
    return tuple(x.to(dtype) if isinstance(x, torch.Tensor) else x for x in operands)


class Writable:
    """A view of an array for torch, which warns of memory that is read-only, and never writes."""

    def __init__(self, array: np.ndarray) -> None:
        told, (address, _) = array.__array_interface__, array.__array_interface__["data"]
        self.array, self.__array_interface__ = array, {**told, "data": (address, False)}


def tensor(x: Any, device: Any) -> Any:
    """An array as a tensor on a device; memory is shared on the CPU, where strides allow it.

    An array whose dtype torch does not have is returned as it is.
    """
    if isinstance(x, torch.Tensor):
        return x.to(device)
    x = np.asarray(x)
    dtype = DTYPES.get(x.dtype)
    if dtype is None:
        return x
    x = x.view(np.int16) if x.dtype == BFLOAT16 else x
    if not x.size or any(step < 0 or step % x.itemsize for step in x.strides):
        x = x.copy()
    if not x.flags.writeable:
        x = np.asarray(Writable(x))
    made = torch.from_numpy(x)
    return (made.view(dtype) if made.dtype != dtype else made).to(device)


CONSTANTS: WeakValueDictionary[Any, Tensor] = WeakValueDictionary()
"""The memory of an array that a model holds, and a device -> the tensor there."""


def held_tensor(x: Any, device: Any) -> Any:
    """An array that nobody writes to as a tensor: a part of the model's, if there is one."""
    known = CONSTANTS.get(memory(x, device)) if CONSTANTS and isinstance(x, np.ndarray) else None
    return tensor(x, device) if known is None else known.permute(np.argsort(outwards(x)).tolist())


def shared_constant(x: Any, device: Any) -> Any:
    """An array that a model holds as a tensor, which is one for all programs that read it."""
    made = held_tensor(x, device)
    if isinstance(x, np.ndarray) and isinstance(made, torch.Tensor) and made.device.type != "cpu":
        whole = made.permute(outwards(x))
        whole.source, made.source = x, whole  # as long as there is one, there is the other
        CONSTANTS.setdefault(memory(x, device), whole)
    return made


def memory(x: np.ndarray, device: Any) -> tuple[Any, ...]:
    """Where the entries of x are, in whatever order of its axes, and a device."""
    axes = tuple((x.strides[axis], x.shape[axis]) for axis in outwards(x))
    return str(device), x.__array_interface__["data"][0], x.dtype, axes


def outwards(x: np.ndarray) -> list[int]:
    """The axes of x by their strides, the longest stride first."""
    return sorted(range(x.ndim), key=lambda axis: -x.strides[axis])


def host(x: Any) -> Any:
    """A tensor as a NumPy array, which shares its memory on the CPU; anything else as it is."""
    if not isinstance(x, torch.Tensor):
        return x
    x = x.detach().cpu()
    if x.dtype == torch.bfloat16:
        return x.contiguous().view(torch.int16).numpy().view(BFLOAT16)
    return x.resolve_conj().resolve_neg().numpy()


def device_of(inputs: Iterable[Array]) -> Any:
    """The device of the first tensor; a graphics card before the CPU; None without a tensor."""
    found = None
    for x in inputs:
        if isinstance(x, torch.Tensor) and (found is None or found.type == "cpu"):
            found = x.device
    return found


for known in numbers_table.TENSORS:
    TABLE.share(known)
