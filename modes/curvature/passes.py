"""Passes: sums over the layers of a model, over one batch of data after the other.

Data is what `streamed` takes: one batch (a dict), a list of batches, a function that gives an
iterator over them, or, with `batch_size`, arrays or the path of an `.npz` file. No more than one
batch is linearised at a time, by this process or by each worker of a `client`.
"""

from __future__ import annotations

import sys
from typing import Any

from ...jacobians.progress import progress as showing
from ..data.batches import Batch, batches_of, is_data
from ..data.taking import NOTHING
from ..distributed.pools import Pools
from ..model import Model
from .gradients import Target
from .pooling import Find, GradientMaker, Pool, Pooling


class Passes:
    """The gradients of every batch, as often as they are asked for."""

    def __init__(
        self,
        model: Model,
        inputs: Any,
        label: str,
        *,
        batch_size: int | None = None,
        shared: Batch = NOTHING,
        keep: int = 0,
        progress: bool | None = None,
        client: Any = None,
        **options: Any,
    ) -> None:
        self.progress, self.target = progress, Target(**options)
        several, batches = is_data(inputs, batch_size), batches_of(inputs, batch_size)
        make = GradientMaker(model, self.target, shared, several)
        kept = keep if several else sys.maxsize
        self.over: Pooling | Pools = (
            Pooling(make, batches, kept, label) if client is None
            else Pools(make, batches, kept, client)
        )  # fmt: skip

    def pooled(self, moments: Find) -> Pool:
        """Σ over batches of what `moments` finds of one; a terminal shows how many are done."""
        with showing(self.progress):
            return self.over.pooled(moments)

    def scale(self, pool: Pool) -> float:
        """c: 1 for a sum, 1 over the number of terms for a mean."""
        return 1 / pool.terms if self.target.reduction == "mean" else 1.0
