"""Taylor mode beside nested derivatives, jax.experimental.jet and folx, in one process.

    python -m tests.benchmarks.taylor

prints the table of docs/how-to/higher-orders.md. folx is measured where it is installed. Times are
medians of rounds in which all contenders run in turn.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.jet import jet
from tests.suite.jets.networks import electrons, mlp

import onnxjac as oj

ROUNDS = 11

Contenders = dict[str, Callable[[], Any]]


def network(weights: list[Any]) -> Callable[[Any], Any]:
    """The perceptron of `mlp` as a function of JAX of one sample."""

    def u(x: Any) -> Any:
        for W, b in weights[:-1]:
            x = jnp.tanh(x @ W + b)
        W, b = weights[-1]
        return (x @ W + b)[0]

    return u


def trace_of_hessian(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Δf by the dense Hessian."""
    return lambda x: jnp.trace(jax.hessian(f)(x))


def forward_laplacian(f: Callable[[Any], Any], most: int = 0) -> Callable[[Any], Any] | None:
    """Δf by folx, where it is installed; entries that move in `most` directions stay sparse."""
    if importlib.util.find_spec("folx") is None:
        return None
    import folx

    made = folx.forward_laplacian(f, sparsity_threshold=most)
    return lambda x: made(x).laplacian


def log_psi(w: dict[str, Any], x: Any, determinants: bool = True) -> Any:
    """The network of `electrons` as a function of JAX of one sample (N, 3)."""
    N, layers = len(x), sum(name[0] == "W" for name in w)
    ae = x[:, None] - w["R"]
    re = jnp.sqrt((ae**2).sum(-1, keepdims=True))
    h = jnp.concatenate([ae, re], -1).reshape(N, -1)
    ee = x[:, None] - x
    rr = jnp.sqrt((ee**2).sum(-1, keepdims=True) + w["eye"]) * w["apart"]
    g = jnp.concatenate([ee, rr], -1)
    for k in range(layers):
        mean = jnp.broadcast_to(h.mean(0, keepdims=True), h.shape)
        t = jnp.tanh(jnp.concatenate([h, mean, g.mean(1)], -1) @ w[f"W{k}"])
        s = jnp.tanh(g @ w[f"V{k}"])
        h, g = t + h if t.shape == h.shape else t, s + g if s.shape == g.shape else s
    orbitals = h @ w["O"] * jnp.exp(-(re[..., 0] @ w["decay"]))
    if not determinants:
        return jnp.sin(orbitals).sum()
    M = orbitals.reshape(2, N // 2, -1, N // 2).transpose(0, 2, 1, 3)
    return jnp.log(jnp.abs(jnp.linalg.det(M).prod(0).sum()))


def laplacians(inputs: int, points: int) -> tuple[str, Contenders]:
    """Δu of a perceptron of four layers of 64."""
    model, weights, x = drawn(inputs, points)
    u, X = network(weights), jnp.asarray(x)
    ways = {"nested": trace_of_hessian(u), "folx": forward_laplacian(u)}
    found = {name: compiled(jax.vmap(f), X) for name, f in ways.items() if f}
    return f"Δu, {inputs} inputs, {points} points", found | ours(
        lambda point, engine: oj.laplacian(model, point, engine=engine), x)  # fmt: skip


def energies(count: int, points: int, determinants: int) -> tuple[str, Contenders]:
    """Δ log |ψ| of a network of electrons, which has pairs that move in 6 directions."""
    model, weights = electrons(count, determinants=determinants, dtype=np.float32)
    x = np.random.default_rng(1).standard_normal((points, count, 3)).astype(np.float32)
    arrays = {name: jnp.asarray(w) for name, w in weights.items() if w.dtype == x.dtype}

    def f(x: Any) -> Any:
        return log_psi(arrays, x, bool(determinants))

    ways = {"folx": forward_laplacian(f), "folx, sparse": forward_laplacian(f, most=6)}
    found = {name: compiled(jax.vmap(f), jnp.asarray(x)) for name, f in ways.items() if f}
    kind = "Δ log ψ" if determinants else "without determinants"
    return f"{kind}, {count} electrons, {points} points", found | ours(
        lambda point, engine: oj.laplacian(model, point, engine=engine), x)  # fmt: skip


def slopes(inputs: int, points: int) -> tuple[str, Contenders]:
    """∇ of the mean square of Δu in all weights."""
    model, weights, x = drawn(inputs, points)
    X = jnp.asarray(x)

    def loss(way: Callable[..., Any], weights: Any) -> Any:
        return jnp.mean(jax.vmap(way(network(weights)))(X) ** 2)

    ways = {"nested": trace_of_hessian, "folx": forward_laplacian}
    found = {name: compiled(jax.grad(lambda w, way=way: loss(way, w)), weights)
             for name, way in ways.items() if way(network(weights))}  # fmt: skip
    file = oj.load(oj.export(model, "laplacian", {"x": x}))
    squared = oj.with_loss(file, "mse", at="u_laplacian", target="f")
    moving = [name for name in model.initializers if name != f"b{len(weights) - 1}"]
    zero = np.zeros((points, 1), np.float32)

    def slope(point: Any, engine: str | None) -> Any:
        target = jnp.asarray(zero) if engine else zero
        return oj.grad(squared, {**point, "f": target}, wrt=moving, engine=engine)

    return f"∇ of its square, {inputs} inputs, {points} points", found | ours(slope, x)


def biharmonics(points: int) -> tuple[str, Contenders]:
    """Δ²u in two inputs."""
    model, weights, x = drawn(2, points)
    u, X = network(weights), jnp.asarray(x)
    directions = jnp.asarray([[1.0, 0], [0, 1], [1, 1], [1, -1]], jnp.float32)
    shares = jnp.asarray([2 / 3, 2 / 3, 1 / 6, 1 / 6], jnp.float32)

    def by_jet(x: Any) -> Any:
        def fourth(v: Any) -> Any:
            return jet(u, (x,), ([v, *jnp.zeros((3, 2), jnp.float32)],))[1][3]

        return jnp.sum(shares * jax.vmap(fourth)(directions))

    nested = trace_of_hessian(trace_of_hessian(u))
    found = {"nested": compiled(jax.vmap(nested), X), "jet": compiled(jax.vmap(by_jet), X)}
    return f"Δ²u, 2 inputs, {points} points", found | ours(
        lambda point, engine: oj.laplacian(model, point, power=2, engine=engine), x)  # fmt: skip


def sixth(points: int) -> tuple[str, Contenders]:
    """∂⁶u/∂x₀⁶ in two inputs."""
    model, weights, x = drawn(2, points)
    u, X = network(weights), jnp.asarray(x)
    v = jnp.asarray([1.0, 0], jnp.float32)

    def nested(x: Any) -> Any:
        f: Any = lambda t: u(x + t * v)  # noqa: E731  (it is derived six times)
        for _ in range(6):
            f = lambda t, g=f: jax.jvp(g, (t,), (1.0,))[1]  # noqa: E731
        return f(0.0)

    def by_jet(x: Any) -> Any:
        return jet(u, (x,), ([v, *jnp.zeros((5, 2), jnp.float32)],))[1][5]

    found = {"nested": compiled(jax.vmap(nested), X), "jet": compiled(jax.vmap(by_jet), X)}
    return f"∂⁶u/∂x⁶, {points} points", found | ours(
        lambda point, engine: oj.derivative(model, point, wrt=["x[0]"] * 6, engine=engine), x
    )  # fmt: skip


def drawn(inputs: int, points: int) -> tuple[oj.Model, list[Any], np.ndarray]:
    """A network, its weights as arrays of JAX, and points."""
    model, weights = mlp([inputs, 64, 64, 64, 64, 1], dtype=np.float32)
    x = np.random.default_rng(1).standard_normal((points, inputs)).astype(np.float32)
    return model, jax.tree.map(jnp.asarray, weights), x


def ours(f: Callable[[Any, str | None], Any], x: np.ndarray) -> Contenders:
    """f(point, engine) by XLA, and by what is taken by default."""
    there = {"x": jnp.asarray(x)}
    return {"onnxjac by XLA": lambda: jax.block_until_ready(f(there, "jax")),
            "onnxjac": lambda: f({"x": x}, None)}  # fmt: skip


def compiled(f: Callable[[Any], Any], x: Any) -> Callable[[], Any]:
    """f(x), compiled and waited for."""
    made = jax.jit(f)
    return lambda: jax.block_until_ready(made(x))


def seconds(contenders: Contenders) -> dict[str, float]:
    """The median time of each."""
    for run in (*contenders.values(), *contenders.values()):
        run()
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(ROUNDS):
        for name, run in contenders.items():
            start = time.perf_counter()
            run()
            found[name].append(time.perf_counter() - start)
    return {name: float(np.median(times)) for name, times in found.items()}


def works() -> Iterator[tuple[str, Contenders]]:
    """The rows."""
    yield laplacians(3, 1000)
    yield laplacians(100, 100)
    yield energies(4, 300, determinants=2)
    yield energies(16, 100, determinants=0)
    yield slopes(3, 1000)
    yield slopes(100, 100)
    yield biharmonics(1000)
    yield sixth(1000)


COLUMNS = ("nested", "jet", "folx", "folx, sparse", "onnxjac by XLA", "onnxjac")


def main() -> None:
    print(f"| ms | {' | '.join(COLUMNS)} |")
    print("|---|" + "--:|" * len(COLUMNS))
    for name, contenders in works():
        times = seconds(contenders)
        cells = (f"{1e3 * times[c]:.1f}" if c in times else "" for c in COLUMNS)
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
