"""Patches: convolutions of kernels as matrix products with patches that are gathered once.

u[n, m, p] = Σ w[m, c, k] x[n, c, p · stride + k · dilation] = (w colsᵀ)[m, n, p] with x held, whose
cols are (N · positions, C · kernel entries); x = (wᵀ colsᵀ)[c, n, q] with u held, whose cols are
(N · size, M · kernel entries). They take more memory than x or u, but neither the product nor its
transpose has to gather them again.

A recorded gradient of a convolution with respect to its kernel is a product of the cotangent u with
patches of the signal x. Where u is held and x varies, as in Hessians, these patches are gathered
for every product. The same map is the convolution x → w with u held, which can keep patches of u
and share them with the convolution w → x.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeGuard

import numpy as np

from ....jacobians import (
    Convolution,
    Dag,
    Edge,
    Embed,
    Eye,
    Geometry,
    Jacobian,
    Kron,
    Permutation,
    Product,
    Reshape,
    Shape,
    Slice,
    Take,
    size,
)
from ....jacobians.convolution import meetings
from ....jacobians.products import factors_of
from ....jacobians.text import clipped
from ....ops.numbers import numbers
from ....ops.numbers.windows import Windows, patches
from .cost import BANDWIDTH, Step, seconds

DOUBT = 0.05
"""Least fraction of the previous time to save: estimates are not reliable enough for less."""

Gather = Callable[[Convolution], np.ndarray]


def with_patches(dag: Dag, products: int, memory: int) -> tuple[Dag, tuple[Step, ...]]:
    """The DAG with convolutions of kernels unfolded where that pays and fits into `memory`."""
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
    steps = tuple(step_of(e, before[e], done[e]) for e in edges if e in done)
    edges = [replace(e, operator=done.get(e, e.operator)) for e in edges]
    return Dag(dag.shapes, edges, dag.sources, dag.sinks, dag.dtype), steps


def step_of(edge: Edge, before: float, operator: Jacobian) -> Step:
    """The step that unfolded an edge."""
    old, new = (clipped(repr(J), 60) for J in (edge.operator, operator))
    text = f"{old} as {new}, patches gathered once"
    return Step(edge.start, edge.end, text, before, seconds(operator), operator.nbytes)


def worth_of(operator: Jacobian, before: float, products: int) -> float:
    """Seconds saved per byte held, over all products."""
    if not any(map(is_unfoldable, factors_of(operator))):
        return 0.0
    new = unfolded(operator, hollow)
    gain = (1 - DOUBT) * before - seconds(new)
    return (gain * products - 3 * new.nbytes / BANDWIDTH) / new.nbytes


def is_unfoldable(factor: Jacobian) -> TypeGuard[Convolution]:
    """Whether a factor is a convolution of one group from or to the kernel."""
    if not isinstance(factor, Convolution) or factor.geometry.group > 1:
        return False
    return "w" in (factor.source, factor.target)


def unfolded(operator: Jacobian, gather: Gather) -> Jacobian:
    """The operator with its convolutions of kernels as matrix products."""
    factors = tuple(
        part
        for factor in factors_of(operator)
        for part in (unfolded_factor(factor, gather) if is_unfoldable(factor) else (factor,))
    )
    return factors[0] if len(factors) == 1 else Product(factors)


def unfolded_factor(factor: Convolution, gather: Gather) -> tuple[Jacobian, ...]:
    """w ↦ w colsᵀ as (channels, N · places), then N before the channels; or the transpose."""
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
    """(channels, *kernel, N, *places): the memory layout of the patches."""
    g = factor.geometry
    around, channels = (g.x, g.w[0]) if holds_cotangent(factor) else (g.u, g.w[1])
    return (channels, *g.w[2:], g.x[0], *around[2:])


def columns_shape(factor: Convolution) -> tuple[int, int]:
    """(N · places, channels · kernel entries)."""
    shape, split = room(factor), len(factor.geometry.w) - 1
    return size(shape[split:]), size(shape[:split])


def hollow(factor: Convolution) -> np.ndarray:
    """Patches that take no memory, for estimates."""
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
    """The patches, image by image or tap by tap; places are contiguous in memory."""
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
    """held[m, k, n, p · stride + k · dilation] ← u[n, m, p], and zero where there is no such p."""
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


Pair = tuple[Edge, Edge]


def correlations(dag: Dag) -> dict[Edge, Pair]:
    """Recorded gradients as direct edges x → w, each with the two edges that it replaces."""
    held = {
        id(factor.held): factor
        for edge in dag.edges for factor in factors_of(edge.operator)
        if isinstance(factor, Convolution) and (factor.source, factor.target) == ("w", "x")
    }  # fmt: skip
    found = {}
    for into, out in pairs(dag) if held else ():
        for factor in held.values():
            if is_correlation(into.operator, out.operator, factor.held, factor.geometry):
                direct = Convolution(factor.held, "x", "w", factor.geometry)
                shaped = Reshape(out.operator.out_shape, direct.out_shape, direct.dtype)
                found[Edge(into.start, out.end, Product((shaped, direct)))] = into, out
    return found


def pairs(dag: Dag) -> Iterator[Pair]:
    """The edges to and from each inner vertex that has one of each."""
    into = {edge.end: edge for edge in dag.edges}
    ends, starts = (Counter(getattr(e, side) for e in dag.edges) for side in ("end", "start"))
    for edge in dag.edges:
        v = edge.start
        if ends[v] == starts[v] == 1 and v not in (*dag.sources, *dag.sinks):
            yield into[v], edge


def is_correlation(patches: Jacobian, product: Jacobian, u: np.ndarray, g: Geometry) -> bool:
    """Whether x ↦ product · patches · x is the correlation of x with u."""
    return is_product(product, u, g) and are_patches(patches, g)


def is_product(operator: Jacobian, u: np.ndarray, g: Geometry) -> bool:
    """Whether columns (N · positions, C · kernel entries) are multiplied with u from the left."""
    if not isinstance(operator, Kron) or not isinstance(operator.right, Eye) or g.group > 1:
        return False
    rows, m, n = operator.left, g.u[1], size(g.u) // g.u[1]
    if not isinstance(rows, np.ndarray) or rows.shape != (1, 1, m, n):
        return False
    return np.array_equal(rows.reshape(m, n), np.moveaxis(u, 0, -1).reshape(m, n))


def are_patches(operator: Jacobian, g: Geometry) -> bool:
    """Whether an operator gathers patches of x, (C, kernel entries · positions · N), transposed."""
    last, split, taken, flat, first, *margin = (*factors_of(operator), *(None,) * 5)
    if not (isinstance(last, Permutation) and isinstance(first, Permutation)):
        return False
    if not (isinstance(split, Reshape) and isinstance(flat, Reshape) and isinstance(taken, Take)):
        return False
    d, space = len(g.strides), first.in_shape[2:]
    if (first.perm, last.perm) != ((1, *range(2, 2 + d), 0), (0, 1, 3, 2)):
        return False
    if taken.axis != -2 or taken.in_shape != (g.x[1], size(space), g.x[0]):
        return False
    return has_margin(margin, g, space) and np.array_equal(taken.index, meetings(g, space))


def has_margin(factors: Sequence[Jacobian | None], g: Geometry, space: Shape) -> bool:
    """Whether the factors pad x as the geometry says, and do nothing else."""
    d = len(g.strides)
    begins, ends = (0, 0, *g.pads[:d]), g.pads[d:]
    others = [f for f in factors if f is not None and not is_whole(f)]
    if space != tuple(map(sum, zip(g.x[2:], g.pads[:d], ends, strict=True))):
        return False
    if not any(g.pads):
        return not others
    spans = tuple((begin, 1, n) for begin, n in zip(begins, g.x, strict=True))
    return len(others) == 1 and isinstance(others[0], Embed) and others[0].spans == spans


def is_whole(factor: Jacobian) -> bool:
    """Whether a factor is a slice that takes everything."""
    everything = tuple((0, 1, n) for n in factor.in_shape)
    return isinstance(factor, Slice) and factor.spans == everything
