"""Meter: what a run has taken so far, against the limits of the model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..support.limits import Limits


class Meter:
    """Counts the steps of all turns of one run, and the bytes of the tensors that it holds."""

    def __init__(self, limits: Limits) -> None:
        self.limits, self.steps, self.bytes = limits, 0, 0

    def turn(self, steps: int) -> None:
        """A body of so many steps begins; the turn itself counts as a step."""
        self.steps += steps + 1
        self.limits.check("steps", self.steps, "the control flow of the model, turn by turn,")

    def keep(self, values: Iterable[Any], what: str) -> None:
        """Tensors that are held from now on."""
        self.bytes += sum(map(nbytes_of, values))
        self.limits.check("bytes", self.bytes, what)

    def drop(self, values: Iterable[Any]) -> None:
        """Tensors that are let go."""
        self.bytes -= sum(map(nbytes_of, values))


def nbytes_of(value: Any) -> int:
    """Bytes of a tensor, or of the tensors of a sequence; of what fills a tensor by one number, 0.

    >>> nbytes_of(np.zeros(4)), nbytes_of([np.zeros(4), None]), nbytes_of(np.broadcast_to(1.0, 9))
    (32, 32, 0)
    """
    if isinstance(value, list):
        return sum(map(nbytes_of, value))
    if not isinstance(value, np.ndarray) or (value.ndim and not any(value.strides)):
        return 0
    return value.nbytes
