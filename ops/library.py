"""ArrayLibrary: the readings over arrays of other libraries than NumPy, as far as they are alike.

A further library is one folder beside `torch/`: a subclass tells what its arrays are and where, and
has kernels of its own. It has the kernels of `numbers/` that take arrays of any library, if it
names them; every other operator is run on the host by the numbers reading, and its results go back.
NumPy arrays are constants: an operator on constants alone is run by the numbers reading.
"""

from __future__ import annotations

import functools
import inspect
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.linalg

from ..jacobians import Array, Jacobian, Shape, common
from ..jacobians.arrays import wide, zeros
from ..jacobians.lapack import inverse_of_each, solve_lower
from ..jacobians.placing import Place, placed
from ..jacobians.readings import Library
from .node import node_of
from .numbers import numbers
from .numbers import table as numbers_table
from .numbers.table import COUNTED, Kernel, widen_kernel
from .registry import find, full_name


class KernelTable:
    """The kernels of a library.

    Of the operators `hosted`, all operands but the first stay on the host: shapes, axes, a dtype.
    """

    def __init__(self) -> None:
        self.kernels: dict[str, Kernel] = {}
        self.hosted: set[str] = set()

    def kernel(
        self, name: str, *, hosted: bool = False, wide: bool = False
    ) -> Callable[[Kernel], Kernel]:
        """Register a function as the kernel of operator `name`.

        A kernel takes arrays of one device; all operands but the first stay on the host if
        `hosted`. A `wide` kernel computes with halves in float32.
        """

        def enter(function: Kernel) -> Kernel:
            self.kernels[name] = widen_kernel(function, name) if wide else function
            if hosted:
                self.hosted.add(name)
            return function

        return enter

    def share(self, name: str) -> None:
        """Register a kernel of the numbers reading that takes arrays of any library."""
        function = inspect.unwrap(numbers_table.KERNELS[name])
        hosted, wide = name in numbers_table.HOSTED, name in numbers_table.WIDE
        self.kernel(name, hosted=hosted, wide=wide)(function)


class ArrayLibrary(Library):
    """One method per ONNX operator: inputs by position, attributes by keyword."""

    kind: type
    """The type of the arrays."""

    table: KernelTable

    lacking: tuple[type[Exception], ...] = (NotImplementedError,)
    """What kernels raise where they cannot take such arrays; see `lacks`."""

    def __init__(self) -> None:
        self.on_host: set[str] = set()  # the operators that ran there so far

    # -- what a library tells -----------------------------------------------------------------

    @abstractmethod
    def device(self, x: Array) -> Any:
        """Where an array is: something that can be hashed."""

    @abstractmethod
    def take(self, x: Any, device: Any) -> Any:
        """A NumPy array, or an array of the library, on a device; as it is in a foreign dtype."""

    def lacks(self, error: Exception) -> bool:
        """Whether this error of a kernel means that NumPy computes the operator."""
        return True

    def shares(self, x: Array, y: Array) -> bool:
        """Whether two arrays share memory that may be written to."""
        return x is y

    def promoted(self, *dtypes: np.dtype) -> np.dtype:
        """The common dtype."""
        return common(*dtypes)

    def joined(self, real: Array, imaginary: Array) -> Array:
        """real + i · imaginary."""
        return real + 1j * imaginary

    # -- what follows -------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Callable[..., Any]:
        getattr(numbers, name)  # raises an error where ONNX has no such operator
        made = vars(self)[name] = functools.partial(self.call, name)
        return made

    def device_of(self, inputs: Iterable[Any]) -> Any:
        """The device of the first array of the library; None without one."""
        return next((self.device(x) for x in inputs if isinstance(x, self.kind)), None)

    def operand(self, x: Any, device: Any) -> Any:
        """An array on a device; a number, a shape or an absent operand as it is."""
        if isinstance(x, self.kind):
            return x if self.device(x) == device else self.take(x, device)
        return self.take(x, device) if isinstance(x, np.ndarray | np.generic) else x

    def call(self, op_type: str, *inputs: Any, **attrs: Any) -> Any:
        """The result of an operator: of NumPy where all inputs are constants."""
        device = self.device_of(inputs)
        if device is None:
            return getattr(numbers, op_type)(*inputs, **attrs)
        function = self.table.kernels.get(op_type)
        if function is not None:
            moved = inputs[:1] if op_type in self.table.hosted else inputs
            operands = [self.operand(x, device) for x in moved]
            if not any(isinstance(x, np.ndarray) for x in operands):
                try:
                    return function(*operands, *inputs[len(moved) :], **attrs)
                except self.lacking as error:
                    if not self.lacks(error):
                        raise
        return self.by_numbers(op_type, getattr(numbers, op_type), *inputs, **attrs)

    def by_numbers(
        self, name: str, function: Callable[..., Any], *inputs: Any, **attrs: Any
    ) -> Any:
        """The result of a function of NumPy arrays, moved to the device of the inputs."""
        self.on_host.add(name)
        arrays = (self.host(x) if isinstance(x, self.kind) else x for x in inputs)
        made, device = function(*arrays, **attrs), self.device_of(inputs)
        if isinstance(made, tuple):
            return tuple(self.operand(y, device) for y in made)
        return self.operand(made, device)

    def run(
        self, op_type: str, inputs: Sequence[Any], attrs: Mapping[str, Any], *,
        domain: str = "", version: int = 21, outputs: int = 1,
    ) -> tuple[Any, ...]:  # fmt: skip
        """The outputs of one node of a model."""
        told = {"domain": domain, "version": version, "outputs": outputs}
        if self.device_of(inputs) is None:
            return numbers.run(op_type, inputs, attrs, **told)  # type: ignore[arg-type]
        name = full_name(op_type, domain)
        if "::" in name and name in numbers_table.TENSORS:  # it may have changed
            self.table.share(name)
        if name in self.table.kernels:
            counted = {"outputs": outputs} if name in COUNTED else {}
            made = self.call(name, *inputs, **attrs, **counted)
            return made[:outputs] if isinstance(made, tuple) else (made,)
        if (declared := find(op_type, domain)) and declared.definition:
            node = node_of(op_type, inputs, attrs, domain, version, outputs)
            return tuple(declared.definition(self, node))[:outputs]

        def run(*arrays: Any) -> tuple[Any, ...]:
            return numbers.run(op_type, arrays, attrs, **told)  # type: ignore[arg-type]

        return tuple(self.by_numbers(op_type, run, *inputs))

    def place(self, x: Array) -> Place:
        return self.place_on(self.device(x))

    def product(self, J: Jacobian, v: Array, columns: Shape) -> Array:
        """J v for flat arrays, (*columns, n) to (*columns, m), as an array of the caller's."""
        there, shape, kind = placed(J, self.place(v)), (*columns, J.shape[0]), self.dtype(v)
        if kind.kind == "c" and J.dtype.kind != "c":
            return self.joined(*(self.product(J, part, columns) for part in (v.real, v.imag)))
        dtype = self.promoted(J.dtype, kind)
        if 0 in v.shape:
            return self.take(zeros(shape, dtype).copy(), self.device(v))
        x = self.cast(v, wide(J.dtype)).reshape((*columns, *there.in_shape))
        y = self.operand(there._apply(self, x), self.device(v))
        y = self.cast(y.reshape(shape), dtype)
        return self.copy(y) if self.shares(y, v) else y

    def full(self, x: Array, shape: Shape, value: Any) -> Array:
        return self.take(np.full(shape, value, self.dtype(x)), self.device(x))

    def copy(self, x: Array) -> Array:
        return self.module.copy(x)

    def inverse(self, a: Array) -> Array:
        return self.by_numbers("Inverse", inverse_of_each, a)

    def exponential(self, a: Array) -> Array:
        return self.by_numbers("Exponential", scipy.linalg.expm, a)

    def solve_lower(self, R: Array, B: Array) -> Array:
        return self.by_numbers("Solve", solve_lower, R, B)
