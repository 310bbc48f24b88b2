"""Index: which entry of an operand an entry of the result comes from.

Along each axis the place is a · i + b, with i one of the loop's variables or none of them.
"""

from __future__ import annotations

from typing import NamedTuple

import onnx_ir as ir

from ....jacobians import Shape, shape_of
from ...flow.steps import python_of
from ..numpy.padding import frame
from ..record import Recording


class Affine(NamedTuple):
    """factor · i[axis] + shift; without a loop's axis it is `shift`."""

    axis: int | None
    factor: int
    shift: int

    def then(self, factor: int, shift: int) -> Affine:
        """factor · self + shift."""
        return Affine(self.axis, self.factor * factor, self.shift * factor + shift)

    def at(self, point: Shape) -> int:
        """The place at a point of the loop."""
        return self.shift + (0 if self.axis is None else self.factor * point[self.axis])

    def reaches(self, place: int) -> int:
        """The first point at which the index is there or beyond, in its own direction.

        >>> Affine(0, 2, 1).reaches(4), Affine(0, -2, 5).reaches(1), Affine(0, -2, 5).reaches(2)
        (2, 2, 2)
        """
        if self.factor > 0:
            return -((self.shift - place) // self.factor)
        return -((place - self.shift) // -self.factor)

    def __str__(self) -> str:
        if self.axis is None:
            return str(self.shift)
        text = f"i{self.axis}" if self.factor == 1 else f"{self.factor} * i{self.axis}"
        return f"{text} + {self.shift}" if self.shift else text


Index = tuple[Affine, ...]
FIRST = Affine(None, 0, 0)


def whole(shape: Shape) -> Index:
    """Every entry, one axis of the loop for each axis."""
    return tuple(FIRST if n == 1 else Affine(k, 1, 0) for k, n in enumerate(shape))


def broadcast(index: Index, shape: Shape) -> Index:
    """The entry of an operand of that shape, which is repeated as ONNX broadcasts."""
    last = index[len(index) - len(shape) :]
    return tuple(FIRST if n == 1 else place for n, place in zip(shape, last, strict=True))


def moved(recording: Recording, node: ir.Node, index: Index) -> Index:
    """The entry of the operand that a move puts at an index."""
    x = node.inputs[0]
    assert x is not None
    shape = shape_of(x)
    if node.op_type == "Transpose":
        perm = python_of(node.attributes["perm"])
        return tuple(index[perm.index(k)] for k in range(len(perm)))
    if node.op_type == "Slice":
        return sliced(recording, node, index, shape)
    if node.op_type == "Pad":
        widths = frame(recording, node) or []
        return tuple(place.then(1, -a) for place, (a, _) in zip(index, widths, strict=True))
    if node.op_type in ("Squeeze", "Unsqueeze", "Reshape"):
        made = shape_of(node.outputs[0])
        kept = iter([place for place, n in zip(index, made, strict=True) if n != 1])
        return tuple(FIRST if n == 1 else next(kept) for n in shape)
    return broadcast(index, shape)


def sliced(recording: Recording, node: ir.Node, index: Index, shape: Shape) -> Index:
    """start + step · place along the axes that are cut."""
    known = [None if x is None else recording.array(x) for x in node.inputs[1:]]
    starts, ends, axes, steps = (*known, None, None)[:4]
    assert starts is not None
    assert ends is not None
    along = range(len(starts)) if axes is None else axes.tolist()
    by = [1] * len(starts) if steps is None else steps.tolist()
    places = list(index)
    for axis, start, end, step in zip(along, starts.tolist(), ends.tolist(), by, strict=True):
        first = max(start, -shape[axis])
        low, _, _ = slice(first, end, step).indices(shape[axis])
        places[axis] = places[axis].then(step, low)
    return tuple(places)
