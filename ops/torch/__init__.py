"""Torch: each ONNX operator over tensors of PyTorch, on a CPU or a GPU.

>>> import torch
>>> from onnxjac.ops.torch import tensors as op
>>> op.MatMul(torch.ones(2, 3), torch.ones(3, 1)).tolist()
[[3.0], [3.0]]

NumPy arrays are constants: an operator on constants alone is run by the numbers reading. An
operator without a kernel here runs on the host by the numbers reading, and its results go back.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ...jacobians import Jacobian, Shape, dtype_of, shape_of, size
from ...jacobians.arrays import DOUBLE, SINGLE, Array, reading, wide
from ...jacobians.errors import InputError
from ...jacobians.placing import Place, placed
from ..node import node_of
from ..numbers import numbers
from ..numbers.table import COUNTED, FREE, TENSORS, settled
from ..registry import find, full_name
from . import layout, pointwise, products, table  # noqa: F401  (register kernels)
from .table import DTYPES, HOSTED, KERNELS, NUMPY, device_of, held, host, shared, tensor

__all__ = ["Tensors", "bound", "place", "tensors"]


class Tensors:
    """One method per ONNX operator: inputs by position, attributes by keyword."""

    convolves_samples = True

    def __init__(self) -> None:
        self.on_host: set[str] = set()  # the operators that ran there so far

    def __getattr__(self, name: str) -> Callable[..., Any]:
        getattr(numbers, name)  # raises an error where ONNX has no such operator
        made = vars(self)[name] = functools.partial(self.call, name)
        return made

    def call(self, op_type: str, *inputs: Any, **attrs: Any) -> Any:
        """The result of an operator: tensors, or arrays where no tensor is involved."""
        device = device_of(inputs)
        if device is None:
            return getattr(numbers, op_type)(*inputs, **attrs)
        function = KERNELS.get(op_type)
        if function is not None:
            moved = inputs[:1] if op_type in HOSTED else inputs
            operands = [operand(x, device) for x in moved]
            if not any(isinstance(x, np.ndarray) for x in operands):
                try:
                    return function(*operands, *inputs[len(moved) :], **attrs)
                except RuntimeError as error:  # of which NotImplementedError is one
                    if not isinstance(error, NotImplementedError) and LACKS not in str(error):
                        raise
        return self.by_numbers(op_type, getattr(numbers, op_type), *inputs, **attrs)

    def by_numbers(
        self, name: str, function: Callable[..., Any], *inputs: Any, **attrs: Any
    ) -> Any:
        """The result of a function of NumPy arrays, moved to the device of the inputs."""
        self.on_host.add(name)
        made, device = function(*map(host, inputs), **attrs), device_of(inputs)
        if isinstance(made, tuple):
            return tuple(operand(y, device) for y in made)
        return operand(made, device)

    def run(
        self, op_type: str, inputs: Sequence[Any], attrs: Mapping[str, Any], *,
        domain: str = "", version: int = 21, outputs: int = 1,
    ) -> tuple[Any, ...]:  # fmt: skip
        """The outputs of one node of a model."""
        device, told = device_of(inputs), {"domain": domain, "version": version, "outputs": outputs}
        if device is None:
            return numbers.run(op_type, inputs, attrs, **told)  # type: ignore[arg-type]
        name = full_name(op_type, domain)
        if "::" in name and name in TENSORS:  # it may have changed
            shared(name)
        if name in KERNELS:
            counted = {"outputs": outputs} if name in COUNTED else {}
            made = self.call(name, *inputs, **attrs, **counted)
            return made[:outputs] if isinstance(made, tuple) else (made,)
        if (declared := find(op_type, domain)) and declared.definition:
            node = node_of(op_type, inputs, attrs, domain, version, outputs)
            return tuple(declared.definition(self, node))[:outputs]

        def run(*arrays: Any) -> tuple[Any, ...]:
            return numbers.run(op_type, arrays, attrs, **told)  # type: ignore[arg-type]

        return tuple(self.by_numbers(op_type, run, *inputs))

    def dtype(self, x: Array) -> np.dtype:
        if x.dtype not in NUMPY:
            raise InputError(f"onnxjac does not compute with tensors of {x.dtype}: convert them")
        return NUMPY[x.dtype]

    def host(self, x: Array) -> np.ndarray:
        return host(x)

    def place(self, device: Any) -> Place:
        return place(device)

    @torch.no_grad()
    def product(self, J: Jacobian, v: Array, columns: Shape) -> Array:
        """J v for flat tensors, (*columns, n) to (*columns, m), as a tensor of the caller's."""
        v, there = v.detach(), placed(J, place(v.device))
        if v.is_complex() and J.dtype.kind != "c":
            real, imaginary = (self.product(J, part, columns) for part in (v.real, v.imag))
            return torch.complex(real, imaginary)
        dtype = torch.promote_types(DTYPES[J.dtype], DTYPES[self.dtype(v)])
        if not v.numel():
            return v.new_zeros((*columns, J.shape[0]), dtype=dtype)
        x = v.to(DTYPES[wide(J.dtype)]).reshape((*columns, *there.in_shape))
        y = operand(there._apply(self, x), v.device)
        y = y.reshape((*columns, J.shape[0])).to(dtype).contiguous()
        own = y.untyped_storage().data_ptr() != v.untyped_storage().data_ptr()
        return y if own else y.clone()


FLOATS, TRUTH = {SINGLE, DOUBLE}, np.dtype(bool)

MANY = 1024
"""From this many indices on, always a tensor, to look for negative ones takes longer than to call
PyTorch."""

LACKS = "not implemented for"
"""What torch says where it has no kernel for a dtype."""


def operand(x: Any, device: Any) -> Any:
    """An array as a tensor on a device; a number, a shape or an absent operand as it is."""
    if isinstance(x, torch.Tensor):
        return x if x.device == device else x.to(device)
    return tensor(x, device) if isinstance(x, np.ndarray | np.generic) else x


@functools.cache
def place(device: Any) -> Place:
    """A device of torch as the place of an operator's arrays."""
    try:
        found = torch.empty(0, device=device).device
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"PyTorch cannot use the device {device!r}: {reason}") from error
    take, hold, random = (functools.partial(f, device=found) for f in (tensor, held, Generator))
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


@reading.register
def _(array: torch.Tensor) -> Tensors:
    return tensors


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
        if any(facts.values()) and size(shape_of(operands[1])) >= MANY:
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
