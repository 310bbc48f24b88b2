"""RNN, GRU and LSTM: every direction, layout, activation, length and option of their cells."""

from __future__ import annotations

from itertools import product
from typing import Any

from .table import at, case, ints

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}

ACTIVATIONS: dict[str, dict[str, list[float]]] = {
    "Relu": {}, "Tanh": {}, "Sigmoid": {}, "Softsign": {}, "Softplus": {},
    "LeakyRelu": {"activation_alpha": [0.25]}, "ThresholdedRelu": {"activation_alpha": [0.125]},
    "Elu": {"activation_alpha": [0.5]},
    "HardSigmoid": {"activation_alpha": [0.25], "activation_beta": [0.375]},
    "Affine": {"activation_alpha": [0.5], "activation_beta": [0.25]},
    "ScaledTanh": {"activation_alpha": [0.5], "activation_beta": [1.5]},
}  # fmt: skip
"""Every activation of the specification, with the numbers that it takes."""


def recurrent(
    op_type: str, turns: int = 1, batch: int = 1, hidden: int = 1, *, bias: bool = False,
    initial: bool = True, lengths: Any = None, peepholes: bool = False, **how: Any,
) -> None:  # fmt: skip
    """A case of a layer with one feature."""
    gates, count = GATES[op_type], 2 if how.get("direction") == "bidirectional" else 1
    rows = gates * hidden
    x, state = (turns, batch, 1), (count, batch, hidden)
    if how.get("layout"):
        x, state = (batch, turns, 1), (batch, count, hidden)
    inputs: list[Any] = [x, (count, rows, 1), (count, rows, hidden)]
    inputs += [(count, 2 * rows) if bias else None, lengths, state if initial else None]
    if op_type == "LSTM":
        inputs += [state if initial else None, (count, 3 * hidden) if peepholes else None]
    outputs = 3 if op_type == "LSTM" else 2
    case(op_type, *inputs, hidden_size=hidden, outputs=outputs, **how)


recurrent("RNN", 2, bias=True)
recurrent("RNN", 1, 1, 2, initial=False, wrt=(0, 1, 2))
recurrent("GRU", bias=True, initial=False)
recurrent("GRU", bias=True)
recurrent("GRU", linear_before_reset=1, bias=True)
recurrent("GRU", 2, wrt=(0, 5))
recurrent("LSTM", bias=True, peepholes=True)
recurrent("LSTM")
recurrent("LSTM", wrt=(0, 6), peepholes=True)
recurrent("LSTM", input_forget=1, peepholes=True)
recurrent("LSTM", 2, wrt=(0, 5))
