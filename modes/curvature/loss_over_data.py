"""Loss over data: f = Σ_b w_b f_b and ∇f, one batch at a time, weighed as its curvature is."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, final

import numpy as np

from ...jacobians import Jacobian
from ...jacobians.arguments import Count, validated
from ...jacobians.arrays import host, like
from ...jacobians.errors import InputError
from ...jacobians.progress import counting
from ...jacobians.threads import cached_property
from ..data.adapter import Data
from ..data.batches import Batch, as_batch, batches_of, is_data
from ..data.comm import Comm, as_comm, same_on_all, sum_arrays
from ..forward import Tensors
from ..linear.symmetric import Curvature
from ..model.primal.inputs import Specs
from ..reverse import ValueAndGrad

Reduction = Literal["sum", "mean"]

Divisor = Callable[..., float]
"""(model, batch, shared, of=, wrt=, engine=) ↦ what the mean over a batch divides by."""


def loss_over_data(
    divisor: Divisor, f: ValueAndGrad, inputs: Data, reduction: Reduction | None,
    batch_size: int | None, shared: Batch, comm: Any = None,
) -> tuple[Any, Tensors]:  # fmt: skip
    """f and ∇f over the batches of data, or at one point where the inputs are no data.

    With `comm`, over the batches of all ranks, in one all-reduce.
    """
    if comm is None and not is_data(inputs, batch_size):
        point: Any = inputs
        return f({**as_batch(shared), **point} if shared else point)
    if reduction is None:
        raise InputError("a loss over several batches needs reduction='mean' or 'sum': whether it "
                         "is the mean or the sum over the samples of a batch")  # fmt: skip
    sums = partial(weighed_sums, divisor, f, inputs, reduction, batch_size, shared)
    total, slopes, whole = sums() if comm is None else sums_over_ranks(as_comm(comm), sums)
    if not whole:
        raise InputError("the data has no samples, and so no loss")
    scale = whole if reduction == "mean" else 1.0
    return total / scale, {k: x / like(np.asarray(scale), x) for k, x in slopes.items()}


Sums = tuple[Any, dict[str, Any], float]
"""Σ_b w_b f_b, Σ_b w_b ∇f_b by name, and Σ_b w_b."""


def weighed_sums(
    divisor: Divisor, f: ValueAndGrad, inputs: Data, reduction: Reduction,
    batch_size: int | None, shared: Batch,
) -> Sums:  # fmt: skip
    """The sums over the batches of data."""
    g, batches = f.gradient, batches_of(inputs, batch_size)
    total, slopes, whole = 0.0, dict[str, Any](), 0.0
    with counting("pass over the data", "batches", batches.count) as tick:
        for batch in batches:
            w = 1.0
            if reduction == "mean":
                w = divisor(g.model, batch, shared, of=g.of[0], wrt=g.wrt, engine=g.engine)
            if w:  # else S / D is 0 / 0
                value, parts = f({**shared, **as_batch(batch)})
                total, whole = total + w * value, whole + w
                slopes = {k: slopes.get(k, 0) + x * like(np.asarray(w), x)
                          for k, x in parts.items()}  # fmt: skip
            tick(1)
    return total, slopes, whole


def sums_over_ranks(comm: Comm, sums: Callable[[], Sums]) -> Sums:
    """The sums over the batches of all ranks, each gradient where this rank's own one is."""
    own: dict[str, Any] = {}

    def found() -> tuple[list[np.ndarray], tuple[list[str], float]] | None:
        total, slopes, whole = sums()
        own.update(slopes)
        arrays = [np.asarray(host(x)) for x in (total, *slopes.values())]
        return (arrays, (list(slopes), whole)) if whole else None

    (total, *arrays), beside = sum_arrays(comm, found)
    names = same_on_all(dict(enumerate(names for names, _ in beside)), "tensors of wrt")
    slopes = {k: like(x, own[k]) if own else x for k, x in zip(names, arrays, strict=True)}
    return total[()], slopes, sum(whole for _, whole in beside)


@final
class OfLoss(Curvature):
    """Curvature of a loss over data, with the `loss` and its `gradient` by name, in one pass."""

    again = None  # it belongs to these weights

    def __init__(
        self, operator: Jacobian, domain: Specs, formula: str,
        function: Callable[[], tuple[Any, Tensors]],
    ) -> None:  # fmt: skip
        super().__init__(operator)
        self.domain, self._formula, self.function = domain, formula, function

    @property
    def formula(self) -> str:
        return self._formula

    @validated
    def compile(
        self, engine: str | None = None, *, products: Count = 100, memory: Count | None = None
    ) -> OfLoss:
        operator = self.operator.compile(engine, products=products, memory=memory)
        return OfLoss(operator, self.domain, self.formula, self.function)

    @cached_property
    def _both(self) -> tuple[Any, Tensors]:
        return self.function()

    @property
    def loss(self) -> float:
        """f over all batches."""
        return float(self._both[0])

    @property
    def gradient(self) -> Tensors:
        """∂f/∂wrt by name, over all batches."""
        return self._both[1]
