"""Checked: the tests of `check` for a linearisation, against its model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from onnx.helper import tensor_dtype_to_np_dtype

from ...jacobians import Dag, Jacobian, shape_of, size
from ...ops import Step
from ...ops.node import schema_defaults
from ..model.primal.evaluate import evaluate
from ..model.primal.model import Model, TensorSpec
from ..model.primal.names import Specs, is_float
from .check import Check, Outcome, against_differences, check, random
from .differences import spread
from .tape.active import active_steps


class Linear(Protocol):
    """A linearisation that knows its model and point, and can be repeated at other points."""

    domain: Specs
    codomain: Specs
    point: Mapping[str, Any]
    route: Any
    shape: tuple[int, int]
    dtype: np.dtype

    @property
    def dag(self) -> Dag: ...

    def _near(self, point: Mapping[str, Any]) -> Any: ...


def checked(J: Any, seed: int, face: Jacobian | None = None) -> Check:
    """The outcomes of all tests, with random vectors drawn from `seed`.

    `face` is the operator that users see if it differs from J, such as a Hessian.
    """
    near, narrow = around(J), narrow_in(J)
    return check(face or J, J.dag, near, lambda: beside(J, near, seed), seed=seed, narrow=narrow)


def differences(J: Any, seed: int) -> Outcome:
    """The last of these tests alone: J v against central differences of the model."""
    near = around(J)
    return against_differences(J, near, lambda: beside(J, near, seed), seed, narrow_in(J))


def around(J: Linear) -> Near:
    """The model as a function around the point."""
    return Near(J.route.model, J.point, J.domain, J.codomain, J.route.engine)


def beside(J: Linear, near: Near, seed: int) -> tuple[Jacobian, Near]:
    """The Jacobian and the model at a random point close to this one."""
    shift = 1e-2 * spread(near.x) * random(seed).standard_normal(J.shape[1])
    moved = J._near(near.moved(shift.astype(J.dtype)))
    return moved, around(moved)


def narrow_in(J: Linear) -> tuple[TensorSpec, ...]:
    """The floating tensors from `wrt` to `of` with less precision than J, stored or computed."""
    wrt, of = (tuple(spec.name for spec in side) for side in (J.domain, J.codomain))
    active = active_steps(J.route.model.steps, wrt, of)
    made = (computed(J.route.model.spec(name), found.step)
            for found in active for name in found.step.outputs if name)  # fmt: skip
    specs = {s.name: s for s in (*J.domain, *J.codomain, *made)}
    return tuple(
        spec for spec in specs.values()
        if spec.dtype is not None and is_float(spec.dtype)
        and np.dtype(spec.dtype).itemsize < J.dtype.itemsize
    )  # fmt: skip


def computed(spec: TensorSpec, step: Step) -> TensorSpec:
    """The spec of an output, with the dtype of its computation if an attribute states it."""
    defaults = schema_defaults(step.op_type, step.domain, step.version)
    kept = step.attrs.get("stash_type", defaults.get("stash_type"))
    return spec if kept is None else spec._replace(dtype=tensor_dtype_to_np_dtype(kept))


@dataclass(frozen=True)
class Near:
    """δ ↦ f(x + δ), flat, with x the tensors of `wrt` at the point and f the tensors of `of`."""

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
        """The index of the tensor in `of` that each entry of f belongs to."""
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
    """The point with a shift added to each named tensor.

    An intermediate is first computed from the tensors shifted before it, then shifted itself.
    """
    moved = dict(point)
    made = {name: k for k, step in enumerate(model.steps) for name in step.outputs}
    for name in sorted(shifts, key=lambda name: made.get(name, -1)):
        value = evaluate(model, moved, [name], engine=engine)[name]
        moved[name] = (value + shifts[name]).astype(value.dtype)
    return moved
