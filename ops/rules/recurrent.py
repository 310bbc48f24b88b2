"""RNN, GRU and LSTM, defined step by step in the vocabulary, from which their derivatives follow.

A cell maps the gates at a time step and the states to new states; the first state is the output h.
Where loops are kept, the operator itself computes the outputs, and their tangents follow from the
definition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from ...jacobians import Array, Op, dtype_of, shape_of
from ...jacobians.errors import InputError, UnsupportedOp
from ...jacobians.symint import Number, at
from ..conventions import ACTIVATIONS, PARTS, kinks
from ..graphs import Turn, keeps, run_definition, scan, surrogate
from ..graphs.defects import DEPARTS, enter
from ..node import Node, Step
from ..registry import defines, says

DIRECTIONS = ("forward", "reverse", "bidirectional")

INT64 = int(ir.DataType.INT64)

Arrays = tuple[Array, ...]

Function = Callable[[Array], Array]

Cell = Callable[[Array, Array, Arrays], Arrays]
"""cell(x Wᵀ + b, h Rᵀ + b, states): the new states, with h Rᵀ + b for the linear gates."""

Result = tuple[Array, Arrays]
"""The outputs at all time steps, and the last states, of one direction."""

END = np.iinfo(np.int64).max


class Form(NamedTuple):
    """The number of gates, the inputs that are initial states, and the number of linear gates: the
    first ones, which are given h Rᵀ + b.
    """

    gates: int
    states: tuple[int, ...]
    linear: int


def add_bias(op: Op, y: Array, bias: Array | None) -> Array:
    """y + bias, or y without one."""
    return y if bias is None else op.Add(y, bias)


class Direction:
    """One direction of a recurrent operator: its weights, its states, and the order of time.

    Products with R take `seen`(h) in place of h, if there is such a function.
    """

    cell: Cell

    def __init__(
        self, op: Op, node: Node, d: int, x: Array, lengths: Lengths, form: Form,
        seen: Function | None = None,
    ) -> None:  # fmt: skip
        self.op, self.node, self.d, self.x, self.lengths = op, node, d, x, lengths
        self.seen = seen or (lambda h: h)
        self.w, self.r = (op.Gather(node.inputs[i], d, axis=0) for i in (1, 2))
        self.hidden = shape_of(self.r)[-1]
        bias = self.of_direction(3)
        self.wb: Array | None = None
        self.rb: Array | None = None
        if bias is not None:
            self.wb, self.rb = op.Split(bias, axis=0, num_outputs=2, outputs=2)
        self.form = form
        self.initial = tuple(self.state(i) for i in form.states)

    def of_direction(self, i: int) -> Array | None:
        """Input i of the operator for this direction."""
        value = self.node.input(i)
        return None if value is None else self.op.Gather(value, self.d, axis=0)

    def state(self, i: int) -> Array:
        """An initial state, (batch, hidden); zero if omitted."""
        given = self.node.input(i)
        if given is not None:
            return self.op.Gather(given, self.d, axis=1 if self.node.layout else 0)
        zero = np.zeros((), dtype_of(self.x))
        return self.op.Expand(zero, (shape_of(self.x)[1], self.hidden))

    @property
    def backward(self) -> bool:
        return self.node.direction == "reverse" or self.d == 1

    def activation(self, k: int) -> Function:
        """The k-th activation function of this direction, which clips its argument first."""
        node, defaults = self.node, DEFAULTS[self.node.step.op_type]
        names = [canonical(name) for name in node.activations or defaults * 2]
        at = self.d * len(defaults) + k
        function = activation_by_name(self.op, names[at], parameters(node, names, at))
        if not node.clip:
            return function
        return lambda x: function(self.op.Clip(x, -node.clip, node.clip))

    def part(self, x: Array | None, k: int, axis: int = -1) -> Array | None:
        """Gate k of a tensor of concatenated gates."""
        h = self.hidden
        return None if x is None else self.op.Slice(x, (k * h,), ((k + 1) * h,), (axis,))

    def split(self, x: Array) -> Iterator[Array]:
        """The gates of a tensor (batch, gates · hidden)."""
        return (self.part(x, k) for k in range(shape_of(x)[-1] // self.hidden))

    @property
    def projected(self) -> Array:
        """x Wᵀ + b for all time steps."""
        product = self.op.MatMul(self.x, self.op.Transpose(self.w, perm=(1, 0)))
        return add_bias(self.op, product, self.wb)

    @property
    def turned(self) -> Array:
        """Rᵀ of the linear gates."""
        return self.op.Transpose(self.first(self.r), perm=(1, 0))

    def first(self, x: Array | None) -> Array | None:
        """The linear gates of a tensor of gates along its first axis."""
        if x is None or self.form.linear == self.form.gates:
            return x
        return self.op.Slice(x, (0,), (self.form.linear * self.hidden,), (0,))

    def sums(self, h: Array) -> Array:
        """h Rᵀ + b for the linear gates."""
        return add_bias(self.op, self.op.MatMul(self.seen(h), self.turned), self.first(self.rb))

    def recurrent(self, h: Array, k: int) -> Array:
        """h Rᵀ + b for gate k."""
        r = self.op.Transpose(self.part(self.r, k, axis=0), perm=(1, 0))
        return add_bias(self.op, self.op.MatMul(h, r), self.part(self.rb, k))

    def scan(self, turn: Turn, state: Arrays, series: Sequence[Array]) -> tuple[Arrays, Array]:
        """The last state, and the rows of all time steps, in the order of this direction.

        turn(state, slices) gives the fresh state and a row; a sequence that has ended keeps its
        state.
        """

        def whole(state: Arrays, slices: Arrays) -> tuple[Arrays, Array]:
            fresh, row = turn(state, slices[:count])
            alive = self.lengths.active(*slices[count:])
            if alive is None:
                return fresh, row
            pairs = zip(fresh, state, strict=True)
            return tuple(self.op.Where(alive, new, old) for new, old in pairs), row

        count, every = len(series), (*series, *self.lengths.steps)
        return scan(self.op, whole, state, every, backward=self.backward)


def sequences(
    op: Op, node: Node, make: Callable[[Direction], Cell], form: Form,
    seen: Function | None = None,
) -> Arrays:  # fmt: skip
    """Y and the last states of all directions, in the layout of the operator."""
    if len(shape_of(node.x)) != 3:
        raise InputError(f"X has shape {list(at(shape_of(node.x)))}, where it must have three axes")
    x = op.Transpose(node.x, perm=(1, 0, 2)) if node.layout else node.x
    lengths = Lengths(op, node, shape_of(x)[0])
    count = 2 if node.direction == "bidirectional" else 1
    directions = [Direction(op, node, d, x, lengths, form, seen) for d in range(count)]
    for direction in directions:
        direction.cell = make(direction)
    # ONNX Runtime has a kernel in single precision.
    exact = dtype_of(node.x) == np.float32 and not left_out_parameters(node.step)
    kernel = keeps(op) and exact and seen is None
    found = by_kernel(directions) if kernel else [*map(run_direction, directions)]
    if keeps(op):
        found = [*map(with_tangents, directions, found)]
    outputs, finals = zip(*found, strict=True)
    y = op.Concat(*(op.Unsqueeze(y, (1,)) for y in outputs), axis=1)
    lasts = [stack_directions(op, column) for column in zip(*finals, strict=True)]
    if node.layout:
        y = op.Transpose(y, perm=(2, 0, 1, 3))
        lasts = [op.Transpose(s, perm=(1, 0, 2)) for s in lasts]
    return (y, *lasts)


def stack_directions(op: Op, parts: Sequence[Array]) -> Array:
    """The tensors of all directions, stacked along a new first axis."""
    return op.Concat(*(op.Unsqueeze(part, (0,)) for part in parts), axis=0)


def by_kernel(directions: list[Direction]) -> list[Result]:
    """The values that the operator itself computes, for sequences along the first axis."""
    op, node = directions[0].op, directions[0].node
    starts = [
        stack_directions(op, column)
        for column in zip(*(d.initial for d in directions), strict=True)
    ]
    attrs = {name: value for name, value in node.step.attrs.items() if name != "layout"}
    given = (directions[0].x, *(node.input(i) for i in range(1, 5)), *starts, *node.inputs[7:])
    y, *lasts = run_definition(op, node.step.op_type, *given, outputs=1 + len(starts), **attrs)
    return [
        (op.Gather(y, d.d, axis=1), tuple(op.Gather(s, d.d, axis=0) for s in lasts))
        for d in directions
    ]


def run_direction(d: Direction) -> Result:
    """The outputs at all time steps, and the last states, by one loop."""
    if not keeps(d.op) and int(shape_of(d.x)[0]) == 0:
        return without_steps(d)

    def turn(states: Arrays, slices: Arrays) -> tuple[Arrays, Array]:
        (x,) = slices
        fresh = d.cell(x, d.sums(states[0]), states)
        return fresh, fresh[0]

    states, ys = d.scan(turn, d.initial, [d.projected])
    return d.lengths.zeroed(ys), d.lengths.final(states)


def without_steps(d: Direction) -> Result:
    """The outputs at no time steps, and the last states of empty sequences, which are 0."""
    zero, shape = np.zeros((), dtype_of(d.x)), (shape_of(d.x)[1], d.hidden)
    return d.op.Expand(zero, (0, *shape)), tuple(d.op.Expand(zero, shape) for _ in d.initial)


def with_tangents(d: Direction, values: Result) -> Result:
    """The values of the outputs, with the tangents of one loop.

    What the values tell is not computed again: h before each time step and, from all of them at
    once, h Rᵀ. So the loop has no tangents of R.
    """
    op, (ys, lasts) = d.op, values
    h, r = surrogate(op, before(d, ys)), surrogate(op, d.turned)
    series = [d.projected, d.sums(h), h]
    if len(d.initial) > 1:
        series.append(surrogate(op, cells_before(d, series)))

    def turn(states: Arrays, slices: Arrays) -> tuple[Arrays, Array]:
        x, s, *known = slices
        moved = op.Sub(d.seen(states[0]), d.seen(known[0]))
        s = surrogate(op, s, op.Add(s, op.MatMul(moved, r)))
        old = tuple(surrogate(op, v, state) for v, state in zip(known, states, strict=True))
        fresh = d.cell(x, s, old)
        return fresh, fresh[0]

    states, made = d.scan(turn, d.initial, series)
    made, states = d.lengths.zeroed(made), d.lengths.final(states)
    return surrogate(op, ys, made), tuple(map(partial(surrogate, op), lasts, states))


def before(d: Direction, ys: Array) -> Array:
    """h before each time step at which a sequence is active, from h after each of them."""
    op, start = d.op, d.op.Unsqueeze(d.initial[0], (0,))
    if not d.backward:
        return op.Concat(start, op.Slice(ys, (0,), (-1,), (0,)), axis=0)
    moved = op.Concat(op.Slice(ys, (1,), (END,), (0,)), start, axis=0)
    ends = d.lengths.ends
    if ends is None:
        return moved
    return op.Where(op.Less(op.Add(d.lengths.column, np.array(1)), ends), moved, start)


def cells_before(d: Direction, series: Sequence[Array]) -> Array:
    """c before each time step, by a loop with h known."""

    def turn(states: Arrays, slices: Arrays) -> tuple[Arrays, Array]:
        x, s, h = slices
        return d.cell(x, s, (h, *states))[1:], states[0]

    return d.scan(turn, d.initial[1:], series)[1]


class Lengths:
    """The lengths of the sequences, as the loops over time steps use them.

    A sequence that has ended gives zeros; the last states of an empty one are 0, as in ONNX
    Runtime. A loop that is unrolled holds for the lengths at the point.
    """

    def __init__(self, op: Op, node: Node, turns: Number) -> None:
        self.op, self.dtype, given = op, dtype_of(node.x), node.input(4)
        if given is not None and not keeps(op):
            given = np.array(node.fixed(4))
            given = None if np.min(given, initial=at(turns)) >= at(turns) else given
        self.ends = None if given is None else op.Unsqueeze(op.Cast(given, to=INT64), (1,))
        self.steps: Arrays = () if given is None else (op.Range(np.array(0), turns, np.array(1)),)

    @property
    def column(self) -> Array:
        """The time steps along the first axis of a series."""
        (steps,) = self.steps
        return self.op.Reshape(steps, (-1, 1, 1))

    def active(self, *step: Array) -> Array | None:
        """Which sequences are active at a time step; None for all."""
        return self.op.Less(step[0], self.ends) if step else None

    def zeroed(self, ys: Array) -> Array:
        """The outputs at all time steps, 0 where a sequence has ended."""
        if self.ends is None:
            return ys
        return self.op.Where(self.op.Less(self.column, self.ends), ys, np.zeros((), self.dtype))

    def final(self, states: Arrays) -> Arrays:
        """The last states, 0 for empty sequences."""
        if self.ends is None:
            return states
        begun = self.op.Greater(self.ends, np.array(0))
        return tuple(self.op.Where(begun, state, np.zeros((), self.dtype)) for state in states)


kinks("RNN", "LSTM", "GRU", where=ACTIVATIONS, given=PARTS)


def time_steps(node: Node) -> int:
    """The time steps of x."""
    shape = np.shape(node.x)
    return shape[1 if node.layout else 0] if len(shape) == 3 else 0


says("RNN", "LSTM", "GRU", turns=time_steps)


@defines("RNN", direction=DIRECTIONS)
def rnn(op: Op, node: Node) -> Arrays:
    """h' = f(x Wᵀ + h Rᵀ + b)."""

    def make(d: Direction) -> Cell:
        f = d.activation(0)
        return lambda x, s, states: (f(op.Add(x, s)),)

    return sequences(op, node, make, Form(1, (5,), 1))


def lstm(op: Op, node: Node, seen: Function | None = None) -> Arrays:
    """c' = f ∘ c + i ∘ g(…), h' = o ∘ k(c'), with peepholes P into the gates i, o, f."""
    # products with R take seen(h)
    return sequences(op, node, lstm_cell, Form(4, (5, 6), 4), seen)


defines("LSTM", direction=DIRECTIONS)(lstm)


def lstm_cell(d: Direction) -> Cell:
    """(h, c) after a time step."""
    op = d.op
    f, g, k = (d.activation(n) for n in range(3))
    peep = [d.part(d.of_direction(7), n) for n in range(3)]

    def gate(x: Array, c: Array, weight: Array | None) -> Array:
        return f(x if weight is None else op.Add(x, op.Mul(weight, c)))

    def cell(x: Array, s: Array, states: Arrays) -> Arrays:
        _, c = states
        i, o, forget, new = d.split(op.Add(x, s))
        i = gate(i, c, peep[0])
        forget = op.Sub(1.0, i) if d.node.input_forget else gate(forget, c, peep[2])
        c = op.Add(op.Mul(forget, c), op.Mul(i, g(new)))
        return op.Mul(gate(o, c, peep[1]), k(c)), c

    return cell


@defines("GRU", direction=DIRECTIONS)
def gru(op: Op, node: Node) -> Arrays:
    """h' = (1 - z) ∘ n + z ∘ h, with the reset r before or after the recurrent product of n."""

    def make(d: Direction) -> Cell:
        f, g = d.activation(0), d.activation(1)

        def cell(x: Array, s: Array, states: Arrays) -> Arrays:
            (h,) = states
            (z, r, n), (sz, sr, *sn) = d.split(x), d.split(s)
            z, r = f(op.Add(z, sz)), f(op.Add(r, sr))
            inner = op.Mul(r, *sn) if sn else d.recurrent(op.Mul(r, h), 2)
            n = g(op.Add(n, inner))
            return (op.Add(op.Mul(op.Sub(1.0, z), n), op.Mul(z, h)),)

        return cell

    return sequences(op, node, make, Form(3, (5,), 3 if node.linear_before_reset else 2))


DEFAULTS = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}

PARAMETERS = {
    "LeakyRelu": (0.01,), "ThresholdedRelu": (1.0,), "Elu": (1.0,), "HardSigmoid": (0.2, 0.5),
    "Affine": (1.0, 0.0), "ScaledTanh": (1.0, 1.0),
}  # fmt: skip
"""The functions that take alpha, or alpha and beta, and their default values."""


def canonical(name: str) -> str:
    """The name as the specification spells it, whatever its case."""
    known = ("Relu", "Tanh", "Sigmoid", "Softsign", "Softplus", *PARAMETERS)
    found = {n.lower(): n for n in known}.get(name.lower())
    if found is None:
        raise UnsupportedOp(f"unknown activation {name!r}; there are: {', '.join(known)}")
    return found


def parameters(node: Node, names: list[str], at: int) -> tuple[float, ...]:
    """Alpha and beta of the function at index `at`; the lists skip functions without them."""
    given = []
    for position, values in enumerate((node.activation_alpha, node.activation_beta)):
        takers = [k for k, name in enumerate(names) if len(PARAMETERS.get(name, ())) > position]
        if at in takers:
            rank, values = takers.index(at), values or ()
            default = PARAMETERS[names[at]][position]
            given.append(values[rank] if rank < len(values) else default)
    return tuple(given)


def left_out_parameters(step: Step, *inputs: Array) -> bool:
    """It does not clip the cell state of an LSTM before the last activation, and takes 0 for the
    parameters of Affine, ScaledTanh and ThresholdedRelu that are left out.
    """
    if step.op_type == "LSTM" and step.attrs.get("clip"):
        return True
    names = [canonical(name) for name in step.attrs.get("activations", ())]
    if {"Affine", "ScaledTanh", "ThresholdedRelu"}.isdisjoint(names):
        return False
    given = (step.attrs.get(f"activation_{which}") or () for which in ("alpha", "beta"))
    return any(len(values) < sum(len(PARAMETERS.get(name, ())) > k for name in names)
               for k, values in enumerate(given))  # fmt: skip


enter("left_out_parameters", "RNN GRU LSTM", DEPARTS, left_out_parameters)


def activation_by_name(op: Op, name: str, values: tuple[float, ...]) -> Function:
    """The named activation function in calls of the vocabulary."""
    if name == "Affine":
        return lambda x: op.Add(op.Mul(x, values[0]), values[1])
    if name == "ScaledTanh":
        return lambda x: op.Mul(op.Tanh(op.Mul(x, values[1])), values[0])
    attributes = dict(zip(("alpha", "beta"), values, strict=False))
    return lambda x: getattr(op, name)(x, **attributes)
