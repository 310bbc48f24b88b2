"""Ours: `linearize`, `compile` and `@`, nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import numpy as np

import onnxjac as oj
from onnxjac.jacobians import Jacobian
from onnxjac.modes.estimators import diagonal

from ..workloads import Workload
from ..workloads.model import LOSS, OUTPUT, model_of
from .contender import ALL, DAMPING, RATE, STEPS, Absent, Contender, Task

MANY = 10**4
"""The number of products for which J is compiled."""


class Plain(Contender):
    """The linearisation as it is, without `compile`."""

    library: ClassVar[str] = "onnxjac"
    engine: ClassVar[str | None] = None
    primal: str | None = None
    compiled: ClassVar[bool] = False
    warm: ClassVar[int] = 30

    def __init__(self, workload: Workload, device: str = "cpu") -> None:
        super().__init__(workload, device)
        self.model = oj.load(model_of(workload))
        self.inputs = {workload.input: self.array(workload.tensors[workload.input])}
        self.point = tuple(map(self.array, self.point))

    def array(self, x: np.ndarray) -> Any:
        """An array as the engine takes it."""
        return x

    @property
    def start(self) -> Any:
        """v, as the engine takes it."""
        return self.array(self.tangent)

    def ready(self, J: Any) -> Any:
        """J, compiled for the engine."""
        if not self.compiled:
            return J
        if not hasattr(J, "compile"):
            raise Absent(f"{type(J).__name__} has no compile")
        return J.compile(engine=self.engine, products=MANY)

    def linearization(self) -> oj.Linearization:
        """J of the output."""
        return oj.linearize(
            self.model, self.inputs, of=OUTPUT, wrt=self.workload.wrt, engine=self.primal
        )

    def operator(self) -> Any:
        return self.ready(self.linearization())

    def jvp(self) -> Task:
        J, v = self.operator(), self.start
        return lambda: J @ v

    def vjp(self) -> Task:
        J = self.operator().T
        u = self.array(self.workload.draw(J.shape[1], 2))
        return lambda: J @ u

    def columns(self, count: int) -> Task:
        J, V = self.operator(), self.array(self.tangents(count)).T  # column-major
        return lambda: (J @ V).T

    def hvp(self) -> Task:
        H, v = self.ready(self.hessian(*self.workload.wrt)), self.start
        return lambda: H @ v

    def hessian(self, *wrt: str) -> Jacobian:
        """H of the loss."""
        return oj.hessian(self.model, self.inputs, of=LOSS, wrt=wrt, engine=self.primal)

    def ggn(self) -> Task:
        G, v = self.ready(self.gauss_newton()), self.start
        return lambda: G @ v

    def gauss_newton(self) -> Jacobian:
        """Jᵀ H_loss J."""
        if hasattr(oj, "gauss_newton"):
            wrt = self.workload.wrt
            return oj.gauss_newton(
                self.model, self.inputs, of=LOSS, at=OUTPUT, wrt=wrt, engine=self.primal
            )
        J = self.linearization()
        return J.T @ (self.hessian(OUTPUT) @ J)

    def value_and_grad(self) -> Callable[..., Any]:
        f = oj.value_and_grad(self.model, of=LOSS, wrt=self.workload.wrt, engine=self.primal)
        return lambda *point: f(self.at(*point))

    def at(self, *point: Any) -> dict[str, Any]:
        """The inputs at other weights."""
        return {**self.inputs, **dict(zip(self.workload.wrt, point, strict=True))}

    def iterated(self, count: int, kind: str) -> Task:
        f, start = self.value_and_grad(), self.start
        C = self.gauss_newton() if kind == "ggn" else self.hessian(*self.workload.wrt)

        def step(*point: Any) -> Any:
            found, at, v = f(*point), C.relinearize(self.at(*point)), start
            for _ in range(count):
                v = at @ v
                v = v / (v @ v) ** 0.5
            return *found, v

        return self.in_turn(step)

    def flat(self, result: Any) -> np.ndarray:
        """The result of a step, flat: f, ∇f or the weights by name, v."""
        if not isinstance(result, tuple):
            return super().flat(result)
        f, slopes, *v = result
        return np.concatenate([np.ravel(x) for x in (f, *slopes.values(), *v)])

    def f_jvp(self, count: int) -> Task:
        J, v = self.linearization(), self.start

        def step(*point: Any) -> Any:
            at, w = J.relinearize(self.at(*point)), v
            for _ in range(count):
                w = at @ w
                w = w / (w @ w) ** 0.5
            return at.primal[OUTPUT], {}, w

        return self.in_turn(step)

    def adam(self) -> Task:
        names = self.workload.wrt
        training = oj.training_model(self.model, LOSS, names, oj.Adam(), learning_rate=RATE)
        state = {**oj.initial_state(training), "update_count": np.array(1)}
        state = {name: self.array(x) for name, x in state.items()}

        def step() -> Any:
            nonlocal state
            state, found = oj.train_step(training, state, self.inputs, engine=self.primal)
            return found[LOSS], {name: state[name] for name in names}

        return step

    def kfac(self) -> Task:
        f, wrt = self.value_and_grad(), self.workload.wrt

        def step(*point: Any) -> Any:
            found, slopes = f(*point)
            K = oj.kfac(
                self.model, self.at(*point), at=OUTPUT, wrt=wrt, reduction="mean",
                engine=self.primal,
            )  # fmt: skip
            return found, slopes, K.inverse(DAMPING) @ self.joined(slopes[name] for name in wrt)

        return self.in_turn(step)

    def joined(self, parts: Iterable[Any]) -> Any:
        """The parts as one vector."""
        return np.concatenate([part.reshape(-1) for part in parts])

    def factors(self) -> Task:
        return self.factored(oj.kfac)

    def ekfac(self) -> Task:
        return self.factored(oj.ekfac)

    def factored(self, make: Callable[..., Any]) -> Task:
        """K v, made anew at each point."""
        v, options = self.start, {"wrt": self.workload.wrt, "engine": self.primal}
        return self.in_turn(
            lambda *point: make(self.model, self.at(*point), at=OUTPUT, **options) @ v
        )

    def diagonal(self) -> Task:
        G = self.gauss_newton()
        return self.in_turn(lambda *point: diagonal(G.relinearize(self.at(*point))).value)

    def toarray(self) -> Task:
        J = self.operator()
        return lambda: J.toarray()

    def sparse(self) -> Task:
        """The matrix at alternating points, updated in place, as in Newton's method."""
        J, name = self.operator(), self.workload.input
        matrix = J.tosparse()
        return self.in_turn(lambda u: J.relinearize({name: u}).tosparse(out=matrix))


class Compiled(Plain):
    """Compiled for the engine that `compile` chooses, where the point does not change."""

    only: ClassVar[tuple[str, ...]] = tuple(kind for kind in ALL if kind not in STEPS)
    compiled: ClassVar[bool] = True
    warm: ClassVar[int] = 0


class OnnxRuntime(Compiled):
    """Compiled for ONNX Runtime."""

    engine: ClassVar[str | None] = "onnxruntime"


class Numpy(Compiled):
    """Compiled for NumPy."""

    engine: ClassVar[str | None] = "numpy"


class Torch(Plain):
    """By PyTorch: points and vectors are tensors, and compiled where the point does not change."""

    only: ClassVar[tuple[str, ...]] = ("jvp", "vjp", "ggn", "hvp", "columns",
        "grad", "grad+ggn", "grad+hvp", "f+jvp", "adam", "kfac", "factors", "ekfac",
        "diagonal")  # fmt: skip
    engine: ClassVar[str | None] = "torch"
    compiled: ClassVar[bool] = True
    devices: ClassVar[bool] = True

    def __init__(self, workload: Workload, device: str = "cpu") -> None:
        self.primal = f"torch:{device}"
        super().__init__(workload, device)

    def array(self, x: np.ndarray) -> Any:
        import torch

        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
        return torch.from_numpy(np.array(x)).to(self.device)

    def wait(self) -> None:
        from .torch import waited

        waited(self.device)

    def flat(self, result: Any) -> np.ndarray:
        import torch
        from torch.utils._pytree import tree_map_only

        return super().flat(tree_map_only(torch.Tensor, torch.Tensor.cpu, result))

    def joined(self, parts: Iterable[Any]) -> Any:
        import torch

        return torch.cat([part.reshape(-1) for part in parts])


class Xla(Plain):
    """By XLA: points and vectors are arrays of JAX, and a step with products is one function."""

    only: ClassVar[tuple[str, ...]] = ("jvp", "vjp", "ggn", "hvp", "columns", "grad", "grad+ggn",
                                       "grad+hvp", "f+jvp", "adam")  # fmt: skip
    engine: ClassVar[str | None] = "jax"
    compiled: ClassVar[bool] = True
    devices: ClassVar[bool] = True

    def __init__(self, workload: Workload, device: str = "cpu") -> None:
        import jax

        jax.config.update("jax_enable_x64", True)
        jax.config.update("jax_platforms", device)
        self.primal = "jax"
        super().__init__(workload, device)

    def array(self, x: np.ndarray) -> Any:
        import jax.numpy as jnp

        return jnp.asarray(x)

    def task(self, product: str) -> Task:
        import jax

        task = super().task(product)
        return lambda: jax.block_until_ready(task())

    def joined(self, parts: Iterable[Any]) -> Any:
        import jax.numpy as jnp

        return jnp.concatenate([part.reshape(-1) for part in parts])

    def iterated(self, count: int, kind: str) -> Task:
        import jax

        f, start = self.value_and_grad(), self.start
        C = self.gauss_newton() if kind == "ggn" else self.hessian(*self.workload.wrt)
        f(*self.point)  # its graph is recorded where numbers are known
        C = C.relinearize(self.at(*self.point))

        def step(*point: Any) -> Any:
            return *f(*point), self.turned(C.relinearize(self.at(*point)), start, count)

        try:
            jax.eval_shape(step, *self.point)
        except oj.InputError:  # a branch decides J, which moves outside of jit then
            return super().iterated(count, kind)
        return self.jitted(step)

    def f_jvp(self, count: int) -> Task:
        J, start = self.linearization(), self.start

        def step(*point: Any) -> Any:
            at = J.relinearize(self.at(*point))
            return at.primal[OUTPUT], {}, self.turned(at, start, count)

        return self.jitted(step)

    def turned(self, C: Any, v: Any, count: int) -> Any:
        """v after so many iterations v ← C v / ‖C v‖."""
        import jax

        def turn(_: int, v: Any) -> Any:
            v = C @ v
            return v / jax.numpy.linalg.norm(v)

        return jax.lax.fori_loop(0, count, turn, v)

    def jitted(self, step: Callable[..., Any]) -> Task:
        """A compiled step, at alternating points; JAX sorts the slopes by name."""
        import jax

        fast = jax.jit(step)

        def run(*point: Any) -> Any:
            f, slopes, v = fast(*point)
            return f, {name: slopes[name] for name in self.workload.wrt if name in slopes}, v

        return self.in_turn(run)


CONTENDERS = {
    "onnxjac": Plain,
    "onnxjac compiled": Compiled,
    "onnxjac onnxruntime": OnnxRuntime,
    "onnxjac numpy": Numpy,
    "onnxjac torch": Torch,
    "onnxjac jax": Xla,
}
