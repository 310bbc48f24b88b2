"""Newton-CG and Levenberg-Marquardt beside SciPy's: `python -m tests.benchmarks.solvers`.

A network with one hidden layer is fitted in double precision to data that a network of the same
sizes made, with noise. SciPy's iterations get their derivatives from JAX, compiled. Newton-CG
makes a fixed number of iterations; Levenberg-Marquardt goes on until its cost is at most the cost
that SciPy's `least_squares` with LSMR reaches in so many evaluations. Times are by the clock,
medians of the runs in turn; products are those with H, J or Jᵀ.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import onnx.parser
from scipy.optimize import least_squares, minimize
from scipy.sparse.linalg import LinearOperator

import onnxjac as oj

from .table import Cells, markdown, ms, number

HEAD = ("solver", "samples", "weights", "goal", "ours ms", "SciPy ms", "ratio", "products",
        "SciPy's", "ratio")  # fmt: skip
WRT = ("A", "b", "C")
OUTPUTS, NOISE = 3, 0.05
ITERATIONS = 12
EVALUATIONS = (5, 10, 20)


class Fit(NamedTuple):
    """What a solver found, and the products that it took."""

    value: float
    products: int


class Problem:
    """min ‖tanh(X A + b) C − Y‖², as a model and as functions of JAX."""

    def __init__(self, samples: int, inputs: int, hidden: int) -> None:
        rng = np.random.default_rng(0)
        X = rng.standard_normal((samples, inputs))
        (A, _, C), start = ((rng.standard_normal((inputs, hidden)) / inputs**0.5, np.zeros(hidden),
                             rng.standard_normal((hidden, OUTPUTS)) / hidden**0.5)
                            for _ in range(2))  # fmt: skip
        Y = np.tanh(X @ A) @ C + NOISE * rng.standard_normal((samples, OUTPUTS))
        self.samples = samples
        self.point = dict(zip(("X", "Y", *WRT), (X, Y, *start), strict=True))
        self.x0 = np.concatenate([part.ravel() for part in start])
        self.model = oj.load(onnx.parser.parse_model(f"""
            <ir_version: 10, opset_import: ["": 21]>
            fit (double[{samples},{inputs}] X, double[{samples},{OUTPUTS}] Y,
                 double[{inputs},{hidden}] A, double[{hidden}] b, double[{hidden},{OUTPUTS}] C)
                => (double f, double[{samples},{OUTPUTS}] r) {{
                p = MatMul (X, A)  q = Add (p, b)  t = Tanh (q)  z = MatMul (t, C)  r = Sub (z, Y)
                s = Mul (r, r)  f = ReduceMean <keepdims = 0> (s)
            }}"""))  # fmt: skip

        def residual(x: Any) -> Any:
            A, b, C = (part.reshape(like.shape) for part, like in zip(
                jnp.split(x, np.cumsum([part.size for part in start[:-1]])), start, strict=True
            ))  # fmt: skip
            return (jnp.tanh(X @ A + b) @ C - Y).ravel()

        def f(x: Any) -> Any:
            return jnp.mean(residual(x) ** 2)

        self.residual = jax.jit(residual)
        self.jvp = jax.jit(lambda x, v: jax.jvp(residual, (x,), (v,))[1])
        self.vjp = jax.jit(lambda x, u: jax.vjp(residual, x)[1](u)[0])
        self.value_and_grad = jax.jit(jax.value_and_grad(f))
        self.hvp = jax.jit(lambda x, v: jax.jvp(jax.grad(f), (x,), (v,))[1])

    def newton_cg(self) -> Fit:
        found = oj.newton_cg(self.model, self.point, of="f", wrt=WRT, maxiter=ITERATIONS)
        return Fit(found.fun, found.nhev)

    def newton_cg_by_scipy(self) -> Fit:
        def fun(x: np.ndarray) -> tuple[Any, ...]:
            return tuple(map(np.asarray, self.value_and_grad(x)))

        found = minimize(
            fun, self.x0, jac=True, hessp=lambda x, v: np.asarray(self.hvp(x, v)),
            method="trust-ncg", options={"maxiter": ITERATIONS},
        )  # fmt: skip
        return Fit(found.fun, found.nhev)

    def levenberg_marquardt(self, cost: float) -> Fit:
        def enough(state: Any) -> None:
            if state.cost <= cost:
                raise StopIteration

        found = oj.levenberg_marquardt(
            self.model, self.point, of="r", wrt=WRT, maxiter=1000, callback=enough
        )
        return Fit(found.cost, found.products)

    def levenberg_marquardt_by_scipy(self, evaluations: int) -> Fit:
        products = 0

        def jac(x: np.ndarray) -> LinearOperator:
            def counted(product: Callable[..., Any]) -> Callable[[np.ndarray], np.ndarray]:
                def of(v: np.ndarray) -> np.ndarray:
                    nonlocal products
                    products += 1
                    return np.asarray(product(x, v.ravel()))

                return of

            shape = OUTPUTS * self.samples, len(x)
            return LinearOperator(shape, counted(self.jvp), counted(self.vjp), dtype=float)

        found = least_squares(
            lambda x: np.asarray(self.residual(x)), self.x0, jac, tr_solver="lsmr",
            max_nfev=evaluations,
        )  # fmt: skip
        return Fit(found.cost, products)


def timed(*solvers: Callable[[], Fit], repeats: int) -> Iterator[tuple[float, Fit]]:
    """The median time of each solver, run in turn, and what it found."""
    found = [solve() for solve in solvers]  # compiles
    seconds: list[list[float]] = [[] for _ in solvers]
    for _ in range(repeats):
        for solve, took in zip(solvers, seconds, strict=True):
            started = time.perf_counter()
            solve()
            took.append(time.perf_counter() - started)
    yield from zip(map(median, seconds), found, strict=True)


def row(name: str, problem: Problem, goal: str, ours: tuple[float, Fit],
        theirs: tuple[float, Fit]) -> Cells:  # fmt: skip
    (seconds, found), (by_scipy, other) = ours, theirs
    assert found.value <= other.value * (1 + 1e-2), (name, found, other)
    return (
        name, str(problem.samples), str(len(problem.x0)), goal, ms(seconds), ms(by_scipy),
        number(seconds / by_scipy), str(found.products), str(other.products),
        number(found.products / other.products),
    )  # fmt: skip


def rows(repeats: int) -> Iterator[Cells]:
    for problem in (Problem(1000, 20, 20), Problem(2000, 50, 100)):
        both = timed(problem.newton_cg, problem.newton_cg_by_scipy, repeats=repeats)
        yield row("Newton-CG", problem, f"{ITERATIONS} iterations", *both)
        for evaluations in EVALUATIONS:
            cost = problem.levenberg_marquardt_by_scipy(evaluations).value
            both = timed(
                partial(problem.levenberg_marquardt, cost),
                partial(problem.levenberg_marquardt_by_scipy, evaluations), repeats=repeats,
            )  # fmt: skip
            yield row("Levenberg-Marquardt", problem, f"½ ‖r‖² ≤ {cost:.4g}", *both)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    print(markdown(HEAD, rows(int(sys.argv[1]) if sys.argv[1:] else 5)))
