"""The activation functions of the recurrent operators, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...jacobians import Array
from ...jacobians.errors import UnsupportedOp
from ..node import Node

DEFAULTS = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}

PARAMETERS = {
    "LeakyRelu": (0.01,), "ThresholdedRelu": (1.0,), "Elu": (1.0,), "HardSigmoid": (0.2, 0.5),
    "Affine": (1.0, 0.0), "ScaledTanh": (1.0, 1.0),
}  # fmt: skip
"""The functions that take alpha, or alpha and beta, and what these are where they are not given."""


def activation(op: Any, node: Node, k: int, direction: int) -> Callable[[Array], Array]:
    """Function k of a direction of a recurrent operator, its argument clipped where asked."""
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
    """Alpha and beta of the function at that place: the lists hold those of functions with any."""
    given = []
    for position, values in enumerate((node.activation_alpha, node.activation_beta)):
        takers = [k for k, name in enumerate(names) if len(PARAMETERS.get(name, ())) > position]
        if at in takers:
            rank, values = takers.index(at), values or ()
            default = PARAMETERS[names[at]][position]
            given.append(values[rank] if rank < len(values) else default)
    return tuple(given)


def named(op: Any, node: Node, name: str, values: tuple[float, ...]) -> Callable[[Array], Array]:
    """The function in calls of the vocabulary."""
    if name == "Affine":
        return lambda x: op.Add(op.Mul(x, values[0]), values[1])
    if name == "ScaledTanh":
        return lambda x: op.Mul(op.Tanh(op.Mul(x, values[1])), values[0])
    attributes = dict(zip(("alpha", "beta"), values, strict=False))
    return lambda x: getattr(op, name)(x, **attributes)
