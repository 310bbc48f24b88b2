"""Forward mode: one tangent through the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

import numpy as np

from ..jacobians.arguments import passes_options_to
from .linearize import Options, linearize
from .model.primal.inputs import Names, check_named
from .model.primal.model import ModelLike

Tensors = dict[str, np.ndarray]


@passes_options_to(linearize, but="wrt")
def jvp(
    model: ModelLike,
    primals: Mapping[str, Any],
    tangents: Mapping[str, Any],
    *,
    of: Names = None,
    **options: Unpack[Options],
) -> tuple[Tensors, Tensors]:
    """y = f(x) and dy = J dx, both by name.

    `tangents` names the tensors that move: inputs, initializers or intermediates. All other tensors
    stay.

    - `model`: the model, as `load` gives it.
    - `primals`: the point, an array by name for every input; weights may be given too.
    - `of`: the tensors that are differentiated, by name; by default all floating outputs.
    - `engine`: `"onnxruntime"` (default where installed), `"numpy"`, `"torch"` or `"jax"` runs
      the model.
    - `straight_through`: True lets tangents pass rounding and quantisation; see `linearize`.
    - `checkpoint`: True, or a number of segments, saves memory by recomputing; see `linearize`.

    Shapes: a tangent dx has the shape of its tensor, and dy has the shapes of y. Raises
    `InputError` where a name, a shape or a dtype does not fit, and `UnsupportedOp` for an operator
    without a rule.
    """
    check_named(tangents)
    J = linearize(model, primals, of=of, wrt=tuple(tangents), **options)
    return dict(J.primal), J.apply(tangents)
