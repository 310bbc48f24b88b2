"""Operators that combine entries in the same place of tensors that are broadcast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .table import stretched, tabulate, transcription


def entrywise(name: str, function: Callable[..., Any]) -> None:
    """Enter y[i] = f(a[i], b[i], ...)."""

    def apply(*inputs: Any) -> Any:
        shape = np.broadcast_shapes(*map(np.shape, inputs))
        return tabulate(shape, lambda i: function(*(stretched(np.asarray(x), i) for x in inputs)))

    transcription(name)(apply)


entrywise("Sum", lambda *xs: sum(xs))
entrywise("Mean", lambda *xs: sum(xs) / len(xs))
entrywise("Max", lambda *xs: max(xs))
entrywise("Min", lambda *xs: min(xs))
entrywise("Div", lambda a, b: a / b)
entrywise("Where", lambda condition, yes, no: yes if condition else no)


@transcription("Identity")
def identity(x: Any) -> Any:
    """Y = x."""
    return x


@transcription("Dropout")
def dropout(x: Any, ratio: Any = None, training: Any = None, **_: Any) -> Any:
    """Y = x, outside training."""
    if training is not None and np.any(training):
        raise NotImplementedError("Dropout in training draws a mask")
    return x
