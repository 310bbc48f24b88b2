"""curvlinops: its linear operators, on PyTorch."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import torch
from curvlinops import (
    EKFACLinearOperator,
    GGNLinearOperator,
    HessianLinearOperator,
    JacobianLinearOperator,
    KFACInverseLinearOperator,
    KFACLinearOperator,
    TransposedJacobianLinearOperator,
)
from torch import nn

from ..workloads import Workload
from .contender import DAMPING, Task
from .torch import Functional, loaded, turned


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
    only: ClassVar[tuple[str, ...]] = (
        "jvp", "vjp", "ggn", "hvp", "columns", "kfac", "factors", "ekfac",
    )  # fmt: skip

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
        (net, weights), loss = self.modules(), nn.CrossEntropyLoss()
        x, labels = self.fixed["x"], self.array(self.workload.labels)

        def step(*point: torch.Tensor) -> Any:
            loaded(weights, point)
            found = loss(net(x), labels)
            slopes = torch.autograd.grad(found, weights)
            K = self.factored(KFACLinearOperator, net, weights)
            inverse = KFACInverseLinearOperator(K, DAMPING, use_exact_damping=True, cache=False)
            return found.detach(), *turned(slopes), *turned(inverse @ list(slopes))

        return self.in_turn(step)

    def factored(self, kind: Any, net: nn.Module, weights: list[nn.Parameter]) -> Any:
        """K-FAC or E-KFAC of the modules."""
        data = [(self.fixed["x"], self.array(self.workload.labels))]
        return kind(
            net, nn.CrossEntropyLoss(), weights, data, fisher_type="type-2",
            separate_weight_and_bias=True, check_deterministic=False,
        )  # fmt: skip

    def factors(self) -> Task:
        return self.product_with(KFACLinearOperator)

    def ekfac(self) -> Task:
        return self.product_with(EKFACLinearOperator)

    def product_with(self, kind: Any) -> Task:
        """K v, made anew at each point."""
        net, weights = self.modules()
        v = list(turned(self.arrays(self.tangent)))

        def step(*point: torch.Tensor) -> Any:
            loaded(weights, point)
            return turned(self.factored(kind, net, weights) @ v)

        return self.in_turn(step)


CONTENDERS = {"curvlinops": Curvlinops}
