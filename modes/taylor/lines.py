"""Lines: the directions and weights whose derivatives along lines add up to another derivative."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import comb, factorial, prod

import numpy as np

from ...jacobians.errors import InputError

Vectors = Mapping[str, np.ndarray]
"""Directions by the name of a tensor: (R, *the tensor without its batch axis)."""

Coordinate = tuple[str, tuple[int, ...] | None]
"""The name of a tensor, and an entry of a sample of it."""


@dataclass(frozen=True)
class Lines:
    """Σᵣ wᵣ dᵏf/dtᵏ along x + t vᵣ, of order k; without `weights`, each of them.

    `vectors` are the directions vᵣ, the same in every sample.
    """

    order: int
    vectors: Vectors
    weights: np.ndarray | None

    @property
    def count(self) -> int:
        """The number of directions."""
        return next(len(v) for v in self.vectors.values())


def unit_vectors(shapes: Mapping[str, tuple[int, ...]]) -> Vectors:
    """The unit vectors of all entries, by tensor: (R, *shape), R entries in all."""
    counts = [prod(shape) for shape in shapes.values()]
    rows = np.split(np.eye(sum(counts)), np.cumsum(counts)[:-1], axis=1)
    return {name: part.reshape(len(part), *shape)
            for (name, shape), part in zip(shapes.items(), rows, strict=True)}  # fmt: skip


def combine_vectors(axes: Vectors, rows: np.ndarray) -> Vectors:
    """Directions that are combinations of others: each row has the factors of one."""
    return {name: np.tensordot(rows, v, 1) for name, v in axes.items()}


def laplacian_lines(vectors: Vectors, weights: np.ndarray | None) -> Lines:
    """Σᵣ wᵣ vᵣᵀ H vᵣ."""
    count = next(len(v) for v in vectors.values())
    return Lines(2, vectors, np.ones(count) if weights is None else weights)


def biharmonic_lines(axes: Vectors) -> Lines:
    """Δ²f = Σᵢ ∂ᵢ⁴f + 2 Σ ∂ᵢ²∂ⱼ²f over i < j, with 12 ∂ᵢ²∂ⱼ²f = D⁴(eᵢ + eⱼ) + D⁴(eᵢ − eⱼ) − 2 D⁴eᵢ
    − 2 D⁴eⱼ.
    """
    n = next(len(v) for v in axes.values())
    rows, weights = [*np.eye(n)], [1 - (n - 1) / 3] * n
    for i, j in combinations(range(n), 2):
        rows += [np.eye(n)[i] + np.eye(n)[j], np.eye(n)[i] - np.eye(n)[j]]
        weights += [1 / 6, 1 / 6]
    return Lines(4, combine_vectors(axes, np.array(rows)), np.array(weights))


def mixed_lines(axes: Vectors, powers: Sequence[int]) -> Lines:
    """∂^α f by polarisation: k! ∂^α f = Σ (−1)^|α − β| ∏ᵢ C(αᵢ, βᵢ) Dᵏf(Σᵢ βᵢ eᵢ) over β ≤ α."""
    order = sum(powers)
    if len(powers) == 1:
        return Lines(order, dict(axes), np.ones(1))
    rows, weights = [], []
    for beta in product(*(range(p + 1) for p in powers)):
        if any(beta):
            sign = (-1) ** (order - sum(beta))
            rows.append(beta)
            weights.append(sign * prod(map(comb, powers, beta)) / factorial(order))
    return Lines(order, combine_vectors(axes, np.array(rows, float)), np.array(weights))


# -- names of derivatives --------------------------------------------------------------------------

LETTER = re.compile(r"([A-Za-z_])(\[[\d, ]*\])?")
NAMED = re.compile(r"([^\[\]]+)(\[[\d, ]*\])?")


def coordinates(wrt: str | Sequence[str]) -> dict[Coordinate, int]:
    """What a derivative is by, and how often.

    >>> coordinates("xxy"), coordinates(["time", "x[0,1]"])
    ({('x', None): 2, ('y', None): 1}, {('time', None): 1, ('x', (0, 1)): 1})
    """
    parts = LETTER.findall(wrt) if isinstance(wrt, str) else [
        match.groups() for match in map(NAMED.fullmatch, wrt) if match]  # fmt: skip
    said = wrt if isinstance(wrt, str) else "".join(wrt)
    if not parts or "".join(name + (entry or "") for name, entry in parts) != said:
        raise InputError(f"wrt={wrt!r} must be names, one for each time: 'xxy', or "
                         "['time', 'x[0]']")  # fmt: skip
    return dict(Counter((name, parse_entry(entry)) for name, entry in parts))


def parse_entry(text: str | None) -> tuple[int, ...] | None:
    """The indices in brackets."""
    return tuple(int(n) for n in text.strip("[]").split(",")) if text else None


def coordinate_vectors(shapes: Mapping[str, tuple[int, ...]], at: Sequence[Coordinate]) -> Vectors:
    """The unit vectors of some coordinates, by tensor."""
    made = {name: np.zeros((len(at), *shape)) for name, shape in shapes.items()
            if name in {n for n, _ in at}}  # fmt: skip
    for row, (name, entry) in enumerate(at):
        shape = shapes[name]
        if entry is None and prod(shape) != 1:
            raise InputError(f"{name!r} has entries of shape {list(shape)} in a sample: say which, "
                             f"as in '{name}[{','.join('0' * len(shape))}]'")  # fmt: skip
        index = (0,) * len(shape) if entry is None else entry
        if len(index) != len(shape) or any(i >= n for i, n in zip(index, shape, strict=True)):
            raise InputError(f"{name}{list(index)} is no entry of {name!r}, whose shape is "
                             f"{list(shape)}: of a sample, or whole where samples mix")  # fmt: skip
        made[name][(row, *index)] = 1
    return made
