"""Meter: the resources that a run has used so far, checked against the limits of the model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ....jacobians.foreign import is_tensor
from ..limits import Limits


class Meter:
    """Counts the steps of all iterations of one run, and the bytes of the tensors it holds."""

    def __init__(self, limits: Limits) -> None:
        self.limits, self.steps, self.bytes = limits, 0, 0

    def turn(self, steps: int) -> None:
        """Count one iteration of a body with `steps` steps; the iteration itself is a step, too."""
        self.steps += steps + 1
        self.limits.check("steps", self.steps, "the control flow of the model, turn by turn,")

    def keep(self, values: Iterable[Any], what: str) -> None:
        """Count tensors that are held from now on."""
        self.bytes += sum(map(nbytes_of, values))
        self.limits.check("bytes", self.bytes, what)

    def drop(self, values: Iterable[Any]) -> None:
        """Subtract tensors that are released."""
        self.bytes -= sum(map(nbytes_of, values))


def nbytes_of(value: Any) -> int:
    """Bytes of a tensor, or of the tensors of a sequence; 0 for one number that is broadcast.

    >>> nbytes_of(np.zeros(4)), nbytes_of([np.zeros(4), None]), nbytes_of(np.broadcast_to(1.0, 9))
    (32, 32, 0)
    """
    if isinstance(value, list):
        return sum(map(nbytes_of, value))
    if is_tensor(value):
        return int(value.nbytes)
    if not isinstance(value, np.ndarray) or (value.ndim and not any(value.strides)):
        return 0
    return value.nbytes
