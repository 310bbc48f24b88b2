"""RNN, GRU and LSTM in one direction with their default activations: ONNX's equations, per step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .table import kernel


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def unrolled(x: Any, w: Any, r: Any, b: Any, states: list[Any], cell: Callable[..., Any]) -> Any:
    """Y and the last states; w, r and the two halves of b are those of the only direction."""
    if len(w) != 1:
        raise NotImplementedError("two directions")
    hidden = r.shape[-1]
    states = [np.zeros((x.shape[1], hidden), object) if s is None else s[0] for s in states]
    bias = np.zeros((2, w.shape[1]), object) if b is None else b[0].reshape(2, -1)
    outputs = []
    for t in range(len(x)):
        states = cell(np.matmul(x[t], w[0].T) + bias[0], r[0], bias[1], *states)
        outputs.append(states[0])
    return np.stack(outputs)[:, None], *(s[None] for s in states)


def parts(x: Any, count: int) -> list[Any]:
    """The gates, side by side on the last axis."""
    return np.split(x, count, axis=-1)


@kernel("RNN")
def rnn(x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h: Any = None, **_: Any) -> Any:
    """Hₜ = tanh(Xₜ Wᵀ + Hₜ₋₁ Rᵀ + Wb + Rb)."""
    return unrolled(x, w, r, b, [h], lambda xw, r, rb, h: [np.tanh(xw + np.matmul(h, r.T) + rb)])


@kernel("GRU")
def gru(
    x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h: Any = None, *,
    linear_before_reset: int = 0, **_: Any,
) -> Any:  # fmt: skip
    """zₜ, rₜ = σ(…), hₜ = tanh(… + (rₜ ∘ Hₜ₋₁) Rhᵀ), Hₜ = (1 - zₜ) ∘ hₜ + zₜ ∘ Hₜ₋₁."""

    def cell(xw: Any, r: Any, rb: Any, h: Any) -> list[Any]:
        (xz, xr, xn), (bz, br, bn), (rz, rr, rn) = parts(xw, 3), parts(rb, 3), np.split(r, 3)
        z = sigmoid(xz + np.matmul(h, rz.T) + bz)
        reset = sigmoid(xr + np.matmul(h, rr.T) + br)
        inner = (
            reset * (np.matmul(h, rn.T) + bn)
            if linear_before_reset
            else np.matmul(reset * h, rn.T) + bn
        )
        return [(1 - z) * np.tanh(xn + inner) + z * h]

    return unrolled(x, w, r, b, [h], cell)


@kernel("LSTM")
def lstm(
    x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h: Any = None, c: Any = None,
    p: Any = None, **_: Any,
) -> Any:  # fmt: skip
    """iₜ, oₜ, fₜ = σ(… + P ∘ C), Cₜ = fₜ ∘ Cₜ₋₁ + iₜ ∘ tanh(…), Hₜ = oₜ ∘ tanh(Cₜ)."""

    def cell(xw: Any, r: Any, rb: Any, h: Any, c: Any) -> list[Any]:
        i, o, f, new = parts(xw + np.matmul(h, r.T) + rb, 4)
        pi, po, pf = (0, 0, 0) if p is None else parts(p[0], 3)
        i, f = sigmoid(i + c * pi), sigmoid(f + c * pf)
        c = f * c + i * np.tanh(new)
        return [sigmoid(o + c * po) * np.tanh(c), c]

    return unrolled(x, w, r, b, [h, c], cell)
