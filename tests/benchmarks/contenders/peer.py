"""Peer: a contender that calls the workload as a function of the tensors of `wrt`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from scipy.sparse.linalg import LinearOperator

from ..workloads import Workload
from .contender import Contender


class Peer(Contender):
    """f(*wrt) and its loss in a library's own arrays, made by `array`."""

    nn: Any

    devices: ClassVar[bool] = True

    def __init__(self, workload: Workload, device: str = "cpu") -> None:
        super().__init__(workload, device)
        self.fixed = {name: self.array(a) for name, a in workload.tensors.items()}
        self.point = tuple(self.fixed[name] for name in workload.wrt)

    @abstractmethod
    def array(self, x: np.ndarray) -> Any:
        """An array of the library."""

    def arrays(self, v: np.ndarray) -> tuple[Any, ...]:
        """A flat vector, or rows of them, as tensors of the library."""
        return tuple(self.array(np.ascontiguousarray(part)) for part in self.split(v))

    def f(self, *point: Any) -> Any:
        """The output."""
        w = self.workload
        return w.forward(self.nn, {**self.fixed, **dict(zip(w.wrt, point, strict=True))})

    def loss(self, *point: Any) -> Any:
        """The cross-entropy of the output."""
        return self.loss_of(self.f(*point))

    def loss_of(self, y: Any) -> Any:
        """The cross-entropy."""
        return self.nn.cross_entropy(y, self.array(self.workload.labels))

    def cotangent(self, shape: Any) -> Any:
        """u, of the shape of the output."""
        return self.array(self.workload.draw(tuple(shape), 2))

    def flat(self, result: Any) -> np.ndarray:
        """A tensor ravelled, or several tensors ravelled and concatenated."""
        if isinstance(result, (tuple, list)):
            return np.concatenate([self.flat(part) for part in result])
        return np.ravel(np.asarray(result))

    def wrapped(
        self, m: int, push: Callable[..., Any], pull: Callable[[Any], Any], shape: Any
    ) -> LinearOperator:
        """A SciPy operator from two functions of the library's tensors."""
        return LinearOperator(
            (m, self.workload.size),
            matvec=lambda v: self.flat(push(*self.arrays(v.ravel()))),
            rmatvec=lambda u: self.flat(pull(self.array(u.reshape(shape)))),
            dtype=self.workload.dtype,
        )
