"""Numbers: each ONNX operator as a function of NumPy arrays.

>>> from onnxjac.ops.numbers import numbers as op
>>> op.MatMul(np.ones((2, 3)), np.ones((3, 1))).tolist()
[[3.0], [3.0]]
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx.defs
import scipy.linalg
import scipy.special

from ...jacobians import Array, Jacobian, Shape
from ...jacobians.errors import closest
from ...jacobians.lapack import inverse_of_each, solve_lower
from ...jacobians.placing import HOST, Place
from ...jacobians.readings import Library
from ..node import node_of
from ..registry import find, full_name
from . import convolution, indexing, layout, matmul, pointwise, reductions  # noqa: F401  (register kernels)
from .table import COUNTED, KERNELS, run_reference

__all__ = ["Numbers", "numbers"]


class Numbers(Library):
    """One method per ONNX operator: inputs by position, attributes by keyword."""

    module, special, engine, keeps = np, scipy.special, "numpy", False

    def __init__(self) -> None:
        vars(self).update(KERNELS)  # instance attributes bypass __getattr__

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """The kernel of an operator, or the reference implementation of ONNX."""
        if name in KERNELS:  # entered since this reading was made
            return vars(self).setdefault(name, KERNELS[name])
        if not (name[0].isupper() and (onnx.defs.has(name) or find(name))):
            raise AttributeError(f"ONNX has no operator {name!r}.{closest(name, KERNELS)}")
        return functools.partial(by_reference, name)

    def call(self, op_type: str, *inputs: Any, **attrs: Any) -> Any:
        return getattr(self, op_type)(*inputs, **attrs)

    def dtype(self, x: Array) -> np.dtype:
        return np.asarray(x).dtype

    def host(self, x: Any) -> np.ndarray:
        return np.asarray(x)

    def place(self, x: Array) -> Place:
        return HOST

    def place_on(self, device: Any) -> Place:
        return HOST

    def full(self, x: Array, shape: Shape, value: Any) -> Array:
        return np.full(shape, value, x.dtype) if value != 0 else np.zeros(shape, x.dtype)

    def copy(self, x: Array) -> Array:
        return np.array(x)

    def by_numbers(
        self, name: str, function: Callable[..., Any], *inputs: Any, **attrs: Any
    ) -> Any:
        return function(*inputs, **attrs)

    def product(self, J: Jacobian, v: Array, columns: Shape) -> Array:
        return J._flat_product(np.asarray(v), columns)

    def inverse(self, a: Array) -> Array:
        return inverse_of_each(a)

    def exponential(self, a: Array) -> Array:
        return scipy.linalg.expm(a)

    def solve_lower(self, R: Array, B: Array) -> Array:
        return solve_lower(R, B)

    def run(
        self, op_type: str, inputs: Sequence[Any], attrs: Mapping[str, Any], *,
        domain: str = "", version: int = 21, outputs: int = 1,
    ) -> tuple[Any, ...]:  # fmt: skip
        """The outputs of one node of a model."""
        name = full_name(op_type, domain)
        kernel = KERNELS.get(name)
        if kernel is None:
            if (declared := find(op_type, domain)) and declared.definition:
                node = node_of(op_type, inputs, attrs, domain, version, outputs)
                return tuple(declared.definition(self, node))[:outputs]
            return run_reference(
                op_type, inputs, attrs, domain=domain, version=version, outputs=outputs
            )
        counted = {"outputs": outputs} if name in COUNTED else {}
        result = kernel(*inputs, **attrs, **counted)
        return result[:outputs] if isinstance(result, tuple) else (result,)


def by_reference(op_type: str, *inputs: Any, outputs: int = 1, **attributes: Any) -> Any:
    """An operator of the default domain without a kernel, in its newest version."""
    arrays = [None if x is None else np.asarray(x) for x in inputs]
    version = onnx.defs.onnx_opset_version()
    results = numbers.run(op_type, arrays, attributes, version=version, outputs=outputs)
    return results if len(results) > 1 else results[0]


numbers = Numbers()
