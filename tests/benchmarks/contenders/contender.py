"""Contender: one way to compute the products of a workload."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from typing import Any, ClassVar

import numpy as np
from scipy.sparse.linalg import LinearOperator, gmres, svds

from ..workloads import Workload

Task = Callable[[], Any]

STEPS = (
    "grad", "grad+ggn", "grad+hvp", "f+jvp", "adam", "kfac", "factors", "ekfac", "diagonal",
)  # fmt: skip
"""Work at a new point each time: f and ∇f; with ×10, also ten products of G, H or J; the loss and
the weights after one more update by Adam; f, ∇f and the direction that K-FAC gives; one product
with the matrices of K-FAC and E-KFAC; the exact diagonal of G.
"""

DAMPING = 1e-2
"""What is added to the diagonal of K-FAC."""

RATE = 1e-3
"""The learning rate of Adam."""

ALPHA, BETA, EPSILON = (float(np.float32(x)) for x in (0.9, 0.999, 1e-6))
"""The decay rates and ε of Adam, in float32 as are ONNX's attributes."""

ALL = ("jvp", "vjp", "ggn", "hvp", "columns", "toarray", "sparse", "svds", "gmres", *STEPS)
"""All kinds of products; `jvp×16` is `columns(16)`."""


class Absent(Exception):
    """The contender does not support a product; the message says why."""


class Contender:
    """One method per product: it does the set-up and returns a function for one run.

    `flat` makes the result of a run comparable: products as vectors, with columns as rows; `warm`
    is the number of products before timing, in which a contender may adapt. With `devices` it
    computes on a GPU as well, and `wait` returns when the GPU has finished.
    """

    library: ClassVar[str]
    only: ClassVar[tuple[str, ...]] = ALL
    devices: ClassVar[bool] = False
    warm: ClassVar[int] = 0
    point: tuple[Any, ...]

    def __init__(self, workload: Workload, device: str = "cpu") -> None:
        self.workload, self.point, self.device = workload, workload.point, device
        if not self.suits(workload):
            raise Absent("not for this workload")
        if device != "cpu" and not self.devices:
            raise Absent("for the CPU")

    @classmethod
    def suits(cls, workload: Workload) -> bool:
        """Whether the contender supports the workload."""
        return True

    def task(self, product: str) -> Task:
        """A function for one run of the product, after set-up."""
        kind, _, count = product.partition("×")
        kind = "columns" if kind == "jvp" and count else kind
        method = getattr(self, kind.replace("+", "_"), None)
        if method is None or kind not in self.only:
            raise Absent(f"no {kind}")
        return method(int(count)) if count else method()

    def wait(self) -> None:
        """Return when the device has finished."""

    def operator(self) -> LinearOperator:
        """J for SciPy."""
        raise Absent("no operator")

    def svds(self) -> Task:
        """The five largest singular values."""
        J = self.operator()
        start = self.workload.draw(min(J.shape), 3)
        return lambda: np.sort(svds(J, k=5, v0=start, return_singular_vectors=False))

    def gmres(self) -> Task:
        """The solution of J x = b, by restarted GMRES."""
        J = self.operator()
        b = self.workload.draw(J.shape[0], 2)
        return lambda: gmres(J, b, rtol=1e-10)[0]

    def flat(self, result: Any) -> np.ndarray:
        """The result as a flat array."""
        return np.asarray(result).ravel()

    def comparable(self, result: Any, product: str) -> np.ndarray:
        """The result for comparison: for a sparse matrix, its product with v."""
        return np.asarray(result @ self.tangent if product == "sparse" else self.flat(result))

    def in_turn(self, work: Callable[[Any], Any]) -> Task:
        """The work at alternating points, starting with the workload's own."""
        points = cycle((self.point, tuple(1.01 * x for x in self.point)))
        return lambda: work(*next(points))

    def grad(self) -> Task:
        """(f, ∇f), at alternating weights."""
        return self.in_turn(self.value_and_grad())

    def grad_ggn(self, count: int) -> Task:
        """(f, ∇f, v) after `count` iterations v ← G v / ‖G v‖."""
        return self.iterated(count, "ggn")

    def grad_hvp(self, count: int) -> Task:
        """(f, ∇f, v) after `count` iterations v ← H v / ‖H v‖."""
        return self.iterated(count, "hvp")

    def f_jvp(self, count: int) -> Task:
        """(y, v) after `count` iterations v ← J v / ‖J v‖, with square J."""
        return self.iterated(count, "jvp")

    def adam(self) -> Task:
        """(f, weights) after one more update."""
        raise Absent("no training")

    def kfac(self) -> Task:
        """(f, ∇f, (K + δ I)⁻¹ ∇f) with K of K-FAC, weights and biases apart."""
        raise Absent("no K-FAC")

    def factors(self) -> Task:
        """K v with K of K-FAC, weights and biases apart."""
        raise Absent("no K-FAC")

    def ekfac(self) -> Task:
        """E v with E of E-KFAC, weights and biases apart."""
        raise Absent("no E-KFAC")

    def diagonal(self) -> Task:
        """diag G."""
        raise Absent("no exact diagonal")

    def value_and_grad(self) -> Callable[..., Any]:
        """weights ↦ (f, ∇f)."""
        raise Absent("no gradient")

    def iterated(self, count: int, kind: str) -> Task:
        """(f, ∇f, v) after `count` products, each of the previous result, as in CG."""
        raise Absent("no step")

    # -- vectors ------------------------------------------------------------------------------

    @property
    def tangent(self) -> np.ndarray:
        """v, flat."""
        return self.workload.draw(self.workload.size, 1)

    def tangents(self, count: int) -> np.ndarray:
        """The columns of V, as rows."""
        return self.workload.draw((count, self.workload.size), 1)

    def split(self, v: np.ndarray) -> tuple[np.ndarray, ...]:
        """v with its last axis split into tensors of the shapes of `wrt`."""
        point = self.workload.point
        ends = np.cumsum([array.size for array in point])
        parts = np.split(v, ends[:-1], axis=-1)
        return tuple(
            part.reshape(*v.shape[:-1], *array.shape)
            for part, array in zip(parts, point, strict=True)
        )
