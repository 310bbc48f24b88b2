"""Adapter: lets functions of a model at a point take data instead of the point."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial, wraps
from inspect import Parameter, signature
from os import PathLike
from typing import Any, ParamSpec, Protocol, TypedDict, TypeVar, Unpack, cast, overload

from ...jacobians import Jacobian
from ...jacobians.arguments import Count, Positive, join_signatures, shown_as, validated
from ...jacobians.errors import InputError
from ..linear.symmetric import Symmetric
from ..model.primal.inputs import Names
from ..model.primal.model import ModelLike
from .batches import Batch, as_batch, is_data, samples
from .cluster import distributed
from .devices import is_jax, on_devices
from .draws import sample_seeds
from .ranks import ranked
from .shares import Reduction, streamed

P = ParamSpec("P")
Made_co = TypeVar("Made_co", covariant=True)

Data = Batch | Iterable[Batch] | Callable[[], Iterable[Batch]] | str | PathLike[str]
"""One batch, a list of batches, a function that returns an iterator over them, or an npz file."""


OVER_DATA = """
    In place of one point, `inputs` may be a list of points, a function that returns an iterator
    over them, or arrays or the path of an npz file with `batch_size=`: see `streamed`.

    - `batch_size`: the rows of a batch, where `inputs` are arrays or the path of an npz file.
    - `reduction`: how the operators of the batches are combined, `"stack"`, `"sum"` or `"mean"`.
    - `shared`: inputs that all batches have in common, by name.
    - `keep`: the bytes of linearised batches that are kept for the next pass.
    - `check`: True compares two products, and warns where the batches differ between passes.
    - `client`: a `distributed.Client`, whose workers share the batches.
    - `comm`: a communicator of ranks that all call this with batches of their own: see `ranked`. Or
      `"jax"` for one batch whose arrays JAX has sharded over devices.
    """
"""What the docstring of a function says besides, once the function takes data."""


class DataOptions(TypedDict, total=False):
    """What `takes_data` adds to the options of a function."""

    reduction: Reduction | None
    batch_size: int | None
    keep: int
    check: bool
    shared: Batch
    client: Any
    comm: Any


class Every(DataOptions, total=False):
    """The options of all functions that take data, as far as a type checker knows them."""

    of: Names
    wrt: Names
    at: str | None
    engine: str | None
    weights: Any
    blocks: str | None
    straight_through: bool
    checkpoint: bool | int
    likelihood: str
    axis: int
    samples: int | None
    seed: int


class TakesData(Protocol[P, Made_co]):
    """A function of a point, as it was, or of data."""

    __name__: str

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Made_co: ...

    @overload
    def __call__(
        self, model: ModelLike, inputs: Batch, *, of: str | None = None, wrt: Names = None,
        weights: Any = None, blocks: str, engine: str | None = None,
    ) -> Symmetric: ...

    @overload
    def __call__(self, model: ModelLike, inputs: Data, **options: Unpack[Every]) -> Jacobian: ...

NOTHING: Batch = {}

ONE_OF_BOTH = "client= has workers, and comm= has ranks that run the same script: give one of them"
"""The text of the error for both."""


@dataclass(frozen=True)
class PerBatch:
    """batch ↦ function(model, shared ∪ batch, **options).

    With `several` batches, a `seed` among the options, where there are `samples` to draw, becomes
    one of each sample: draws are the same however batches are cut, in every pass and everywhere.
    """

    function: Callable[..., Jacobian]
    model: Any
    options: dict[str, Any]
    shared: Batch
    several: bool = True

    def __call__(self, batch: Batch) -> Jacobian:
        batch, options = as_batch(batch), dict(self.options)
        if self.several and "seed" in options and options.get("samples"):
            options["seed"] = sample_seeds(options["seed"], batch)
        return self.function(self.model, {**self.shared, **batch}, **options)


def takes_data(
    reduction: Reduction | None = None, *, stated: Callable[..., None] | None = None,
    size: Callable[..., float] | None = None, finish: Callable[..., Any] | None = None,
) -> Callable[[Callable[P, Made_co]], TakesData[P, Made_co]]:  # fmt: skip
    """Let a function (model, inputs, **options) take data for `inputs`.

    `batch_size`, `keep` and `check` are passed to `streamed`; `shared` are inputs that are the same
    in every batch, such as weights. With `client`, the workers of a cluster do the work: see
    `distributed`. With `comm`, every rank has data of its own: see `ranked`.

    The batches of a function with an option `reduction` are composed by that option. Any other
    function gains the option: `reduction` is its default, and None means that the caller must state
    how the model reduces over samples; `stated(reduction, model, **options)` may check that.
    A mean weighs by `size(model, batch, shared, **options)`, by default the number of samples.
    `finish(C, model, data, over, **options)` is what becomes of the operator C over data.

    >>> from onnxjac.jacobians import Dense
    >>> @takes_data()
    ... def gram(model, inputs, *, factor=1.0):
    ...     return Dense(factor * inputs["x"].T @ inputs["x"], (2,), (2,))
    >>> import numpy as np
    >>> x = np.arange(6.0).reshape(3, 2)
    >>> gram(None, {"x": x}, factor=2.0, reduction="sum", batch_size=2).toarray()
    array([[40., 52.],
           [52., 70.]])
    """

    def decorate(function: Callable[P, Made_co]) -> TakesData[P, Made_co]:
        declared = signature(function).parameters
        own = {p.name: p.default for p in declared.values() if p.default is not Parameter.empty}

        default = own.get("reduction", reduction)

        @validated
        def taking(
            model: Any, inputs: Any = NOTHING, *, reduction: Reduction | None = default,
            batch_size: Positive | None = None, keep: Count = 0, check: bool = True,
            shared: Batch = NOTHING, client: Any = None, comm: Any = None, **options: Any,
        ) -> Any:  # fmt: skip
            if comm is not None and client is not None:
                raise InputError(ONE_OF_BOTH)
            if comm is not None and is_jax(comm):
                found = on_devices(inputs, shared, options.get("engine"))
                inputs, comm, shared, options["engine"] = found
            one = batch_size is None and isinstance(inputs, Mapping)  # mostly a point
            several = comm is not None or (not one and is_data(inputs, batch_size))
            if "reduction" in own:
                options["reduction"] = reduction
            if stated and reduction:
                stated(reduction, model, **options)
            if not several and client is None:
                point = {**as_batch(shared), **inputs} if shared is not NOTHING else inputs
                return cast(Any, function)(model, point, **options)
            seeds = {"seed": own["seed"]} if "seed" in own else {}
            make = PerBatch(taking, model, seeds | options, shared, several)
            composed: Callable[..., Jacobian] = streamed
            if client is not None:
                composed = partial(distributed, client=client)
            elif comm is not None:
                composed = partial(ranked, comm=comm)
            every = {"shared": as_batch(shared), **own, **options}
            weighs = partial(size, model, **every) if size else samples
            if reduction is None and several:
                raise InputError(
                    f"{taking.__name__} over several batches needs reduction='mean' or 'sum': "
                    "whether the model's loss is the mean or the sum over the samples of a batch"
                )
            C = composed(make, inputs, reduction=reduction or "sum", batch_size=batch_size,
                         keep=keep, size=weighs, check=check)  # fmt: skip
            if finish is None or client is not None:
                return C
            over = {"reduction": reduction, "batch_size": batch_size, "shared": every["shared"],
                    "comm": comm}  # fmt: skip
            return finish(C, model, inputs, over, **options)

        shown = join_signatures(signature(function), signature(taking))
        cast(Any, taking).__wrapped__.__qualname__ = function.__qualname__  # for a TypeError
        wraps(function)(taking).__doc__ = f"{function.__doc__ or ''}{OVER_DATA}"
        return cast(TakesData[P, Made_co], shown_as(taking, shown))

    return decorate
