"""Foreign: the arrays of other libraries as NumPy arrays."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from .errors import InputError


def is_foreign(value: Any) -> bool:
    """Whether this is an array of another library."""
    if isinstance(value, np.ndarray | np.generic):
        return False
    return hasattr(value, "__array__") or hasattr(value, "__dlpack__")


def is_tensor(value: Any) -> bool:
    """Whether this is a tensor of PyTorch, which is not imported for that."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, getattr(torch, "Tensor", ()))


def space(x: Any) -> Any:
    """The module with the functions of an array: NumPy, or PyTorch for a tensor."""
    return sys.modules["torch"] if is_tensor(x) else np


def as_array(value: Any, dtype: Any = None) -> np.ndarray:
    """A NumPy array of arrays of any library in main memory, lists of them, or scalars.

    Memory is shared where possible, and never written to. A PyTorch tensor may be on a GPU, or
    require a gradient, which is not tracked. Raises `InputError` for an array that is traced, or of
    another library on another device, and for anything that is not an array.

    >>> as_array([1, 2]), as_array(memoryview(b"ab"))
    (array([1, 2]), array([97, 98], dtype=uint8))
    """
    if isinstance(value, np.ndarray):
        if np.ma.is_masked(value):
            raise InputError("a masked array has entries without a value: give x.filled(...)")
        return np.asarray(value, dtype)
    try:
        return np.asarray(_read(value), dtype)
    except Exception as error:
        raise InputError(f"{_what(value)} cannot be read as an array: {_reason(error)}") from error


def settled(array: np.ndarray) -> np.ndarray:
    """A snapshot of the array: a read-only copy, unless the memory behind it is read-only already.

    >>> x = np.zeros(3)
    >>> once = settled(x)
    >>> once is x, settled(once) is once
    (False, True)
    """
    if is_read_only(array):
        return array
    copy = array.copy()
    copy.flags.writeable = False
    return copy


def is_read_only(memory: Any) -> bool:
    """Whether the memory behind an array is read-only, not just the array that views it.

    >>> is_read_only(np.broadcast_to(np.zeros(3), (2, 3)))
    False
    """
    while isinstance(memory, np.ndarray):
        if memory.flags.writeable or memory.base is None:
            return not memory.flags.writeable
        memory = memory.base
    try:
        return memoryview(memory).readonly
    except TypeError:  # no buffer protocol
        return False


def native(x: Any) -> Any:
    """An array of another library as a NumPy array; anything else unchanged."""
    return as_array(x) if is_foreign(x) else x


def _read(value: Any) -> Any:
    """A value that NumPy can read without needless copies."""
    if isinstance(value, list | tuple) and any(
        is_foreign(part) or isinstance(part, list | tuple) for part in value
    ):
        return [_read(part) for part in value]
    if hasattr(value, "detach"):  # PyTorch does not convert tensors that require a gradient
        value = value.detach()
        value = value.float() if str(value.dtype) == "torch.bfloat16" else value
        return value.numpy(force=is_tensor(value) or str(value.device) == "cpu")  # also from a GPU
    if not hasattr(value, "__array__") and hasattr(value, "__dlpack__"):
        return np.from_dlpack(value)
    return value


def _what(value: Any) -> str:
    kind = f"{type(value).__module__.partition('.')[0]}.{type(value).__name__}"
    return f"a {kind} on {value.device}" if hasattr(value, "device") else f"a {kind}"


def _reason(error: BaseException) -> str:
    """The error of another library in one line, and what to do about it."""
    name, text = type(error).__name__, str(error).strip().partition("\n")[0]
    if name.startswith("Tracer"):
        return "it is traced by JAX; to_jax() gives a function that JAX can trace"
    return f"{text.removesuffix('.') or name}; bring it to the CPU as a plain, dense array"
