"""Linearize: the model at a point becomes one Jacobian, shared by all its products."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, TypedDict

from ..jacobians.arguments import Natural, validated
from ..jacobians.readings import library_of
from ..jacobians.threads import remembered
from .linear.chained import chain_jacobians, is_implied
from .linear.derivatives.record import warn_roundings, warn_zeros
from .linear.derivatives.route import route_of
from .linear.linearization import Linearization, linearized
from .model.primal.inputs import Names, names_of
from .model.primal.model import ModelLike, as_model

ZEROS, ROUNDED = "zeros", "rounded"
"""Keys of the structural zeros, and of roundings, in what a derivative or a route knows."""


class Options(TypedDict, total=False):
    """The options of `linearize` besides `of` and `wrt`."""

    engine: str | None
    straight_through: bool
    checkpoint: bool | int


@validated
def linearize(
    model: ModelLike,
    inputs: Mapping[str, Any],
    *,
    of: Names = None,
    wrt: Names = None,
    engine: str | None = None,
    straight_through: bool = False,
    checkpoint: bool | Natural = False,
) -> Linearization:
    """J = ∂of/∂wrt at the point `inputs`, as a lazy linear operator.

    `wrt` and `of` name any tensors of the model: inputs, initializers, intermediates. By default
    they are all floating graph inputs and outputs. A tensor of `wrt` is perturbed where it
    stands: an intermediate keeps its dependence on other tensors of `wrt`.

    `straight_through=True` lets tangents pass rounding and quantisation, whose true derivative is
    zero almost everywhere: the estimator that quantisation-aware training uses.

    `checkpoint=True` holds only the tensors between √n segments of the model and recomputes the
    others at every product; a number sets how many segments. Such a J is never eliminated or
    multiplied out.

    With `engine="torch"`, PyTorch runs the model and J holds tensors, on the device of the inputs
    or the one named after a colon, `"torch:cuda"`; inputs on a GPU imply it. With `engine="jax"`,
    XLA compiles the model and the products, for all points of the same shapes.

    An input may be a root or a trajectory: then J is the total derivative, by the chain rule. `wrt`
    names tensors on which these depend (the default), and others of this model.

    - `model`: the model, as `load` gives it.
    - `inputs`: the point, an array by name for every input; weights may be given too. A model
      without inputs needs none; one array stands for the only input, see `Model.run`.

    Shapes: (total size of `of`, total size of `wrt`), tensors ravelled and concatenated in order.
    Raises `InputError` for a name or input that does not fit, `UnsupportedOp` for an operator
    without a rule.
    """
    model = as_model(model, of, wrt=wrt, straight_through=straight_through)
    if is_implied(inputs):
        part = partial(linearize, model, of=of, engine=engine, checkpoint=checkpoint)
        own, again = (lambda at, names: part(at, wrt=names)), partial(part, wrt=wrt)
        found: Any = chain_jacobians(model, inputs, wrt, own, again)
        return found
    of_names = names_of(model, of, model.outputs, "of")
    wrt_names = names_of(model, wrt, model.inputs, "wrt")
    engine = engine_for(inputs, engine)
    route = route_of(model, of_names, wrt_names, engine, model.estimates, checkpoint)
    J = linearized(route, inputs, moves=False)
    warn_of_zeros(J)
    return J


def engine_for(inputs: Any, engine: str | None) -> str | None:
    """The engine with the device of the inputs, if one of them is a tensor on a GPU."""
    values = inputs.values() if isinstance(inputs, Mapping) else ()
    for library, x in ((library_of(x), x) for x in values):
        if library.keeps and library.engine and engine in (None, library.engine):
            name = str(library.place(x).device)
            if name.partition(":")[0] not in ("cpu", "meta"):
                return f"{library.engine}:{name}"
    return engine


def warn_of_zeros(J: Linearization) -> None:
    """Warn of pairs of tensors that no differentiable path joins, and name what cuts the path.

    The pairs are the same at all points of a derivative that reads no rule at a point.
    """
    form, (wrt, of) = J.at.derivative, J.at.names
    known = form.known if form is not None and form.closed else {}
    warn_zeros(remembered(known, ZEROS, lambda: J.route.zeros(J.dag, of, wrt)))
    warn_roundings(remembered(known, ROUNDED, lambda: J.route.roundings(J.dag, of, wrt)))
