"""JAX: linearised once, with the linear function compiled and its residuals kept."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from scipy.sparse.linalg import LinearOperator

from ..readings import jax as reading
from ..workloads import Workload
from .contender import ALPHA, BETA, EPSILON, RATE, Task
from .peer import Peer

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_default_matmul_precision", "highest")  # a GPU's default has 10 bits


def waited(function: Callable[..., Any], *arguments: Any) -> Task:
    """The compiled function at fixed arguments, run to completion."""
    fast = jax.jit(function)
    return lambda: jax.block_until_ready(fast(*arguments))


class Jax(Peer):
    """`jax.linearize`, `jax.vjp` and `jax.vmap` under `jax.jit`."""

    library: ClassVar[str] = "jax"
    nn = reading

    def __init__(self, workload: Workload, device: str = "cpu") -> None:
        jax.config.update("jax_platforms", device)
        super().__init__(workload, device)

    def array(self, x: np.ndarray) -> Any:
        return jnp.asarray(x)

    def pushed(self) -> tuple[Any, Callable[..., Any]]:
        """y and J·"""
        return jax.linearize(self.f, *self.point)

    def pulled(self) -> tuple[Any, Callable[[Any], Any]]:
        """y and Jᵀ·"""
        return jax.vjp(self.f, *self.point)

    def jvp(self) -> Task:
        return waited(self.pushed()[1], *self.arrays(self.tangent))

    def vjp(self) -> Task:
        y, pull = self.pulled()
        return waited(pull, self.cotangent(y.shape))

    def hvp(self) -> Task:
        every = tuple(range(len(self.point)))
        _, push = jax.linearize(jax.grad(self.loss, every), *self.point)
        return waited(push, *self.arrays(self.tangent))

    def ggn(self) -> Task:
        y, push = self.pushed()
        _, pull = self.pulled()
        _, curve = jax.linearize(jax.grad(self.loss_of), y)
        return waited(lambda *v: pull(curve(push(*v))), *self.arrays(self.tangent))

    def value_and_grad(self) -> Callable[..., Any]:
        fast = jax.jit(self.value_and_slopes)
        return lambda *point: jax.block_until_ready(fast(*point))

    def value_and_slopes(self, *point: Any) -> Any:
        """(f, ∇f)."""
        return jax.value_and_grad(self.loss, tuple(range(len(self.point))))(*point)

    def iterated(self, count: int, kind: str) -> Task:
        start = self.arrays(self.tangent)
        step = jax.jit(lambda *point: self.step(count, kind, start, point))
        return self.in_turn(lambda *point: jax.block_until_ready(step(*point)))

    def step(self, count: int, kind: str, v: Any, point: Any) -> Any:
        """The whole step as one function, which keeps the residuals for its products."""
        if kind == "hvp":
            every = tuple(range(len(point)))
            found = self.value_and_slopes(*point)
            _, product = jax.linearize(jax.grad(self.loss, every), *point)
        else:
            y, push = jax.linearize(self.f, *point)
            _, pull = jax.vjp(self.f, *point)
            f, slope = jax.value_and_grad(self.loss_of)(y)
            found = f, pull(slope)
            _, curve = jax.linearize(jax.grad(self.loss_of), y)

            def product(*v: Any) -> Any:
                return pull(curve(push(*v)))

        def turn(_: int, v: Any) -> Any:
            v = product(*v)
            norm = jnp.sqrt(sum(jnp.vdot(x, x) for x in v))
            return tuple(x / norm for x in v)

        return *found, jax.lax.fori_loop(0, count, turn, v)

    def f_jvp(self, count: int) -> Task:
        (start,) = self.arrays(self.tangent)

        def step(u: Any) -> Any:
            y, push = jax.linearize(self.f, u)

            def turn(_: int, v: Any) -> Any:
                v = push(v)
                return v / jnp.linalg.norm(v)

            return y, jax.lax.fori_loop(0, count, turn, start)

        fast = jax.jit(step)
        return self.in_turn(lambda u: jax.block_until_ready(fast(u)))

    def adam(self) -> Task:
        step = jax.jit(self.updated, donate_argnums=0)
        means, squares = (tuple(map(jnp.zeros_like, self.point)) for _ in range(2))
        state: Any = jnp.ones(()), tuple(map(jnp.copy, self.point)), means, squares

        def once() -> Any:
            nonlocal state
            f, state = jax.block_until_ready(step(state))
            return f, state[1]

        return once

    def updated(self, state: Any) -> Any:
        """f, and the state of Adam after one more update: count, weights, means and squares."""
        count, point, means, squares = state
        f, slopes = self.value_and_slopes(*point)
        means = tuple(ALPHA * m + (1 - ALPHA) * g for m, g in zip(means, slopes, strict=True))
        squares = tuple(
            BETA * s + (1 - BETA) * g * g for s, g in zip(squares, slopes, strict=True)
        )
        rate = (RATE * jnp.sqrt(1 - BETA**count) / (1 - ALPHA**count)).astype(f.dtype)
        point = tuple(
            x - rate * m / (jnp.sqrt(s) + EPSILON)
            for x, m, s in zip(point, means, squares, strict=True)
        )
        return f, (count + 1, point, means, squares)

    def columns(self, count: int) -> Task:
        return waited(jax.vmap(self.pushed()[1]), *self.arrays(self.tangents(count)))

    def toarray(self) -> Task:
        """The dense matrix, by rows or by columns, whichever are fewer."""
        y, (x,) = self.f(*self.point), self.point
        if y.size < x.size:
            pull = self.pulled()[1]
            rows = jnp.eye(y.size, dtype=y.dtype).reshape(-1, *y.shape)
            return waited(lambda u: jax.vmap(pull)(u)[0].reshape(y.size, -1), rows)
        push = self.pushed()[1]
        columns = jnp.eye(x.size, dtype=x.dtype).reshape(-1, *x.shape)
        return waited(lambda v: jax.vmap(push)(v).reshape(x.size, -1).T, columns)

    def operator(self) -> LinearOperator:
        y, push = self.pushed()
        pull = self.pulled()[1]
        return self.wrapped(y.size, jax.jit(push), jax.jit(pull), y.shape)


class Expert(Jax):
    """Code by an expert who knows that J is block diagonal."""

    only: ClassVar[tuple[str, ...]] = ("jvp", "vjp")

    @classmethod
    def suits(cls, workload: Workload) -> bool:
        return workload.blocks

    def blocks(self) -> Any:
        """∂y/∂x for each sample, (batch, outputs, inputs)."""
        return jax.vmap(jax.jacrev(lambda x: self.f(x[None])[0]))(*self.point)

    def jvp(self) -> Task:
        product = partial(jnp.einsum, "boi,bi->bo")
        return waited(product, self.blocks(), *self.arrays(self.tangent))

    def vjp(self) -> Task:
        blocks = self.blocks()
        return waited(partial(jnp.einsum, "boi,bo->bi"), blocks, self.cotangent(blocks.shape[:2]))


CONTENDERS = {"jax": Jax, "jax expert": Expert}
