"""Linearization: a Jacobian between named tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from ..jacobians import Array, Dag, Jacobian, Op, prod_text
from ..jacobians.errors import InputError, UnknownTensor, closest
from ..ops import numbers
from .model import TensorSpec
from .tape import Entry


class Plan(Protocol):
    """What makes the same linearisation at another point."""

    def at(self, inputs: Mapping[str, Any]) -> Linearization: ...


class Linearization(Jacobian):
    """J = ∂of/∂wrt at a point, of shape (size of `of`, size of `wrt`).

    `domain` and `codomain` are the tensors behind columns and rows, in order; `primal` holds the
    tensors of `of` at `point`. `J["out", "in"]` is a named block and `J.apply` a product by name;
    both work for `J.T` as well.
    """

    def __init__(
        self,
        dag: Dag,
        domain: tuple[TensorSpec, ...],
        codomain: tuple[TensorSpec, ...],
        *,
        primal: Mapping[str, np.ndarray],
        point: Mapping[str, np.ndarray],
        entries: tuple[Entry, ...],
        plan: Plan,
        transposed: bool = False,
    ) -> None:
        super().__init__(dag.out_shape, dag.in_shape, dag.dtype)
        self.dag, self.domain, self.codomain = dag, domain, codomain
        self.primal, self.point, self.entries, self.plan = primal, point, entries, plan
        self.transposed = transposed

    def _apply(self, op: Op, v: Array) -> Array:
        return self.dag._apply(op, v)

    def _transpose(self) -> Linearization:
        return self._with(self.dag.T, self.codomain, self.domain, not self.transposed)

    def _with(
        self, dag: Any, domain: tuple[TensorSpec, ...], codomain: tuple[TensorSpec, ...], transposed: bool
    ) -> Linearization:
        return Linearization(
            dag, domain, codomain, primal=self.primal, point=self.point, entries=self.entries,
            plan=self.plan, transposed=transposed,
        )  # fmt: skip

    def arrays(self) -> Iterator[Array]:
        return self.dag.arrays()

    @property
    def flops(self) -> int:
        return self.dag.flops

    def relinearize(self, inputs: Mapping[str, Any]) -> Linearization:
        """The same Jacobian at another point; what does not depend on the point is reused."""
        J = self.plan.at(inputs)
        return J.T if self.transposed else J

    def apply(self, tangents: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """J v with tensors in and out by name; tangents that are left out are zero."""
        seeds = {}
        for name, tangent in tangents.items():
            vertex, spec = find_tensor(name, self.domain, self.dag.sources)
            seeds[vertex] = fitting(spec, tangent, self.dtype)
        reached = self.dag.sweep(numbers, seeds)
        return {
            spec.name: np.array(reached.get(vertex, np.zeros(())), self.dtype)
            if vertex in reached
            else np.zeros(self.dag.shapes[vertex], self.dtype)
            for spec, vertex in zip(self.codomain, self.dag.sinks, strict=True)
        }

    def __getitem__(self, key: Any) -> Jacobian:
        """A block by names, `J["out", "in"]`, or rows and columns by index, `J[:10, 3:5]`."""
        if not (isinstance(key, tuple) and len(key) == 2 and all(isinstance(k, str) for k in key)):
            return super().__getitem__(key)
        sink, row = find_tensor(key[0], self.codomain, self.dag.sinks)
        source, column = find_tensor(key[1], self.domain, self.dag.sources)
        return self._with(self.dag.between((source,), (sink,)), (column,), (row,), self.transposed)

    def __repr__(self) -> str:
        rows, columns = (
            ", ".join(f"{spec.name} {prod_text(spec.shape)}" for spec in specs)
            for specs in (self.codomain, self.domain)
        )
        kind = "transpose of ∂/∂" if self.transposed else "∂/∂"
        return f"{kind}: ({columns}) → ({rows}), {prod_text(self.shape)} {self.dtype}"


def find_tensor(
    name: str, specs: tuple[TensorSpec, ...], vertices: tuple[int, ...]
) -> tuple[int, TensorSpec]:
    """The vertex and the description of a named tensor of one side of J."""
    for spec, vertex in zip(specs, vertices, strict=True):
        if spec.name == name:
            return vertex, spec
    known = [spec.name for spec in specs]
    raise UnknownTensor(f"{name!r} is not on this side of the Jacobian.{closest(name, known)}")


def fitting(spec: TensorSpec, tensor: Any, dtype: np.dtype) -> np.ndarray:
    """A tangent or cotangent as an array of the shape that its tensor has."""
    array = np.asarray(tensor, dtype)
    if array.shape != spec.shape:
        raise InputError(
            f"the tensor for {spec.name!r} has shape {list(array.shape)}, not {list(spec.shape)}"
        )
    return array
