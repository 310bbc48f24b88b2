"""RNN, GRU and LSTM, defined step by step in the vocabulary, from which their derivatives follow.

A cell maps (gates of the input at t, states) to new states; the first state is the output h.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx_ir as ir

from ...jacobians import Array, dtype_of, shape_of
from ...jacobians.errors import InputError, UnsupportedOp
from ...jacobians.symint import at
from ..graphs import keeps, scan
from ..node import Node
from ..registry import defines

DIRECTIONS = ("forward", "reverse", "bidirectional")

INT64 = int(ir.DataType.INT64)

Cell = Callable[[Array, tuple[Array, ...]], tuple[Array, ...]]


class Direction:
    """The weights of one direction of a recurrent operator, and the order of its sequence."""

    def __init__(self, op: Any, node: Node, d: int, gates: int, states: tuple[int, ...]) -> None:
        self.op, self.node, self.d = op, node, d
        self.w, self.r = (op.Gather(node.inputs[i], d, axis=0) for i in (1, 2))
        self.hidden = shape_of(self.r)[-1]
        bias = self.of_direction(3)
        self.wb: Array | None = None
        self.rb: Array | None = None
        if bias is not None:
            self.wb, self.rb = op.Split(bias, axis=0, num_outputs=2, outputs=2)
        self.gates = gates
        self.initial = tuple(self.state(i) for i in states)

    def of_direction(self, i: int) -> Array | None:
        """Input i of the operator for this direction."""
        value = self.node.input(i)
        return None if value is None else self.op.Gather(value, self.d, axis=0)

    def state(self, i: int) -> Array:
        """An initial state, (batch, hidden); zero if omitted."""
        given = self.node.input(i)
        if given is not None:
            return self.op.Gather(given, self.d, axis=1 if self.node.layout else 0)
        batch = shape_of(self.node.x)[0 if self.node.layout else 1]
        return self.op.Expand(np.zeros((), dtype_of(self.node.x)), (batch, self.hidden))

    @property
    def backward(self) -> bool:
        return self.node.direction == "reverse" or self.d == 1

    def activation(self, k: int) -> Callable[[Array], Array]:
        """The k-th activation function of this direction, which clips its argument first."""
        return activation(self.op, self.node, k, self.d)

    def part(self, x: Array | None, k: int, axis: int = -1) -> Array | None:
        """Gate k of a tensor of concatenated gates."""
        if x is None:
            return None
        h = self.hidden
        return self.op.Slice(x, (k * h,), ((k + 1) * h,), (axis,))

    def projected(self, x: Array) -> Array:
        """x Wᵀ + b for all time steps."""
        return self.plus(self.op.MatMul(x, self.op.Transpose(self.w, perm=(1, 0))), self.wb)

    def plus(self, x: Array, y: Array | None) -> Array:
        return x if y is None else self.op.Add(x, y)

    def recurrent(self, h: Array, k: int | None = None) -> Array:
        """h Rᵀ for all gates, or for gate k."""
        r = self.r if k is None else self.part(self.r, k, axis=0)
        return self.op.MatMul(h, self.op.Transpose(r, perm=(1, 0)))


def sequences(
    op: Any, node: Node, make: Callable[[Direction], Cell], gates: int, states: tuple[int, ...]
) -> Any:
    """Y and the last states of all directions, in the layout of the operator."""
    if len(shape_of(node.x)) != 3:
        raise InputError(f"X has shape {list(at(shape_of(node.x)))}, where it must have three axes")
    x = op.Transpose(node.x, perm=(1, 0, 2)) if node.layout else node.x
    count = 2 if node.direction == "bidirectional" else 1
    outputs, finals = [], []
    for d in range(count):
        direction = Direction(op, node, d, gates, states)
        run = scanned if keeps(op) else unrolled
        ys, last = run(op, x, direction, make(direction))
        outputs.append(ys)
        finals.append(last)
    y = op.Concat(*(op.Unsqueeze(y, (1,)) for y in outputs), axis=1)
    lasts = [
        op.Concat(*(op.Unsqueeze(s, (0,)) for s in column), axis=0)
        for column in zip(*finals, strict=True)
    ]
    if node.layout:
        y = op.Transpose(y, perm=(2, 0, 1, 3))
        lasts = [op.Transpose(s, perm=(1, 0, 2)) for s in lasts]
    return (y, *lasts)


def scanned(
    op: Any, x: Array, direction: Direction, cell: Cell
) -> tuple[Array, tuple[Array, ...]]:
    """The outputs at all time steps, and the last states, by one Scan."""
    projected, lengths = direction.projected(x), direction.node.input(4)
    if lengths is None:
        series: tuple[Array, ...] = (projected,)
    else:
        lengths = op.Unsqueeze(op.Cast(lengths, to=INT64), (1,))
        series = projected, op.Range(np.array(0), shape_of(x)[0], np.array(1))

    def turn(old: tuple[Array, ...], slices: tuple[Array, ...]) -> Any:
        alive = None if lengths is None else op.Less(slices[1], lengths)
        return masked(op, alive, cell(slices[0], old), old)

    states, ys = scan(op, turn, direction.initial, series, backward=direction.backward)
    begun = None if lengths is None else op.Greater(lengths, np.array(0))
    return ys, last_states(op, begun, states)


def unrolled(
    op: Any, x: Array, direction: Direction, cell: Cell
) -> tuple[Array, tuple[Array, ...]]:
    """The outputs at all time steps, and the last states, with the loop unrolled."""
    turns, projected, lengths = shape_of(x)[0], direction.projected(x), direction.node.fixed(4)
    ends = lengths if lengths is not None and min(lengths, default=turns) < turns else None
    states, outputs = direction.initial, {}
    for t in reversed(range(turns)) if direction.backward else range(turns):
        fresh = cell(op.Gather(projected, t, axis=0), states)
        alive = None if ends is None else np.array([[t < n] for n in ends])
        states, outputs[t] = masked(op, alive, fresh, states)
    ys = op.Concat(*(op.Unsqueeze(outputs[t], (0,)) for t in range(turns)), axis=0)
    begun = None if ends is None or min(ends) > 0 else np.array([[n > 0] for n in ends])
    return ys, last_states(op, begun, states)


def masked(
    op: Any, alive: Array | None, fresh: tuple[Array, ...], old: tuple[Array, ...]
) -> tuple[tuple[Array, ...], Array]:
    """States and output of a time step: an inactive sequence keeps its state and outputs zero."""
    if alive is None:
        return fresh, fresh[0]
    zero = np.zeros((), dtype_of(fresh[0]))
    kept = tuple(op.Where(alive, new, before) for new, before in zip(fresh, old, strict=True))
    return kept, op.Where(alive, fresh[0], zero)


def last_states(op: Any, begun: Array | None, states: tuple[Array, ...]) -> tuple[Array, ...]:
    """The last states; 0, as in ONNX Runtime, for an empty sequence."""
    if begun is None:
        return states
    zero = np.zeros((), dtype_of(states[0]))
    return tuple(op.Where(begun, state, zero) for state in states)


def split_gates(direction: Direction, x: Array) -> Iterator[Array]:
    """The gates of a tensor (batch, gates · hidden)."""
    for k in range(direction.gates):
        part = direction.part(x, k)
        assert part is not None
        yield part


@defines("RNN", direction=DIRECTIONS)
def rnn(op: Any, node: Node) -> Any:
    """h' = f(x Wᵀ + h Rᵀ + b)."""

    def make(d: Direction) -> Cell:
        f = d.activation(0)
        return lambda x, states: (f(d.plus(op.Add(x, d.recurrent(states[0])), d.rb)),)

    return sequences(op, node, make, 1, (5,))


@defines("LSTM", direction=DIRECTIONS)
def lstm(op: Any, node: Node) -> Any:
    """c' = f ∘ c + i ∘ g(…), h' = o ∘ k(c'), with peepholes P into the gates i, o, f."""

    def make(d: Direction) -> Cell:
        f, g, k = (d.activation(n) for n in range(3))
        peep = [d.part(d.of_direction(7), n) for n in range(3)]

        def gate(x: Array, c: Array, weight: Array | None) -> Array:
            return f(x if weight is None else op.Add(x, op.Mul(weight, c)))

        def cell(x: Array, states: tuple[Array, ...]) -> tuple[Array, ...]:
            h, c = states
            i, o, forget, new = split_gates(d, d.plus(op.Add(x, d.recurrent(h)), d.rb))
            i = gate(i, c, peep[0])
            forget = op.Sub(1.0, i) if node.input_forget else gate(forget, c, peep[2])
            c = op.Add(op.Mul(forget, c), op.Mul(i, g(new)))
            return op.Mul(gate(o, c, peep[1]), k(c)), c

        return cell

    return sequences(op, node, make, 4, (5, 6))


@defines("GRU", direction=DIRECTIONS)
def gru(op: Any, node: Node) -> Any:
    """h' = (1 - z) ∘ n + z ∘ h, with the reset r before or after the recurrent product of n."""

    def make(d: Direction) -> Cell:
        f, g = d.activation(0), d.activation(1)
        rz, rr, rn = (d.part(d.rb, k) for k in range(3))

        def cell(x: Array, states: tuple[Array, ...]) -> tuple[Array, ...]:
            (h,) = states
            z, r, n = split_gates(d, x)
            z = f(d.plus(op.Add(z, d.recurrent(h, 0)), rz))
            r = f(d.plus(op.Add(r, d.recurrent(h, 1)), rr))
            if node.linear_before_reset:
                inner = op.Mul(r, d.plus(d.recurrent(h, 2), rn))
            else:
                inner = d.plus(d.recurrent(op.Mul(r, h), 2), rn)
            n = g(op.Add(n, inner))
            return (op.Add(op.Mul(op.Sub(1.0, z), n), op.Mul(z, h)),)

        return cell

    return sequences(op, node, make, 3, (5,))


DEFAULTS = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}

PARAMETERS = {
    "LeakyRelu": (0.01,), "ThresholdedRelu": (1.0,), "Elu": (1.0,), "HardSigmoid": (0.2, 0.5),
    "Affine": (1.0, 0.0), "ScaledTanh": (1.0, 1.0),
}  # fmt: skip
"""The functions that take alpha, or alpha and beta, and their default values."""


def activation(op: Any, node: Node, k: int, direction: int) -> Callable[[Array], Array]:
    """Activation function k of a direction, which clips its argument first if `clip` is set."""
    defaults = DEFAULTS[node.step.op_type]
    names = [canonical(n) for n in node.activations or defaults * 2]
    at = direction * len(defaults) + k
    function = named(op, node, names[at], parameters(node, names, at))
    if not node.clip:
        return function
    return lambda x: function(op.Clip(x, -node.clip, node.clip))


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


def named(op: Any, node: Node, name: str, values: tuple[float, ...]) -> Callable[[Array], Array]:
    """The named activation function in calls of the vocabulary."""
    if name == "Affine":
        return lambda x: op.Add(op.Mul(x, values[0]), values[1])
    if name == "ScaledTanh":
        return lambda x: op.Mul(op.Tanh(op.Mul(x, values[1])), values[0])
    attributes = dict(zip(("alpha", "beta"), values, strict=False))
    return lambda x: getattr(op, name)(x, **attributes)
