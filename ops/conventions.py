"""Conventions: the derivatives chosen where there is none, or more than one.

At a kink every value between the one-sided slopes is defensible, and at a tie every convex
combination of the candidates. Our choices follow four principles, in this order: the derivative of
a constant is 0; tied candidates share equally, unless the operator itself picks one of them; an
entry on a bound counts as inside; at 0, the derivative of a norm is the subgradient of least
length, 0. The families declare them: `kinks` in words, with a function that counts the entries on a
kink, and `convention` in numbers, next to the numbers of other libraries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import numpy as np

from .node import Node
from .registry import Count, Kinks, says

SECOND = ", in the second derivative only"

# Where there is no derivative.
ORDER = "where the entries that decide the order are equal"
ZERO_NORM = "where the norm is 0"
ON_LINE = "where a sampled point lies on a line of pixels"
ACTIVATIONS = "at the kinks of its activations, if any"

# What is given there.
LEFT = "as on the left"
SHARED = "shared equally by those that tie"
FIRST = "all of it goes to the first of those that tie"
BALL = "0, the middle of the unit ball"
LINE = "as just right of the line"
CONSTANT = "0: constant on either side"
PARTS = "as its parts have it"


def kinks(*names: str, where: str, given: str, moves: tuple[int, ...] = ()) -> Callable[..., Any]:
    """Declare where operators have no derivative, and which one is given there, in words.

    A decorator of the function that counts the entries of a node on a kink; without one, the parts
    of the definition are counted. `moves` are the inputs that move sampled points onto a kink.
    """
    says(*names, kinks=(told := Kinks(where, given, moves=moves)))

    def register(count: Callable[[Node], Count]) -> Callable[[Node], Count]:
        says(*names, kinks=replace(told, count=count))
        return count

    return register


def marked(mask: Any) -> Count:
    """The number of places where a mask is true."""
    return int(np.count_nonzero(mask)), np.size(mask)


def tied(hits: Any) -> Count:
    """The number of results with more than one hit."""
    return marked(np.asarray(hits) > 1)


def are_zero(node: Node) -> Count:
    """Entries that are 0."""
    return marked(node.x == 0)


def crossed(axes: Iterable[tuple[Any, float, float]], *, inside: bool = True) -> np.ndarray:
    """Points on a line of pixels of some axis, where linear interpolation bends; with `inside`,
    only points within reach along all axes. An axis is the positions, its first and last line.

    This matters where the points move: an image sampled at fixed points is a linear function of its
    pixels. Cubic interpolation does not bend, and the nearest pixel stays while points move.
    """
    axes = tuple(axes)
    near = [(at >= first) & (at <= last) for at, first, last in axes]
    met = ((at == np.floor(at)) & n for (at, _, _), n in zip(axes, near, strict=True))
    return reduce(np.logical_or, met) & (reduce(np.logical_and, near) if inside else True)


# -- numbers, next to other libraries -----------------------------------------------------

Slopes = tuple[Any, ...] | str
"""∂(Σ y)/∂xᵢ for every floating input; a string where there is none."""


@dataclass(frozen=True)
class Convention:
    """The derivatives at a kink in onnxjac, PyTorch, JAX and TensorFlow, and why ours is chosen.

    A library that is not mentioned chooses as we do. `call` is the function of PyTorch that takes
    the floating inputs, where it has another name.
    """

    what: str
    op_type: str
    inputs: tuple[Any, ...]
    ours: Slopes
    why: str
    call: str = ""
    torch: Slopes = ()
    jax: Slopes = ()
    tensorflow: Slopes = ()
    attrs: Mapping[str, Any] = field(default_factory=dict)
    opset: int = 21

    def __post_init__(self) -> None:
        for library in ("torch", "jax", "tensorflow"):
            object.__setattr__(self, library, getattr(self, library) or self.ours)


CONVENTIONS: list[Convention] = []


def convention(op_type: str, what: str, *told: Any, **how: Any) -> None:
    CONVENTIONS.append(Convention(what, op_type, *told, **how))


MISSING = "–"
BENDS = "as on the constant side"


def conventions_table() -> str:
    """The conventions as a Markdown table, by operator."""
    head = "| at | operator | onnxjac | PyTorch | JAX | TensorFlow | why |\n|" + "---|" * 7
    rows = ((c.what, c.op_type, *map(slopes_text, (c.ours, c.torch, c.jax, c.tensorflow)), c.why)
            for c in sorted(CONVENTIONS, key=lambda c: c.op_type))  # fmt: skip
    lines = (f"| {' | '.join(cell.replace('|', '∣') for cell in cells)} |" for cells in rows)
    return "\n".join([head, *lines])


def slopes_text(slopes: Any) -> str:
    """Slopes as readable text.

    >>> slopes_text(([0.0, 0.5], 1.0))
    '[0, 0.5], 1'
    """
    if isinstance(slopes, tuple):
        return ", ".join(map(slopes_text, slopes))
    if isinstance(slopes, list):
        return f"[{', '.join(map(slopes_text, slopes))}]"
    return slopes if isinstance(slopes, str) else f"{slopes:.5g}"
