"""Adagrad, Adam and Momentum of `ai.onnx.preview.training`, as their pseudo-code says.

One class per operator: its attributes are fields, its formula is `update`, in calls of the
vocabulary. R is the learning rate, T the number of updates so far, X a tensor, G its gradient; the
other tensors are what the optimiser remembers of X.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, ClassVar

from ...jacobians import Array
from ...jacobians.errors import InputError
from ...ops import Step

Arrays = tuple[Array, ...]
DOMAIN = "ai.onnx.preview.training"


@dataclass(frozen=True)
class Optimizer(ABC):
    """An operator (R, T, X₁ …, G₁ …, memory) ↦ (X₁' …, memory')."""

    memory: ClassVar[tuple[str, ...]]

    @abstractmethod
    def update(self, op: Any, r: Array, t: Array, x: Array, g: Array, *held: Array) -> Arrays:
        """X' and the new memory."""

    @property
    def attributes(self) -> dict[str, float | str]:
        """The coefficients as attributes of a node."""
        return {k: v if isinstance(v, str) else float(v) for k, v in asdict(self).items()}

    @classmethod
    def lowered(cls, op: Any, step: Step, inputs: Sequence[Any]) -> list[Array]:
        """The outputs of a node: the formula for every tensor."""
        r, t, *rest = inputs
        width = 2 + len(cls.memory)
        if len(rest) % width or None in inputs:
            raise InputError(f"{step} has {len(inputs)} inputs: R, T, and {width} for every tensor")
        count = len(rest) // width
        self = cls(**step.attrs)
        groups = zip(*(rest[k * count : (k + 1) * count] for k in range(width)), strict=True)
        updated = [self.update(op, op.CastLike(r, x), t, x, *others) for x, *others in groups]
        return list(chain.from_iterable(zip(*updated, strict=True)))


def regularized(op: Any, x: Array, g: Array, coefficient: float) -> Array:
    """G plus the gradient of ½ · coefficient · ‖X‖²."""
    return op.Add(op.Mul(x, coefficient), g) if coefficient else g


def updated_before(op: Any, t: Array, x: Array) -> Array:
    """Whether this is not the first update."""
    return op.Greater(op.CastLike(t, x), op.CastLike(0.0, x))


@dataclass(frozen=True)
class Adagrad(Optimizer):
    """H' = H + G²;  X' = X − R / (1 + T · decay_factor) · G / (√H' + ε).

    X is a weight, G its gradient plus norm_coefficient · X, R the learning rate, T the number of
    updates so far, ε the `epsilon`; H is what the optimiser remembers of X, 0 at first.

    Shapes: G and H have the shape of X; R and T are scalars. Source: `Adagrad` of
    `ai.onnx.preview.training`, in the ONNX specification; Duchi, Hazan, Singer, 2011.
    """

    norm_coefficient: float = 0.0
    decay_factor: float = 0.0
    epsilon: float = 1e-6
    memory = ("squares",)

    def update(self, op: Any, r: Array, t: Array, x: Array, g: Array, *held: Array) -> Arrays:
        g = regularized(op, x, g, self.norm_coefficient)
        squares = op.Add(held[0], op.Mul(g, g))
        rate = op.Div(r, op.Add(op.Mul(op.CastLike(t, x), self.decay_factor), 1.0))
        step = op.Div(op.Mul(rate, g), op.Add(op.Sqrt(squares), self.epsilon))
        return op.Sub(x, step), squares


@dataclass(frozen=True)
class Adam(Optimizer):
    """V' = αV + (1 − α)G;  H' = βH + (1 − β)G²;  X' = X − R' V' / (√H' + ε).

    R' = R √(1 − βᵀ) / (1 − αᵀ) from the second update on, and R' = R before. In the end X' shrinks
    by the factor 1 − norm_coefficient_post. X is a weight, G its gradient plus
    norm_coefficient · X, R the learning rate, T the number of updates so far, ε the `epsilon`;
    V and H are what the optimiser remembers of X, 0 at first.

    Shapes: G, V and H have the shape of X; R and T are scalars. Source: `Adam` of
    `ai.onnx.preview.training`, in the ONNX specification; Kingma and Ba, 2015.
    """

    alpha: float = 0.9
    beta: float = 0.999
    epsilon: float = 1e-6
    norm_coefficient: float = 0.0
    norm_coefficient_post: float = 0.0
    memory = ("mean", "squares")

    def update(self, op: Any, r: Array, t: Array, x: Array, g: Array, *held: Array) -> Arrays:
        g = regularized(op, x, g, self.norm_coefficient)
        mean = op.Add(op.Mul(held[0], self.alpha), op.Mul(g, 1 - self.alpha))
        squares = op.Add(op.Mul(held[1], self.beta), op.Mul(op.Mul(g, g), 1 - self.beta))
        step = op.Div(mean, op.Add(op.Sqrt(squares), self.epsilon))
        x = op.Sub(x, op.Mul(self.rate(op, r, t), step))
        return op.Mul(x, 1 - self.norm_coefficient_post), mean, squares

    def rate(self, op: Any, r: Array, t: Array) -> Array:
        """The learning rate with the bias of both means corrected."""
        turns, bases = op.CastLike(t, r), (self.beta, self.alpha)
        later = updated_before(op, t, r)
        power = op.Where(later, turns, op.CastLike(1.0, r))
        squares, mean = (op.Sub(1.0, op.Pow(op.CastLike(base, r), power)) for base in bases)
        return op.Where(later, op.Div(op.Mul(r, op.Sqrt(squares)), mean), r)


@dataclass(frozen=True)
class Momentum(Optimizer):
    """V' = αV + βG, with β = 1 at first;  X' = X − R V'.

    With mode="nesterov", X' = X − R (G + αV'). X is a weight, G its gradient plus
    norm_coefficient · X, R the learning rate; V is what the optimiser remembers of X, 0 at first.

    Shapes: G and V have the shape of X; R is a scalar. Raises `InputError` for another `mode`.
    Source: `Momentum` of `ai.onnx.preview.training`, in the ONNX specification.
    """

    alpha: float = 0.9
    beta: float = 1.0
    mode: str = "standard"
    norm_coefficient: float = 0.0
    memory = ("velocity",)

    def __post_init__(self) -> None:
        if self.mode not in ("standard", "nesterov"):
            raise InputError(f"Momentum has mode={self.mode!r}, not 'standard' or 'nesterov'")

    def update(self, op: Any, r: Array, t: Array, x: Array, g: Array, *held: Array) -> Arrays:
        g = regularized(op, x, g, self.norm_coefficient)
        one, beta = op.CastLike(1.0, x), op.CastLike(self.beta, x)
        scale = op.Where(updated_before(op, t, x), beta, one)
        velocity = op.Add(op.Mul(held[0], self.alpha), op.Mul(scale, g))
        way = velocity
        if self.mode == "nesterov":
            way = op.Add(g, op.Mul(velocity, self.alpha))
        return op.Sub(x, op.Mul(r, way)), velocity


OPTIMIZERS: dict[str, type[Optimizer]] = {c.__name__: c for c in (Adagrad, Adam, Momentum)}
