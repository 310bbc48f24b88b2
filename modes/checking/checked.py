"""Checked: the tests of `check`, of a linearisation beside the model that it was made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from onnx.helper import tensor_dtype_to_np_dtype

from ...jacobians import Dag, Jacobian
from ...ops import Step
from ...ops.node import schema_defaults
from ..model import TensorSpec
from ..naming.names import Specs, is_float
from ..tape.active import active_steps
from ..tape.routing import Routed
from .check import Check, Outcome, against_differences, check, random
from .differences import spread
from .near import Near


class Linear(Protocol):
    """A linearisation: the model around its point, and its like at other points."""

    domain: Specs
    codomain: Specs
    point: Mapping[str, Any]
    route: Routed
    shape: tuple[int, int]
    dtype: np.dtype

    @property
    def dag(self) -> Dag: ...

    def _like(self, J: Any) -> Any: ...


def checked(J: Any, seed: int, face: Jacobian | None = None) -> Check:
    """The outcomes of all tests, with random vectors drawn from `seed`.

    `face` is what is J to those who use it, where that is another operator: a Hessian.
    """
    near, narrow = around(J), narrow_in(J)
    return check(face or J, J.dag, near, lambda: beside(J, near, seed), seed=seed, narrow=narrow)


def differences(J: Any, seed: int) -> Outcome:
    """The last of these tests alone: J v against differences of the model."""
    near = around(J)
    return against_differences(J, near, lambda: beside(J, near, seed), seed, narrow_in(J))


def around(J: Linear) -> Near:
    """The primal near the point."""
    return Near(J.route.model, J.point, J.domain, J.codomain, J.route.engine)


def beside(J: Linear, near: Near, seed: int) -> tuple[Jacobian, Near]:
    """The Jacobian and the primal at a random point near this one."""
    shift = 1e-2 * spread(near.x) * random(seed).standard_normal(J.shape[1])
    moved = J._like(J.route.record(near.moved(shift.astype(J.dtype))))
    return moved, around(moved)


def narrow_in(J: Linear) -> tuple[TensorSpec, ...]:
    """The floating tensors on the way from `wrt` to `of` that have fewer digits than J, or are
    computed with fewer.
    """
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
    """An output of a step, of the type in which it is computed where an attribute says so."""
    defaults = schema_defaults(step.op_type, step.domain, step.version)
    kept = step.attrs.get("stash_type", defaults.get("stash_type"))
    return spec if kept is None else spec._replace(dtype=tensor_dtype_to_np_dtype(kept))
