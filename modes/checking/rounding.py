"""Rounding: how far a product may be off, where terms cancel on the way to it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

from ...jacobians import Jacobian
from ...ops import numbers


def epsilon(dtype: np.dtype) -> float:
    """The relative rounding error, of NumPy's floats and of the narrow ones of ml_dtypes."""
    return float(ml_dtypes.finfo(dtype).eps)


def rounding(J: Jacobian, v: np.ndarray) -> np.ndarray:
    """|J v - what J v is where every result on the way has an error|, entry by entry.

    An error is a rounding of the largest entry of its tensor, with a random sign, as in Monte
    Carlo arithmetic (Parker, 1997). Zero where the product cannot be made in this way.
    """
    with suppress(Exception), np.errstate(all="ignore"):  # the tests will say what is wrong
        shaped = v.reshape(J.in_shape)
        exact, off = (J._apply(op, shaped).astype(np.float64) for op in (numbers, Rounded()))
        found = np.abs(np.ravel(off - exact))
        return np.where(np.isfinite(found), found, 0.0)
    return np.zeros(J.shape[0])


class Rounded:
    """The numbers reading, where every floating result has an error."""

    def __init__(self) -> None:
        self.signs = np.random.default_rng(0)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return partial(self.call, getattr(numbers, name))

    def call(self, kernel: Callable[..., Any], *inputs: Any, **attrs: Any) -> Any:
        """The result of an operator."""
        found = kernel(*inputs, **attrs)
        return tuple(map(self.off, found)) if isinstance(found, tuple) else self.off(found)

    def off(self, x: Any) -> Any:
        """A tensor with an error."""
        if not isinstance(x, np.ndarray) or x.dtype.kind not in "fV" or not x.size:
            return x
        signs = self.signs.choice([-1.0, 1.0], x.shape)
        error = epsilon(x.dtype) * float(np.abs(x).max())
        return np.asarray(x + (error * signs).astype(x.dtype), x.dtype)
