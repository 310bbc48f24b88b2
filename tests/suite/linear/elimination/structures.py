"""Random DAGs of structured operators between tensors of a few shapes."""

import numpy as np

from onnxjac.jacobians import (
    BlockDiagonal,
    Broadcast,
    Cumulative,
    Dag,
    Dense,
    Diagonal,
    Edge,
    Embed,
    Eye,
    Identity,
    Permutation,
    Reshape,
    Scalar,
    Slice,
    SumTo,
    Take,
    implicit_kron,
)

SHAPES = ((2, 3, 4), (2, 3, 1), (4,), (3, 2, 4), (6, 4), (2, 1, 4), (2, 3, 2), (2, 3, 4), (2, 3, 4))
"""Many shapes repeat, so that chains of one shape are frequent."""

FLOAT = np.dtype(float)


def between(rng, out_shape, in_shape):
    """A random operator between two shapes: a structured one, if any fits, else a dense one."""
    found = list(candidates(rng, out_shape, in_shape))
    return found[rng.integers(len(found))]() if found else dense(rng, out_shape, in_shape)


def dense(rng, out_shape, in_shape):
    m, n = int(np.prod(out_shape)), int(np.prod(in_shape))
    return Dense(rng.standard_normal((m, n)) / n, out_shape, in_shape)


def candidates(rng, out_shape, in_shape):
    """All structured operators that fit."""
    N = rng.standard_normal
    rank = len(in_shape)
    if out_shape == in_shape:
        yield lambda: Identity(in_shape, FLOAT)
        yield lambda: Scalar(rng.choice([-1.0, 0.5]), in_shape, FLOAT)
        yield lambda: Diagonal(N(in_shape))
        yield lambda: Diagonal(N(in_shape[-1:]), in_shape)
        yield lambda: Diagonal(N((*in_shape[:-1], 1)), in_shape)
        yield lambda: Diagonal(N(()), in_shape)
        yield lambda: softmax_like(rng, in_shape)
        yield lambda: BlockDiagonal(N((*in_shape, in_shape[-1])))
        yield lambda: Cumulative(-1, in_shape, FLOAT, exclusive=False, reverse=False)
        if rank > 1:
            yield lambda: implicit_kron(Eye(in_shape[-2]), N((in_shape[-1],) * 2), in_shape[:-2])
            yield lambda: implicit_kron(N((in_shape[-2],) * 2), Eye(in_shape[-1]), in_shape[:-2])
    if in_shape != out_shape and np.prod(in_shape) == np.prod(out_shape):
        yield lambda: Reshape(out_shape, in_shape, FLOAT)
        for perm in ((1, 0, 2), (0, 2, 1), (2, 1, 0)):
            if rank == 3 and tuple(in_shape[k] for k in perm) == out_shape:
                yield lambda perm=perm: Permutation(perm, in_shape, FLOAT)
    if repeats(in_shape, out_shape):
        yield lambda: Broadcast(out_shape, in_shape, FLOAT)
        yield lambda: Diagonal(N(out_shape)) @ Broadcast(out_shape, in_shape, FLOAT)
    if repeats(out_shape, in_shape):
        yield lambda: SumTo(out_shape, in_shape, FLOAT)
        yield lambda: SumTo(out_shape, in_shape, FLOAT) @ Diagonal(N(in_shape))
        yield lambda: SumTo(out_shape, in_shape, FLOAT) @ Diagonal(N(in_shape[-1:]), in_shape)
    if len(out_shape) == rank and all(map(int.__le__, out_shape, in_shape)):
        spans = tuple((n - m, 1, m) for m, n in zip(out_shape, in_shape, strict=True))
        yield lambda: Slice(spans, in_shape, FLOAT)
        if out_shape[:-1] == in_shape[:-1]:
            index = rng.integers(in_shape[-1], size=out_shape[-1])
            yield lambda: Take(index, -1, in_shape, FLOAT)
    if len(out_shape) == rank and all(map(int.__le__, in_shape, out_shape)):
        spans = tuple((0, 1, m) for m in in_shape)
        yield lambda: Embed(spans, out_shape, FLOAT)


def repeats(small, large):
    """Whether `small` broadcasts to `large` and has fewer entries."""
    try:
        return np.broadcast_shapes(small, large) == large and np.prod(small) < np.prod(large)
    except ValueError:
        return False


def softmax_like(rng, shape):
    """diag(d) (I - 1 wᵀ) along the last axis."""
    row = (*shape[:-1], 1)
    total = Broadcast(shape, row, FLOAT) @ SumTo(row, shape, FLOAT)
    centred = Identity(shape, FLOAT) - total @ Diagonal(rng.standard_normal(shape))
    return Diagonal(rng.standard_normal(shape)) @ centred


def random_dag(seed, vertices=14):
    """Every vertex but the first two has one to three incoming edges; some vertices are sinks."""
    rng = np.random.default_rng(seed)
    shapes = tuple(SHAPES[k] for k in rng.integers(len(SHAPES), size=vertices))
    edges = [
        Edge(int(i), o, between(rng, shapes[o], shapes[i]))
        for o in range(2, vertices)
        for i in rng.integers(max(0, o - 4), o, size=rng.integers(1, 4))
    ]
    inner = int(rng.integers(2, vertices))
    return Dag(shapes, edges, (0, 1), (vertices - 1, inner), FLOAT)
