"""DAGs to plan: random ones of structured operators, a perceptron, a small CNN."""

from itertools import pairwise

import numpy as np

from onnxjac.jacobians import (
    BlockDiagonal,
    Convolution,
    Dag,
    Dense,
    Diagonal,
    Edge,
    Eye,
    Geometry,
    Identity,
    Permutation,
    Reshape,
    Scalar,
    SumTo,
    broadcast,
    implicit_kron,
)

FLOAT = np.dtype(float)


def random_dag(seed):
    """A DAG of 4 to 12 vertices of 6 samples, with skips; some operators mix the samples."""
    rng = np.random.default_rng(seed)
    count, batch = int(rng.integers(4, 13)), 6
    shapes = [(batch, int(rng.choice([1, 2, 3, 8, 20]))) for _ in range(count)]
    edges = []
    for end in range(1, count):
        for start in {end - 1, *rng.choice(end, rng.integers(0, 2)).tolist()}:
            edges.append(Edge(int(start), end, random_operator(rng, shapes[end], shapes[start])))
    sources = (0, int(rng.integers(0, count - 1)))
    return Dag(tuple(shapes), edges, tuple(dict.fromkeys(sources)), (count - 1,), FLOAT)


def random_ends(seed):
    """A random DAG with arbitrary ends: ancestors of each other, source and sink, or repeated."""
    dag, rng = random_dag(seed), np.random.default_rng(seed)
    count = len(dag.shapes)
    sources, sinks = (rng.integers(0, count, rng.integers(1, 5)).tolist() for _ in range(2))
    return Dag(dag.shapes, dag.edges, (0, *sources), (*sinks, count - 1), FLOAT)


def random_chain(seed):
    """Dense and diagonal operators between vectors of very different lengths."""
    rng = np.random.default_rng(seed)
    sizes = rng.choice([2, 5, 30, 100], rng.integers(3, 9)).tolist()
    edges, shapes = [], [(sizes[0],)]
    for n, m in pairwise(sizes):
        edges.append(Edge(len(shapes) - 1, len(shapes), Dense(rng.standard_normal((m, n)))))
        edges.append(Edge(len(shapes), len(shapes) + 1, Diagonal(rng.standard_normal(m))))
        shapes += [(m,), (m,)]
    return Dag(tuple(shapes), edges, (0,), (len(shapes) - 1,), FLOAT)


def random_operator(rng, out_shape, in_shape):
    """A random operator between two shapes with the same number of samples."""
    (batch, m), (_, n) = out_shape, in_shape
    if m == n and rng.random() < 0.5:
        entries = rng.standard_normal(out_shape)
        alike = [Identity(out_shape, FLOAT), Scalar(-0.7, out_shape, FLOAT), Diagonal(entries)]
        return alike[rng.integers(3)]
    scale = 1 / np.sqrt(n)
    kind = rng.integers(4)
    if kind == 0:
        return BlockDiagonal(scale * rng.standard_normal((batch, m, n)))
    if kind == 1 and rng.random() < 0.3:
        return implicit_kron(rng.standard_normal((batch, batch)), rng.standard_normal((m, n)))
    if kind == 2:
        turned = Permutation((1, 0), in_shape, FLOAT)
        left = implicit_kron(scale * rng.standard_normal((m, n)), Eye(batch))
        return Permutation((1, 0), (m, batch), FLOAT) @ left @ turned
    return implicit_kron(Eye(batch), scale * rng.standard_normal((m, n)))


def perceptron(widths, batch, weights=True):
    """Layers z = a W + b, a = d ∘ z, with respect to weights and biases or to the first a."""
    rng = np.random.default_rng(1)
    shapes, edges, sources, at = [(batch, widths[0])], [], [], 0
    for layer, (n, m) in enumerate(pairwise(widths)):
        w, b, z = (len(shapes) + k for k in range(3))
        shapes += [(n, m), (m,), (batch, m)]
        matrix = rng.standard_normal((m, n)) / np.sqrt(n)
        edges += [
            Edge(at, z, implicit_kron(Eye(batch), matrix)),
            Edge(w, z, implicit_kron(rng.standard_normal((batch, n)), Eye(m))),
            Edge(b, z, broadcast((m,), (batch, m), FLOAT)),
        ]
        sources, at = [*sources, w, b], z
        if layer < len(widths) - 2:
            shapes.append((batch, m))
            edges.append(Edge(z, z + 1, Diagonal(rng.standard_normal((batch, m)))))
            at = z + 1
    return Dag(tuple(shapes), edges, tuple(sources) if weights else (0,), (at,), FLOAT)


def cnn(batch, channels=(3, 8, 8), side=12, classes=3):
    """3×3 convolutions with diagonals in between, a mean over positions, a dense layer."""
    rng = np.random.default_rng(2)
    shapes, edges, sources, at = [(batch, channels[0], side, side)], [], [], 0
    for n, m in pairwise(channels):
        x, kernel, u = (batch, n, side, side), (m, n, 3, 3), (batch, m, side, side)
        g = Geometry(x, kernel, u, (1, 1), (1, 1), (1, 1, 1, 1), 1)
        w, z, a = (len(shapes) + k for k in range(3))
        shapes += [kernel, u, u]
        edges += [
            Edge(at, z, Convolution(rng.standard_normal(kernel) / 9, "x", "u", g)),
            Edge(w, z, Convolution(rng.standard_normal(x), "w", "u", g)),
            Edge(z, a, Diagonal(rng.standard_normal(u))),
        ]
        sources, at = [*sources, w], a
    m = channels[-1]
    pooled, y = len(shapes), len(shapes) + 1
    shapes += [(batch, m), (batch, classes)]
    mean = SumTo((batch, m, 1, 1), shapes[at], FLOAT)
    flat = Scalar(side**-2, (batch, m), FLOAT) @ Reshape((batch, m), mean.out_shape, FLOAT) @ mean
    edges += [
        Edge(at, pooled, flat),
        Edge(pooled, y, implicit_kron(Eye(batch), rng.standard_normal((classes, m)))),
    ]
    return Dag(tuple(shapes), edges, tuple(sources), (y,), FLOAT)
