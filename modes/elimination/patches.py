"""Patches: convolutions of kernels as matrix products with patches that are gathered once.

u[n, m, p] = Σ w[m, c, k] x[n, c, p · stride + k · dilation] = (w colsᵀ)[m, n, p] with x held, whose
cols are (N · positions, C · kernel entries); x = (wᵀ colsᵀ)[c, n, q] with u held, whose cols are
(N · size, M · kernel entries). That is more memory than x or u, but neither the product nor its
transpose has to gather them again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ...jacobians import (
    Convolution,
    Dag,
    Edge,
    Eye,
    Geometry,
    Jacobian,
    Kron,
    Permutation,
    Product,
    Reshape,
    Shape,
    size,
)
from ...jacobians.products import factors_of
from ...ops.numbers import numbers
from ...ops.numbers.windows import Windows, patches
from .correlations import correlations
from .cost import BANDWIDTH, seconds
from .stretch import Stretch, text_of

DOUBT = 0.05
"""The part of the time before that must be saved: less, and estimates are not to be trusted."""

Gather = Callable[[Convolution], np.ndarray]


def with_patches(dag: Dag, products: int, memory: int) -> tuple[Dag, tuple[Stretch, ...]]:
    """The DAG with those convolutions of kernels unfolded for which it pays and room is left."""
    joined = correlations(dag)
    before = {edge: seconds(edge.operator) for edge in dag.edges}
    before |= {edge: before[into] + before[out] for edge, (into, out) in joined.items()}
    worth = {edge: worth_of(edge.operator, cost, products) for edge, cost in before.items()}
    done, gather = dict[Edge, Jacobian](), Gathering()
    for edge in sorted(worth, key=worth.__getitem__, reverse=True):
        need = unfolded(edge.operator, hollow).nbytes if worth[edge] > 0 else 0
        if 0 < need <= memory:
            done[edge], memory = unfolded(edge.operator, gather), memory - need
    if not done:
        return dag, ()
    instead = {out: edge for edge, (_, out) in joined.items() if edge in done}
    edges = [instead.get(edge, edge) for edge in dag.edges]
    stretches = tuple(stretch_of(e, before[e], done[e]) for e in edges if e in done)
    edges = [replace(e, operator=done.get(e, e.operator)) for e in edges]
    return Dag(dag.shapes, edges, dag.sources, dag.sinks, dag.dtype), stretches


def stretch_of(edge: Edge, before: float, operator: Jacobian) -> Stretch:
    """What was done to an edge."""
    text = f"{text_of(edge.operator)} as {text_of(operator)}, patches gathered once"
    return Stretch(edge.start, edge.end, text, before, seconds(operator), operator.nbytes)


def worth_of(operator: Jacobian, before: float, products: int) -> float:
    """Seconds saved by each byte held."""
    if not any(map(is_unfoldable, factors_of(operator))):
        return 0.0
    new = unfolded(operator, hollow)
    gain = (1 - DOUBT) * before - seconds(new)
    return (gain * products - 3 * new.nbytes / BANDWIDTH) / new.nbytes


def is_unfoldable(factor: Jacobian) -> bool:
    """Whether a factor is a convolution of one group from or to the kernel."""
    if not isinstance(factor, Convolution) or factor.geometry.group > 1:
        return False
    return "w" in (factor.source, factor.target)


def unfolded(operator: Jacobian, gather: Gather) -> Jacobian:
    """The same operator with its convolutions of kernels as matrix products."""
    factors = tuple(
        part
        for factor in factors_of(operator)
        for part in (unfolded_factor(factor, gather) if is_unfoldable(factor) else (factor,))
    )
    return factors[0] if len(factors) == 1 else Product(factors)


def unfolded_factor(factor: Convolution, gather: Gather) -> tuple[Jacobian, ...]:
    """w ↦ w colsᵀ as (channels, N · places), then N before the channels; or the transpose of it."""
    g, dtype, cols = factor.geometry, factor.dtype, gather(factor)
    (m, c), to_signal = g.w[:2], holds_cotangent(factor)
    shape, channels = (g.x, c) if to_signal else (g.u, m)
    (n, _, *space), kernel = shape, (m, c, size(g.w[2:]))
    places, width = size(tuple(space)), cols.shape[1]
    turned = (Reshape((channels, width), (c, m, kernel[2]), dtype),
              Permutation((1, 0, 2), kernel, dtype), Reshape(kernel, g.w, dtype))  # fmt: skip
    chain = (
        Reshape(shape, (n, channels, places), dtype),
        Permutation((1, 0, 2), (channels, n, places), dtype),
        Reshape((channels, n, places), (channels, len(cols)), dtype),
        Kron(Eye(channels), cols, ()),
        *(turned if to_signal else (Reshape((channels, width), g.w, dtype),)),
    )
    return chain if factor.source == "w" else tuple(part.T for part in reversed(chain))


def holds_cotangent(factor: Convolution) -> bool:
    """Whether u is held, between the kernel and the signal."""
    return "x" in (factor.source, factor.target)


def room(factor: Convolution) -> Shape:
    """(channels, *kernel, N, *places): how the patches lie."""
    g = factor.geometry
    around, channels = (g.x, g.w[0]) if holds_cotangent(factor) else (g.u, g.w[1])
    return (channels, *g.w[2:], g.x[0], *around[2:])


def columns_shape(factor: Convolution) -> tuple[int, int]:
    """(N · places, channels · kernel entries)."""
    shape, split = room(factor), len(factor.geometry.w) - 1
    return size(shape[split:]), size(shape[:split])


def hollow(factor: Convolution) -> np.ndarray:
    """Patches that take no memory, to estimate with."""
    return np.broadcast_to(np.zeros((), factor.dtype), columns_shape(factor))


class Gathering:
    """Patches, gathered once for an operator and for its transpose."""

    def __init__(self) -> None:
        self.known: dict[tuple[int, Geometry, bool], np.ndarray] = {}

    def __call__(self, factor: Convolution) -> np.ndarray:
        key = id(factor.held), factor.geometry, holds_cotangent(factor)
        if key not in self.known:
            self.known[key] = gathered(factor)
        return self.known[key]


def gathered(factor: Convolution) -> np.ndarray:
    """The patches, image by image or tap by tap; places are next to each other in memory."""
    g = factor.geometry
    grid = Windows(g.x[2:], g.w[2:], g.strides, g.dilations, (), (), g.u[2:])
    held = np.empty(room(factor), factor.dtype)
    fill = by_taps if holds_cotangent(factor) else by_images
    fill(held, factor.held, g, grid)
    return held.reshape(columns_shape(factor)[::-1]).T


def by_images(held: np.ndarray, x: np.ndarray, g: Geometry, grid: Windows) -> None:
    """held[c, k, n, p] ← x[n, c, p · stride + k · dilation]."""
    d = len(g.strides)
    for image, target in zip(x, np.moveaxis(held, 1 + d, 0), strict=True):
        view = patches(numbers.Pad(image, g.pads, None, tuple(range(-d, 0))), grid)
        target[...] = view.transpose(0, *range(1 + d, 1 + 2 * d), *range(1, 1 + d))


def by_taps(held: np.ndarray, u: np.ndarray, g: Geometry, grid: Windows) -> None:
    """held[m, k, n, p · stride + k · dilation] ← u[n, m, p], and zero where no p comes from."""
    ends = [begin + n for begin, n in zip(g.pads, g.x[2:], strict=False)]
    covered = [grid.covered(axis, n) for axis, n in enumerate(g.u[2:])]
    padded = np.zeros((*g.u[1::-1], *map(max, covered, ends)), u.dtype)
    cut: tuple[slice, ...] = (slice(None), slice(None), *map(slice, g.pads, ends))
    by_tap = held.reshape(len(held), size(g.w[2:]), len(u), *g.x[2:])
    for k, (_, reach) in enumerate(grid.taps()):
        there = padded[(slice(None), slice(None), *reach)]
        there[...] = u.swapaxes(0, 1)
        by_tap[:, k] = padded[cut]
        there[...] = 0
