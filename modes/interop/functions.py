"""Functions of arrays, closed under differentiation, for other libraries to call.

Each function has a value, a pushforward of tangents (`push`) and a pullback of cotangents (`pull`),
which are functions with arguments again. So one adapter serves all functions, to any order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, final

import numpy as np

from ...jacobians import Jacobian, Shape, dtype_of, hooks, shape_of
from ...jacobians.errors import InputError, closest, optional
from ...jacobians.threads import cached_property
from ...ops.registry import version
from ..linear.derivatives.route import route_of
from ..linear.linearization import Linearization, linearized
from ..model.primal.evaluate import evaluate
from ..model.primal.inputs import Names, check_inputs, is_float, names_of
from ..model.primal.model import Model, ModelLike, as_model
from ..recording.derive import jvp_graph, vjp_graph

Args = Sequence[Any]
Call = tuple["Function", tuple[Any, ...]]


class Function(ABC):
    """(x₁ … xₙ, others) ↦ (y₁ … yₘ), differentiable in x; arguments are arrays of any library.

    A `batched` function has one argument, whose leading axes hold several vectors.
    """

    n: int
    m: int
    batched = False

    @abstractmethod
    def __call__(self, args: Arrays) -> Arrays:
        """The values."""

    @abstractmethod
    def push(self, args: Args, v: Args) -> Call:
        """J v, as a function and its arguments."""

    @abstractmethod
    def pull(self, args: Args, u: Args) -> Call:
        """Jᵀ u, as a function and its arguments."""


@final
class ProductFunction(Function):
    """v ↦ J v along the last axis; a floating dtype of v is kept."""

    n = m = 1
    batched = True

    def __init__(self, J: Jacobian) -> None:
        self.J = J

    def __call__(self, args: Arrays) -> Arrays:
        (v,) = args
        check_vectors(self.J, v.shape)
        columns = v.reshape(-1, v.shape[-1]).T
        product = self.J @ columns[:, 0] if v.ndim == 1 else self.J.matmat(columns).T
        kept = v.dtype if is_float(v.dtype) else self.J.dtype
        shape = *v.shape[:-1], self.J.shape[0]
        return (np.reshape(product, shape).astype(kept, copy=False),)

    def push(self, args: Args, v: Args) -> Call:
        return self, tuple(v)

    def pull(self, args: Args, u: Args) -> Call:
        return ProductFunction(self.J.T), tuple(u)


def check_vectors(J: Jacobian, shape: Shape) -> None:
    """Raises `InputError` where the last axis of an array does not hold vectors for J."""
    if shape[-1:] != J.shape[1:]:
        raise InputError(f"J is {J.shape[0]}×{J.shape[1]}: give vectors of {J.shape[1]} entries "
                         f"along the last axis, not {list(shape)}")  # fmt: skip


class Pointwise(Function):
    """A function of a point that caches the model at the last point."""

    _last: tuple[int, Arrays, FunctionAtPoint] | None = None

    @abstractmethod
    def _at(self, args: Arrays) -> FunctionAtPoint:
        """The model behind the function at a point."""

    def at(self, args: Arrays) -> FunctionAtPoint:
        """The model at a point, made only once for successive calls at the same point."""
        last, declared = self._last, version()
        if last is None or last[0] != declared or not all(map(np.array_equal, last[1], args)):
            self._last = last = declared, tuple(map(np.array, args)), self._at(args)
        return last[2]

    def push(self, args: Args, v: Args) -> Call:
        return DerivativeFunction(self, transpose=False), (*args[: self.n], *v, *args[self.n :])

    def pull(self, args: Args, u: Args) -> Call:
        return DerivativeFunction(self, transpose=True), (*args[: self.n], *u, *args[self.n :])


@final
class DerivativeFunction(Pointwise):
    """A derivative of `inner`: (x, v, others) ↦ J(x) v, or transposed, (x, u, others) ↦ J(x)ᵀ u.

    J v has the dtypes of the values of `inner`, Jᵀ u the dtypes of x.
    """

    def __init__(self, inner: Pointwise, *, transpose: bool) -> None:
        seeds, self.m = (inner.m, inner.n) if transpose else (inner.n, inner.m)
        self.inner, self.transpose, self.n = inner, transpose, inner.n + seeds

    def parts(self, args: Args) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """The arguments of `inner`, and the seeds v or u."""
        return (*args[: self.inner.n], *args[self.n :]), tuple(args[self.inner.n : self.n])

    def __call__(self, args: Arrays) -> Arrays:
        x, seeds = self.parts(args)
        at = self.inner.at(x)
        J, ins, outs = (at.J.T, at.of, at.wrt) if self.transpose else (at.J, at.wrt, at.of)
        made, like = J.apply(dict(zip(ins, seeds, strict=True))), x if self.transpose else at.values
        pairs = zip(outs, like, strict=False)
        return tuple(made[name].astype(array.dtype, copy=False) for name, array in pairs)

    def _at(self, args: Arrays) -> FunctionAtPoint:
        x, seeds = self.parts(args)
        return self.inner.at(x).derived(seeds, self.transpose)


@final
@dataclass(eq=False)
class Primal(Pointwise):
    """(wrt, others) ↦ of, with all other inputs at the values of `fixed`.

    An `eager` function takes its value from a linearisation, which will be needed anyway.
    """

    model: Model
    of: tuple[str, ...]
    wrt: tuple[str, ...]
    others: tuple[str, ...]
    fixed: Mapping[str, Any]
    engine: str | None
    eager: bool

    def __post_init__(self) -> None:
        self.n, self.m = len(self.wrt), len(self.of)

    def __call__(self, args: Arrays) -> Arrays:
        if self.eager:
            return self.at(args).values
        made = evaluate(self.model, self._point(args), self.of, engine=self.engine)
        return tuple(made[name] for name in self.of)

    def _at(self, args: Arrays) -> FunctionAtPoint:
        return FunctionAtPoint(self.model, self._point(args), self.of, self.wrt, self.engine)

    def _point(self, args: Arrays) -> dict[str, Any]:
        named = zip((*self.wrt, *self.others), args, strict=True)
        return check_inputs(self.model, {**self.fixed, **dict(named)})


def model_function(
    call: Callable[[Primal, list[Any]], Sequence[Any]], model: ModelLike, of: Names, wrt: Names,
    inputs: Mapping[str, Any] | None, engine: str | None, eager: Callable[[], bool] = lambda: False,
) -> Callable[..., Any]:  # fmt: skip
    """A model as a function of `wrt`, by position, and of other inputs, by name.

    `call` gives the values of a `Primal`; one value is returned alone, several as a tuple.
    """
    model = as_model(model, of)
    fixed, outputs = dict(inputs or {}), names_of(model, of, model.outputs, "of")
    free = {n: spec for n, spec in model.inputs.items() if n not in fixed}
    given = names_of(model, wrt, free, "wrt")
    for name in given:
        if name not in model.inputs and name not in model.initializers:
            raise InputError(f"wrt={name!r} is computed by the model: name inputs or weights")

    @cache
    def primal(names: tuple[str, ...], eager: bool) -> Primal:
        left = [n for n in model.inputs if n not in given]
        for name in names:
            if name not in left:
                raise InputError(f"there is no further input {name!r}.{closest(name, left)}")
        at = {name: value for name, value in fixed.items() if name not in names}
        return Primal(model, outputs, given, names, at, engine, eager)

    def function(*args: Any, **others: Any) -> Any:
        if len(args) != len(given):
            raise InputError(f"give {len(given)} arguments, {list(given)}, not {len(args)}")
        values = call(primal(tuple(others), eager()), [*args, *others.values()])
        return values[0] if len(values) == 1 else tuple(values)

    return function


Arrays = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class FunctionAtPoint:
    """`of` as a function of `wrt`, at a point; `order` counts the derivatives in the model."""

    model: Model
    point: Mapping[str, Any]
    of: tuple[str, ...]
    wrt: tuple[str, ...]
    engine: str | None = None
    order: int = 0

    @cached_property
    def J(self) -> Linearization:
        """∂of/∂wrt at the point, in which blocks may be zero."""
        route = route_of(self.model, self.of, self.wrt, self.engine)
        return linearized(route, self.point)

    @property
    def values(self) -> Arrays:
        return tuple(self.J.primal[name] for name in self.of)

    def derived(self, seeds: Sequence[np.ndarray], transpose: bool) -> FunctionAtPoint:
        """(x, v) ↦ J(x) v, or transposed (x, u) ↦ J(x)ᵀ u, as a function of its own at (x, seeds).

        The new tensors of the recorded model get names that the next derivative does not use.
        """
        record = vjp_graph if transpose else jvp_graph
        t = record(self.model, self.point, self.of, self.wrt, self.engine)
        made, order = t.model("derivative").ir, self.order + 1
        of = t.derived
        entries = made.graph.inputs[len(made.graph.inputs) - len(seeds) :]
        for value in (*entries, *(value for value in made.graph.outputs if value.name in of)):
            value.name = f"{value.name}@{order}"
        names = tuple(str(value.name) for value in entries)
        given = map(np.asarray, seeds, map(dtype_of, entries))  # JAX may have 32 bits only
        return FunctionAtPoint(
            Model(made, self.model.limits), {**self.point, **dict(zip(names, given, strict=True))},
            tuple(f"{name}@{order}" for name in of), (*self.wrt, *names), self.engine, order,
        )  # fmt: skip


@hooks.to_pylops.register
def to_pylops(J: Jacobian) -> Any:
    """J as a `pylops.LinearOperator`, from dims to dimsd: see `Jacobian.to_pylops`."""

    def shape(specs: Any, default: Shape) -> Shape:
        """The shape of a single tensor, else the default; PyLops has no rank 0."""
        return (shape_of(specs[0]) if len(specs) == 1 else default) or (1,)

    domain = getattr(J, "domain", ())
    dims = shape(domain, J.in_shape)
    dimsd = shape(getattr(J, "codomain", domain), J.out_shape)
    P = optional("pylops", "pylops").LinearOperator(Op=J, dims=dims, dimsd=dimsd)
    P._matmat, P._rmatmat = J._matmat, J._rmatmat  # PyLops would multiply column by column
    return P
