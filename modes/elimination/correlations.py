"""Correlations: recorded gradients of convolutions in their kernels, found to be convolutions.

What is recorded is patches of the signal x and their product with the cotangent u. Where u is held
and x varies, as in Hessians, the patches are gathered for every product. The same map is the
convolution x → w with u held, which can keep patches of u instead: the same that are kept for the
convolution w → x.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from ...jacobians import (
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
from ...jacobians.correlation import meetings
from ...jacobians.products import factors_of

Pair = tuple[Edge, Edge]


def correlations(dag: Dag) -> dict[Edge, Pair]:
    """Direct edges that are such correlations, each with the two edges that it stands for."""
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
    """Whether the patches of x are gathered, (C, kernel entries · positions · N), and turned."""
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
    """Whether the factors put x into the margin that the geometry says, and do nothing else."""
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
    """Whether a slice takes everything as it is."""
    everything = tuple((0, 1, n) for n in factor.in_shape)
    return isinstance(factor, Slice) and factor.spans == everything
