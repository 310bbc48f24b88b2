"""The kernels of the symbols reading: plain mathematics, numerically stable or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Kernel = Callable[..., Any]

KERNELS: dict[str, Kernel] = {}


def kernel(*names: str) -> Callable[[Kernel], Kernel]:
    """Register a function of object arrays as the kernel of some operators."""

    def enter(function: Kernel) -> Kernel:
        for name in names:
            KERNELS[name] = function
        return function

    return enter


def entrywise(name: str, function: Callable[..., Any]) -> None:
    """Register a function of numbers and attributes, applied entry by entry."""

    def apply(*inputs: Any, **attributes: Any) -> Any:
        held = np.broadcast(*inputs) if len(inputs) > 1 else None
        made = np.empty(held.shape if held else np.shape(inputs[0]), object)
        arrays = np.broadcast_arrays(*map(np.asarray, inputs))
        for place in np.ndindex(made.shape):
            made[place] = function(*(a[place] for a in arrays), **attributes)
        return made

    KERNELS[name] = apply
