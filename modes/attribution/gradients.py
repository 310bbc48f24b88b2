"""Attributions by gradients: saliency, gradient × input, SmoothGrad, integrated gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...jacobians.arguments import Natural, NonNegative, Positive, validated
from ...jacobians.arrays import host
from ...jacobians.errors import InputError
from ...jacobians.progress import counting
from ..model.primal.evaluate import evaluate
from ..model.primal.inputs import Names
from ..model.primal.model import ModelLike
from .attribution import Attribution, like_inputs
from .target import AttributionTarget, target_of


@validated
def saliency(
    model: ModelLike, inputs: Mapping[str, Any], *, of: str | None = None, wrt: Names = None,
    engine: str | None = None,
) -> Attribution:  # fmt: skip
    """|∂f/∂xᵢ|: how fast f changes with each entry of the input.

    f is the entry that `of` names, such as `"logits[0,3]"`; `"logits[:,3]"` is that class in each
    sample of a batch. Without an index it is the largest entry of each sample.

    - `model`: the model, as `load` gives it.
    - `inputs`: the point, an array by name for every input.
    - `of`: the entry; by default of the only floating output.
    - `wrt`: the tensors in which f is explained; by default all floating inputs, or where there are
      none the vectors of the tokens.
    - `engine`: `"onnxruntime"` (default where installed), `"numpy"`, `"torch"` or `"jax"` runs
      the model.

    Shapes: each map has the shape of its tensor of `wrt`. Raises `InputError` where a name, an
    index, a shape or a dtype does not fit, and `UnsupportedOp` for an operator without a rule.

    Source: Simonyan, Vedaldi, Zisserman, "Deep inside convolutional networks", 2014.
    """
    f = target_of(model, inputs, of, wrt, engine)
    values, slopes = f.here()
    return attribution("saliency", f, values, {n: np.abs(g) for n, g in slopes.items()}, False)


@validated
def gradient_times_input(
    model: ModelLike, inputs: Mapping[str, Any], *, of: str | None = None, wrt: Names = None,
    engine: str | None = None,
) -> Attribution:  # fmt: skip
    """xᵢ ∂f/∂xᵢ: what each entry of the input contributes to f, to first order.

    f is the entry that `of` names, such as `"logits[0,3]"`; `"logits[:,3]"` is that class in each
    sample of a batch. Without an index it is the largest entry of each sample.

    - `model`: the model, as `load` gives it.
    - `inputs`: the point, an array by name for every input.
    - `of`: the entry; by default of the only floating output.
    - `wrt`: the tensors in which f is explained; by default all floating inputs, or where there are
      none the vectors of the tokens.
    - `engine`: `"onnxruntime"` (default where installed), `"numpy"`, `"torch"` or `"jax"` runs
      the model.

    Shapes: each map has the shape of its tensor of `wrt`. Raises `InputError` where a name, an
    index, a shape or a dtype does not fit, and `UnsupportedOp` for an operator without a rule.

    Source: Shrikumar, Greenside, Shcherbina, Kundaje, "Not just a black box", 2016.
    """
    f = target_of(model, inputs, of, wrt, engine)
    values, slopes = f.here()
    held = f.inputs()
    return attribution("gradient × input", f, values, {n: held[n] * g for n, g in slopes.items()})


@validated
def smoothgrad(
    model: ModelLike, inputs: Mapping[str, Any], *, of: str | None = None, wrt: Names = None,
    samples: Positive = 50, noise: NonNegative = 0.15, seed: Natural = 0,
    engine: str | None = None,
) -> Attribution:  # fmt: skip
    """(1/K) Σₖ ∂f/∂x at x + σ εₖ: the mean gradient near x, in which noise cancels.

    σ is `noise` times the range of the numbers in a sample of x, and εₖ are standard normal. f is
    the entry that `of` names, such as `"logits[0,3]"`; `"logits[:,3]"` is that class in each sample
    of a batch. Without an index it is the largest entry of each sample at x.

    - `model`: the model, as `load` gives it.
    - `inputs`: the point, an array by name for every input.
    - `of`: the entry; by default of the only floating output.
    - `wrt`: the tensors in which f is explained; by default all floating inputs, or where there are
      none the vectors of the tokens.
    - `samples`: K, how many points are drawn, by `seed`.
    - `engine`: `"onnxruntime"` (default where installed), `"numpy"`, `"torch"` or `"jax"` runs
      the model.

    Shapes: each map has the shape of its tensor of `wrt`. Raises `InputError` where a name, an
    index, a shape or a dtype does not fit, and `UnsupportedOp` for an operator without a rule.

    Source: Smilkov, Thorat, Kim, Viégas, Wattenberg, "SmoothGrad: removing noise by adding noise",
    2017.
    """
    f = target_of(model, inputs, of, wrt, engine)
    held, rng = f.inputs(), np.random.default_rng(seed)
    sums = {name: np.zeros(x.shape) for name, x in held.items()}
    with counting("SmoothGrad", "gradients", samples) as tick:
        for _ in range(samples):
            moved = {name: noisy(x, noise, rng) for name, x in held.items()}
            for name, slope in f.slopes(moved).items():
                sums[name] += slope / samples
            tick(1)
    return attribution("SmoothGrad", f, f.values({}), sums)


def noisy(x: np.ndarray, noise: float, rng: np.random.Generator) -> np.ndarray:
    """x with normal noise, in each sample a share of the range of its numbers."""
    axes = tuple(range(1, x.ndim)) if x.ndim > 1 else None
    span = x.max(axis=axes, keepdims=True) - x.min(axis=axes, keepdims=True)
    return (x + noise * span * rng.standard_normal(x.shape)).astype(x.dtype)


@validated
def integrated_gradients(
    model: ModelLike, inputs: Mapping[str, Any], *, of: str | None = None, wrt: Names = None,
    baseline: Any = None, steps: Positive = 50, engine: str | None = None,
) -> Attribution:  # fmt: skip
    """(xᵢ − x₀ᵢ) ∫₀¹ ∂f/∂xᵢ(x₀ + t (x − x₀)) dt: what each entry contributes to f(x) − f(x₀).

    The integral is a Gauss-Legendre sum of `steps` gradients. The numbers of a sample add up to
    fₙ(x) − fₙ(x₀); what is missing, `gap`, is the error of the sum: take more steps where it is not
    small. f is the entry that `of` names, such as `"logits[0,3]"`; `"logits[:,3]"` is that class in
    each sample of a batch. Without an index it is the largest entry of each sample at x.

    - `model`: the model, as `load` gives it.
    - `inputs`: the point, an array by name for every input.
    - `of`: the entry; by default of the only floating output.
    - `wrt`: the tensors in which f is explained; by default all floating inputs, or where there are
      none the vectors of the tokens.
    - `baseline`: x₀: a number (0 by default), an array where `wrt` is one tensor, or a dict by
      name. The dict may name integer inputs instead: x₀ are then the vectors of these tokens.
    - `steps`: how many gradients are taken.
    - `engine`: `"onnxruntime"` (default where installed), `"numpy"`, `"torch"` or `"jax"` runs
      the model.

    Shapes: each map has the shape of its tensor of `wrt`, `gap` is (N,). Raises `InputError` where
    a name, an index, a shape or a dtype does not fit, and `UnsupportedOp` for an operator without a
    rule.

    Source: Sundararajan, Taly, Yan, "Axiomatic attribution for deep networks", 2017.
    """
    f = target_of(model, inputs, of, wrt, engine)
    held = f.inputs()
    start = baselines(f, held, baseline)
    nodes, weights = np.polynomial.legendre.leggauss(steps)
    sums = {name: np.zeros(x.shape) for name, x in held.items()}
    with counting("integrated gradients", "gradients", steps) as tick:
        for t, w in zip((nodes + 1) / 2, weights / 2, strict=True):
            moved = {n: (start[n] + t * (x - start[n])).astype(x.dtype) for n, x in held.items()}
            for name, slope in f.slopes(moved).items():
                sums[name] += w * slope
            tick(1)
    maps = {name: (x - start[name]) * sums[name] for name, x in held.items()}
    values = f.values({})
    change = values - f.values({n: x.astype(held[n].dtype) for n, x in start.items()})
    total = sum(m.reshape(f.samples, -1).sum(axis=1) for m in maps.values())
    return attribution("integrated gradients", f, values, maps, gap=total - change)


def baselines(
    f: AttributionTarget, held: Mapping[str, np.ndarray], baseline: Any
) -> dict[str, np.ndarray]:
    """x₀ by name, in the shapes of x."""
    if baseline is None or np.ndim(baseline) or isinstance(baseline, Mapping):
        named = baseline if isinstance(baseline, Mapping) else {}
    else:
        named = dict.fromkeys(held, baseline)
    if not isinstance(baseline, Mapping) and np.ndim(baseline):
        if len(held) != 1:
            raise InputError(f"baseline= is a dict by name for several tensors: {list(held)}")
        named = dict.fromkeys(held, baseline)
    other = {name: x for name, x in named.items() if name not in held}
    if unknown := [name for name in other if name not in f.model.inputs]:
        raise InputError(f"baseline= names {unknown[0]!r}, which is neither in wrt nor an input")
    found = {}
    if other:
        there = evaluate(f.model, {**f.point, **{n: np.asarray(x) for n, x in other.items()}},
                         f.wrt, engine=f.engine)  # fmt: skip
        found = {name: host(x) for name, x in there.items()}
    for name, x in held.items():
        start = named.get(name, found.get(name, 0.0))
        try:
            found[name] = np.broadcast_to(np.asarray(start, np.float64), x.shape)
        except ValueError as error:
            raise InputError(f"the baseline of {name!r} has shape {list(np.shape(start))}, not "
                             f"{list(x.shape)}") from error  # fmt: skip
    return found


def attribution(
    method: str, f: AttributionTarget, values: np.ndarray, maps: Mapping[str, Any],
    signed: bool = True, gap: np.ndarray | None = None,
) -> Attribution:  # fmt: skip
    """The result for a target."""
    held = f.inputs()
    return Attribution(method, f.text, like_inputs(maps, held), held, values, signed, gap)
