"""Checked: the tests of `check` for a linearisation, against its model."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx.helper import tensor_dtype_to_np_dtype

from ...jacobians import Jacobian
from ...ops import Step
from ...ops.node import schema_defaults
from ..model.primal.model import TensorSpec
from ..model.primal.names import is_float
from .check import Check, Outcome, against_differences, check, random
from .differences import Near, spread
from .tape.active import active_steps


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


def around(J: Any) -> Near:
    """The model as a function around the point."""
    return Near(J.route.model, J.point, J.domain, J.codomain, J.route.engine)


def beside(J: Any, near: Near, seed: int) -> tuple[Jacobian, Near]:
    """The Jacobian and the model at a random point close to this one."""
    shift = 1e-2 * spread(near.x) * random(seed).standard_normal(J.shape[1])
    moved = J._near(near.moved(shift.astype(J.dtype)))
    return moved, around(moved)


def narrow_in(J: Any) -> tuple[TensorSpec, ...]:
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
