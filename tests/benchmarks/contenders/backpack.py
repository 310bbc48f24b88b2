"""BackPACK: extensions of PyTorch's backward pass."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from backpack import backpack, extend
from backpack.extensions import KFLR, DiagGGNExact
from torch import nn

from .contender import Task
from .torch import Functional, loaded, turned


class BackPACK(Functional):
    """What a backward pass leaves in the weights; one batch of data."""

    library: ClassVar[str] = "backpack"
    only: ClassVar[tuple[str, ...]] = ("factors", "diagonal")

    def extended(self, extension: Any, read: Any) -> Task:
        """read(weights) after a backward pass with an extension."""
        (net, weights), loss = self.modules(), extend(nn.CrossEntropyLoss())
        net, x, labels = extend(net), self.fixed["x"], self.array(self.workload.labels)

        def step(*point: torch.Tensor) -> Any:
            loaded(weights, point)
            net.zero_grad()
            with backpack(extension()):
                loss(net(x), labels).backward()
            return turned(read(weights))

        return self.in_turn(step)

    def diagonal(self) -> Task:
        return self.extended(DiagGGNExact, lambda weights: [w.diag_ggn_exact for w in weights])

    def factors(self) -> Task:
        v = turned(self.arrays(self.tangent))

        def product(weights: list[nn.Parameter]) -> Any:
            for w, part in zip(weights, v, strict=True):
                B, *rest = w.kflr
                y = B @ part.reshape(len(B), -1)
                yield (y @ rest[0] if rest else y).reshape(w.shape)

        return self.extended(KFLR, product)


CONTENDERS = {"backpack": BackPACK}
