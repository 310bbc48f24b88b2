"""Joint: a weight and the bias that is added to what it makes, as one matrix.

Y[g, r, o] = Σᵢ X[g, r, i] W[g, i, o] + b[g, o] is the use of a matrix that has one more row, b, by
inputs that have one more entry, 1. The bias of a weight is found where it is added: Y reaches
that tensor through steps that only move it, and the rows of both are the same there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ...jacobians import Dag, Embed, Jacobian, Permutation, Reshape
from ...jacobians.products import factors_of
from ...ops import numbers
from .layer import Layer
from .use import Use
from .uses import STILL


def joined(layers: list[Layer], dag: Dag) -> list[Layer]:
    """The layers, each weight with the first bias that is its own; what has none stays alone.

    An elementwise scale is no matrix: it stays apart from its shift.
    """
    biases = [layer for layer in layers if layer.bias]
    found: dict[int, Layer] = {}
    taken: set[int] = set()
    for layer in layers:
        if layer.bias or layer.start.out_shape[1:] == (1, 1):
            continue
        for bias in biases:
            if id(bias) not in taken and (together := pair(layer, bias, dag)):
                found[id(layer)] = together
                taken.add(id(bias))
                break
    return [found.get(id(layer), layer) for layer in layers if id(layer) not in taken]


def pair(weight: Layer, bias: Layer, dag: Dag) -> Layer | None:
    """Both as one layer, where every use of the one is added to one of the other."""
    if len(weight.uses) != len(bias.uses):
        return None
    groups, inputs, outputs = weight.start.out_shape
    left = [regrouped(use, groups) for use in bias.uses]
    ones = []
    for use in weight.uses:
        own = next((b for b in left if b is not None and meet(use, b, dag)), None)
        if own is None:
            return None
        left.remove(own)
        ones.append(own.x.flat[0])
    ((name, part),) = weight.parts.items()
    ((other, _),) = bias.parts.items()
    shape = groups, inputs + 1, outputs
    start = regrouped(bias.uses[0], groups)
    assert start is not None
    parts = {name: placed(part, 0, shape), other: placed(start.start, inputs, shape)}
    return replace(weight, parts=parts, x=extended(weight, ones))


def extended(layer: Layer, ones: list[np.ndarray]) -> np.ndarray:
    """The inputs with one more, which is the same number for all positions of a use."""
    groups, samples = layer.x.shape[:2]
    columns = [np.full((groups, samples, len(order) // samples, 1), one, layer.x.dtype)
               for one, order in zip(ones, layer.orders, strict=True)]  # fmt: skip
    return np.concatenate([layer.x, np.concatenate(columns, axis=2)], axis=-1)


def placed(part: Jacobian, first: int, shape: tuple[int, int, int]) -> Jacobian:
    """A matrix as the rows of a higher one, from a first one on."""
    groups, inputs, outputs = part.out_shape
    spans = ((0, 1, groups), (first, 1, inputs), (0, 1, outputs))
    return Embed(spans, shape, part.dtype) @ part


def regrouped(bias: Use, groups: int) -> Use | None:
    """A bias of all outputs as one of each group's; None where its outputs do not divide so."""
    own, inputs, outputs = bias.start.out_shape
    if own == groups:
        return bias if inputs == 1 else None
    if own != 1 or inputs != 1 or outputs % groups:
        return None
    shape = groups, 1, outputs // groups
    start = Reshape(shape, bias.start.out_shape, bias.start.dtype) @ bias.start
    return replace(bias, start=start, rows=split(bias.rows, groups))


def split(rows: Jacobian, groups: int) -> Jacobian:
    """(1, rows, groups · o) as (groups, rows, o)."""
    _, count, outputs = rows.out_shape
    shape = count, groups, outputs // groups
    moved = Permutation((1, 0, 2), shape, rows.dtype)
    return moved @ Reshape(shape, rows.out_shape, rows.dtype) @ rows


def meet(weight: Use, bias: Use, dag: Dag) -> bool:
    """Whether a bias is added where the rows of a weight arrive as they are."""
    if weight.start.out_shape[::2] != bias.start.out_shape[::2]:
        return False
    for vertex, rows in onwards(weight, dag):
        if vertex == bias.vertex and rows.out_shape == bias.rows.out_shape:
            y = np.random.default_rng(0).standard_normal(dag.shapes[vertex]).astype(dag.dtype)
            if np.array_equal(rows._apply(numbers, y), bias.rows._apply(numbers, y)):
                return True
    return False


def onwards(use: Use, dag: Dag) -> Iterator[tuple[int, Jacobian]]:
    """The vertices that have the cotangents of a use, in another order at most, with its rows."""
    vertex, rows = use.vertex, use.rows
    while True:
        yield vertex, rows
        edges = [edge for edge in dag.edges if edge.start == vertex]
        if vertex in dag.sinks or len(edges) != 1:
            return
        (edge,) = edges
        if not all(isinstance(f, STILL) for f in factors_of(edge.operator)):
            return
        vertex, rows = edge.end, rows @ edge.operator.T
