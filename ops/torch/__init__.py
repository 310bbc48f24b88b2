"""Torch: each ONNX operator over tensors of PyTorch, on a CPU or a GPU.

>>> import torch
>>> from onnxjac.ops.torch import tensors as op
>>> op.MatMul(torch.ones(2, 3), torch.ones(3, 1)).tolist()
[[3.0], [3.0]]
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ...jacobians import Jacobian, Shape, dtype_of, shape_of, size
from ...jacobians.arrays import DOUBLE, SINGLE, Array
from ...jacobians.errors import InputError
from ...jacobians.placing import Place
from ..library import ArrayLibrary
from ..numbers.table import FREE, settled
from . import layout, pointwise, products, table  # noqa: F401  (register kernels)
from .table import DTYPES, HOSTED, KERNELS, NUMPY, TABLE, device_of, held_tensor, host, tensor

__all__ = ["Tensors", "bound", "place", "tensors"]

LACKS = "not implemented for"
"""What torch says where it has no kernel for a dtype."""


class Tensors(ArrayLibrary):
    """One method per ONNX operator: inputs by position, attributes by keyword."""

    module, special, kind = torch, torch.special, torch.Tensor
    engine, table, convolves_samples = "torch", TABLE, True
    lacking = (RuntimeError,)  # of which NotImplementedError is one
    device_of = staticmethod(device_of)  # asked for every call

    def operand(self, x: Any, device: Any) -> Any:
        if isinstance(x, torch.Tensor):
            return x if x.device == device else x.to(device)
        return tensor(x, device) if isinstance(x, np.ndarray | np.generic) else x

    def lacks(self, error: Exception) -> bool:
        return isinstance(error, NotImplementedError) or LACKS in str(error)

    def dtype(self, x: Array) -> np.dtype:
        if x.dtype not in NUMPY:
            raise InputError(f"onnxjac does not compute with tensors of {x.dtype}: convert them")
        return NUMPY[x.dtype]

    def host(self, x: Any) -> np.ndarray:
        return host(x)

    def device(self, x: Array) -> Any:
        return x.device

    def take(self, x: Any, device: Any) -> Any:
        return tensor(x, device)

    def cast(self, x: Array, dtype: Any) -> Array:
        known = DTYPES.get(np.dtype(dtype))
        return super().cast(x, dtype) if known is None else x.to(known)

    def full(self, x: Array, shape: Shape, value: Any) -> Array:
        return x.new_full(shape, value)

    def copy(self, x: Array) -> Array:
        return x.clone()

    def place_on(self, device: Any) -> Place:
        return place(device or "cpu")

    def detached(self, x: Array) -> Array:
        return x.detach()

    def shares(self, x: Array, y: Array) -> bool:
        return bool(x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr())

    def promoted(self, *dtypes: np.dtype) -> np.dtype:
        """The common dtype by torch's rules: of whole numbers and floats, the float's."""
        return NUMPY[functools.reduce(torch.promote_types, (DTYPES[dtype] for dtype in dtypes))]

    def joined(self, real: Array, imaginary: Array) -> Array:
        return torch.complex(real, imaginary)

    @torch.no_grad()
    def product(self, J: Jacobian, v: Array, columns: Shape) -> Array:
        return super().product(J, v.detach(), columns).contiguous()

    def inverse(self, a: Array) -> Array:
        found, failed = torch.linalg.inv_ex(a)
        return torch.where(failed[..., None, None] > 0, np.inf, found)

    def exponential(self, a: Array) -> Array:
        return torch.linalg.matrix_exp(a)

    def solve_lower(self, R: Array, B: Array) -> Array:
        return torch.linalg.solve_triangular(R.T, B, upper=False)


FLOATS, TRUTH = {SINGLE, DOUBLE}, np.dtype(bool)

CHECKED_INDICES = 1024
"""From this many indices on, always a tensor, to look for negative ones takes longer than to call
PyTorch."""


@functools.cache
def place(device: Any) -> Place:
    """A device of torch as the place of an operator's arrays."""
    try:
        found = torch.empty(0, device=device).device
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"PyTorch cannot use the device {device!r}: {reason}") from error
    take, hold, random = (
        functools.partial(f, device=found) for f in (tensor, held_tensor, Generator)
    )
    return Place(str(found), take, tensors, random, torch, found, hold)


class Generator:
    """Random numbers on a device, in double precision, by methods as of NumPy's generators."""

    def __init__(self, seed: int, device: Any) -> None:
        drawn = torch.Generator(device).manual_seed(seed)
        self.told: Any = {"generator": drawn, "dtype": torch.float64, "device": device}

    def standard_normal(self, shape: Shape) -> Array:
        """Independent standard normal numbers."""
        return torch.randn(shape, **self.told)

    def random(self, shape: Shape) -> Array:
        """Independent numbers, uniform from 0 to 1."""
        return torch.rand(shape, **self.told)

    def integers(self, low: int, high: int, shape: Shape) -> Array:
        """Independent whole numbers from low to high, without high."""
        return torch.randint(low, high, shape, **self.told)


tensors = Tensors()


def bound(
    name: str, operands: Sequence[Any], known: Sequence[Any], attrs: Mapping[str, Any], shape: Shape
) -> tuple[Callable[..., Any], int]:
    """The function of the first operands of a node, whose first output has this shape, and how many
    it takes.

    `known` are the operands' numbers, None where they vary. Floats in single or double precision,
    and truth values to be converted, go straight to the kernel, everything else through the
    reading, which looks at each operand.
    """
    first, count = operands[:1] if name in HOSTED else operands, len(operands)
    rest = tuple(zip(operands, known, strict=True))[len(first) :]
    dtypes = {None if x is None else dtype_of(x) for x in first}
    told = all(x is None or y is not None for x, y in rest)
    if name in table.INDEXED and {*map(dtype_of, (operands[0], *operands[2:]))} <= FLOATS:
        facts = {"nonnegative": known[1] is not None and (host(known[1]) >= 0).all()}
        if len(operands) > 2:
            facts["blank"] = known[0] is not None and not host(known[0]).any()
        if any(facts.values()) and size(shape_of(operands[1])) >= CHECKED_INDICES:
            return functools.partial(KERNELS[name], **facts, **attrs), count
    if dtypes == {TRUTH} and name in table.OF_TRUTH and (made := table.OF_TRUTH[name](**attrs)):
        return made, count
    if name not in KERNELS or not told or not dtypes <= FLOATS:
        return functools.partial(getattr(tensors, name), **attrs), count
    if len(dtypes) == 1 and name in table.SAME:
        return table.SAME[name](*map(shape_of, first)), count
    if not rest and name not in FREE:
        return functools.partial(KERNELS[name], **attrs), count
    shapes = shape_of(first[0]), shape
    return settled(name, KERNELS, table.STATIC, shapes, known[len(first) :], attrs), 1
