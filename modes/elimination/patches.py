"""Patches: convolutions of kernels as matrix products with patches that are gathered once.

u[n, m, p] = Σ w[m, c, k] x[n, c, p · stride + k · dilation] = (w colsᵀ)[m, n, p], with
cols (N · positions, C · kernel entries): more memory than x, but neither the product nor its
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
    size,
)
from ...jacobians.products import factors_of
from ...ops.numbers import numbers
from ...ops.numbers.windows import Windows, patches
from .cost import BANDWIDTH, seconds
from .stretch import Stretch, text_of

Gather = Callable[[Convolution], np.ndarray]


def with_patches(dag: Dag, products: int, memory: int) -> tuple[Dag, tuple[Stretch, ...]]:
    """The DAG with those convolutions of kernels unfolded for which it pays and room is left."""
    worth = {edge: worth_of(edge.operator, products) for edge in dag.edges}
    done: dict[Edge, Jacobian] = {}
    for edge in sorted(worth, key=worth.__getitem__, reverse=True):
        need = unfolded(edge.operator, hollow).nbytes if worth[edge] > 0 else 0
        if 0 < need <= memory:
            done[edge], memory = unfolded(edge.operator, gathered), memory - need
    if not done:
        return dag, ()
    edges = (replace(e, operator=done.get(e, e.operator)) for e in dag.edges)
    stretches = tuple(stretch_of(e, done[e]) for e in dag.edges if e in done)
    return Dag(dag.shapes, edges, dag.sources, dag.sinks, dag.dtype), stretches


def stretch_of(edge: Edge, operator: Jacobian) -> Stretch:
    """What was done to an edge."""
    text = f"{text_of(edge.operator)} as {text_of(operator)}, patches gathered once"
    costs = seconds(edge.operator), seconds(operator)
    return Stretch(edge.start, edge.end, text, *costs, operator.nbytes)


def worth_of(operator: Jacobian, products: int) -> float:
    """Seconds saved by each byte held."""
    if not any(map(is_unfoldable, factors_of(operator))):
        return 0.0
    new = unfolded(operator, hollow)
    gain = seconds(operator) - seconds(new)
    return (gain * products - 3 * new.nbytes / BANDWIDTH) / new.nbytes


def is_unfoldable(factor: Jacobian) -> bool:
    """Whether a factor is a convolution of one group between the kernel and its output."""
    return (
        isinstance(factor, Convolution)
        and factor.geometry.group == 1
        and {factor.source, factor.target} == {"w", "u"}
    )


def unfolded(operator: Jacobian, gather: Gather) -> Jacobian:
    """The same operator with its convolutions of kernels as matrix products."""
    factors = tuple(
        part
        for factor in factors_of(operator)
        for part in (unfolded_factor(factor, gather) if is_unfoldable(factor) else (factor,))
    )
    return factors[0] if len(factors) == 1 else Product(factors)


def unfolded_factor(factor: Convolution, gather: Gather) -> tuple[Jacobian, ...]:
    """w ↦ (w colsᵀ) as (M, N · positions), then N before M; or the transpose of it."""
    g = factor.geometry
    (n, m, *positions), dtype = g.u, factor.dtype
    cols = gather(factor)
    chain = (
        Reshape(g.u, (n, m, size(tuple(positions))), dtype),
        Permutation((1, 0, 2), (m, n, size(tuple(positions))), dtype),
        Reshape((m, n, size(tuple(positions))), (m, len(cols)), dtype),
        Kron(Eye(m), cols, ()),
        Reshape((m, cols.shape[1]), g.w, dtype),
    )
    return chain if factor.source == "w" else tuple(part.T for part in reversed(chain))


def columns_shape(g: Geometry) -> tuple[int, int]:
    """(N · positions, C · kernel entries)."""
    return g.u[0] * size(g.u[2:]), size(g.w[1:])


def hollow(factor: Convolution) -> np.ndarray:
    """Patches that take no memory, to estimate with."""
    return np.broadcast_to(np.zeros((), factor.dtype), columns_shape(factor.geometry))


def gathered(factor: Convolution) -> np.ndarray:
    """The patches, gathered image by image; positions are next to each other in memory."""
    g, d = factor.geometry, len(factor.geometry.strides)
    grid = Windows(g.x[2:], g.w[2:], g.strides, g.dilations, (), (), g.u[2:])
    held = np.empty((g.x[1], *g.w[2:], g.u[0], *g.u[2:]), factor.dtype)
    for image, target in zip(factor.held, np.moveaxis(held, 1 + d, 0), strict=True):
        view = patches(numbers.Pad(image, g.pads, None, tuple(range(-d, 0))), grid)
        target[...] = view.transpose(0, *range(1 + d, 1 + 2 * d), *range(1, 1 + d))
    return held.reshape(columns_shape(g)[::-1]).T
