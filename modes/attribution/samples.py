"""Samples: the gradients of the losses of single samples, batch by batch, as operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...jacobians import Jacobian
from ...jacobians.base import CHUNK_BYTES
from ...jacobians.progress import counting
from ..curvature.fisher import sample_gradients
from ..curvature.reductions import Reduction
from ..data.batches import batches_of
from ..data.comm import Comm, joined_arrays
from ..model.primal.inputs import Names, names_of, weights_of
from ..model.primal.model import Model, ModelLike, as_model


@dataclass(frozen=True)
class Losses:
    """The losses ℓₙ of the samples of a model, by its weights `wrt`: see `empirical_fisher`."""

    model: Model
    of: str
    at: str | None
    wrt: tuple[str, ...]
    reduction: Reduction
    engine: str | None

    def batches(self, data: Any, batch_size: int | None, label: str) -> Iterator[Rows]:
        """The gradients of each batch, in one pass over the data."""
        batches = batches_of(data, batch_size)
        with counting(label, "batches", batches.count) as tick:
            for batch in batches:
                yield self.rows(batch)
                tick(1)

    def rows(self, batch: Mapping[str, Any]) -> Rows:
        """The gradients of a batch."""
        R, J = sample_gradients(
            self.model, batch, self.of, self.at, self.wrt, self.reduction, self.engine
        )
        return Rows(R(J), J)

    def dense(self, data: Any, batch_size: int | None, comm: Comm | None) -> np.ndarray:
        """All gradients, a column for each sample of all ranks, in double precision."""

        def found() -> np.ndarray | None:
            batches = self.batches(data, batch_size, "gradients of test data")
            parts = [rows.dense() for rows in batches]
            return np.concatenate(parts, axis=1) if parts else None

        return joined_arrays(comm, found, 1)

    def each(
        self, find: Callable[[Rows], np.ndarray], data: Any, batch_size: int | None,
        comm: Comm | None, label: str,
    ) -> np.ndarray:  # fmt: skip
        """find(rows), a row for each sample of all ranks."""

        def found() -> np.ndarray | None:
            parts = [find(rows) for rows in self.batches(data, batch_size, label)]
            return np.concatenate(parts) if parts else None

        return joined_arrays(comm, found)


@dataclass(frozen=True)
class Rows:
    """G = R J, whose row n is ∇ℓₙ: R adds up, or weighs, the rows of J that belong to a sample."""

    R: Jacobian
    J: Jacobian

    def __matmul__(self, V: np.ndarray) -> np.ndarray:
        """G V: a forward product for each column, and no gradient."""
        return np.asarray(self.R @ (self.J @ V.astype(self.J.dtype)), np.float64)

    def dense(self) -> np.ndarray:
        """Gᵀ, a column for each sample."""
        return np.concatenate(list(self._columns()), axis=1)

    def norms(self) -> np.ndarray:
        """‖∇ℓₙ‖ for each sample; only some gradients are held at a time."""
        return np.concatenate([np.linalg.norm(part, axis=0) for part in self._columns()])

    def _columns(self) -> Iterator[np.ndarray]:
        """∇ℓₙ for some samples at a time."""
        n, width = self.R.shape[0], max(1, CHUNK_BYTES // (8 * self.J.shape[1]))
        for start in range(0, n, width):
            units = np.eye(n, min(width, n - start), -start, dtype=self.J.dtype)
            yield np.asarray(self.J.T @ (self.R.T @ units), np.float64)


def losses_of(
    model: ModelLike, of: str, at: str | None, wrt: Names, reduction: Reduction, engine: str | None
) -> Losses:
    """The losses by the named weights, or by all of them."""
    model = as_model(model)
    names = names_of(model, wrt, weights_of(model), "wrt")
    return Losses(model, of, at, names, reduction, engine)
