"""Flops to accumulate the matrix of a DAG: forward, reverse, and in the best order.

cd tests; python -m benchmarks.accumulation
"""

from __future__ import annotations

from collections.abc import Iterator

from networks.stored import MODELS, below, loaded
from onnxjac import linearize
from onnxjac.jacobians import Dag
from onnxjac.modes.linear.elimination.dense import orders
from suite.linear.elimination.chains import cnn, perceptron, random_chain, random_dag


def dags() -> Iterator[tuple[str, Dag]]:
    """The DAGs to compare, by name."""
    yield from ((f"chain {seed}", random_chain(seed)) for seed in range(10))
    yield from ((f"random {seed}", random_dag(seed)) for seed in range(10))
    yield "perceptron, weights", perceptron((64, 64, 64, 10), 32)
    yield "perceptron, input", perceptron((64, 64, 64, 10), 32, weights=False)
    yield "convolutions, weights", cnn(8)
    for file in MODELS:
        model, point, values = loaded(file)
        yield file, linearize(model, point, wrt=tuple(below("tangent", values)), engine="numpy").dag


def row(name: str, dag: Dag) -> str:
    """Megaflops of the three orders, and the ratio of the best to the better of the plain two."""
    flops = {order.name: order.flops / 1e6 for order in orders(dag)}
    best = min(flops, key=flops.__getitem__)
    plain = flops["forward"], flops["reverse"]
    part = flops[best] / min(plain) if min(plain) else 1.0
    return (
        f"{name:24} {plain[0]:12.3f} {plain[1]:12.3f} {flops[best]:12.3f} {part:7.3f}  {best[:60]}"
    )


def main() -> None:
    """Print the table."""
    print(f"{'':24} {'forward':>12} {'reverse':>12} {'best':>12} {'part':>7}  order")
    for name, dag in dags():
        print(row(name, dag))


if __name__ == "__main__":
    main()
