"""Pointwise operators without a single formula: variadic, with optional inputs, or with masks."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from ...jacobians import Array, Cast, Diagonal, Identity, Jacobian, dtype_of, shape_of
from ..conventions import ORDER, SHARED, convention, kinks, marked, tied
from ..node import Node
from ..registry import Blocks, Count, jacobian, says
from .elementwise import spread


@jacobian("Sum")
def sum_(op: Any, node: Node) -> Blocks:
    """y = Σ xᵢ."""
    return {(0, i): spread(node, i, 1.0) for i in range(len(node.inputs)) if node.wants(i)}


@jacobian("Mean")
def mean(op: Any, node: Node) -> Blocks:
    """y = Σ xᵢ / n."""
    n = len(node.inputs)
    return {(0, i): spread(node, i, 1.0 / n) for i in range(n) if node.wants(i)}


@jacobian("Range", grows=True)
def range_(op: Any, node: Node) -> Blocks:
    """yₖ = start + k delta; the limit only determines the count."""
    count = np.arange(node.y_shape[0], dtype=node.dtype)
    steps = {} if node.input(2) is None else {(0, 2): spread(node, 2, count)}
    return {(0, 0): spread(node, 0, 1.0), **steps}


@kinks("Range", "com.microsoft::Range", where="where the number of entries changes",
       given="as with this number of entries")  # fmt: skip
def whole_range(node: Node) -> Count:
    """Whether the range ends exactly at its limit, so that a longer range has one entry more."""
    start, limit, delta = (np.asarray(x, np.float64) for x in node.inputs[:3])
    turns = (limit - start) / delta
    return marked((turns == np.floor(turns)) & (turns >= 0))


@jacobian("Max", "Min")
def extremum(op: Any, node: Node) -> Blocks:
    """y = max xᵢ; inputs that tie share the derivative equally."""
    hits = [op.CastLike(op.Equal(x, node.y), node.y) for x in node.inputs]
    ties = op.Sum(*hits)
    return {
        (0, i): spread(node, i, op.Div(hits[i], ties), chooses=True)
        for i in range(len(hits))
        if node.wants(i)
    }


kinks("Max", "Min", where=ORDER, given=SHARED)(
    lambda node: tied(sum(x == node.y for x in node.inputs))
)
convention("Max", "max(1, 1)", (1.0, 1.0), (0.5, 0.5), SHARED, "torch.maximum",
           tensorflow=(1.0, 0.0))  # fmt: skip
convention("Min", "min(1, 1)", (1.0, 1.0), (0.5, 0.5), SHARED, "torch.minimum",
           tensorflow=(1.0, 0.0))  # fmt: skip


@jacobian("Pow")
def pow_(op: Any, node: Node) -> Blocks:
    """y = bᵉ: ∂/∂b = e bᵉ⁻¹, 0 where e = 0; ∂/∂e = y log b, 0 where b = 0."""
    base, exponent = node.x, op.CastLike(node.inputs[1], node.x)
    blocks = {}
    if node.wants(0):
        constant = op.And(op.Equal(exponent, 0.0), op.Equal(base, 0.0))  # 0 · 0⁻¹ would be NaN
        lower = op.Where(constant, 0.0, op.Sub(exponent, 1.0))
        factor = factor_of(op, base, exponent) if node.wants(1) else exponent
        blocks[0, 0] = spread(node, 0, op.Mul(factor, op.Pow(base, lower)))
    if node.wants(1):
        safe = op.Where(op.Equal(base, 0.0), 1.0, base)
        blocks[0, 1] = spread(node, 1, op.Mul(node.y, op.Log(safe)))
    return blocks


def factor_of(op: Any, base: Array, exponent: Array) -> Array:
    """The factor e in e bᵉ⁻¹; where b = 0 it is made constant in e, as bᵉ and its derivative are.

    There only whole e matter: for others the product is 0 or infinite.
    """
    whole = op.Mul(op.Sign(exponent), op.Ceil(op.Abs(exponent)))
    return op.Where(op.Equal(base, 0.0), whole, exponent)


convention("Pow", "0⁰", (0.0, 0.0), (0.0, 0.0), "x⁰ is constant, and 0ʸ is 0 for y > 0",
           jax=(np.nan, 0.0), tensorflow=(np.nan, 0.0))  # fmt: skip
convention("Pow", "0¹", (0.0, 1.0), (1.0, 0.0), "0ʸ is constant for y > 0")
convention("Pow", "(-2)²", (-2.0, 2.0), (-4.0, np.nan),
           "(-2)ʸ is real only for whole y: there is no derivative in y",
           tensorflow=(-4.0, 0.0))  # fmt: skip


@jacobian("Where")
def where(op: Any, node: Node) -> Blocks:
    """y = a where c, else b."""
    chosen = op.CastLike(node.x, node.y)
    masks = {1: chosen, 2: op.Sub(1.0, chosen)}
    return {
        (0, i): spread(node, i, mask, chooses=True) for i, mask in masks.items() if node.wants(i)
    }


@jacobian("Clip")
def clip(op: Any, node: Node) -> Blocks:
    """y = min(max(x, low), high); at a bound the derivative goes to x, as inside."""
    x, low, high = node.x, node.input(1), node.input(2)
    above = _mask(op, node, op.Greater, x, high)
    below = op.Mul(_mask(op, node, op.Less, x, low), op.Sub(1.0, above))
    if low is not None and high is not None:
        crossed = _mask(op, node, op.Greater, low, high)
        above = op.Max(above, crossed)
        below = op.Mul(below, op.Sub(1.0, crossed))
    masks = {0: op.Sub(op.Sub(1.0, above), below), 1: below, 2: above}
    return {
        (0, i): spread(node, i, mask, chooses=True)
        for i, mask in masks.items()
        if node.input(i) is not None and node.wants(i)
    }


def _mask(op: Any, node: Node, compare: Any, x: Array, bound: Array | None) -> Array:
    """1 where x lies beyond the bound, else 0; 0 everywhere without a bound."""
    if bound is None:
        return op.CastLike(0.0, node.y)
    return op.CastLike(compare(x, bound), node.y)


@kinks("Clip", where="x = min or max", given="1 for x: a bound counts as inside")
def at_bounds(node: Node) -> Count:
    """Entries that equal a bound."""
    bounds = (node.x == bound for bound in node.inputs[1:3] if bound is not None)
    return marked(reduce(np.logical_or, bounds, np.zeros(node.x_shape, bool)))


convention("Clip", "clip(x, -1, 1) at -1, 0, 1", ([-1.0, 0.0, 1.0], -1.0, 1.0),
           ([1.0, 1.0, 1.0], 0.0, 0.0), "an entry on a bound counts as inside", "torch.clamp",
           jax=([0.5, 1.0, 0.5], 0.5, 0.5))  # fmt: skip


@jacobian("Identity")
def identity(op: Any, node: Node) -> Blocks:
    """y = x."""
    return {(0, 0): Identity(node.y_shape, node.dtype)}


@jacobian("Dropout", random=True)
def dropout(op: Any, node: Node) -> Blocks:
    """y = x in inference; in training y = x mask / (1 - ratio), with the mask that was drawn.

    If the node has no mask output, entries with y = 0 count as dropped.
    """
    if not any(node.ints(2) or (0,)):
        return {(0, 0): Identity(node.y_shape, node.dtype)}
    mask = node.output(1)
    mask = op.Not(op.Equal(node.y, 0.0)) if mask is None else mask
    rest = op.Sub(1.0, op.CastLike(0.5 if node.input(1) is None else node.inputs[1], node.y))
    blocks: dict[tuple[int, int], Jacobian] = {
        (0, 0): Diagonal(op.Div(op.CastLike(mask, node.y), rest), node.y_shape, chooses=True)
    }
    if node.wants(1):
        blocks[0, 1] = spread(node, 1, op.Div(node.y, rest))
    return blocks


says("Pow", domain=lambda i, x: np.abs(x) + 0.1 if i == 0 else x)
says("Cast", "CastLike", domain=lambda i, x: x)


@jacobian("Cast", "CastLike")
def cast(op: Any, node: Node) -> Blocks:
    """y = x in another floating dtype; integers have no tangent."""
    return {(0, 0): cast_input(node)}


def cast_input(node: Node, i: int = 0, o: int = 0) -> Jacobian:
    """The cast of input i to the dtype of output o, in which rules work."""
    shape, source = shape_of(node.inputs[i]), dtype_of(node.inputs[i])
    target = dtype_of(node.outputs[o])
    return Identity(shape, source) if source == target else Cast(shape, source, target)
