"""Reductions over axes, and running sums and products along one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ....ops.symbols.placing import ints
from .table import Index, replaced, tabulate, transcription

Summary = Callable[[list[Any]], Any]


def reduction(name: str, summary: Summary) -> None:
    """Enter y[i] = f(the entries of x that are at i along the other axes)."""

    def apply(x: Any, axes: Any = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Any:
        chosen = {a % x.ndim for a in ints(() if axes is None else axes)}
        if not chosen and noop_with_empty_axes:
            return x
        gone = chosen or set(range(x.ndim))
        met = grouped(x, gone)
        y = tabulate([1 if k in gone else n for k, n in enumerate(x.shape)],
                     lambda index: summary(met[index]))  # fmt: skip
        return y if keepdims else y.reshape([n for k, n in enumerate(x.shape) if k not in gone])

    transcription(name)(apply)


def grouped(x: Any, gone: set[int]) -> dict[Index, list[Any]]:
    """The entries of x by their index, in which the axes that are summed over are 0."""
    met: dict[Index, list[Any]] = {}
    for index in np.ndindex(*x.shape):
        rest = tuple(0 if k in gone else i for k, i in enumerate(index))
        met.setdefault(rest, []).append(x[index])
    return met


reduction("ReduceSum", sum)
reduction("ReduceMean", lambda entries: sum(entries) / len(entries))
reduction("ReduceProd", math.prod)
reduction("ReduceMax", max)
reduction("ReduceMin", min)


def running(name: str, summary: Summary) -> None:
    """Enter y[j] = f(x[i] for i ≤ j), or i < j where exclusive, or from the other end."""

    def apply(x: Any, axis: Any, *, exclusive: int = 0, reverse: int = 0) -> Any:
        (along,) = ints(axis)

        def entry(index: Index) -> Any:
            j = index[along]
            met = range(j + exclusive, x.shape[along]) if reverse else range(j + 1 - exclusive)
            return summary([x[replaced(index, along, i)] for i in met])

        return tabulate(x.shape, entry)

    transcription(name)(apply)


running("CumSum", sum)
running("CumProd", math.prod)
