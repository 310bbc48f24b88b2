"""Record: the product with an operator as a list of ONNX nodes, its residuals as constants.

What a rule or an operator does is calls of the vocabulary; read over graph values, one product
becomes a graph. Equal nodes are recorded once, and what does not depend on v is computed now.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx_ir as ir

from ...jacobians import Jacobian, Shape, shape_of
from ...jacobians.arrays import wide
from ...jacobians.cached import cached_property
from ...ops.graphs import Recorder
from ...ops.graphs.build import every, reachable, subgraphs
from .residuals import ResidualRecorder

OPSET = 21
"""The opset of recorded products: the one that the vocabulary speaks."""


@dataclass(frozen=True)
class Recording:
    """v ↦ J v: the nodes in order, each value with its static shape and dtype.

    `v` is (*columns, *in_shape) and `y` is (*columns, *out_shape). `constants` are the residuals,
    by the identity of their value. `again` makes another one: an engine may write its own nodes
    into the one that it is given.
    """

    nodes: tuple[ir.Node, ...]
    constants: Mapping[int, np.ndarray]
    v: ir.Value
    y: ir.Value
    recorder: Recorder
    again: Callable[[], Recording]

    @cached_property
    def present(self) -> frozenset[int]:
        """The identities of the nodes, those in subgraphs among them: what is recorded but not
        needed is not.
        """
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
        """Whether a value on the way has no elements, at which engines fail in many ways."""
        return any(0 in shape_of(y) for node in self.nodes for y in node.outputs)

    @cached_property
    def nbytes(self) -> int:
        """Bytes of all constants."""
        return sum(array.nbytes for array in self.constants.values())


def record(operator: Jacobian, columns: Shape = ()) -> Recording:
    """The product of `operator` with `columns` right-hand sides at once, of halves in float32."""
    recorder = ResidualRecorder({"": OPSET})
    dtype = wide(operator.dtype)
    v = recorder.new((*columns, *operator.in_shape), dtype, "v")
    y = recorder.value(recorder.CastLike(operator._apply(recorder, v), np.zeros((), dtype)))
    assert y is not None
    nodes, used = reachable(recorder, [y])
    held = {id(x): x.const_value.numpy() for x in used if x.const_value is not None}
    return Recording(tuple(nodes), held, v, y, recorder, partial(record, operator, columns))
