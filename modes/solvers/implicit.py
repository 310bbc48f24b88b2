"""Implicit: steps in time, of which each is a root of a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from scipy.optimize import OptimizeResult

from ...jacobians import shape_of
from ...jacobians.errors import InputError
from ..linearization import Linearization
from ..model import Model
from ..names import Names, names_of
from ..primal.inputs import check_inputs
from ..recording.derive import like, started
from ..recording.trace import trace
from .newton_krylov import newton_krylov

STEP = "step"
"""The input of an Euler residual that holds h."""


def euler_residual(
    model: Model, inputs: Mapping[str, Any], *, of: Names = None, wrt: Names = None,
    engine: str | None = None,
) -> Model:  # fmt: skip
    """G(u) = u − u₋ − h F(u) as a model, of which a root is an implicit Euler step of u̇ = F(u).

    The tensors of `of` are F, those of `wrt` u, in the same order and of the same shapes. New
    inputs are `step`, h, and for each u its `u_before`; the outputs are `u_residual`.
    """
    rates, states = names_of(model, of, model.outputs, "of"), names_of(model, wrt, model.inputs, "wrt")
    t = trace(model, check_inputs(model, inputs), (*rates, *states), engine)
    shapes = [[shape_of(t.values[name]) for name in names] for names in (rates, states)]
    if shapes[0] != shapes[1]:
        raise InputError(f"rates {list(rates)} and states {list(states)} differ: {shapes}")
    first = t.values[states[0]]
    before = [like(t, name, before_of(name)) for name in states]
    h = t.recorder.new((), first.dtype.numpy(), STEP)
    draft = started(t, [*before, h], (), states)
    op = t.recorder
    for rate, name, past in zip(rates, states, before, strict=True):
        moved = op.Mul(h, t.values[rate])
        draft.outputs[f"{name}_residual"] = op.Sub(op.Sub(t.values[name], past), moved)
    return draft.model("implicit Euler")


def before_of(name: str) -> str:
    """The input that holds a state before the step."""
    return f"{name}_before"
