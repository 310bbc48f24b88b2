"""Calls: a product noted call by call while NumPy takes it, so that the next ones only make these.

Operators are written in calls of the vocabulary, and shapes alone decide which calls these are.
Where arrays are small, finding a call takes three times as long as the call. The results are the
same, bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np

from ....jacobians import Jacobian
from ....jacobians.arrays import reading
from ....jacobians.readings import Reading
from ....ops.numbers import numbers


class Noted:
    """An array that depends on v: its number, its vocabulary, and no entries to look at."""

    __array__ = __array_ufunc__ = None

    def __init__(self, array: Any, number: int, op: Calls) -> None:
        self.shape, self.dtype, self.number, self.op = array.shape, array.dtype, number, op


@reading.register(Noted)
def _(array: Noted) -> Calls:
    return array.op


class Calls(Reading):
    """v ↦ J v, and the vocabulary that notes the calls of the first product, with result `y`."""

    def __init__(self, operator: Jacobian, v: np.ndarray) -> None:
        self.calls: list[tuple[Callable[..., Any], Callable[[Any], Any], int]] = []
        self.values: list[Any] = [v]
        with np.errstate(all="ignore"):
            self.end = operator._apply(self, Noted(v, 0, self)).number
        self.y: np.ndarray | None = np.asarray(self.values[self.end])
        for k in (0, *(k for _, _, k in self.calls)):
            self.values[k] = None  # constants alone are kept

    def call(self, op_type: str, *inputs: Any, **attributes: Any) -> Any:
        kernel = getattr(numbers, op_type)
        if not any(type(x) is Noted for x in inputs):
            return kernel(*inputs, **attributes)
        plain = getattr(kernel, "__wrapped__", kernel)  # without an error state of its own
        return self._noted(partial(plain, **attributes) if attributes else plain, inputs)

    def _noted(self, function: Callable[..., Any], inputs: tuple[Any, ...]) -> Any:
        places = [x.number if type(x) is Noted else self._placed(x) for x in inputs]
        pick: Any = itemgetter
        take = pick(*places) if len(places) > 1 else pick(slice(places[0], places[0] + 1))
        y = function(*take(self.values))
        k = self._placed(y)
        self.calls.append((function, take, k))
        if not isinstance(y, tuple):
            return Noted(y, k, self)
        whole = Noted(np.zeros(()), k, self)
        return tuple(self._noted(itemgetter(part), (whole,)) for part in range(len(y)))

    def _placed(self, value: Any) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def __call__(self, v: np.ndarray) -> np.ndarray:
        values = self.values.copy()
        values[0] = v
        with np.errstate(all="ignore"):  # infinities and NaN are values, as in every engine
            for function, take, k in self.calls:
                values[k] = function(*take(values))
        return np.asarray(values[self.end])


def note_calls(operator: Jacobian, v: np.ndarray) -> tuple[Calls | None, np.ndarray | None]:
    """The product with arrays like v, and J v; None where an operator does more than calls."""
    with suppress(Exception):  # whatever comes of an array without entries
        calls = Calls(operator, v)
        y, calls.y = calls.y, None
        return calls, y
    return None, None
