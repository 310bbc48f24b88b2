"""Near: a model as a function of flat shifts of some of its tensors, around a point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...jacobians import shape_of, size
from ..flow.contents import TensorSpec
from ..model import Model
from ..primal.evaluate import evaluate


@dataclass(frozen=True)
class Near:
    """δ ↦ f(x + δ), both flat: x are the tensors of `wrt` at the point, f those of `of`."""

    model: Model
    point: Mapping[str, Any]
    wrt: tuple[TensorSpec, ...]
    of: tuple[TensorSpec, ...]
    engine: str | None

    def __call__(self, shift: np.ndarray) -> np.ndarray:
        return self._flat(self.of, self.moved(shift))

    @property
    def x(self) -> np.ndarray:
        """x, flat."""
        return self._flat(self.wrt, self.point)

    @property
    def parts(self) -> np.ndarray:
        """For every entry of f, which tensor of `of` it is of."""
        sizes = [size(shape_of(spec)) for spec in self.of]
        return np.repeat(np.arange(len(sizes)), sizes)

    def moved(self, shift: np.ndarray) -> dict[str, np.ndarray]:
        """The point with the tensors of `wrt` shifted."""
        shapes = [shape_of(spec) for spec in self.wrt]
        parts = np.split(shift, np.cumsum(list(map(size, shapes)))[:-1])
        shifts: dict[str, np.ndarray] = {}
        for spec, shape, part in zip(self.wrt, shapes, parts, strict=True):
            shifts[spec.name] = shifts.get(spec.name, 0) + part.reshape(shape)
        return perturbed(self.model, self.point, shifts, self.engine)

    def _flat(self, specs: tuple[TensorSpec, ...], point: Mapping[str, Any]) -> np.ndarray:
        names = [spec.name for spec in specs]
        values = evaluate(self.model, point, names, engine=self.engine)
        return np.concatenate([np.ravel(values[name]) for name in names])


def perturbed(
    model: Model, point: Mapping[str, Any], shifts: Mapping[str, np.ndarray], engine: str | None
) -> dict[str, Any]:
    """The point at which each named tensor is what it would be, plus its shift.

    An intermediate is first computed from what was shifted before it, then shifted itself.
    """
    moved = dict(point)
    made = {name: k for k, step in enumerate(model.steps) for name in step.outputs}
    for name in sorted(shifts, key=lambda name: made.get(name, -1)):
        value = evaluate(model, moved, [name], engine=engine)[name]
        moved[name] = (value + shifts[name]).astype(value.dtype)
    return moved
