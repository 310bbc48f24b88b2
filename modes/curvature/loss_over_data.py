"""Loss over data: f = Σ_b w_b f_b and ∇f, one batch at a time, weighed as its curvature is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, final

import numpy as np

from ...jacobians import Jacobian
from ...jacobians.arguments import Count, validated
from ...jacobians.arrays import like
from ...jacobians.errors import InputError
from ...jacobians.progress import counting
from ...jacobians.threads import cached_property
from ..data.adapter import Data
from ..data.batches import Batch, Batches, as_batch, batches_of, is_data
from ..data.devices import is_jax, on_devices
from ..data.ranks import on_ranks
from ..data.shares import Alone, Shares
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
    if is_jax(comm):
        inputs, comm, shared, _ = on_devices(inputs, shared, f.gradient.engine)
    if comm is None and not is_data(inputs, batch_size):
        point: Any = inputs
        return f({**as_batch(shared), **point} if shared else point)
    if reduction is None:
        raise InputError("a loss over several batches needs reduction='mean' or 'sum': whether it "
                         "is the mean or the sum over the samples of a batch")  # fmt: skip
    sums = partial(weighed_sums, divisor, f, reduction, shared)
    own: Shares[Batches] = (
        Alone(batches_of(inputs, batch_size)) if comm is None
        else on_ranks(comm, lambda batches: batches, inputs, batch_size)
    )  # fmt: skip
    found = own.summed(sums)
    if found is None:
        raise InputError("the data has no samples, and so no loss")
    scale = found.whole if reduction == "mean" else 1.0
    slopes = {k: x / like(np.asarray(scale), x) for k, x in found.slopes.items()}
    return found.value / scale, slopes


@dataclass(frozen=True)
class Sums:
    """Σ_b w_b f_b, Σ_b w_b ∇f_b by name, and Σ_b w_b."""

    value: Any
    slopes: dict[str, Any]
    whole: float

    def __add__(self, other: Sums) -> Sums:
        if self.slopes.keys() != other.slopes.keys():
            raise InputError(f"the tensors of wrt differ between ranks, {', '.join(self.slopes)} "
                             f"and {', '.join(other.slopes)}")  # fmt: skip
        slopes = {k: x + other.slopes[k] for k, x in self.slopes.items()}
        return Sums(self.value + other.value, slopes, self.whole + other.whole)

    def apart(self) -> tuple[list[Any], Sums]:
        """The arrays, and the sums with 0 in their places."""
        arrays = [self.value, *self.slopes.values()]
        return arrays, Sums(0.0, dict.fromkeys(self.slopes, 0.0), self.whole)

    def joined(self, arrays: Iterable[Any]) -> Sums:
        """The sums with these arrays."""
        value, *slopes = arrays
        return Sums(value[()], dict(zip(self.slopes, slopes, strict=True)), self.whole)


def weighed_sums(
    divisor: Divisor, f: ValueAndGrad, reduction: Reduction, shared: Batch, batches: Batches
) -> Sums | None:
    """The sums over some batches; None without samples."""
    g, total = f.gradient, None
    with counting("pass over the data", "batches", batches.count) as tick:
        for batch in batches:
            w = 1.0
            if reduction == "mean":
                w = divisor(g.model, batch, shared, of=g.of[0], wrt=g.wrt, engine=g.engine)
            if w:  # else S / D is 0 / 0
                value, slopes = f({**shared, **as_batch(batch)})
                weighed = {k: x * like(np.asarray(w), x) for k, x in slopes.items()}
                one = Sums(w * value, weighed, w)
                total = one if total is None else total + one
            tick(1)
    return total


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
