"""The algebra of operators beside its peers: `python -m tests.benchmarks.algebra`.

The same solves and determinants by onnxjac.jacobians, CoLA, PyLops, lineax, linear_operator and
SciPy, in one process and in turn: `once` from the matrices to the solution, `again` with what the
first solution prepared. Every answer is compared with SciPy's. Libraries that are not installed are
left out; each number is the least of many repeats, three in a row at each turn, because the others
leave little of a task in the caches. `python -m tests.benchmarks.algebra 10` makes each factor ten
times as large.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import scipy.linalg

from onnxjac.jacobians import (
    BlockDiagonal,
    Circulant,
    Diagonal,
    Eye,
    Identity,
    Jacobian,
    LowRank,
    implicit_kron,
)

RNG = np.random.default_rng(0)
SECONDS, DAMPING, IN_A_ROW = 0.2, 0.1, 3
SCALE = int(sys.argv[1]) if __name__ == "__main__" and sys.argv[1:] else 1
M, N, RANK, BLOCKS = 60 * SCALE, 50 * SCALE, 20, (100, 20 * SCALE)

Make = Callable[[], Callable[[], Any]]
"""Prepares a task and gives the function that solves it."""

LONG = 0.5 * SCALE
"""Peers that take longer, in seconds, are left out."""


def spd(n: int) -> np.ndarray:
    a = RNG.standard_normal((n, n))
    return np.asarray(a @ a.T / n + np.eye(n))


A, B = spd(M), spd(N)
P, Q = (RNG.standard_normal((n, n)) / n**0.5 + 3 * np.eye(n) for n in (M, N))
D, U = RNG.random(M * N) + 1, RNG.standard_normal((M * N, RANK)) / 10
S = RNG.standard_normal((*BLOCKS, BLOCKS[1])) + 10 * SCALE * np.eye(BLOCKS[1])
C = RNG.standard_normal(M * N) / (M * N) ** 0.5 + 5 * np.eye(1, M * N)[0]
b, c = RNG.standard_normal(M * N), RNG.standard_normal(BLOCKS[0] * BLOCKS[1])


def solve(make: Callable[[], Jacobian], b: np.ndarray) -> Callable[[], Any]:
    inverse = make().inverse()
    return lambda: inverse @ b


def logdet(make: Callable[[], Jacobian]) -> Callable[[], Any]:
    return lambda: make().slogdet()[1]


OURS: dict[str, Callable[[], Jacobian]] = {
    "kron": lambda: implicit_kron(A, B),
    "sylvester": lambda: implicit_kron(P, Eye(N)) + implicit_kron(Eye(M), Q),
    "kfac": lambda: implicit_kron(A, B) + DAMPING * Identity((M, N), float),
    "woodbury": lambda: Diagonal(D) + LowRank(U, U),
    "blocks": lambda: BlockDiagonal(S),
    "circulant": lambda: Circulant(C),
}  # fmt: skip


def by_scipy(name: str) -> Callable[[], Any]:
    """What an expert writes, with the factors of the matrices kept."""
    X = b.reshape(M, N)
    if name == "kron":
        L, R = scipy.linalg.cho_factor(A), scipy.linalg.cho_factor(B)
        return lambda: scipy.linalg.cho_solve(R, scipy.linalg.cho_solve(L, X).T).T.ravel()
    if name == "sylvester":
        return lambda: scipy.linalg.solve_sylvester(P, Q.T, X).ravel()
    if name == "kfac":
        (s, V), (t, W) = np.linalg.eigh(A), np.linalg.eigh(B)
        values = s[:, None] * t + DAMPING
        return lambda: (V @ ((V.T @ X @ W) / values) @ W.T).ravel()
    if name == "woodbury":
        Y = U / D[:, None]
        inner = scipy.linalg.cho_factor(np.eye(RANK) + U.T @ Y)
        return lambda: b / D - Y @ scipy.linalg.cho_solve(inner, Y.T @ b)
    if name == "blocks":
        return lambda: np.linalg.solve(S, c.reshape(*BLOCKS, 1)).ravel()
    return lambda: scipy.linalg.solve_circulant(C, b)


def scipy_logdet(name: str) -> float:
    if name == "kron":
        return N * np.linalg.slogdet(A)[1] + M * np.linalg.slogdet(B)[1]
    if name == "kfac":
        return np.log(np.linalg.eigvalsh(A)[:, None] * np.linalg.eigvalsh(B) + DAMPING).sum()
    if name == "sylvester":
        return np.log(np.abs(np.linalg.eigvals(P)[:, None] + np.linalg.eigvals(Q))).sum()
    if name == "woodbury":
        inner = np.eye(RANK) + U.T @ (U / D[:, None])
        return np.log(D).sum() + np.linalg.slogdet(inner)[1]
    if name == "blocks":
        return np.linalg.slogdet(S)[1].sum()
    return np.log(np.abs(np.fft.fft(C))).sum()


def in_cola(name: str) -> Any:
    import cola
    import torch
    from cola.ops import BlockDiag, Dense, Kronecker

    a, d = map(torch.from_numpy, (A, B))
    return {
        "kron": lambda: Kronecker(cola.PSD(Dense(a)), cola.PSD(Dense(d))),
        "blocks": lambda: BlockDiag(*map(Dense, torch.from_numpy(S))),
    }[name]()  # fmt: skip


def by_cola(name: str) -> Callable[[], Any]:
    import cola
    import torch

    inverse, right = cola.inv(in_cola(name)), torch.from_numpy(c if name == "blocks" else b)
    return lambda: (inverse @ right).numpy()


def cola_logdet(name: str) -> float:
    import cola

    return float(cola.logdet(in_cola(name)))


def by_pylops(name: str) -> Callable[[], Any]:
    import pylops

    if name != "kron":
        raise KeyError(name)
    K = pylops.Kronecker(pylops.MatrixMult(A), pylops.MatrixMult(B))
    return lambda: pylops.optimization.basic.cg(K, b, niter=500, tol=1e-14)[0]


def by_lineax(name: str) -> Callable[[], Any]:
    """By Cholesky and LU decompositions that are kept, for all columns or blocks at once."""
    import jax
    import jax.numpy as jnp
    import lineax

    def states(stack: Any, solver: Any, tags: Any) -> Any:
        return jax.vmap(lambda a: solver.init(lineax.MatrixLinearOperator(a, tags), {}))(stack)

    def solved(stack: Any, columns: Any, solver: Any, tags: Any, state: Any) -> Any:
        return jax.vmap(lambda a, r, kept: lineax.linear_solve(
            lineax.MatrixLinearOperator(a, tags), r, solver, state=kept, throw=False).value)(
                stack, columns, state)  # fmt: skip

    jax.config.update("jax_enable_x64", True)
    if name == "blocks":
        lu, stack = lineax.LU(), jnp.asarray(S)
        state = jax.jit(lambda s: states(s, lu, ()))(stack)
        found = jax.jit(lambda r: solved(stack, r, lu, (), state))
        return lambda: np.asarray(found(c.reshape(BLOCKS))).ravel()
    if name != "kron":
        raise KeyError(name)
    solver, tags, each = lineax.Cholesky(), lineax.positive_semidefinite_tag, list[Any]()
    for side in map(jnp.asarray, (A, B)):
        K = lineax.MatrixLinearOperator(side, tags)
        kept = solver.init(K, {})
        each.append(lambda r, K=K, kept=kept: lineax.linear_solve(
            K, r, solver, state=kept, throw=False).value)  # fmt: skip
    found = jax.jit(lambda X: jax.vmap(each[1])(jax.vmap(each[0], 1, 1)(X)))
    return lambda: np.asarray(found(b.reshape(M, N))).ravel()


def in_linear_operator(name: str) -> Any:
    import torch
    from linear_operator import operators as lo

    def dense(a: np.ndarray) -> Any:
        return lo.to_linear_operator(torch.from_numpy(a))

    K = partial(lo.KroneckerProductLinearOperator, dense(A), dense(B))
    return {
        "kron": K,
        "kfac": lambda: K().add_diagonal(torch.tensor(DAMPING, dtype=torch.float64)),
        "woodbury": lambda: lo.LowRankRootLinearOperator(torch.from_numpy(U)).add_diagonal(
            torch.from_numpy(D)),
        "blocks": lambda: lo.BlockDiagLinearOperator(dense(S)),
    }[name]()  # fmt: skip


def by_linear_operator(name: str) -> Callable[[], Any]:
    import torch

    made, right = in_linear_operator(name), torch.from_numpy(c if name == "blocks" else b)
    return lambda: made.solve(right[:, None]).numpy().ravel()


def linear_operator_logdet(name: str) -> float:
    return float(in_linear_operator(name).logdet())


PEERS = {
    "scipy": by_scipy, "cola": by_cola, "pylops": by_pylops, "lineax": by_lineax,
    "linear_operator": by_linear_operator,
}  # fmt: skip


LOGDETS = {"scipy": scipy_logdet, "cola": cola_logdet, "linear_operator": linear_operator_logdet}


def contenders(name: str) -> Iterator[tuple[str, Make]]:
    """Who solves a task, with the same answer."""
    ours = partial(solve, OURS[name], c if name == "blocks" else b)
    makes = {"onnxjac": ours, **{who: partial(by, name) for who, by in PEERS.items()}}
    return right(makes, by_scipy(name)())


def determinants(name: str) -> Iterator[tuple[str, Make]]:
    """Who finds a determinant, with the same answer."""
    makes = {"onnxjac": partial(logdet, OURS[name]),
             **{who: partial(partial, by, name) for who, by in LOGDETS.items()}}  # fmt: skip
    return right(makes, scipy_logdet(name))


def right(makes: dict[str, Make], expected: Any) -> Iterator[tuple[str, Make]]:
    """Who is installed, able, quick enough and right."""
    for who, make in makes.items():
        try:
            task = make()
            np.testing.assert_allclose(task(), expected, rtol=1e-6, atol=1e-8)
            slow = least({who: task}, 0.0)[who] > LONG
        except (ImportError, KeyError):
            continue
        except Exception as error:  # a peer that fails, or answers something else, is said
            print(f"  {who}: {type(error).__name__} {str(error).strip().splitlines()[0][:80]}")
            continue
        if slow:
            print(f"  {who}: more than {LONG} s")
        else:
            yield who, make


def least(tasks: dict[str, Callable[[], Any]], seconds: float = SECONDS) -> dict[str, float]:
    """The least seconds of each task, run in turn."""
    best, end = dict.fromkeys(tasks, np.inf), time.perf_counter() + seconds * len(tasks)
    while np.inf in best.values() or time.perf_counter() < end:
        for name, task in tasks.items():
            for _ in range(IN_A_ROW):
                start = time.perf_counter()
                task()
                best[name] = min(best[name], time.perf_counter() - start)
    return best


def line(what: str, best: dict[str, float]) -> str:
    """Ours ÷ the best library, ours ÷ SciPy by hand, and the times in µs."""
    libraries = [best[who] for who in best if who not in ("onnxjac", "scipy")]
    library = f"{best['onnxjac'] / min(libraries):7.3f}" if libraries else "   none"
    times = ", ".join(f"{who} {1e6 * seconds:.0f}" for who, seconds in best.items())
    return f"{what:20} {library} {best['onnxjac'] / best['scipy']:6.2f}   {times}"


def main() -> None:
    print(f"{'ours ÷':20} library  SciPy   µs")
    for name in OURS:
        known = dict(contenders(name))
        print(line(f"{name} once", least({w: lambda m=m: m()() for w, m in known.items()})))
        print(line(f"{name} again", least({w: make() for w, make in known.items()})))
        found = {w: make() for w, make in determinants(name)}
        print(line(f"{name} logdet", least(found)), flush=True)


if __name__ == "__main__":
    main()
