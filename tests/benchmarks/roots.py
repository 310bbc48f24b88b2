"""Roots and trajectories, measured: `python -m tests.benchmarks.roots`, by hand, with nothing else.

A training step of a deep equilibrium model beside PyTorch with a hook that solves the adjoint
equation, in turn, with the same tolerances and Anderson's acceleration of the same memory. And the
heat equation with a learnt source: a gradient beside its forward solve, and the memory. Times are
processor times, of one thread.
"""

from __future__ import annotations

import sys
from statistics import median
from time import process_time
from tracemalloc import get_traced_memory, start, stop
from typing import Any

import numpy as np
import onnx.parser
import torch

import onnxjac as oj

TOLERANCE, MEMORY = 1e-4, 5


def parsed(text: str) -> oj.Model:
    return oj.load(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {text}'))


def anderson(f: Any, x: torch.Tensor, goal: float) -> torch.Tensor:
    """The fixed point of f, from x, to ‖f − x‖ ≤ goal."""
    shape, x, last = x.shape, x.reshape(-1), None
    moves, changes = [], []
    for _ in range(60):
        F = f(x.reshape(shape)).reshape(-1) - x
        if F.norm() <= goal:
            break
        if last is not None:
            moves, changes = [*moves, x - last[0]][-MEMORY:], [*changes, F - last[1]][-MEMORY:]
        last, x = (x, F), x + F
        if moves:
            dF = torch.stack(changes, 1)
            gram = dF.T @ dF
            gram = gram + 1e-8 * gram.trace() * torch.eye(len(gram))
            x = x - (torch.stack(moves, 1) + dF) @ torch.linalg.solve(gram, dF.T @ F)
    return x.reshape(shape)


def equilibrium(batch: int, n: int, steps: int) -> tuple[float, float]:
    """Processor seconds of a training step of z = tanh(z W + x U + b): ours, and PyTorch's."""
    d, rng = n // 2, np.random.default_rng(0)
    W = rng.standard_normal((n, n))
    arrays = 0.9 * W / np.linalg.norm(W, 2), rng.standard_normal((d, n)) / d**0.5, np.zeros(n)
    leaves = [torch.tensor(a, dtype=torch.float32, requires_grad=True) for a in arrays]
    x = torch.tensor(rng.standard_normal((batch, d)), dtype=torch.float32)
    y = torch.tensor(0.3 * rng.standard_normal((batch, n)), dtype=torch.float32)
    model = parsed(f"""
        deq (float[B, {d}] x, float[B, {n}] z, float[{n}, {n}] W, float[{d}, {n}] U, float[{n}] b)
        => (float[B, {n}] f)
        {{ zW = MatMul (z, W)\n xU = MatMul (x, U)\n s = Sum (zW, xU, b)\n f = Tanh (s) }}""")
    point = {"x": x.numpy(), "z": np.zeros((batch, n), np.float32)}
    point |= {k: a.detach().numpy() for k, a in zip("WUb", leaves, strict=True)}
    before, goal = torch.zeros(batch, n), TOLERANCE * (batch * n) ** 0.5 / 2
    layer = oj.root(
        model, point, x="z", wrt=["W", "U", "b"], fixed_point=True, linear_solver="krylov",
        atol=goal, linear_rtol=TOLERANCE,
    ).to_torch()  # fmt: skip

    def hooked(W: torch.Tensor, U: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Backward, u = Jᵀ u + the gradient."""
        nonlocal before
        with torch.no_grad():
            held = x @ U + b
            before = anderson(lambda z: torch.tanh(z @ W + held), before, goal)
        z = torch.tanh(before @ W + x @ U + b)
        inside = before.clone().requires_grad_()
        f = torch.tanh(inside @ W.detach() + held)

        def adjoint(g: torch.Tensor) -> torch.Tensor:
            def turn(u: torch.Tensor) -> torch.Tensor:
                return torch.autograd.grad(f, inside, u, retain_graph=True)[0] + g

            return anderson(turn, g, TOLERANCE * float(g.norm()))

        z.register_hook(adjoint)
        return z

    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(steps):
        for function, taken in zip((layer, hooked), times, strict=True):
            begin = process_time()
            loss = ((function(*leaves) - y) ** 2).sum() / batch
            slopes = torch.autograd.grad(loss, leaves)
            taken.append(process_time() - begin)
        with torch.no_grad():
            for leaf, slope in zip(leaves, slopes, strict=True):
                leaf -= 0.05 * slope
    return median(times[0][steps // 2 :]), median(times[1][steps // 2 :])


def heat(steps: int, nonlinear: bool, repeats: int = 3) -> tuple[float, float, float]:
    """Processor seconds of a forward solve and of a gradient in 10⁴ sources, and megabytes."""
    N, rng = 100, np.random.default_rng(0)
    cool = "c = Mul (u, u)\n e = Mul (c, u)\n k = Sub (d, e)" if nonlinear else "k = Identity (d)"
    u = f"double[1, 1, {N}, {N}]"
    model = parsed(f"""
        heat ({u} u, {u} source, {u} target) => ({u} v, double cost)
        <double[1, 1, 3, 3] stencil = {{0, 100, 0, 100, -400, 100, 0, 100, 0}}>
        {{
            d = Conv <pads = [1, 1, 1, 1]> (u, stencil)\n {cool}
            v = Add (k, source)\n o = Sub (u, target)\n oo = Mul (o, o)
            cost = ReduceSum <keepdims = 0> (oo)
        }}""")
    inputs = {name: rng.standard_normal((1, 1, N, N)) for name in ("source", "target")}
    inputs["u"] = np.zeros((1, 1, N, N))
    T = oj.trajectory(model, inputs, of="v", x="u", wrt="source", step=0.005, steps=steps,
                      integral="cost")  # fmt: skip
    forward, gradient = [], []
    for k in range(repeats):
        begin = process_time()
        T = T.at({"source": (1 + 0.1 * k) * inputs["source"]})
        forward.append(process_time() - begin)
        T.J.T.apply({"cost": 1.0})
        gradient.append(process_time() - begin)
    start()
    T.at({}).J.T.apply({"cost": 1.0})
    peak = get_traced_memory()[1] / 1e6
    stop()
    return median(forward), median(gradient), peak


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    for batch, n in ((32, 128), (64, 256), (128, 512)):
        ours, theirs = equilibrium(batch, n, 200)
        print(f"equilibrium {batch}×{n}: {1e3 * ours:.1f} ms, PyTorch {1e3 * theirs:.1f} ms, "
              f"{ours / theirs:.2f}", flush=True)  # fmt: skip
    for nonlinear in (False, True):
        for steps in (50, 200) if nonlinear else (50, 200, 800):
            forward, gradient, peak = heat(steps, nonlinear)
            print(f"heat, {'nonlinear, ' * nonlinear}{steps} steps: forward {forward:.2f} s, "
                  f"gradient {gradient:.2f} s, {gradient / forward:.2f}, {peak:.0f} MB",
                  flush=True)  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
