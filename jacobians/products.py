"""Product: factors applied one after the other, simplified when they meet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, TypeVar

from .arrays import Array, Op, common
from .base import Jacobian
from .errors import InputError
from .hooks import multiply, scale
from .identity import Identity, Scalar, Zero
from .layout import Reshape
from .symint import agree, same
from .text import joined

Rewrite = Callable[[Any, Any], Jacobian | None]
REWRITES: dict[tuple[type, type], Rewrite] = {}
"""(left kind, right kind) -> what their product is, or None where nothing is gained."""

F = TypeVar("F", bound=Rewrite)


def rewrites(left: type, right: type) -> Callable[[F], F]:
    """Register the product of two kinds of operator."""

    def register(function: F) -> F:
        REWRITES[left, right] = function
        return function

    return register


class Product(Jacobian):
    """y = F₁ F₂ … Fₙ x."""

    def __init__(self, factors: tuple[Jacobian, ...]) -> None:
        for left, right in pairwise(factors):
            if not agree(left.in_shape, right.out_shape):
                raise InputError(f"Product: {left!r} takes a tensor of shape {list(left.in_shape)},"
                                 f" but {right!r} gives {list(right.out_shape)}")  # fmt: skip
        if not factors:
            raise InputError("Product: there are no factors")
        dtype = common(*(f.dtype for f in factors))
        super().__init__(factors[0].out_shape, factors[-1].in_shape, dtype)
        self.factors = factors

    def _apply(self, op: Op, v: Array) -> Array:
        for factor in reversed(self.factors):
            v = factor._apply(op, v)
        return v

    def _transpose(self) -> Jacobian:
        return Product(tuple(f.T for f in reversed(self.factors)))

    def arrays(self) -> Iterator[Array]:
        for factor in self.factors:
            yield from factor.arrays()

    @property
    def flops(self) -> int:
        return sum(f.flops for f in self.factors)

    def __repr__(self) -> str:
        return joined(self.factors, " · ", factor_text)


def factor_text(factor: Jacobian) -> str:
    """A factor as it stands in a product: a sum in brackets."""
    text = str(factor)
    return f"({text})" if " + " in text or " - " in text else text


@multiply.register(Jacobian)
def _multiply(left: Jacobian, right: Jacobian) -> Jacobian:
    if not agree(left.shape[1], right.shape[0]):
        raise InputError(
            f"cannot multiply operators of shape {left.shape} and {right.shape}: {left!r} takes "
            f"{left.shape[1]} numbers, {right!r} gives {right.shape[0]}"
        )
    chain = list(factors_of(left))
    if not agree(left.in_shape, right.out_shape):
        push(chain, Reshape(left.in_shape, right.out_shape, right.dtype))
    for factor in factors_of(right):
        push(chain, factor)
    return chain[0] if len(chain) == 1 else Product(tuple(chain))


@scale.register(Jacobian)
def _scale(operator: Jacobian, factor: float) -> Jacobian:
    return Scalar(factor, operator.out_shape, operator.dtype) @ operator


def factors_of(operator: Jacobian) -> tuple[Jacobian, ...]:
    """The factors of a product, or the operator alone."""
    return operator.factors if isinstance(operator, Product) else (operator,)


def push(chain: list[Jacobian], factor: Jacobian) -> None:
    """Append a factor, letting it merge with the last ones as long as that simplifies."""
    while chain:
        merged = merge(chain[-1], factor)
        if merged is None:
            break
        chain.pop()
        factor = merged
    chain.append(factor)


def merge(left: Jacobian, right: Jacobian) -> Jacobian | None:
    """The product as one simpler operator, or None; what passes an empty tensor is zero."""
    if isinstance(left, Zero) or isinstance(right, Zero):
        return Zero(left.out_shape, right.in_shape, common(left.dtype, right.dtype))
    if is_identity(left) and left.dtype == right.dtype:
        return right
    if is_identity(right) and left.dtype == right.dtype:
        return left
    if same(left.shape[1], 0):
        return Zero(left.out_shape, right.in_shape, common(left.dtype, right.dtype))
    rewrite = REWRITES.get((type(left), type(right)))
    return rewrite(left, right) if rewrite else None


def is_identity(operator: Jacobian) -> bool:
    """Whether the operator changes neither values nor shape."""
    return isinstance(operator, Identity) or (
        isinstance(operator, Reshape) and same(operator.in_shape, operator.out_shape)
    )
