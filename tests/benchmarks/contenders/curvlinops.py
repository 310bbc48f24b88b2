"""curvlinops: its linear operators, on PyTorch."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any, ClassVar

import torch
from curvlinops import (
    GGNLinearOperator,
    HessianLinearOperator,
    JacobianLinearOperator,
    KFACInverseLinearOperator,
    KFACLinearOperator,
    TransposedJacobianLinearOperator,
)
from torch import nn

from ..workloads import Workload
from ..workloads.dense import perceptron
from .contender import DAMPING, Absent, Task
from .torch import Functional


class Network(nn.Module):
    """The workload as a module with the tensors of `wrt` as its parameters."""

    def __init__(self, peer: Functional) -> None:
        super().__init__()
        self.function = peer.f
        self.weights = nn.ParameterList(map(nn.Parameter, peer.point))

    def forward(self, _: torch.Tensor) -> torch.Tensor:
        return self.function(*self.weights)


class Curvlinops(Functional):
    """An operator for each product; one batch of data."""

    library: ClassVar[str] = "curvlinops"
    only: ClassVar[tuple[str, ...]] = ("jvp", "vjp", "ggn", "hvp", "columns", "kfac")

    @classmethod
    def suits(cls, workload: Workload) -> bool:
        return workload.labels is not None and len(workload.labels) == len(workload.tensors["x"])

    def made(self, kind: Any, *loss: Any) -> Any:
        """The operator of the given class."""
        network = Network(self)
        x, labels = self.fixed["x"], self.array(self.workload.labels)
        settings = {"check_deterministic": False}
        return kind(network, *loss, list(network.parameters()), [(x, labels)], **settings)

    def jvp(self) -> Task:
        return partial(self.made(JacobianLinearOperator).__matmul__, self.array(self.tangent))

    def columns(self, count: int) -> Task:
        J, V = self.made(JacobianLinearOperator), self.array(self.tangents(count).T)
        return lambda: (J @ V).T

    def vjp(self) -> Task:
        u = self.cotangent(self.f(*self.point).shape).ravel()
        return partial(self.made(TransposedJacobianLinearOperator).__matmul__, u)

    def ggn(self) -> Task:
        return self.curvature(GGNLinearOperator)

    def hvp(self) -> Task:
        return self.curvature(HessianLinearOperator)

    def curvature(self, kind: Any) -> Task:
        """The product with a curvature matrix of the loss."""
        return partial(self.made(kind, nn.CrossEntropyLoss()).__matmul__, self.array(self.tangent))

    def kfac(self) -> Task:
        if self.workload.forward is not perceptron:
            raise Absent("K-FAC is for modules of torch.nn: the MLP alone is one")
        x, labels, loss = self.fixed["x"], self.array(self.workload.labels), nn.CrossEntropyLoss()
        sizes = [self.point[0].shape[0], *(len(bias) for bias in self.point[1::2])]
        layers = [nn.Linear(n, m, dtype=x.dtype) for n, m in pairwise(sizes)]
        last = layers.pop()
        net = nn.Sequential(*(part for layer in layers for part in (layer, nn.Tanh())), last)
        weights = list(net.parameters())

        def turned(parts: Any) -> tuple[torch.Tensor, ...]:
            return tuple(part.T if part.ndim == 2 else part for part in parts)

        def step(*point: torch.Tensor) -> Any:
            with torch.no_grad():
                for weight, value in zip(weights, turned(point), strict=True):
                    weight.copy_(value)
            found = loss(net(x), labels)
            slopes = torch.autograd.grad(found, weights)
            K = KFACLinearOperator(
                net, loss, weights, [(x, labels)], fisher_type="type-2",
                separate_weight_and_bias=True, check_deterministic=False,
            )  # fmt: skip
            inverse = KFACInverseLinearOperator(K, DAMPING, use_exact_damping=True, cache=False)
            return found.detach(), *turned(slopes), *turned(inverse @ list(slopes))

        return self.in_turn(step)


CONTENDERS = {"curvlinops": Curvlinops}
