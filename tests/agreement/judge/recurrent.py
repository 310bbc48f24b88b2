"""Recurrent layers, step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .elementwise import softplus
from .graphs import Node, NoKernel, integers, kernel

Function = Callable[[Tensor], Tensor]
DEFAULTS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
PLAIN: dict[str, Function] = {
    "relu": torch.relu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "softsign": lambda x: x / (1 + x.abs()),
    "softplus": softplus,
}
SHAPED: dict[str, tuple[Callable[..., Tensor], float | None, float | None]] = {
    "affine": (lambda x, a, b: a * x + b, 1.0, 0.0),
    "leakyrelu": (lambda x, a: F.leaky_relu(x, a), 0.01, None),
    "thresholdedrelu": (lambda x, a: torch.where(x > a, x, torch.zeros_like(x)), 1.0, None),
    "scaledtanh": (lambda x, a, b: a * torch.tanh(b * x), 1.0, 1.0),
    "hardsigmoid": (lambda x, a, b: torch.clamp(a * x + b, 0, 1), 0.2, 0.5),
    "elu": (lambda x, a: F.elu(x, a), 1.0, None),
}


def activations(node: Node, directions: int) -> list[list[Function]]:
    """The activations of every direction; their parameters are consumed in order."""
    names = node["activations"] if "activations" in node else DEFAULTS[node.op_type] * directions
    alphas, betas = (iter(node[f"activation_{k}"] or []) for k in ("alpha", "beta"))
    found: list[Function] = []
    for name in names:
        if name.lower() in PLAIN:
            found.append(PLAIN[name.lower()])
            continue
        f, alpha, beta = SHAPED[name.lower()]
        given = [next(alphas, alpha)] + ([] if beta is None else [next(betas, beta)])
        found.append(lambda x, f=f, given=given: f(x, *given))
    size = len(names) // directions
    return [found[k * size : (k + 1) * size] for k in range(directions)]


def reversed_in_time(x: Tensor, lengths: list[int]) -> Tensor:
    """(time, batch, …), with every sample reversed within its length."""
    rows = []
    for row, length in zip(x.unbind(1), lengths, strict=True):
        order = [*reversed(range(length)), *range(length, len(row))]
        rows.append(row.index_select(0, torch.tensor(order)))
    return torch.stack(rows, 1)


Cell = Callable[[Tensor, tuple[Tensor, ...]], tuple[Tensor, ...]]


def swept(
    x: Tensor, states: tuple[Tensor, ...], lengths: list[int], cell: Cell
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The first state after every step, zero past the sample's length; and the final states."""
    ys = []
    for t, now in enumerate(x.unbind(0)):
        live = torch.tensor([t < n for n in lengths]).unsqueeze(1)
        new = cell(now, states)
        states = tuple(torch.where(live, a, b) for a, b in zip(new, states, strict=True))
        ys.append(torch.where(live, new[0], torch.zeros_like(new[0])))
    return torch.stack(ys), states


def layer(
    node: Node, x: Tensor, lengths: Tensor | None, initial: list[Tensor | None], size: int,
    cells: list[Cell],
) -> tuple[Tensor, ...]:
    """All directions of a layer."""
    if node["clip"] is not None:
        raise NoKernel(f"{node.op_type} that clips")
    batch_first = bool(node["layout"])
    x = x.transpose(0, 1) if batch_first else x
    batch = x.shape[1]
    spans = [x.shape[0]] * batch if lengths is None else integers(lengths)
    back = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
    ys, finals = [], []
    for k, (turned, cell) in enumerate(zip(back[node["direction"]], cells, strict=True)):
        states = tuple(
            torch.zeros(batch, size, dtype=x.dtype) if s is None else s.select(int(batch_first), k)
            for s in initial
        )
        y, final = swept(reversed_in_time(x, spans) if turned else x, states, spans, cell)
        ys.append(reversed_in_time(y, spans) if turned else y)
        finals.append(final)
    out = torch.stack(ys, 1)  # time, direction, batch, hidden
    last = [torch.stack(states, int(batch_first)) for states in zip(*finals, strict=True)]
    return out.permute(2, 0, 1, 3) if batch_first else out, *last


def parts(bias: Tensor | None, k: int, count: int, like: Tensor) -> tuple[Any, ...]:
    """The biases of one direction, split by gate; zeros by default."""
    return (torch.zeros((), dtype=like.dtype),) * count if bias is None else bias[k].chunk(count)


@kernel("RNN")
def rnn(
    node: Node, x: Tensor, w: Tensor, r: Tensor, b: Tensor | None = None,
    lengths: Tensor | None = None, h: Tensor | None = None,
) -> tuple[Tensor, ...]:
    def cell(k: int, f: Function) -> Cell:
        b_w, b_r = parts(b, k, 2, x)
        return lambda x, s: (f(x @ w[k].T + s[0] @ r[k].T + b_w + b_r),)

    cells = [cell(k, f) for k, (f,) in enumerate(activations(node, len(w)))]
    return layer(node, x, lengths, [h], r.shape[-1], cells)


@kernel("GRU")
def gru(
    node: Node, x: Tensor, w: Tensor, r: Tensor, b: Tensor | None = None,
    lengths: Tensor | None = None, h: Tensor | None = None,
) -> tuple[Tensor, ...]:
    def cell(k: int, f: Function, g: Function) -> Cell:
        w_z, w_r, w_h = w[k].chunk(3)
        r_z, r_r, r_h = r[k].chunk(3)
        b_z, b_r, b_h, c_z, c_r, c_h = parts(b, k, 6, x)

        def step(x: Tensor, s: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            z = f(x @ w_z.T + s[0] @ r_z.T + b_z + c_z)
            reset = f(x @ w_r.T + s[0] @ r_r.T + b_r + c_r)
            if node["linear_before_reset"]:
                new = g(x @ w_h.T + reset * (s[0] @ r_h.T + c_h) + b_h)
            else:
                new = g(x @ w_h.T + (reset * s[0]) @ r_h.T + c_h + b_h)
            return ((1 - z) * new + z * s[0],)

        return step

    cells = [cell(k, f, g) for k, (f, g) in enumerate(activations(node, len(w)))]
    return layer(node, x, lengths, [h], r.shape[-1], cells)


@kernel("LSTM")
def lstm(
    node: Node, x: Tensor, w: Tensor, r: Tensor, b: Tensor | None = None,
    lengths: Tensor | None = None, h: Tensor | None = None, c: Tensor | None = None,
    p: Tensor | None = None,
) -> tuple[Tensor, ...]:
    def cell(n: int, f: Function, g: Function, out: Function) -> Cell:
        b_w, b_r = parts(b, n, 2, x)
        p_i, p_o, p_f = parts(p, n, 3, x)

        def step(x: Tensor, s: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            gates = x @ w[n].T + s[0] @ r[n].T + b_w + b_r
            i, o, forget, new = gates.chunk(4, -1)
            i = f(i + p_i * s[1])
            forget = 1 - i if node["input_forget"] else f(forget + p_f * s[1])
            state = forget * s[1] + i * g(new)
            return f(o + p_o * state) * out(state), state

        return step

    cells = [cell(n, *functions) for n, functions in enumerate(activations(node, len(w)))]
    return layer(node, x, lengths, [h, c], r.shape[-1], cells)
