"""Functions of arrays whose derivatives are such functions again: what other libraries call.

Each knows three things: its value, which function its tangents are of which arguments (`push`), and
which its cotangents (`pull`). So one adapter for a library serves all of them, to any order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, final

import numpy as np

from ...jacobians import Jacobian
from ...jacobians.errors import InputError
from ...ops.registry import version
from .at import Arrays, At

Args = Sequence[Any]
Call = tuple["Function", tuple[Any, ...]]
Spec = tuple[tuple[int, ...], np.dtype]


class Function(ABC):
    """(x₁ … xₙ, others) ↦ (y₁ … yₘ), differentiable in x; arguments are arrays of any library.

    `linear` are the places of the arguments in which it is linear. Where it is `batched`, leading
    axes of its one argument are further arguments.
    """

    n: int
    m: int
    linear = slice(0)
    batched = False

    @abstractmethod
    def __call__(self, args: Arrays) -> Arrays:
        """The values."""

    @abstractmethod
    def specs(self, args: Sequence[Spec]) -> list[Spec]:
        """Shapes and types of the values, from those of the arguments."""

    @abstractmethod
    def push(self, args: Args, v: Args) -> Call:
        """J v: a function and what it is called with."""

    @abstractmethod
    def pull(self, args: Args, u: Args) -> Call:
        """Jᵀ u: a function and what it is called with."""

    def transposed(self, args: Args, u: Args) -> Call:
        """Lᵀ u for the part that is linear."""
        raise NotImplementedError(f"{type(self).__name__} is not linear")


@final
class Product(Function):
    """v ↦ J v along the last axis; the type of v is kept where it is floating."""

    n = m = 1
    linear = slice(1)
    batched = True

    def __init__(self, J: Jacobian) -> None:
        self.J = J

    def __call__(self, args: Arrays) -> Arrays:
        (v,) = args
        ((shape, dtype),) = self.specs([(v.shape, v.dtype)])
        columns = v.reshape(-1, v.shape[-1]).T
        product = self.J @ columns[:, 0] if v.ndim == 1 else self.J.matmat(columns).T
        return (np.reshape(product, shape).astype(dtype, copy=False),)

    def specs(self, args: Sequence[Spec]) -> list[Spec]:
        ((shape, dtype),) = args
        if shape[-1:] != self.J.shape[1:]:
            raise InputError(
                f"J is {self.J.shape[0]}×{self.J.shape[1]}: give vectors of {self.J.shape[1]} "
                f"entries along the last axis, not {list(shape)}"
            )
        kept = dtype.kind == "f" or dtype.name == "bfloat16"
        return [((*shape[:-1], self.J.shape[0]), dtype if kept else self.J.dtype)]

    def push(self, args: Args, v: Args) -> Call:
        return self, tuple(v)

    def pull(self, args: Args, u: Args) -> Call:
        return Product(self.J.T), tuple(u)

    transposed = pull


class Pointwise(Function):
    """A function of a point, with the derivative there; it is kept for the point of last time."""

    _last: tuple[int, Arrays, At] | None = None

    @abstractmethod
    def _at(self, args: Arrays) -> At:
        """The model behind the function at a point."""

    def at(self, args: Arrays) -> At:
        """The same, as often as it is asked for at one point."""
        last, declared = self._last, version()
        if last is None or last[0] != declared or not all(map(np.array_equal, last[1], args)):
            self._last = last = declared, tuple(map(np.array, args)), self._at(args)
        return last[2]

    def push(self, args: Args, v: Args) -> Call:
        return Forward(self), (*args[: self.n], *v, *args[self.n :])

    def pull(self, args: Args, u: Args) -> Call:
        return Reverse(self), (*args[: self.n], *u, *args[self.n :])


class Derived(Pointwise):
    """A derivative of `inner`: its arguments are x, seeds for the derivative, and the others."""

    def __init__(self, inner: Pointwise, seeds: int, m: int) -> None:
        self.inner, self.n, self.m = inner, inner.n + seeds, m
        self.linear = slice(inner.n, self.n)

    def parts(self, args: Args) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """The arguments of `inner`, and the seeds."""
        return (*args[: self.inner.n], *args[self.n :]), tuple(args[self.linear])


@final
class Forward(Derived):
    """(x, v, others) ↦ J(x) v."""

    def __init__(self, inner: Pointwise) -> None:
        super().__init__(inner, inner.n, inner.m)

    def __call__(self, args: Arrays) -> Arrays:
        x, v = self.parts(args)
        at = self.inner.at(x)
        made = at.J.apply(dict(zip(at.wrt, v, strict=True)))
        return tuple(made[o].astype(at.J.primal[o].dtype, copy=False) for o in at.of)

    def specs(self, args: Sequence[Spec]) -> list[Spec]:
        return self.inner.specs(self.parts(args)[0])

    def _at(self, args: Arrays) -> At:
        x, v = self.parts(args)
        return self.inner.at(x).forward(v)

    def transposed(self, args: Args, u: Args) -> Call:
        return self.inner.pull(self.parts(args)[0], u)


@final
class Reverse(Derived):
    """(x, u, others) ↦ J(x)ᵀ u, in the types of x."""

    def __init__(self, inner: Pointwise) -> None:
        super().__init__(inner, inner.m, inner.n)

    def __call__(self, args: Arrays) -> Arrays:
        x, u = self.parts(args)
        at = self.inner.at(x)
        made = at.J.T.apply(dict(zip(at.of, u, strict=True)))
        return tuple(made[w].astype(a.dtype, copy=False) for w, a in zip(at.wrt, x, strict=False))

    def specs(self, args: Sequence[Spec]) -> list[Spec]:
        return list(args[: self.m])

    def _at(self, args: Arrays) -> At:
        x, u = self.parts(args)
        return self.inner.at(x).reverse(u)

    def transposed(self, args: Args, u: Args) -> Call:
        return self.inner.push(self.parts(args)[0], u)
