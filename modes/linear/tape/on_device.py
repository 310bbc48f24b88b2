"""On a device: a Jacobian whose residuals are tensors, for vectors that are anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, final

import numpy as np

from ....jacobians import Array, Jacobian, Op, Shape
from ....jacobians.arrays import host
from ....jacobians.placing import Place, placed


@final
class OnDevice(Jacobian):
    """y = J x by an operator whose arrays are at a place: x goes there, and y comes back."""

    def __init__(self, operator: Jacobian, place: Place) -> None:
        super().__init__(operator.out_shape, operator.in_shape, operator.dtype)
        self.operator, self.place = operator, place

    def _apply(self, op: Op, v: Array) -> Array:
        if not isinstance(v, np.ndarray):
            return self.operator._apply(op, v)
        return host(self.operator._apply(self.place.op, self.place.take(v)))

    def _flat_product(self, v: Any, columns: Shape) -> Any:
        if not isinstance(v, np.ndarray):
            return super()._flat_product(v, columns)
        return host(self.place.op.product(self.operator, self.place.take(v), columns))

    def _transpose(self) -> Jacobian:
        return OnDevice(self.operator.T, self.place)

    def arrays(self) -> Iterator[Array]:
        return self.operator.arrays()

    @property
    def flops(self) -> int:
        return self.operator.flops

    def __repr__(self) -> str:
        return f"{self.operator!r}, on {self.place.name}"


@placed.register
def _(operator: OnDevice, place: Place) -> Any:
    return placed(operator.operator, place)
