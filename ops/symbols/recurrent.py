"""RNN, GRU and LSTM: ONNX's equations, one time step of one sequence at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from .number import closed_form
from .pointwise import FORMULAS
from .table import kernel

Function = Callable[[Any], Any]
Cell = Callable[..., list[Any]]
"""(xₜ, states) -> new states, of which the first is Hₜ."""

DEFAULTS: dict[str, tuple[float, ...]] = {
    "LeakyRelu": (0.01,), "ThresholdedRelu": (1.0,), "Elu": (1.0,), "HardSigmoid": (0.2, 0.5),
    "Affine": (1.0, 0.0), "ScaledTanh": (1.0, 1.0),
}  # fmt: skip
"""α, or α and β, of the activations that have them."""

ACTIVATIONS: dict[str, Callable[..., Any]] = {
    **FORMULAS,
    "Tanh": lambda x: x.tanh(),
    "Affine": lambda x, alpha, beta: alpha * x + beta,
    "ScaledTanh": lambda x, alpha, beta: alpha * (beta * x).tanh(),
}


def functions(
    names: list[str], clip: float | None, alphas: Any = (), betas: Any = ()
) -> Iterator[Function]:
    """Entrywise f(min(max(x, -clip), clip)); functions with α or β take the next in the lists."""
    given = iter(alphas or ()), iter(betas or ())
    bound = None if clip is None else closed_form(clip)
    for name in names:
        numbers = [
            closed_form(next(values, default))
            for values, default in zip(given, DEFAULTS.get(name, ()), strict=False)
        ]
        yield np.vectorize(partial(clipped, ACTIVATIONS[name], bound, numbers), otypes=[object])


def clipped(function: Callable[..., Any], bound: Any, numbers: list[Any], x: Any) -> Any:
    """f at x clipped to [-bound, bound]."""
    inner = x if bound is None else min(max(x, -bound), bound)
    return function(inner + 0 * x, *numbers)


def layer(
    make: Callable[..., Cell], defaults: list[str], inputs: list[Any], states: list[Any],
    peepholes: Any = None, *, hidden_size: int = 0, direction: str = "forward", layout: int = 0,
    activations: Any = None, clip: float | None = None, activation_alpha: Any = (),
    activation_beta: Any = (),
) -> Any:  # fmt: skip
    """Y and the final states of a cell that runs over each sequence, in each direction."""
    x, w, r, b, lengths = inputs
    x, *states = (swapped(a, layout) for a in (x, *states))
    (turns, batch, _), count, hidden = x.shape, len(w), r.shape[-1]
    found = functions(activations or defaults * count, clip, activation_alpha, activation_beta)
    chosen = np.reshape([*found], (count, -1))
    y = np.zeros((turns, count, batch, hidden), object)
    last = [np.zeros((count, batch, hidden), object) if s is None else s.copy() for s in states]
    for d, n in np.ndindex(count, batch):
        cell = make(gates(w[d], r[d], None if b is None else b[d]), *chosen[d],
                    P=None if peepholes is None else np.split(peepholes[d], 3))  # fmt: skip
        order = range(turns if lengths is None else int(lengths[n]))
        for t in reversed(order) if direction == "reverse" or d else order:
            held = cell(x[t, n], *(s[d, n] for s in last))
            y[t, d, n] = held[0]
            for s, new in zip(last, held, strict=True):
                s[d, n] = new
    return (y.transpose(2, 0, 1, 3) if layout else y, *(swapped(s, layout) for s in last))


def swapped(x: Any, layout: int) -> Any:
    """The first two axes exchanged if `layout` puts the batch first."""
    return x.swapaxes(0, 1) if layout and x is not None else x


def gates(w: Any, r: Any, b: Any) -> Callable[..., Any]:
    """(k, x, h, s) -> x Wₖᵀ + Wbₖ + s ∘ (h Rₖᵀ + Rbₖ), for gate k."""
    hidden, count = r.shape[1], len(r) // r.shape[1]
    W, R = w.reshape(count, hidden, -1), r.reshape(count, hidden, hidden)
    Wb, Rb = np.zeros((2, count, hidden), int) if b is None else b.reshape(2, count, hidden)
    return lambda k, x, h, s=1: W[k] @ x + Wb[k] + s * (R[k] @ h + Rb[k])


@kernel("RNN")
def rnn(
    x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h: Any = None, **how: Any
) -> Any:
    """Hₜ = f(Xₜ Wᵀ + Hₜ₋₁ Rᵀ + Wb + Rb)."""

    def make(gate: Any, f: Function, P: Any) -> Cell:
        return lambda x, h: [f(gate(0, x, h))]

    return layer(make, ["Tanh"], [x, w, r, b, lengths], [h], **how)


@kernel("GRU")
def gru(
    x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h: Any = None, *,
    linear_before_reset: int = 0, **how: Any,
) -> Any:  # fmt: skip
    """zₜ, rₜ = f(…), hₜ = g(… (rₜ ∘ Hₜ₋₁) Rhᵀ …), Hₜ = (1 - zₜ) ∘ hₜ + zₜ ∘ Hₜ₋₁."""

    def make(gate: Any, f: Function, g: Function, P: Any) -> Cell:
        def cell(x: Any, h: Any) -> list[Any]:
            z, r = f(gate(0, x, h)), f(gate(1, x, h))
            new = g(gate(2, x, h, r) if linear_before_reset else gate(2, x, r * h))
            return [(1 - z) * new + z * h]

        return cell

    return layer(make, ["Sigmoid", "Tanh"], [x, w, r, b, lengths], [h], **how)


@kernel("LSTM")
def lstm(
    x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h: Any = None, c: Any = None,
    p: Any = None, *, input_forget: int = 0, **how: Any,
) -> Any:  # fmt: skip
    """iₜ, oₜ, fₜ = f(… + P ∘ C), Cₜ = fₜ ∘ Cₜ₋₁ + iₜ ∘ g(…), Hₜ = oₜ ∘ h(Cₜ)."""

    def make(gate: Any, f: Function, g: Function, k: Function, P: Any) -> Cell:
        Pi, Po, Pf = (0, 0, 0) if P is None else P

        def cell(x: Any, h: Any, c: Any) -> list[Any]:
            i = f(gate(0, x, h) + Pi * c)
            forget = 1 - i if input_forget else f(gate(2, x, h) + Pf * c)
            new = forget * c + i * g(gate(3, x, h))
            return [f(gate(1, x, h) + Po * new) * k(new), new]

        return cell

    defaults = ["Sigmoid", "Tanh", "Tanh"]
    return layer(make, defaults, [x, w, r, b, lengths], [h, c], p, **how)
