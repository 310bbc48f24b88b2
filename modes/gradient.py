"""Gradient: the graph of a gradient, recorded once for all points at which it is the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..jacobians.errors import InputError, OnnxJacError
from ..jacobians.foreign import as_array
from .linearize import Route
from .model import Model
from .primal.evaluate import evaluate
from .recording.derive import Names, vjp_graph
from .tape.moving import is_general
from .tape.tapes import keep, signature_of

SEEN, ONCE = "seen once", "for one point only"
"""What is known of a gradient that is not kept."""


def gradient_route(
    model: Model, point: Mapping[str, Any], of: Names, wrt: Names, weights: Any, engine: str | None
) -> Route:
    """The route of ∂²(Σ weights ∘ of)/∂wrt² through the recorded graph of the gradient.

    That of a scalar is kept from the second point of the same shapes on, for all others: the
    batches of a data set, the iterations of a solver.
    """
    shapes = signature_of(point)
    key = "gradient", of, wrt, engine, shapes
    known = ONCE if weights is not None or shapes is None else model.routes.get(key)
    if isinstance(known, Route):
        return known
    seeds = {of[0]: combination(model, point, of, weights, engine)}
    general = _general(model, point, of, wrt, seeds, engine) if known == SEEN else None
    if known != ONCE:
        keep(model.routes, key, general or (ONCE if known else SEEN))
    return general or _recorded(model, point, of, wrt, seeds, engine)


def _general(
    model: Model, point: Mapping[str, Any], of: Names, wrt: Names,
    seeds: Mapping[str, np.ndarray], engine: str | None,
) -> Route | None:  # fmt: skip
    """The route for all points of the same shapes; None where there is none."""
    given = point.keys() - model.inputs.keys() - model.initializers.keys()
    if given or not is_general(model, point, (*of, *wrt)):
        return None
    try:
        return _recorded(model, point, of, wrt, seeds, engine, general=True)
    except OnnxJacError:  # some rule needs a number of the point
        return None


def _recorded(
    model: Model, point: Mapping[str, Any], of: Names, wrt: Names,
    seeds: Mapping[str, np.ndarray], engine: str | None, *, general: bool = False,
) -> Route:  # fmt: skip
    """The route through a graph that is recorded now."""
    graph = vjp_graph(model, point, of, wrt, engine, seeds, general=general).model("gradient")
    return Route(graph, tuple(f"{name}_cotangent" for name in wrt), wrt, engine)


def combination(
    model: Model, point: Mapping[str, Any], of: Names, weights: Any, engine: str | None
) -> np.ndarray:
    """The weights of the scalar that is differentiated: 1 for a scalar output."""
    if len(of) != 1:
        raise InputError(f"a Hessian is of one tensor, not of {list(of)}: name it with of=")
    value = evaluate(model, point, of, engine=engine)[of[0]]
    if weights is None and value.size != 1:
        raise InputError(
            f"{of[0]!r} has shape {list(value.shape)}: give weights of that shape, so that "
            f"sum(weights * {of[0]}) is the scalar to differentiate"
        )
    chosen = (
        np.ones(value.shape, value.dtype) if weights is None else as_array(weights, value.dtype)
    )
    if chosen.shape != value.shape:
        raise InputError(f"weights have shape {list(chosen.shape)}, {of[0]!r} {list(value.shape)}")
    return chosen
