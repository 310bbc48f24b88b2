"""Shifts: a sum of shifted and scaled tensors, read out of the nodes that compute it.

y[i] = Σ c[i] · x[i + s] over the terms, where i is inside a box, and zero outside of it: what a
stencil with frames of zeros is made of, however it is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from ....jacobians import Shape, dtype_of, shape_of
from ..record import Recording
from .index import Affine, Index, broadcast, moved, whole

LINEAR = frozenset({"Add", "Sub", "Neg", "Mul"})
MOVES = frozenset({"Identity", "Slice", "Squeeze", "Unsqueeze", "Reshape", "Pad"})
MOST = 64
"""Terms of one sum; more are no stencil."""

Box = tuple[tuple[int, int], ...]
"""From where to where along each axis."""


class NoShift(Exception):
    """A sum that is not one of shifted tensors."""


@dataclass(frozen=True)
class Term:
    """coefficient ∘ x[i + shift] inside a box; a coefficient is a number, or one for each entry."""

    source: ir.Value
    shift: Shape
    box: Box
    coefficient: np.ndarray


class Shifts:
    """The terms of the value that a node makes, and the nodes that are seen through."""

    def __init__(self, recording: Recording, root: ir.Node) -> None:
        self.recording, self.root = recording, root
        self.shape = shape_of(root.outputs[0])
        if 0 in self.shape:
            raise NoShift
        self.inside: set[ir.Node] = set()
        box, one = tuple((0, n) for n in self.shape), np.ones((), dtype_of(root.outputs[0]))
        self.terms = merged(self.behind(root, whole(self.shape), box, one))

    def behind(self, node: ir.Node, index: Index, box: Box, c: np.ndarray) -> Iterator[Term]:
        """The terms of c · (what the node makes, read at an index)."""
        self.inside.add(node)
        first, *others = [x for x in node.inputs if x is not None]
        if node.op_type not in LINEAR:
            box = self.framed(node, index, box) if node.op_type == "Pad" else box
            yield from self.value(first, moved(self.recording, node, index), box, c)
        elif node.op_type == "Mul":
            yield from self.scaled(first, others[0], index, box, c)
        else:
            signs = (-1,) if node.op_type == "Neg" else (1, 1 if node.op_type == "Add" else -1)
            for x, sign in zip((first, *others), signs, strict=True):
                yield from self.value(x, broadcast(index, shape_of(x)), box, sign * c)

    def scaled(
        self, a: ir.Value, b: ir.Value, index: Index, box: Box, c: np.ndarray
    ) -> Iterator[Term]:
        """The terms of a product with a constant."""
        x, factor = (a, b) if self.recording.array(b) is not None else (b, a)
        numbers = self.recording.array(factor)
        if numbers is None:
            raise NoShift
        one = numbers.size == 1
        numbers = numbers.reshape(()) if one else spread(
            numbers, broadcast(index, numbers.shape), box, self.shape
        )  # fmt: skip
        yield from self.value(x, broadcast(index, shape_of(x)), box, c * numbers)

    def value(self, x: ir.Value, index: Index, box: Box, c: np.ndarray) -> Iterator[Term]:
        """The terms of a value: of what makes it, or itself."""
        node = x.producer()
        known = node is not None and id(node) in self.recording.present
        if node is not None and known and self.transparent(node):
            yield from self.behind(node, index, box, c)
        else:
            yield Term(x, self.shift(x, index), box, c)

    def transparent(self, node: ir.Node) -> bool:
        """Whether a node is a sum, a product with a constant, or moves entries."""
        if node.op_type == "Mul":
            return any(x is not None and self.recording.array(x) is not None for x in node.inputs)
        if node.op_type == "Reshape":
            return squeezed(node.inputs[0]) == squeezed(node.outputs[0])
        return node.op_type in LINEAR | MOVES

    def framed(self, node: ir.Node, index: Index, box: Box) -> Box:
        """The part of a box that a padded tensor reaches."""
        x = node.inputs[0]
        assert x is not None
        found = list(box)
        inner = moved(self.recording, node, index)
        for n, place in zip(shape_of(x), inner, strict=True):
            if place.axis is None or place.factor != 1:
                raise NoShift
            low, high = found[place.axis]
            found[place.axis] = max(low, -place.shift), min(high, n - place.shift)
        return tuple(found)

    def shift(self, x: ir.Value, index: Index) -> Shape:
        """By how much x is shifted along each axis; it has the shape of the sum."""
        if self.recording.array(x) is not None or squeezed(x) != squeezed(self.root.outputs[0]):
            raise NoShift
        places = iter([place for place, n in zip(index, shape_of(x), strict=True) if n > 1])
        along = [Affine(None, 0, 0) if n == 1 else next(places) for n in self.shape]
        for k, (n, place) in enumerate(zip(self.shape, along, strict=True)):
            if n > 1 and (place.axis != k or place.factor != 1):
                raise NoShift
        return tuple(place.shift for place in along)


def merged(terms: Iterator[Term]) -> list[Term]:
    """The terms that read the same, added; those that are nowhere left out."""
    found: dict[object, Term] = {}
    for count, term in enumerate(terms):
        if count >= MOST:
            raise NoShift
        if all(low < high for low, high in term.box):
            key = term.source, term.shift, term.box
            before = found.get(key)
            total = term.coefficient + (before.coefficient if before else 0)
            found[key] = replace(term, coefficient=np.asarray(total))
    return list(found.values())


def spread(numbers: np.ndarray, index: Index, box: Box, shape: Shape) -> np.ndarray:
    """The constant that is read at an index inside a box, one number for every entry."""
    axes = [place.axis for place in index if place.axis is not None]
    if axes != sorted(axes) or any(place.axis is not None and place.factor != 1 for place in index):
        raise NoShift
    full = np.zeros(shape, numbers.dtype)
    if all(low < high for low, high in box):
        ends = (p.shift if p.axis is None else slice(*(end + p.shift for end in box[p.axis]))
                for p in index)  # fmt: skip
        missing = tuple(k for k in range(len(shape)) if k not in axes)
        full[tuple(slice(*ends) for ends in box)] = np.expand_dims(numbers[tuple(ends)], missing)
    return full


def squeezed(value: ir.Value | None) -> Shape:
    """The shape without axes of length 1."""
    assert value is not None
    return tuple(n for n in shape_of(value) if n > 1)
