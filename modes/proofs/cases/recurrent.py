"""RNN, GRU and LSTM: every direction, layout, activation, length and option of their cells."""

from __future__ import annotations

from itertools import product
from typing import Any

from .table import case, ints

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}

ACTIVATIONS: dict[str, dict[str, Any]] = {
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


ONE: dict[str, Any] = {"of": (0,)}
"""Y alone: the last states are among its entries."""

recurrent("RNN", 2, bias=True)
recurrent("RNN", 1, 1, 2, initial=False)
recurrent("RNN", 2, 2, lengths=ints(2, 1), layout=1, direction="reverse", second=False)
recurrent("GRU", bias=True)
recurrent("GRU", bias=True, linear_before_reset=1, **ONE)
recurrent("GRU", 1, 1, 2, initial=False, second=False)
recurrent("GRU", 2, linear_before_reset=1, second=False)
recurrent("LSTM", bias=True, peepholes=True, second=False)
recurrent("LSTM", **ONE)
recurrent("LSTM", input_forget=1, peepholes=True, second=False)
recurrent("LSTM", input_forget=1, peepholes=True, wrt=(0, 5, 6, 7), **ONE)
recurrent("LSTM", 1, 1, 2, initial=False, second=False)
recurrent("LSTM", 2, 2, lengths=ints(2, 1), layout=1, direction="bidirectional", second=False,
          wrt=(0, 5))  # fmt: skip
recurrent("LSTM", peepholes=True, layout=1, direction="bidirectional", second=False)
for op_type, layout in product(("RNN", "GRU"), (0, 1)):
    recurrent(op_type, 2, 2, lengths=ints(1, 2), layout=layout, direction="bidirectional",
              second=False)  # fmt: skip
for op_type in GATES:
    recurrent(op_type, 2, direction="reverse", layout=1, second=False)
    recurrent(op_type, clip=0.5, bias=True, second=False)
for name, numbers_ in ACTIVATIONS.items():
    recurrent("RNN", activations=[name], **numbers_)
    recurrent("RNN", activations=[name], clip=0.25, **numbers_)
    recurrent("GRU", activations=["Sigmoid", name], initial=False, second=False, **numbers_)
    recurrent("GRU", activations=[name, "Tanh"], second=False, **numbers_)
    recurrent("LSTM", activations=["Sigmoid", "Tanh", name], second=False, **numbers_)
recurrent("LSTM", activations=["HardSigmoid", "Affine", "ScaledTanh"], second=False,
          activation_alpha=[0.25, 0.5, 0.75], activation_beta=[0.375, 0.25])  # fmt: skip
recurrent("RNN", activations=["LeakyRelu", "ScaledTanh"], activation_alpha=[0.25, 0.5],
          activation_beta=[1.5], direction="bidirectional", second=False)  # fmt: skip
