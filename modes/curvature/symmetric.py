"""Symmetric: the face of an operator between one set of named tensors and itself."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterator, Mapping
from typing import Any, final

import numpy as np

from ...jacobians import Array, Diagonal, Identity, Jacobian, Op, Scalar, Shape, shape_of, size
from ...jacobians.hooks import add, scale
from ...jacobians.text import clipped
from ..elimination.planned import planned
from ..model import TensorSpec
from ..named import check_named, find_tensor, fitting, listed

Specs = tuple[TensorSpec, ...]


class Curvature(Jacobian, ABC):
    """C = Cᵀ over the tensors of `domain`, in order.

    `C.apply` is a product by name, `C["a", "b"]` a block of two tensors and `C.block("a")` the
    diagonal block of one.
    """

    domain: Specs

    def _transpose(self) -> Jacobian:
        return self

    def apply(self, tangents: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """C v with tensors in and out by name; tangents that are left out are zero."""
        check_named(tangents)
        v = np.zeros(self.shape[1], self.dtype)
        for name, tangent in tangents.items():
            place, spec = self._place(name)
            v[place] = fitting(spec, tangent, self.dtype).ravel()
        product = self @ v
        return {s.name: product[self._place(s.name)[0]].reshape(shape_of(s)) for s in self.domain}

    def __getitem__(self, key: Any) -> Jacobian:
        """A block by names, `C["a", "b"]`, or rows and columns by index."""
        if isinstance(key, tuple) and len(key) == 2 and all(isinstance(k, str) for k in key):
            key = tuple(self._place(name)[0] for name in key)
        return super().__getitem__(key)

    def block(self, name: str) -> Curvature:
        """C[name, name], which is symmetric too."""
        return Symmetric(self[name, name], (self._place(name)[1],))

    def submatrix(self, rows: Any, columns: Any) -> Jacobian:
        """C[rows, columns], each given as a slice, as indices, or as the name of a tensor."""
        chosen = (self._place(k)[0] if isinstance(k, str) else k for k in (rows, columns))
        return super().__getitem__(tuple(chosen))

    def _place(self, name: str) -> tuple[slice, TensorSpec]:
        """Where the entries of a tensor stand."""
        sizes = [size(shape_of(spec)) for spec in self.domain]
        k, spec = find_tensor(name, self.domain, tuple(range(len(sizes))))
        start = sum(sizes[:k])
        return slice(start, start + sizes[k]), spec


@final
class Symmetric(Curvature):
    """C = Cᵀ whose products are those of `operator`."""

    def __init__(self, operator: Jacobian, domain: Specs) -> None:
        super().__init__(operator.out_shape, operator.in_shape, operator.dtype)
        self.operator, self.domain = operator, domain

    @property
    def structure(self) -> Jacobian:
        return self.operator.structure

    def _apply(self, op: Op, v: Array) -> Array:
        return self.operator._apply(op, v)

    def _flat_product(self, v: np.ndarray, columns: Shape) -> np.ndarray:
        return self.operator._flat_product(v, columns)

    def plan(self, *, products: int = 100, memory: int | None = None) -> Symmetric:
        """The same operator, made ready for so many products: see `Linearization.plan`."""
        return Symmetric(planned(self.operator, products, memory), self.domain)

    def compile(
        self, engine: str | None = None, *, products: int = 100, memory: int | None = None
    ) -> Symmetric:
        operator = self.operator.compile(engine, products=products, memory=memory)
        return Symmetric(operator, self.domain)

    def arrays(self) -> Iterator[Array]:
        return self.operator.arrays()

    @property
    def flops(self) -> int:
        return self.operator.flops

    def diagonal(self) -> np.ndarray:
        return self.operator.diagonal()

    def __repr__(self) -> str:
        return f"{clipped(repr(self.operator), 100)}: ({listed(self.domain)})², {self.shape[0]}×{self.shape[1]} {self.dtype}"


@add.register(Curvature)
def _(left: Curvature, right: Jacobian) -> Jacobian:
    """A symmetric operator plus one that is symmetric too: damping keeps the face."""
    total = add.dispatch(Jacobian)(bare(left), bare(right))
    known = isinstance(right, Curvature | Identity | Scalar | Diagonal)
    return Symmetric(total, left.domain) if known else total


@scale.register(Curvature)
def _(operator: Curvature, factor: float) -> Jacobian:
    return Symmetric(scale.dispatch(Jacobian)(bare(operator), factor), operator.domain)


def bare(operator: Jacobian) -> Jacobian:
    """What is behind the face, where there is one."""
    return operator.operator if isinstance(operator, Symmetric) else operator
