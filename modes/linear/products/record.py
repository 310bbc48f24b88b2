"""Record: the product with an operator as a list of ONNX nodes, its residuals as constants.

Rules and operators consist of calls of the vocabulary; with graph values as arguments, one
product becomes a graph. Equal nodes are recorded once, and values that do not depend on v are
computed now.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir

from ....jacobians import Array, Jacobian, Shape, common, dtype_of, shape_of
from ....jacobians.arrays import wide
from ....jacobians.placing import HOST, placed
from ....jacobians.symint import same
from ....jacobians.threads import cached_property
from ....ops.graphs import Recorder
from ....ops.graphs.build import every, operands_of, reachable, subgraphs

OPSET = 21
"""The opset of recorded products and of the vocabulary."""

LARGE = 2**20
"""Bytes from which a matrix and its transpose are not both held."""


@dataclass(frozen=True)
class Recording:
    """v ↦ J v: the nodes in order, each value with its static shape and dtype.

    `v` is (*columns, *in_shape) and `y` is (*columns, *out_shape). Residuals are `constants`, by
    the identity of their value, or, for a product at any point, `residuals`: further inputs, each
    with its key in the arrays of a point. `again` makes another recording, since an engine may
    modify the one that it is given.
    """

    nodes: tuple[ir.Node, ...]
    constants: Mapping[int, np.ndarray]
    v: ir.Value
    y: ir.Value
    recorder: Recorder
    again: Callable[[], Recording]
    residuals: Mapping[int, ir.Value] = field(default_factory=dict)

    @cached_property
    def present(self) -> frozenset[int]:
        """The identities of the nodes that are needed, also inside subgraphs."""
        return frozenset(map(id, every(self.nodes)))

    def array(self, value: ir.Value) -> np.ndarray | None:
        """The numbers of a constant; None where the value is computed."""
        return self.constants.get(id(value))

    @property
    def has_bodies(self) -> bool:
        """Whether a node has subgraphs."""
        return next(subgraphs(self.nodes), None) is not None

    @property
    def meets_nothing(self) -> bool:
        """Whether some value has no elements: engines fail at empty tensors in many ways."""
        return any(0 in shape_of(y) for node in self.nodes for y in node.outputs)


def record(operator: Jacobian, columns: Shape = (), *, by_torch: bool = False) -> Recording:
    """The product of `operator` with `columns` right-hand sides at once; halves in float32."""
    held = operator if operator.place is None else placed(operator, HOST)
    return recorded(ResidualRecorder(by_torch=by_torch), held, columns)


def recorded(
    recorder: ResidualRecorder, operator: Jacobian, columns: Shape,
    residuals: Residuals | None = None,
) -> Recording:  # fmt: skip
    """The product of an operator whose residuals are arrays, or values of the recorder."""
    dtype = wide(operator.dtype)
    v = recorder.new((*columns, *operator.in_shape), dtype, "v")
    y = recorder.value(recorder.CastLike(operator._apply(recorder, v), np.zeros((), dtype)))
    assert y is not None
    nodes, used = reachable(recorder, [y])
    held = {id(x): x.const_value.numpy() for x in used if x.const_value is not None}
    read = {id(x) for node in nodes for x in operands_of(node)}
    inputs = {key: value for key, value in (residuals or {}).items() if id(value) in read}
    again = partial(record, operator, columns, by_torch=recorder.convolves_samples)
    return Recording(tuple(nodes), held, v, y, recorder, again, inputs)


Residuals = Mapping[int, ir.Value]
"""The residuals of a recording by their keys."""


def opened(
    values: Residuals, turned: Collection[int] = (), *, by_torch: bool = False
) -> tuple[ResidualRecorder, Residuals, Residuals]:
    """A recorder, its inputs, and residuals like `values`: `turned` matrices enter transposed."""
    recorder, inputs = ResidualRecorder(by_torch=by_torch), {}
    for k, (key, x) in enumerate(values.items()):
        shape = shape_of(x)[::-1] if key in turned else shape_of(x)
        inputs[key] = recorder.new(shape, dtype_of(x), f"residual_{k}")
    residuals = {key: recorder.Transpose(x, perm=(1, 0)) if key in turned else x
                 for key, x in inputs.items()}  # fmt: skip
    return recorder, inputs, residuals


class ResidualRecorder(Recorder):
    """A recorder that takes arrays as they are: views stay views, nothing is copied.

    Mixed dtypes are promoted, and nothing is rounded to halves, as in NumPy products.
    """

    is_model = False

    def __init__(self, *, by_torch: bool = False) -> None:
        super().__init__({"": OPSET})
        self.convolves_samples = by_torch

    def call(self, op_type: str, *inputs: Any, outputs: int = 1, **attrs: Any) -> Any:
        if op_type == "CastLike":
            inputs = inputs[0], np.zeros((), wide(dtype_of(inputs[1])))
        elif "Cast" not in op_type:
            inputs = promoted(self, inputs)
        if op_type == "Transpose" and (shape := unturned(inputs[0], **attrs)):
            return self.Reshape(inputs[0], shape)
        return super().call(op_type, *inputs, outputs=outputs, **attrs)

    def value(self, array: Array | None) -> ir.Value | None:
        """The graph value of an array; a large matrix and its transpose are held once."""
        if not isinstance(array, np.ndarray) or array.ndim != 2 or array.nbytes < LARGE:
            return super().value(array)
        if array.flags.c_contiguous or not array.flags.f_contiguous:
            return super().value(array)
        turned: ir.Value = super().call("Transpose", super().value(array.T), perm=(1, 0))
        return turned

    def initializer(self, array: np.ndarray, name: str | None = None) -> ir.Value:
        value = super().like(array, name)
        value.const_value = ir.Tensor(array, name=name)
        self._arrays.append(array)
        return value


def promoted(op: Recorder, operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """Operands promoted to their common floating dtype, as in NumPy; ONNX does not promote."""
    floats = {dtype_of(x) for x in operands if is_floating(x)}
    if len(floats) < 2:
        return operands
    zero = np.zeros((), wide(common(*floats)))
    return tuple(op.CastLike(x, zero) if is_floating(x) else x for x in operands)


def is_floating(x: Any) -> bool:
    """Whether an operand is a tensor of floats, not an index or a shape."""
    return hasattr(x, "dtype") and dtype_of(x).kind in "fV"


def unturned(x: Any, perm: tuple[int, ...] | None = None) -> Shape | None:
    """The shape after a Transpose that moves axes of size 1 only, else None."""
    shape = shape_of(x)
    perm = tuple(reversed(range(len(shape)))) if perm is None else perm
    moved = [k for k in perm if not same(shape[k], 1)]
    return tuple(shape[k] for k in perm) if moved == sorted(moved) else None
