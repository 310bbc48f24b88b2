"""The table of cases, and points for them: small distinct fractions, away from kinks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..case import Case

CASES: dict[tuple[str, str], list[Case]] = {}
"""(op_type, domain) -> the cases that prove it."""

Shape = tuple[int, ...]


def case(op_types: str, *inputs: Any, **how: Any) -> None:
    """Enter one case for every operator of a list into the table."""
    for one in made(op_types, *inputs, **how):
        CASES.setdefault((one.op_type, one.domain), []).append(one)


def made(op_types: str, *inputs: Any, **how: Any) -> Iterator[Case]:
    """One case for every operator of a list; a tuple is the shape of a floating input.

    What `Case` does not know by name is an attribute.
    """
    arrays = tuple(at(*x, seed=k) if isinstance(x, tuple) else x for k, x in enumerate(inputs))
    known = {name: how.pop(name) for name in list(how) if name in Case.__dataclass_fields__}
    for op_type in op_types.split():
        domain, _, name = op_type.rpartition("::")
        yield Case(name, arrays, {**how}, domain=domain, **known)


def at(*shape: int, seed: int = 0) -> np.ndarray:
    """Distinct fractions of both signs.

    >>> at(3).tolist()
    [1.125, -0.375, 0.75]
    """
    n = int(np.prod(shape))
    sizes = 0.375 + np.random.default_rng(seed + 2).permutation(n) * 0.375
    signs = np.where((np.arange(n) + seed) % 2, -1.0, 1.0)
    return (sizes * signs + seed / 64).reshape(shape)


def positive(*shape: int, seed: int = 0) -> np.ndarray:
    """Distinct positive fractions."""
    return np.abs(at(*shape, seed=seed))


def inside(*shape: int, seed: int = 0) -> np.ndarray:
    """Distinct fractions between -1 and 1."""
    x = at(*shape, seed=seed)
    return x / (np.abs(x).max() + 0.5)


def ints(*values: Any) -> np.ndarray:
    """Integers: axes, shapes, indices."""
    return np.array(values, np.int64)


def numbers(*values: float) -> np.ndarray:
    """A vector of exactly these."""
    return np.array(values, np.float64)
