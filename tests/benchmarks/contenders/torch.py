"""PyTorch: its functional transforms, plain, linearised, compiled; and its retained graph."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator
from torch import nn
from torch.autograd import grad
from torch.func import jacrev, linearize, vmap
from torch.utils._pytree import tree_map_only

from ..readings import torch as reading
from ..workloads import Workload
from ..workloads.dense import perceptron
from ..workloads.images import small
from .contender import ALPHA, BETA, EPSILON, RATE, Absent, Task
from .peer import Peer

torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))


def network(point: tuple[torch.Tensor, ...]) -> nn.Sequential:
    """The MLP or the LeNet of these weights as modules, whose matrices are transposed."""
    parts: list[nn.Module] = []
    for weight in point:
        n, m, *kernel = (*weight.shape, 0)
        if len(kernel) > 1:
            parts += [nn.Conv2d(m, n, kernel[0], bias=False), nn.Tanh(), nn.MaxPool2d(2)]
        elif weight.ndim == 2:
            dense = any(isinstance(part, nn.Linear) for part in parts)
            parts += [nn.Tanh() if dense else nn.Flatten(), nn.Linear(n, m)]
    return nn.Sequential(*parts).to(point[0])


def waited(device: str) -> None:
    """Return when a GPU has finished its work."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


def turned(parts: Any) -> tuple[torch.Tensor, ...]:
    """The matrices among some tensors transposed."""
    return tuple(part.T if part.ndim == 2 else part for part in parts)


def loaded(weights: list[nn.Parameter], point: tuple[torch.Tensor, ...]) -> None:
    """Copy the point into the weights of modules."""
    with torch.no_grad():
        for weight, value in zip(weights, turned(point), strict=True):
            weight.copy_(value)


SMALL = 1000
"""The most weights of an MLP for which an expert writes the products by hand."""

DEEP = 30
"""The most tensors of a model whose linear function is compiled: a ResNet's takes minutes."""


class Functional(Peer):
    """`torch.func.jvp` and `torch.func.vjp`: every JVP recomputes the primal."""

    library: ClassVar[str] = "torch"
    nn = reading

    def modules(self) -> tuple[nn.Sequential, list[nn.Parameter]]:
        """The workload as modules of torch.nn, and their weights."""
        if self.workload.forward not in (perceptron, small):
            raise Absent("for modules of torch.nn: the MLP and the LeNet alone are written as such")
        net = network(self.point)
        return net, list(net.parameters())

    def array(self, x: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.array(x)).to(self.device)

    def wait(self) -> None:
        waited(self.device)

    def flat(self, result: Any) -> np.ndarray:
        return super().flat(tree_map_only(torch.Tensor, lambda t: t.detach().cpu(), result))

    def pushing(self, f: Callable[..., Any], *point: Any) -> Callable[..., Any]:
        """v ↦ ∂f/∂point v."""
        return lambda *v: torch.func.jvp(f, point, v)[1]

    def pulling(self) -> Callable[[Any], Any]:
        """u ↦ Jᵀ u."""
        return torch.func.vjp(self.f, *self.point)[1]

    def pushed(self) -> Callable[..., Any]:
        """v ↦ J v."""
        return self.pushing(self.f, *self.point)

    def gradient(self) -> Callable[..., Any]:
        """The gradient of the loss as a function."""
        return torch.func.grad(self.loss, tuple(range(len(self.point))))

    def jvp(self) -> Task:
        return partial(self.pushed(), *self.arrays(self.tangent))

    def vjp(self) -> Task:
        return partial(self.pulling(), self.cotangent(self.f(*self.point).shape))

    def hvp(self) -> Task:
        return partial(self.pushing(self.gradient(), *self.point), *self.arrays(self.tangent))

    def ggn(self) -> Task:
        push, pull = self.pushed(), self.pulling()
        curve = self.pushing(torch.func.grad(self.loss_of), self.f(*self.point))
        v = self.arrays(self.tangent)
        return lambda: pull(curve(push(*v)))

    def value_and_grad(self) -> Callable[..., Any]:
        every = tuple(range(len(self.point)))
        both = torch.func.grad_and_value(self.loss, every)
        return lambda *point: both(*point)[::-1]

    def iterated(self, count: int, kind: str) -> Task:
        f, start = self.value_and_grad(), self.arrays(self.tangent)

        def step(*point: Any) -> Any:
            v, product = start, self.product(kind, *point)
            for _ in range(count):
                v = product(*v)
                norm = torch.sqrt(sum(torch.vdot(x.ravel(), x.ravel()) for x in v))
                v = tuple(x / norm for x in v)
            return *f(*point), v

        return self.in_turn(step)

    def f_jvp(self, count: int) -> Task:
        start = self.arrays(self.tangent)

        def step(*point: Any) -> Any:
            (v,), push = start, self.pushing(self.f, *point)
            for _ in range(count):
                v = push(v)
                v = v / torch.linalg.vector_norm(v)
            return self.f(*point), v

        return self.in_turn(step)

    def product(self, kind: str, *point: Any) -> Callable[..., Any]:
        """v ↦ G v or H v at the given weights."""
        if kind == "hvp":
            return self.pushing(self.gradient(), *point)
        push = self.pushing(self.f, *point)
        y, pull = torch.func.vjp(self.f, *point)
        curve = self.pushing(torch.func.grad(self.loss_of), y)
        return lambda *v: pull(curve(push(*v)))

    def columns(self, count: int) -> Task:
        return partial(vmap(self.pushed()), *self.arrays(self.tangents(count)))

    def toarray(self) -> Task:
        """The dense matrix, by rows or by columns, whichever are fewer."""
        y, (x,) = self.f(*self.point), self.point
        mode = jacrev if y.numel() < x.numel() else torch.func.jacfwd
        return lambda: mode(self.f)(x).reshape(y.numel(), x.numel())

    def operator(self) -> LinearOperator:
        y = self.f(*self.point)
        return self.wrapped(y.numel(), self.pushed(), self.pulling(), y.shape)


class Linearized(Functional):
    """`torch.func.linearize`: residuals kept."""

    only: ClassVar[tuple[str, ...]] = (
        "jvp", "hvp", "ggn", "columns", "svds", "gmres", "grad+ggn", "grad+hvp", "f+jvp",
    )  # fmt: skip

    def pushing(self, f: Callable[..., Any], *point: Any) -> Callable[..., Any]:
        return linearize(f, *point)[1]


class Retained(Functional):
    """`torch.autograd` on a retained graph; JVPs by differentiating twice."""

    only: ClassVar[tuple[str, ...]] = (
        "jvp", "vjp", "hvp", "ggn", "svds", "grad", "grad+ggn", "grad+hvp", "adam",
    )  # fmt: skip

    def __init__(self, workload: Workload, device: str = "cpu") -> None:
        super().__init__(workload, device)
        self.point = tuple(x.requires_grad_() for x in self.point)

    def pushed(self) -> Callable[..., Any]:
        y = self.f(*self.point)
        u = torch.zeros_like(y, requires_grad=True)
        pulled = grad(y, self.point, u, create_graph=True)
        return lambda *v: grad(pulled, u, v, retain_graph=True)[0]

    def pulling(self) -> Callable[[Any], Any]:
        y = self.f(*self.point)
        return lambda u: grad(y, self.point, u, retain_graph=True)

    def value_and_grad(self) -> Callable[..., Any]:
        def both(*point: Any) -> Any:
            leaves = [x.detach().requires_grad_() for x in point]
            f = self.loss(*leaves)
            return f, grad(f, leaves)

        return both

    def adam(self) -> Task:
        leaves = [x.detach().clone().requires_grad_() for x in self.point]
        settings = {"betas": (ALPHA, BETA), "eps": EPSILON / (1 - BETA) ** 0.5, "fused": True}
        optimizer = torch.optim.Adam(leaves, RATE, **settings)  # ONNX's ε at step 1

        def step() -> Any:
            optimizer.zero_grad()
            f = self.loss(*leaves)
            f.backward()
            optimizer.step()
            return f, leaves

        return step

    def iterated(self, count: int, kind: str) -> Task:
        """A step whose gradient and products share one recorded graph."""
        start = self.arrays(self.tangent)

        def step(*point: Any) -> Any:
            leaves, v = [x.detach().requires_grad_() for x in point], start
            if kind == "hvp":
                f = self.loss(*leaves)
                slopes = grad(f, leaves, create_graph=True)
            else:
                y = self.f(*leaves)
                u = torch.zeros_like(y, requires_grad=True)
                pulled = grad(y, leaves, u, create_graph=True)
                top = y.detach().requires_grad_()
                f = self.loss_of(top)
                (slope,) = grad(f, top, create_graph=True)
                slopes = grad(y, leaves, slope.detach(), retain_graph=True)
            for _ in range(count):
                if kind == "hvp":
                    v = grad(slopes, leaves, v, retain_graph=True)
                else:
                    pushed = grad(pulled, u, v, retain_graph=True)[0]
                    curved = grad(slope, top, pushed, retain_graph=True)[0]
                    v = grad(y, leaves, curved, retain_graph=True)
                norm = torch.sqrt(sum(torch.vdot(x.ravel(), x.ravel()) for x in v))
                v = tuple(x / norm for x in v)
            return f, slopes, v

        return self.in_turn(step)

    def hvp(self) -> Task:
        gradient = grad(self.loss(*self.point), self.point, create_graph=True)
        v = self.arrays(self.tangent)
        return lambda: grad(gradient, self.point, v, retain_graph=True)

    def ggn(self) -> Task:
        push, pull = self.pushed(), self.pulling()
        y = self.f(*self.point).detach().requires_grad_()
        (slope,) = grad(self.loss_of(y), y, create_graph=True)
        v = self.arrays(self.tangent)
        return lambda: pull(grad(slope, y, push(*v), retain_graph=True)[0])


class Compiled(Retained):
    """`torch.compile`: of the linear function from `torch.func.linearize`, and of the model, whose
    backward pass PyTorch compiles with it.
    """

    only: ClassVar[tuple[str, ...]] = (
        "jvp", "vjp", "hvp", "ggn", "columns", "gmres", "grad", "adam",
    )  # fmt: skip

    def __init__(self, workload: Workload, device: str = "cpu") -> None:
        super().__init__(workload, device)
        self.compiled = torch.compile(self.f, dynamic=False)

    def loss(self, *point: Any) -> Any:
        return self.loss_of(self.compiled(*point))

    def gradient(self) -> Callable[..., Any]:
        """The gradient of the loss that is not compiled: `pushing` compiles its derivative."""
        return torch.func.grad(super().loss, tuple(range(len(self.point))))

    def pushing(self, f: Callable[..., Any], *point: Any) -> Callable[..., Any]:
        if len(point) > DEEP:  # a ResNet: 370 ms compiled, 334 ms linearised
            raise Absent("compiling takes minutes, and was no faster than linearize")
        return torch.compile(linearize(f, *(x.detach() for x in point))[1], dynamic=False)

    def pulling(self) -> Callable[[Any], Any]:
        y = self.compiled(*self.point)
        return lambda u: grad(y, self.point, u, retain_graph=True)

    jvp, columns = Functional.jvp, Functional.columns
    hvp, ggn, pushed = Functional.hvp, Functional.ggn, Functional.pushed


class Expert(Functional):
    """Code by an expert: where J is block diagonal, and for a small MLP layer by layer."""

    only: ClassVar[tuple[str, ...]] = ("jvp", "vjp")

    @classmethod
    def suits(cls, workload: Workload) -> bool:
        return workload.blocks or (workload.forward is perceptron and workload.size < SMALL)

    def states(self) -> list[torch.Tensor]:
        """The input of every layer of the MLP."""
        found = [self.fixed["x"]]
        for w, b in self.layers(self.point)[:-1]:
            found.append(torch.tanh(torch.addmm(b, found[-1], w)))
        return found

    @staticmethod
    def layers(parts: Sequence[torch.Tensor]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Weights and biases, layer by layer."""
        return list(zip(parts[::2], parts[1::2], strict=True))

    def blocks(self) -> torch.Tensor:
        """∂y/∂x for each sample, (batch, outputs, inputs)."""
        return vmap(jacrev(lambda x: self.f(x[None])[0]))(*self.point)

    def jvp(self) -> Task:
        if not self.workload.blocks:
            return partial(self.push, self.kept(), self.array(self.tangent))
        blocks, (v,) = self.blocks(), self.arrays(self.tangent)
        return partial(torch.bmm, blocks, v[:, :, None])

    def kept(self) -> list[tuple[torch.Tensor, ...]]:
        """x, 1 − x² and W of every layer."""
        pairs = zip(self.states(), self.layers(self.point), strict=True)
        return [(x, 1 - x * x, w) for x, (w, _) in pairs]

    def push(self, kept: Any, v: torch.Tensor) -> torch.Tensor:
        """J v for a flat v."""
        parts = v.split([x.numel() for x in self.point])
        tangents = self.layers([a.view_as(x) for a, x in zip(parts, self.point, strict=True)])
        (x, _, _), (w, b) = kept[0], tangents[0]
        z = torch.addmm(b, x, w)
        for (x, slope, weight), (w, b) in zip(kept[1:], tangents[1:], strict=True):
            z = torch.addmm(torch.addmm(b, x, w), z * slope, weight)
        return z

    def pull(self, kept: Any, u: torch.Tensor) -> torch.Tensor:
        """Jᵀ u, flat."""
        found: list[torch.Tensor] = []
        for k in range(len(kept) - 1, -1, -1):
            x, slope, weight = kept[k]
            found += [u.sum(0), (x.T @ u).view(-1)]
            u = (u @ weight.T) * slope if k else u
        return torch.cat(found[::-1])

    def vjp(self) -> Task:
        if not self.workload.blocks:
            return partial(self.pull, self.kept(), self.cotangent(self.f(*self.point).shape))
        blocks = self.blocks()
        u = self.cotangent(blocks.shape[:2])
        return partial(torch.bmm, blocks.mT.contiguous(), u[:, :, None])


CONTENDERS = {
    "torch.func": Functional,
    "torch linearize": Linearized,
    "torch compile": Compiled,
    "torch autograd": Retained,
    "torch expert": Expert,
}
