"""Weighed: a loss over data as a function of weights, with its gradient and curvature."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...jacobians import shape_of, size
from ...jacobians.arrays import host
from ...jacobians.errors import InputError
from ...jacobians.progress import counting
from ...jacobians.threads import cached_property
from ..curvature.checked import find_linearizations, middle_of
from ..curvature.kfac import ekfac, kfac
from ..curvature.over_data import fisher, gauss_newton, hessian, loss_divisor, value_and_grad
from ..curvature.reductions import Reduction
from ..data.batches import Batch, Batches, as_batch
from ..data.comm import Comm, sum_arrays
from ..linear.symmetric import Curvature
from ..model.primal.evaluate import evaluate
from ..model.primal.inputs import check_inputs, hosted
from ..model.primal.model import Model
from .choice import split_like
from .rounding import rounded_weight

FACTORED: dict[str, Callable[..., Curvature]] = {"kfac": kfac, "ekfac": ekfac}
CURVATURES: dict[str, Callable[..., Curvature]] = FACTORED | {
    "gauss_newton": gauss_newton, "diagonal": gauss_newton, "hessian": hessian, "fisher": fisher,
}  # fmt: skip
"""Curvatures over all batches, and with them the curvatures of one batch, which are added."""


@dataclass(frozen=True, eq=False)
class WeighedLoss:
    """The loss `of` over `batches` and its derivatives by `weights`, which are rounded to `bits`.

    `axes` are the axes of their channels, None for one scale. With `comm`, the batches of all ranks
    count, and all of them enter each function of the data.
    """

    model: Model
    of: str
    at: str | None
    weights: Mapping[str, np.ndarray]
    axes: Mapping[str, int | None]
    bits: tuple[int, ...]
    batches: Batches
    reduction: Reduction
    curvature: str | Curvature
    engine: str | None
    comm: Comm | None = None

    def rounded(self, name: str, bits: int) -> np.ndarray:
        """A weight on the grid of a width."""
        return rounded_weight(self.weights[name], bits, self.axes[name])

    def deltas(self, name: str) -> np.ndarray:
        """Δ of a weight, a column for each width."""
        W = self.weights[name].astype(np.float64)
        return np.stack([(self.rounded(name, b) - W).ravel() for b in self.bits], axis=1)

    def average(self, what: str, find: Callable[[Batch], np.ndarray]) -> np.ndarray:
        """Σ w find(batch) over the data, or this by Σ w for a mean, with w what it divides by."""
        if self.comm is None:
            total, whole = self._sums(what, find)
        else:
            def found() -> tuple[list[np.ndarray], float] | None:
                total, whole = self._sums(what, find)
                return ([total], whole) if whole else None

            (total,), parts = sum_arrays(self.comm, found)
            whole = sum(parts)
        if not whole:
            raise InputError("the data has no samples, and so no loss")
        return total / whole if self.reduction == "mean" else total

    def _sums(self, what: str, find: Callable[[Batch], np.ndarray]) -> tuple[np.ndarray, float]:
        """Σ w find(batch) and Σ w over the batches of this process."""
        total, whole = np.zeros(()), 0.0
        weighs = self.reduction == "mean" and (self.batches.count != 1 or self.comm is not None)
        with counting(what, "batches", self.batches.count) as tick:
            for given in self.batches:
                batch, w = hosted(as_batch(given)), 1.0
                if weighs:
                    w = loss_divisor(self.model, batch, {}, of=self.of, at=self.at,
                                     wrt=[*self.weights], engine=self.engine)  # fmt: skip
                if w:  # else S / D is 0 / 0
                    total, whole = total + w * find(batch), whole + w
                tick(1)
        return total, whole

    def over_data(self, find: Callable[[Curvature], np.ndarray]) -> np.ndarray:
        """find(C) for the curvature C of all data, in which find is linear."""
        C, made = self.curvature, list[Curvature]()
        if isinstance(C, Curvature):
            return find(C)
        given: dict[str, Any] = {"wrt": [*self.weights], "engine": self.engine}
        given |= {"at": self.at} if C != "hessian" else {}
        known = C in ("fisher", *FACTORED)
        given |= {"reduction": self.reduction} if known else {"of": self.of}
        if C in FACTORED:
            return find(FACTORED[C](self.model, self.batches, comm=self.comm, **given))

        def of_batch(batch: Batch) -> np.ndarray:
            made[:] = [made[0].relinearize(batch) if made
                       else CURVATURES[C](self.model, batch, **given)]  # fmt: skip
            return find(made[0])

        return self.average(C, of_batch)

    def forms(self) -> np.ndarray:
        """½ Δᵀ C Δ, (weights, widths)."""
        if self.curvature == "diagonal":
            return np.array([h.ravel() @ self.deltas(n) ** 2 for n, h in self.diagonal.items()]) / 2

        def form(C: Curvature, name: str) -> np.ndarray:
            V, A = self.deltas(name).astype(C.dtype), middle_of(C)
            if A is None:
                A = C[name, name]
            else:  # (J Δ)ᵀ H (J Δ), without a product of Jᵀ
                (J,) = find_linearizations(C)
                V = J[J.codomain[0].name, name] @ V
            found: np.ndarray = (host(V).astype(np.float64) * host(A @ V)).sum(axis=0) / 2
            return found

        return self.over_data(lambda C: np.array([form(C, name) for name in self.weights]))

    @cached_property
    def diagonal(self) -> dict[str, np.ndarray]:
        """The diagonal of C, by name."""

        def find(C: Curvature) -> np.ndarray:
            ends = np.cumsum([size(shape_of(spec)) for spec in C.domain])[:-1]
            parts = np.split(np.asarray(host(C.diagonal()), np.float64), ends)
            named = {spec.name: part for spec, part in zip(C.domain, parts, strict=True)}
            return np.concatenate([named[name] for name in self.weights])

        return split_like(self.weights, self.over_data(find))

    @cached_property
    def slopes(self) -> np.ndarray:
        """The loss, and its gradient as a vector behind it."""
        f = value_and_grad(self.model, of=self.of, wrt=[*self.weights], engine=self.engine)

        def find(batch: Batch) -> np.ndarray:
            value, slopes = f(batch)
            parts = [np.ravel(host(x)) for x in (value, *(slopes[n] for n in self.weights))]
            return np.concatenate(parts).astype(np.float64)

        return self.average("gradient", find)

    @cached_property
    def gradient(self) -> dict[str, np.ndarray]:
        """∂loss/∂W by name."""
        return split_like(self.weights, self.slopes[1:])

    def changes(self, batch: Batch) -> np.ndarray:
        """The change of the loss of a batch when each weight is rounded alone."""

        def value(new: Mapping[str, Any]) -> float:
            point = check_inputs(self.model, {**batch, **new}, keep=False, engine=self.engine)
            found = evaluate(self.model, point, [self.of], engine=self.engine)[self.of]
            return float(np.ravel(host(found))[0])

        start = value({})
        return np.array([[value({name: self.rounded(name, b)}) - start for b in self.bits]
                         for name in self.weights])  # fmt: skip
