"""The kernels of the symbols reading: plain mathematics, numerically stable or not."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
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
        applied = np.frompyfunc(partial(function, **attributes), len(inputs), 1)
        return np.asarray(applied(*inputs), object)

    KERNELS[name] = apply
