"""Layer: a matrix of weights, all rows that it meets and the cotangents that come back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from ...jacobians import Jacobian, lead
from ...ops import numbers
from .factors import side_by_side
from .use import Use


@dataclass(frozen=True, repr=False, eq=False)
class Layer:
    """The uses that pick the same entries of a tensor: they share these weights.

    `parts` takes each tensor, the weight alone or with its bias, to where the (groups, inputs,
    outputs) has it. `x` is (groups, samples, positions, inputs); positions of several uses are one
    after the other.
    """

    parts: Mapping[str, Jacobian]
    x: np.ndarray
    uses: tuple[Use, ...]
    orders: tuple[np.ndarray, ...]

    @property
    def start(self) -> Jacobian:
        """From the tensors, one after the other, to (groups, inputs, outputs)."""
        return side_by_side(list(self.parts.values()))

    @property
    def bias(self) -> bool:
        """Whether no use meets data."""
        return all(use.bias for use in self.uses)

    def cotangents(self, at: Mapping[int, np.ndarray]) -> np.ndarray:
        """(k, groups, samples, positions, outputs), of cotangents (k, *Y) by vertex."""
        parts = [self._rows(use, order, at) for use, order in zip(self.uses, self.orders,
                                                                  strict=True)]  # fmt: skip
        return np.concatenate(parts, axis=-2)

    def _rows(self, use: Use, order: np.ndarray, at: Mapping[int, np.ndarray]) -> np.ndarray:
        rows = use.rows._apply(numbers, at[use.vertex])[..., order, :]
        return rows.reshape(*lead(rows, rows.shape[-2:]), self.x.shape[1], -1, rows.shape[-1])

    @property
    def entries(self) -> bytes:
        """A fingerprint of the tensors and of which of their entries stand where."""
        found = sha256()
        for name, part in self.parts.items():
            numbered = part @ np.arange(1, part.shape[1] + 1)
            found.update(f"{name} {part.out_shape}".encode())
            found.update(np.ascontiguousarray(numbered).tobytes())
        return found.digest()
