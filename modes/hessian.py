"""Hessian: the linearisation of the gradient's graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..jacobians import Array, Jacobian, Op, Shape
from ..jacobians.errors import InputError
from .curvature.symmetric import Curvature
from .forward import Tensors
from .linearization import Linearization
from .linearize import Route
from .model import Model, TensorSpec
from .names import Names, names_of
from .primal.evaluate import evaluate
from .primal.inputs import check_inputs
from .recording.derive import vjp_graph


class Hessian(Curvature):
    """H = ∂²f/∂wrt², symmetric: H.T is H.

    `gradient` is ∂f/∂wrt at the point and `domain` the tensors behind rows and columns, in order;
    `H.apply` is a product by name and `H["a", "b"]` a block.
    """

    def __init__(self, J: Linearization, domain: tuple[TensorSpec, ...]) -> None:
        super().__init__(J.out_shape, J.in_shape, J.dtype)
        self.J, self.domain = J, domain
        self.gradient = {s.name: J.primal[f"{s.name}_cotangent"] for s in domain}

    def _apply(self, op: Op, v: Array) -> Array:
        return self.J._apply(op, v)

    def _flat_product(self, v: np.ndarray, columns: Shape) -> np.ndarray:
        return self.J._flat_product(v, columns)

    @property
    def structure(self) -> Jacobian:
        return self.J.structure

    def plan(self, *, products: int = 100, memory: int | None = None) -> Hessian:
        """The same Hessian, made ready for so many products: see `Linearization.plan`."""
        return Hessian(self.J.plan(products=products, memory=memory), self.domain)

    def compile(
        self, engine: str | None = None, *, products: int = 100, memory: int | None = None
    ) -> Hessian:
        return Hessian(self.J.compile(engine, products=products, memory=memory), self.domain)

    def arrays(self) -> Iterator[Array]:
        return self.J.arrays()

    @property
    def flops(self) -> int:
        return self.J.flops

    def _dense(self, limit: int) -> np.ndarray:
        return self.J._dense(limit)

    def apply(self, tangents: Mapping[str, Any]) -> Tensors:
        """H v with tensors in and out by name; tangents that are left out are zero."""
        products = self.J.apply(tangents)
        return {spec.name: products[f"{spec.name}_cotangent"] for spec in self.domain}

    def __getitem__(self, key: Any) -> Jacobian:
        if isinstance(key, tuple) and len(key) == 2 and all(isinstance(k, str) for k in key):
            return self.J[f"{key[0]}_cotangent", key[1]]
        return super().__getitem__(key)

    def __repr__(self) -> str:
        names = ", ".join(spec.name for spec in self.domain)
        return f"∂²/∂({names})²: {self.shape[0]}×{self.shape[1]} {self.dtype}"


def hessian(
    model: Model,
    inputs: Mapping[str, Any],
    *,
    of: str | None = None,
    wrt: Names = None,
    weights: Any = None,
    engine: str | None = None,
) -> Hessian:
    """H = ∂²(Σ weights ∘ of)/∂wrt² at the point, as a symmetric operator.

    `of` is one tensor; where it has several elements, `weights` of its shape combine them into a
    scalar. H is the linearisation of the recorded gradient, so that a product costs about two
    gradients: for an MLP of L layers in its weights, 6 L - 4 matrix products.
    """
    point = check_inputs(model, inputs)
    of_names = names_of(model, of, model.outputs, "of")
    wrt_names = names_of(model, wrt, model.inputs, "wrt")
    seeds = {of_names[0]: combination(model, point, of_names, weights, engine)}
    gradient = vjp_graph(model, point, of_names, wrt_names, engine, seeds).model("gradient")
    cotangents = tuple(f"{name}_cotangent" for name in wrt_names)
    J = Route(gradient, cotangents, wrt_names, engine).at(point)
    return Hessian(J, J.domain)


def combination(
    model: Model, point: Mapping[str, Any], of: tuple[str, ...], weights: Any, engine: str | None
) -> np.ndarray:
    """The weights of the scalar that is differentiated: 1 for a scalar output."""
    if len(of) != 1:
        raise InputError(f"a Hessian is of one tensor, not of {list(of)}: name it with of=")
    value = evaluate(model, point, of, engine=engine)[of[0]]
    if weights is None and value.size != 1:
        raise InputError(
            f"{of[0]!r} has shape {list(value.shape)}: give weights of that shape, so that "
            f"sum(weights * {of[0]}) is the scalar to differentiate"
        )
    chosen = (
        np.ones(value.shape, value.dtype) if weights is None else np.asarray(weights, value.dtype)
    )
    if chosen.shape != value.shape:
        raise InputError(f"weights have shape {list(chosen.shape)}, {of[0]!r} {list(value.shape)}")
    return chosen


def hvp(
    model: Model,
    primals: Mapping[str, Any],
    tangents: Mapping[str, Any],
    *,
    of: str | None = None,
    weights: Any = None,
    engine: str | None = None,
) -> tuple[Tensors, Tensors]:
    """∇f and H v by name, one product; `tangents` names the tensors that move."""
    H = hessian(model, primals, of=of, wrt=tuple(tangents), weights=weights, engine=engine)
    return dict(H.gradient), H.apply(tangents)
