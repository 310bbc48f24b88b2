"""Symmetric: the face of an operator between one set of named tensors and itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ...jacobians import Array, Jacobian, Op, shape_of, size
from ..elimination.planned import planned
from ..model import TensorSpec
from ..named import check_named, find_tensor, fitting
from ..products.compiled import by_engine

Specs = tuple[TensorSpec, ...]


class Symmetric(Jacobian):
    """C = Cᵀ over the tensors of `domain`, in order; its products are those of `operator`.

    `C.apply` is a product by name and `C["a", "b"]` a block.
    """

    def __init__(self, operator: Jacobian, domain: Specs) -> None:
        super().__init__(operator.out_shape, operator.in_shape, operator.dtype)
        self.operator, self.domain = operator, domain

    @property
    def structure(self) -> Jacobian:
        return self.operator.structure

    def _apply(self, op: Op, v: Array) -> Array:
        return self.operator._apply(op, v)

    def plan(self, *, products: int = 100, memory: int | None = None) -> Symmetric:
        """The same operator, made ready for so many products: see `Linearization.plan`."""
        return Symmetric(planned(self.operator, products, memory), self.domain)

    def compile(
        self, engine: str | None = None, *, products: int = 100, memory: int | None = None
    ) -> Symmetric:
        return Symmetric(by_engine(self.operator, engine, products, memory), self.domain)

    def _transpose(self) -> Jacobian:
        return self

    def arrays(self) -> Iterator[Array]:
        return self.operator.arrays()

    @property
    def flops(self) -> int:
        return self.operator.flops

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

    def _place(self, name: str) -> tuple[slice, TensorSpec]:
        """Where the entries of a tensor stand."""
        sizes = [size(shape_of(spec)) for spec in self.domain]
        k, spec = find_tensor(name, self.domain, tuple(range(len(sizes))))
        start = sum(sizes[:k])
        return slice(start, start + sizes[k]), spec

    def __repr__(self) -> str:
        names = ", ".join(spec.name for spec in self.domain)
        return f"{self.operator!r}: ({names})², {self.shape[0]}×{self.shape[1]} {self.dtype}"
