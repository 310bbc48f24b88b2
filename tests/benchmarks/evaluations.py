"""Evaluations in CasADi: `python -m tests.benchmarks.evaluations [REPEATS] [FOLDER]`.

The value, the gradient and the Hessian of f(x) = ‖net(x)‖², net a network, and the residual of a
discretised PDE with its Jacobian: as an expression of CasADi, interpreted and as CasADi's own C
code by gcc -O2; as a model, by `to_casadi` and from the files of `export_casadi`; and by l4casadi
where that is installed, in single precision. Every one is called as a Function of CasADi, from
Python. Times are medians by the clock; the FOLDER keeps the C code.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import casadi as ca
import numpy as np
import onnx.parser
import onnxruntime

import onnxjac as oj

from .table import Cells, markdown

HEAD = ("function", "what", "CasADi", "CasADi's C", "`to_casadi`", "files", "l4casadi")


class Network:
    """f(x) = ‖V tanh(W x + b)‖²."""

    def __init__(self, inputs: int, hidden: int, outputs: int) -> None:
        rng = np.random.default_rng(0)
        self.name, self.n = f"network {inputs} → {hidden} → {outputs}", inputs
        self.W = rng.standard_normal((inputs, hidden)) / inputs**0.5
        self.b, self.V = rng.standard_normal(hidden), rng.standard_normal((hidden, outputs))
        self.model = parsed(f"""net (double[1, {inputs}] x) => (double[1, 1] f)
            <double[{inputs}, {hidden}] W = {{{text(self.W)}}},
             double[{hidden}] b = {{{text(self.b)}}},
             double[{hidden}, {outputs}] V = {{{text(self.V)}}}>
            {{ p = MatMul (x, W)  q = Add (p, b)  t = Tanh (q)  z = MatMul (t, V)
               f = ReduceSumSquare (z) }}""")

    def expression(self, x: Any) -> Any:
        return ca.sumsqr(ca.tanh(x.T @ self.W + self.b[None]) @ self.V)

    def wanted(self, f: Callable[[Any], Any], x: Any) -> dict[str, Any]:
        return {"value": f(x), "gradient": ca.gradient(f(x), x), "Hessian": ca.hessian(f(x), x)[0]}

    def by_torch(self) -> Any:
        import torch

        W, b, V = (torch.tensor(a, dtype=torch.float32) for a in (self.W, self.b, self.V))

        class Net(torch.nn.Module):
            def forward(self, x: Any) -> Any:
                return ((torch.tanh(x @ W + b) @ V) ** 2).sum(-1, keepdim=True)

        return Net()


class Equation:
    """r(u) = A u + u³ on n points, A tridiagonal."""

    def __init__(self, n: int) -> None:
        self.name, self.n = f"PDE on {n} points", n
        self.model = parsed(f"""pde (double[{n}] u) => (double[{n}] r)
            <double two = {{2.0}}, int64[1] z = {{0}}, int64[1] e = {{-1}}, int64[1] o = {{1}},
             int64[1] n = {{{n}}}, int64[2] up = {{1, 0}}, int64[2] down = {{0, 1}}>
            {{ a = Slice (u, o, n)  b = Slice (u, z, e)  c = Pad (a, down)  d = Pad (b, up)
               s = Add (c, d)  t = Mul (two, u)  l = Sub (t, s)  uu = Mul (u, u)
               uuu = Mul (uu, u)  r = Add (l, uuu) }}""")

    def expression(self, x: Any) -> Any:
        zero = ca.DM(1, 1)
        return 2 * x - ca.vertcat(x[1:], zero) - ca.vertcat(zero, x[:-1]) + x**3

    def wanted(self, f: Callable[[Any], Any], x: Any) -> dict[str, Any]:
        return {"value": f(x), "Jacobian": ca.jacobian(f(x), x)}

    by_torch = None


def parsed(body: str) -> oj.Model:
    return oj.load(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]>\n{body}'))


def text(array: np.ndarray) -> str:
    return ", ".join(map(repr, array.ravel().tolist()))


def compiled(function: Any, folder: Path) -> Any:
    """A Function as CasADi's C code."""
    code, library = folder / f"{function.name()}.c", folder / f"{function.name()}.so"
    generator = ca.CodeGenerator(code.name)
    generator.add(function)
    generator.generate(f"{folder}{os.sep}")
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", code, "-o", library], check=True)
    return ca.external(function.name(), str(library))


def functions(problem: Any, folder: Path) -> Iterator[dict[str, Any]]:
    """What is asked for, by name, as Functions of each way in turn."""
    shape = (1, problem.n) if isinstance(problem, Network) else (problem.n, 1)

    def ways() -> Iterator[Callable[[Any], Any] | None]:
        yield problem.expression
        yield problem.expression
        whole = problem.model.to_casadi()
        yield lambda x: whole(ca.reshape(x, *shape))
        oj.export_casadi(problem.model, folder / "f.onnx")
        read = ca.GraphBuilder(str(folder / "f.onnx")).create("f")
        yield lambda x: read(ca.reshape(x, *shape))
        if problem.by_torch is None or find_spec("l4casadi") is None:
            yield None
        else:
            import l4casadi

            net = l4casadi.L4CasADi(problem.by_torch(), device="cpu", name=f"n{problem.n}")
            yield lambda x: net(x.T)

    for k, f in enumerate(ways()):
        x = ca.MX.sym("x", problem.n)
        found = problem.wanted(f, x) if f else {}
        made = {what: ca.Function(f"f{k}_{problem.n}_{what}", [x], [y])
                for what, y in found.items()}  # fmt: skip
        yield {what: compiled(g, folder) for what, g in made.items()} if k == 1 else made


def timed(f: Any, points: list[Any], repeats: int) -> float:
    """The median time in seconds; no two calls in turn are at the same point."""
    took = []
    for k in range(repeats + 1):  # the first one builds
        x = points[k % len(points)]
        started = time.perf_counter()
        f(x)
        took.append(time.perf_counter() - started)
    return median(took[1:])


def rows(repeats: int, folder: Path) -> Iterator[Cells]:
    for problem in (Network(2, 8, 1), Network(20, 100, 10), Network(100, 1000, 100), Equation(500)):
        ways, rng = [*functions(problem, folder)], np.random.default_rng(0)
        points = [ca.DM(rng.uniform(-1, 1, problem.n)) for _ in range(3)]
        for what, known in ways[0].items():
            cells = []
            for way in ways:
                if what not in way:
                    cells.append("")
                    continue
                close = 1e-3 if way is ways[-1] else 1e-9
                for x in points:
                    found, expected = way[what](x).full(), known(x).full()
                    scale = abs(expected).max()
                    np.testing.assert_allclose(found, expected, rtol=0, atol=close * scale)
                cells.append(f"{1e6 * timed(way[what], points, repeats):.3g}")
            yield (problem.name, what, *cells)


if __name__ == "__main__":
    (library,) = Path(onnxruntime.__file__).parent.glob("capi/libonnxruntime.so.*")
    os.environ["CASADI_ONNXRUNTIME_LIB"] = str(library)
    place = Path(sys.argv[2]) if sys.argv[2:] else Path(tempfile.mkdtemp())
    print(markdown(HEAD, rows(int(sys.argv[1]) if sys.argv[1:] else 50, place)))
