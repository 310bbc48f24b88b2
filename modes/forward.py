"""Forward mode: one tangent through the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .linearize import linearize
from .model import Model
from .naming.named import check_named
from .naming.names import Names

Tensors = dict[str, np.ndarray]


def jvp(
    model: Model,
    primals: Mapping[str, Any],
    tangents: Mapping[str, Any],
    *,
    of: Names = None,
    **options: Any,
) -> tuple[Tensors, Tensors]:
    """y = f(x) and dy = J dx, both by name.

    `tangents` names the tensors that move, inputs, initializers or intermediates, each with an
    array of its tensor's shape; the others stay. `dy` has the shapes of `y`. Options are those of
    `linearize`.
    """
    check_named(tangents)
    J = linearize(model, primals, of=of, wrt=tuple(tangents), **options)
    return dict(J.primal), J.apply(tangents)
