"""Over data: the public functions that take a point, extended to data.

In place of a point they take data: a list of points, a generator function, arrays with
`batch_size=`, an `.npz` file. The operators of the batches are stacked (`linearize`) or combined as
`reduction=` says, and only one batch is held at a time: see `modes.data`. With `client=`, the
workers of a cluster share the batches: see `modes.data.cluster`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal, Unpack

import numpy as np

from ...jacobians import Jacobian, Take, shape_of, size
from ...jacobians.arguments import Positive, passes_options_to, validated
from ...jacobians.errors import InputError
from .. import hessian as hessians
from .. import linearize as linearizing
from .. import reverse
from ..data.adapter import NOTHING, Data, DataOptions, takes_data
from ..data.batches import Batch, as_batch, is_data, samples
from ..data.devices import is_jax, on_devices
from ..data.stream import codomains_of
from ..forward import Tensors
from ..linear.symmetric import Symmetric
from ..model.primal.evaluate import shape_at
from ..model.primal.inputs import Names, Specs, check_inputs, heads_of, name_of, names_of
from ..model.primal.model import Model, ModelLike, TensorSpec, as_model
from . import fisher as fishers
from . import gauss_newton as gauss_newtons
from .fisher import terms
from .loss_over_data import OfLoss, loss_over_data
from .reductions import Tail, warn_of_other


def stated_reduction(
    reduction: str | None, model: Model, of: str | None = None, wrt: Names = None, **_: Any
) -> None:
    """A Hessian has the reduction of its model."""
    model = as_model(model, of, wrt=wrt)
    by = names_of(model, wrt, model.inputs, "wrt")
    warn_of_other(reduction, model, name_of(model, of, model.outputs, "of"), by)


def loss_divisor(
    model: Model, batch: Batch, shared: Batch, *, of: str | None = None, at: str | None = None,
    wrt: Names = None, engine: str | None = None, **_: Any,
) -> float:  # fmt: skip
    """D of the loss of a batch; the number of its samples where the model shows no mean."""
    model = as_model(model, of, at, wrt=wrt)
    by = names_of(model, wrt, model.inputs, "wrt") if at is None else (at,)
    tail = Tail(model, name_of(model, of, model.outputs, "of"), by, batch, engine)
    if not (tail.terms or tail.varying):
        return samples(batch)
    return tail.divisor(check_inputs(model, {**shared, **batch}, keep=False, engine=engine))


def count_rows(
    model: Model, batch: Batch, shared: Batch, *, of: str | None = None, at: str | None = None,
    axis: int | None = None, engine: str | None = None, **_: Any,
) -> int:  # fmt: skip
    """The number of terms of a batch: rows of z along the axis, or of the first axis if None."""
    model = as_model(model, of, at)
    z = name_of(model, of if at is None else at, heads_of(model), "at")
    point = check_inputs(model, {**shared, **batch}, keep=False, engine=engine)
    shape = shape_at(model, point, z, engine)
    return shape[0] if axis is None else terms(shape, axis)


def of_loss(C: Jacobian, model: Model, data: Any, over: Mapping[str, Any], **options: Any) -> Any:
    """Curvature over data with the loss and its gradient, unless `weights` combine several."""
    if not isinstance(C, Symmetric) or options.get("weights") is not None:
        return C
    chosen = {name: options[name] for name in SLOPES & options.keys()}
    wrt = tuple(spec.name for spec in C.domain)
    f = value_and_grad(model, wrt=wrt, **chosen)
    return OfLoss(C.operator, C.domain, C.formula, partial(f, data, **over))


SLOPES = frozenset({"of", "engine", "straight_through"})
"""The options of curvature that its gradient has too."""

linearize = takes_data("stack")(linearizing.linearize)
hessian = takes_data(stated=stated_reduction, size=loss_divisor, finish=of_loss)(hessians.hessian)
gauss_newton = takes_data(size=loss_divisor, finish=of_loss)(gauss_newtons.gauss_newton)
fisher = takes_data(size=count_rows)(fishers.fisher)
empirical_fisher = takes_data(size=count_rows)(fishers.empirical_fisher)
gram = takes_data("sum")(gauss_newtons.gram)

for _function in (linearize, hessian, gauss_newton, fisher, empirical_fisher, gram):
    _function.__module__ = __name__  # where a pickle finds the one that takes data


@validated
def value_and_grad(
    model: ModelLike,
    *,
    of: str | None = None,
    wrt: Names = None,
    engine: str | None = None,
    straight_through: bool = False,
) -> reverse.ValueAndGrad:
    """x ↦ (f(x), ∇f(x)), with f the scalar tensor that `of` names: a function of the point.

    Called with the inputs of the model, and the tensors of `wrt` that are no inputs where they
    differ from the model's, it gives f as a number and its gradient by name. The gradient is
    recorded at the first call, as one program for all points of the same shapes; each further call
    is one run of the program. Where control flow that was unrolled, or another choice, depends on
    the numbers of a point, it is recorded at each point.

    Called with data, `f(batches, reduction="mean", shared=weights)`, it gives f and ∇f over all
    batches: a list of points, a function that returns an iterator over them, a data loader, or
    arrays or an npz file with `batch_size=`. `reduction` says how the model's loss reduces over
    samples; a mean weighs as `hessian` does. `shared` are inputs that all batches have in common.
    With `comm=`, every rank gives data of its own, and f and ∇f are over all of it: one all-reduce.

    - `model`: the model, as `load` gives it.
    - `wrt`: the tensors to differentiate by, by name; by default all floating inputs.
    - `engine`: `"onnxruntime"` (default where installed), `"numpy"` or `"torch"` runs the model.
    - `straight_through`: True lets tangents pass rounding and quantisation; see `linearize`.

    Shapes: each gradient has the shape of its tensor of `wrt`. Raises `InputError` for a name that
    the model does not have; the function raises `InputError` where f has more than one element, for
    which `vjp` takes a cotangent, and where an input does not fit, and `UnsupportedOp` for an
    operator without a rule.
    """
    f = reverse.value_and_grad(
        model, of=of, wrt=wrt, engine=engine, straight_through=straight_through
    )
    return replace(f, over=partial(loss_over_data, loss_divisor))


@passes_options_to(linearizing.linearize)
@validated
def grad(
    model: ModelLike,
    inputs: Data = reverse.NOTHING,
    *,
    of: str | None = None,
    wrt: Names = None,
    reduction: Literal["sum", "mean"] | None = None,
    batch_size: Positive | None = None,
    shared: Batch = NOTHING,
    comm: Any = None,
    **options: Unpack[linearizing.Options],
) -> Tensors:
    """∇f by name, with f the scalar tensor that `of` names, at a point or over data.

    - `model`: the model, as `load` gives it.
    - `inputs`: the point, an array by name for every input; weights may be given too. Or data: a
      list of points, a function that returns an iterator over them, a data loader, or arrays or an
      npz file with `batch_size`.
    - `wrt`: the tensors to differentiate by, by name; by default all floating inputs.
    - `engine`: `"onnxruntime"` (default where installed), `"numpy"` or `"torch"` runs the model.
    - `straight_through`: True lets tangents pass rounding and quantisation; see `linearize`.
    - `checkpoint`: True, or a number of segments, saves memory by recomputing; see `linearize`.
    - `reduction`: over data `"sum"` or `"mean"`, as the model's loss reduces over samples.
    - `batch_size`: the rows of a batch, where `inputs` are arrays or the path of an npz file.
    - `shared`: inputs that all batches have in common, by name.
    - `comm`: a communicator of ranks that all call this with batches of their own: see `ranked`.

    Shapes: each gradient has the shape of its tensor of `wrt`. Raises `InputError` where `of` has
    more than one element, for which `vjp` takes a cotangent, and where a name, a shape or a dtype
    does not fit; `UnsupportedOp` for an operator without a rule.
    """
    if is_jax(comm):
        found = on_devices(inputs, shared, options.get("engine"))
        inputs, comm, shared, options["engine"] = found
    if comm is None and not is_data(inputs, batch_size):
        point: Any = inputs
        point = {**as_batch(shared), **point} if shared else point
        return reverse.grad(model, point, of=of, wrt=wrt, **options)
    if options.get("checkpoint"):
        raise InputError("checkpoint= is for one point: over data, each batch is small")
    known: Any = {name: x for name, x in options.items() if name != "checkpoint"}
    f = value_and_grad(model, of=of, wrt=wrt, **known)
    return f(inputs, reduction=reduction, batch_size=batch_size, shared=shared, comm=comm)[1]


class OptionsOverData(linearizing.Options, DataOptions):
    """The options of `linearize` over data."""


@passes_options_to(linearize)
def ntk(
    model: ModelLike,
    inputs: Data,
    others: Data | None = None,
    *,
    of: Names = None,
    wrt: Names = None,
    **options: Unpack[OptionsOverData],
) -> Jacobian:
    """K = J(x) J(x')ᵀ with J = ∂of/∂wrt: the empirical neural tangent kernel.

    `others` is x', another batch; by default x' = x, and K is symmetric, between the tensors of
    `of`. Either may be data, whose batches are stacked as if they were one batch. Rows and columns
    are the entries of `of`, samples first, so that for outputs (N, C) the block of a pair of
    samples n, m is `K[n * C : (n + 1) * C, m * C : (m + 1) * C]`. No scaling. Shapes: (size of
    `of`, size of `of` at `others`). Source: Jacot, Gabriel, Hongler, "Neural tangent kernel", 2018.

    - `model`: the model, as `load` gives it.
    - `inputs`: x, one point, or data: a list of points, a function that returns an iterator over
      them, or arrays or an npz file with `batch_size`.
    - `of`: the tensors that are differentiated, by name; by default all floating outputs.
    - `wrt`: the tensors to differentiate by, by name; by default all floating inputs.
    - `engine`: `"onnxruntime"` (default where installed), `"numpy"`, `"torch"` or `"jax"` runs
      the model.
    - `straight_through`: True lets tangents pass rounding and quantisation; see `linearize`.
    - `checkpoint`: True, or a number of segments, saves memory by recomputing; see `linearize`.
    - `batch_size`: the rows of a batch, where `inputs` are arrays or the path of an npz file.
    - `shared`: inputs that all batches have in common, by name.
    - `keep`: the bytes of linearised batches that are kept for the next pass.
    - `check`: True compares two products, and warns where the batches differ between passes.
    - `reduction`: how the Jacobians of the batches are combined, `"stack"` by default.
    - `client`: a `distributed.Client`, whose workers share the batches.
    - `comm`: a communicator of ranks that all call this with batches of their own: see `ranked`.

    Raises `InputError` where a name, a shape or a dtype does not fit, and `UnsupportedOp` for an
    operator without a rule.
    """
    given: Any = {"of": of, "wrt": wrt, **options}
    J, tensors = by_tensor(linearize(model, inputs, **given))
    if others is not None:
        return J @ by_tensor(linearize(model, others, **given))[0].T
    return J @ J.T if tensors is None else Symmetric(J @ J.T, tensors, formula="J Jᵀ")


def by_tensor(J: Jacobian) -> tuple[Jacobian, Specs | None]:
    """J with its rows sorted by tensor, and these tensors over all batches.

    The rows of a stack are sorted by batch. If an operator has no names, or its names differ
    between batches, J is returned unchanged, with None.
    """
    batches = codomains_of(J)
    names = {tuple(spec.name for spec in specs) for specs in batches}
    if len(names) != 1 or names == {()}:
        return J, None
    tensors = tuple(zip(*batches, strict=True))
    sizes = np.array([[size(shape_of(spec)) for spec in specs] for specs in batches])
    if 1 not in sizes.shape:  # all rows of the first tensor, then of the second, …
        owners = np.tile(np.arange(sizes.shape[1]), len(sizes)).repeat(sizes.ravel())
        J = Take(np.argsort(owners, kind="stable"), 0, J.out_shape, J.dtype) @ J
    return J, tuple(map(join_batches, tensors))


def join_batches(specs: Specs) -> TensorSpec:
    """One tensor over all batches, joined along its first axis; flat if the other axes differ.

    >>> z = TensorSpec("z", (3, 2), np.dtype(float))
    >>> print(join_batches((z, z._replace(shape=(1, 2)))))
    z float64[4,2]
    >>> print(join_batches((z, z._replace(shape=(3, 5)))))
    z float64[21]
    """
    if len(specs) == 1:
        return specs[0]
    shapes = [shape_of(spec) for spec in specs]
    alike = all(shapes) and len({shape[1:] for shape in shapes}) == 1
    counts = [shape[0] for shape in shapes] if alike else map(size, shapes)
    return specs[0]._replace(shape=(sum(counts), *(shapes[0][1:] if alike else ())))
