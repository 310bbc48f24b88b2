"""Rounding: an estimate of the error of a product, which is large where terms cancel."""

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
    """The machine epsilon of a float of NumPy or of ml_dtypes."""
    return float(ml_dtypes.finfo(dtype).eps)


def rounding(J: Jacobian, v: np.ndarray) -> np.ndarray:
    """|J v - J v with an error in every intermediate result|, entry by entry.

    Each error is a rounding error of the largest entry of its tensor, with a random sign, as in
    Monte Carlo arithmetic (Parker, 1997). Zero if the product cannot be computed in this way.
    """
    with suppress(Exception), np.errstate(all="ignore"):  # the tests will say what is wrong
        shaped = v.reshape(J.in_shape)
        exact, off = (J._apply(op, shaped).astype(np.float64) for op in (numbers, Rounded()))
        found = np.abs(np.ravel(off - exact))
        return np.where(np.isfinite(found), found, 0.0)
    return np.zeros(J.shape[0])


class Rounded:
    """The `numbers` reading with a rounding error in every floating result."""

    def __init__(self) -> None:
        self.signs = np.random.default_rng(0)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return partial(self.call, getattr(numbers, name))

    def call(self, kernel: Callable[..., Any], *inputs: Any, **attrs: Any) -> Any:
        """The result of an operator, with rounding errors."""
        found = kernel(*inputs, **attrs)
        return tuple(map(self.off, found)) if isinstance(found, tuple) else self.off(found)

    def off(self, x: Any) -> Any:
        """A tensor with a rounding error in every entry."""
        if not isinstance(x, np.ndarray) or x.dtype.kind not in "fV" or not x.size:
            return x
        signs = self.signs.choice([-1.0, 1.0], x.shape)
        error = epsilon(x.dtype) * float(np.abs(x).max())
        return np.asarray(x + (error * signs).astype(x.dtype), x.dtype)
