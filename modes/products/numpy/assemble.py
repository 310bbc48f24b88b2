"""Assemble: a recorded product as instructions.

Each operator has a function, registered by `assembles`, that finds the places of its operands and
emits calls that write to the place of its result. Movements that views express emit nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import onnx_ir as ir

from ....jacobians import Shape, dtype_of, shape_of
from ....ops.numbers import numbers
from ...flow.steps import python_of
from ..record import Recording
from .destinations import Destinations
from .places import Buffer, Place, Role, constant, new, ordered_like
from .program import Instruction, Program, copy

Assembly = Callable[["Assembler", ir.Node], None]
TABLE: dict[str, Assembly] = {}

FOREVER = 1 << 60

UFUNCS: dict[str, np.ufunc] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
}


def assembles(*names: str) -> Callable[[Assembly], Assembly]:
    """Register a function that assembles the named operators."""

    def enter(function: Assembly) -> Assembly:
        TABLE.update(dict.fromkeys(names, function))
        return function

    return enter


class Assembler:
    """The places of all values, and the instructions so far.

    `absent` nodes are not executed: the readers of their results compute them.
    """

    def __init__(self, recording: Recording, absent: Collection[ir.Node] = ()) -> None:
        self.recording, self.absent, self.now = recording, absent, 0
        self.instructions: list[Instruction] = []
        self.packed = 0
        self.places: dict[ir.Value, Place] = {}
        self.tenants: defaultdict[Buffer, list[ir.Value]] = defaultdict(list)
        self.last_use = last_uses(recording, absent)
        self.v = new(shape_of(recording.v), dtype_of(recording.v), Role.INPUT)
        self.y = new(shape_of(recording.y), dtype_of(recording.y), Role.OUTPUT)
        self.wanted = Destinations(recording, self.y, absent).places
        for value, place in self.wanted.items():
            self.tenants[place.buffer].append(value)
        self.put(recording.v, self.v)

    # -- places of values ---------------------------------------------------------------------

    def place(self, value: ir.Value) -> Place:
        """The place of a value."""
        if value not in self.places:
            array = self.recording.array(value)
            assert array is not None, f"{value} is used before it is computed"
            self.put(value, constant(array))
        return self.places[value]

    def operands(self, node: ir.Node) -> list[Place]:
        """The places of the inputs of a node, without omitted ones."""
        return [self.place(x) for x in node.inputs if x is not None]

    def put(self, value: ir.Value, place: Place) -> None:
        """Records the place of a value, and copies the value if it is wanted elsewhere."""
        wanted = self.wanted.get(value)
        if wanted is not None and not wanted.same(place):
            self.emit(copy, place, wanted)
            place = wanted
        self.places[value] = place
        self.tenants[place.buffer].append(value)

    def target(self, node: ir.Node, reuse: bool = False) -> Place:
        """The place that the result of a node is written to.

        It is the place where the result is wanted; else, with `reuse`, an operand that is no longer
        needed; else a new buffer.
        """
        value = node.outputs[0]
        place = self.wanted.get(value) or (self.spare(node) if reuse else None)
        if place is None:
            place = self.alike(node) if reuse else new(shape_of(value), dtype_of(value))
        self.put(value, place)
        return place

    def spare(self, node: ir.Node) -> Place | None:
        """An operand that the result may overwrite."""
        value, places = node.outputs[0], self.operands(node)
        for place in places:
            others = (p for p in places if p.buffer is place.buffer)
            if (
                place.buffer.role is Role.WORK and place.shape == shape_of(value)
                and place.dtype == dtype_of(value) and self.is_dead(place.buffer)
                and all(map(place.same, others)) and 0 not in place.view.strides
            ):  # fmt: skip
                return place
        return None

    def is_dead(self, buffer: Buffer) -> bool:
        """Whether nothing in a buffer is needed after this node."""
        return all(self.last_use[value] <= self.now for value in self.tenants[buffer])

    def alike(self, node: ir.Node) -> Place:
        """A new buffer, with the axis order of the first computed operand of the result's shape."""
        value = node.outputs[0]
        shape, dtype = shape_of(value), dtype_of(value)
        for place in self.operands(node):
            if place.shape == shape and place.constant is None and 0 not in place.view.strides:
                view = ordered_like(place.view, shape, dtype)
                return Place(Buffer(view, Role.WORK), view)
        return new(shape, dtype)

    # -- instructions -------------------------------------------------------------------------

    def emit(self, function: Callable[..., Any], *places: Place) -> Place:
        """Emits a call that writes to its last place, and returns this place."""
        self.instructions.append(Instruction(function, places))
        return places[-1]

    def contiguous(self, place: Place, shape: Shape | None = None) -> Place:
        """The entries in row-major order: a copy, made now if they are constant."""
        shape = place.shape if shape is None else shape
        if place.constant is not None:
            made = np.ascontiguousarray(place.constant)
            self.packed += made.nbytes
            return constant(made.reshape(shape))
        made_place = self.emit(copy, place, new(place.shape, place.dtype))
        return made_place.moved(np.reshape, shape)

    def reshaped(self, place: Place, shape: Shape) -> Place:
        """The entries in another shape: a view if possible, else a copy."""
        return place.reshaped(shape) or self.contiguous(place, shape)

    def node(self, node: ir.Node) -> None:
        """Emits the instructions of one node."""
        TABLE.get(node.op_type, by_kernel)(self, node)

    def program(self) -> Program:
        """All instructions of the recording."""
        for now, node in enumerate(self.recording.nodes):
            self.now = now
            if node not in self.absent:
                self.node(node)
        if self.recording.y not in self.wanted:  # y is v or a constant
            self.emit(copy, self.place(self.recording.y), self.y)
        return Program(self.instructions, self.v, self.y, self.packed)


def compile(recording: Recording) -> Program:
    """The program of a recorded product."""
    return Assembler(recording).program()


def last_uses(
    recording: Recording, absent: Collection[ir.Node] = ()
) -> defaultdict[ir.Value, int]:
    """The last node that reads each value; the result y is needed for ever.

    The inputs of an absent node are read where its result is read.
    """
    found: defaultdict[ir.Value, int] = defaultdict(lambda: -1)
    found[recording.y] = FOREVER
    for now, node in reversed(list(enumerate(recording.nodes))):
        when = max(found[y] for y in node.outputs) if node in absent else now
        for x in node.inputs:
            if x is not None:
                found[x] = max(found[x], when)
    return found


def attributes(node: ir.Node) -> dict[str, Any]:
    """The attributes of a node as Python values."""
    return {name: python_of(attribute) for name, attribute in node.attributes.items()}


def arguments(asm: Assembler, node: ir.Node) -> list[np.ndarray | None]:
    """The inputs of a node after the first, which are constant: shapes, axes, indices."""
    return [None if x is None else asm.place(x).constant for x in node.inputs[1:]]


def by_kernel(asm: Assembler, node: ir.Node) -> None:
    """A node run by its NumPy kernel, with the results copied to their places."""
    kernel, attrs = getattr(numbers, node.op_type), attributes(node)
    present = [x is not None for x in node.inputs]
    operands = asm.operands(node)
    made = [new(shape_of(y), dtype_of(y)) for y in node.outputs]
    if len(made) > 1:
        attrs["outputs"] = len(made)

    def run(*arrays: np.ndarray) -> None:
        given = iter(arrays[: len(operands)])
        results = kernel(*(next(given) if there else None for there in present), **attrs)
        results = results if isinstance(results, tuple) else (results,)
        for result, y in zip(results, arrays[len(operands) :], strict=False):
            copy(result, y)

    asm.emit(run, *operands, *made)
    for value, place in zip(node.outputs, made, strict=True):
        asm.put(value, place)


@assembles(*UFUNCS)
def elementwise(asm: Assembler, node: ir.Node) -> None:
    """y = f(x, …), broadcast."""
    operands = asm.operands(node)
    y = asm.target(node, reuse=True)
    asm.emit(UFUNCS[node.op_type], *(beside(asm, x, y) for x in operands), y)


@assembles("Neg")
def negated(asm: Assembler, node: ir.Node) -> None:
    """y = -1 · x: `np.negative` of NumPy 2.4 is wrong if entries of x are 8 numbers of float64, or
    4 of float32, apart and y is not contiguous.
    """
    (x,) = asm.operands(node)
    y = asm.target(node, reuse=True)
    asm.emit(np.multiply, beside(asm, x, y), constant(np.full((), -1, x.dtype)), y)


def beside(asm: Assembler, x: Place, y: Place) -> Place:
    """x, copied to the axis order of y if constant: reading in another takes twice as long."""
    held = x.constant
    if held is None or x.shape != y.shape or order(held) == order(y.view) or 0 in held.strides:
        return x
    lying = np.argsort([-abs(stride) for stride in y.view.strides], kind="stable")
    made = np.ascontiguousarray(held.transpose(lying))
    asm.packed += made.nbytes
    return constant(made.transpose(np.argsort(lying)))


def order(view: np.ndarray) -> tuple[int, ...]:
    """The axes of length > 1, by decreasing stride."""
    axes = (k for k, n in enumerate(view.shape) if n > 1)
    return tuple(sorted(axes, key=lambda k: -abs(view.strides[k])))
