"""Hessian: the linearisation of the gradient's graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Literal, cast, overload

import numpy as np

from ..jacobians import Jacobian
from ..jacobians.arguments import Count, Natural, validated
from ..jacobians.errors import InputError
from ..jacobians.threads import cached_property
from .forward import Tensors
from .gradient import Gradient
from .linear.chained import chained_hessian, is_implied
from .linear.check import Check, Outcome, against_values, run_checks
from .linear.explanation import Explanation, Local
from .linear.linearization import Linearization
from .linear.symmetric import Curvature, Symmetric, diagonal_blocks
from .model.primal.inputs import Names, listed, names_of
from .model.primal.model import Model, ModelLike, as_model


class Hessian(Curvature):
    """H = ∂²f/∂wrt², symmetric: H.T is H.

    Shape: (n, n), n the size of the tensors of `wrt`.

    `J` is the linearised gradient, `gradient` is ∂f/∂wrt at the point, and `function` gives ∂f/∂wrt
    at other points; `domain` are the tensors behind rows and columns, in order. `H.apply` is a
    product by name and `H["a", "b"]` a block.
    """

    def __init__(self, J: Linearization, function: Gradient) -> None:
        super().__init__(J)
        self.function, self.domain = function, J.domain

    @property
    def J(self) -> Linearization:
        """The linearised gradient."""
        return cast(Linearization, self.operator)

    @cached_property
    def gradient(self) -> dict[str, np.ndarray]:
        """∂f/∂wrt by name."""
        return {name: self.J.primal[slope] for name, slope in self._slopes.items()}

    @property
    def _slopes(self) -> dict[str, str]:
        """The tensors of `wrt`, and the names of their gradients in the recorded graph."""
        return {s.name: o.name for s, o in zip(self.domain, self.J.codomain, strict=True)}

    @validated
    def plan(self, *, products: Count = 100, memory: Count | None = None) -> Hessian:
        """The same Hessian, prepared for a number of `products`, in at most `memory` bytes more.

        See `Linearization.plan`.

        Shape: (n, n), as before.
        """
        return Hessian(self.J.plan(products=products, memory=memory), self.function)

    @validated
    def compile(
        self, engine: str | None = None, *, products: Count = 100, memory: Count | None = None
    ) -> Hessian:
        return Hessian(self.J.compile(engine, products=products, memory=memory), self.function)

    def relinearize(self, inputs: Mapping[str, Any]) -> Hessian:
        """The same Hessian at another point `inputs`, planned as this one is: see `compile`.

        The gradient is not recorded again for another point of the same shapes, where one graph
        holds for all of them.
        """
        return Hessian(self.J._like(self.function.linearized(inputs)), self.function)

    def _dense(self, limit: int) -> np.ndarray:
        return self.J._dense(limit)

    def apply(self, tangents: Mapping[str, Any]) -> Tensors:
        """H v by name, for `tangents` v by name; those that are left out are zero.

        Shapes: H v has the shapes of v, one for each tensor of `wrt`. Raises `InputError` where a
        tangent does not fit, `UnknownTensor` for a name that is not in `wrt`.
        """
        products = self.J.apply(tangents)
        return {name: products[slope] for name, slope in self._slopes.items()}

    def __getitem__(self, key: Any) -> Jacobian:
        if isinstance(key, tuple) and len(key) == 2 and all(isinstance(k, str) for k in key):
            return self.J[self._slopes.get(key[0], key[0]), key[1]]
        return super().__getitem__(key)

    @validated
    def explain(self, name: str | None = None) -> Explanation | Local:
        """The parts of H as the Jacobian of the recorded gradient: see `Linearization.explain`.

        With the `name` of a node or tensor of the gradient's graph, one step.

        Raises `UnknownTensor` for a name that the gradient's graph does not have.
        """
        return self.J.explain() if name is None else self.J.explain(name)

    @validated
    def check(self, *, seed: Natural = 0) -> Check:
        """The tests of `Linearization.check`, of H as the Jacobian of the recorded gradient.

        Central differences are taken of the gradient; the matrices are H.toarray() and so on. As
        the gradient has the same rules as H, ∇f v and vᵀ H v are compared with first and second
        differences of the values of f, too. `seed` is the seed of the random vectors.
        """
        return Check((*run_checks(self.J, seed, self).outcomes, *by_values(self, seed)))

    @property
    def formula(self) -> str:
        return f"∂²/∂({listed(self.domain)})²"

    def __repr__(self) -> str:
        return f"{self.formula}: {self.shape[0]}×{self.shape[1]} {self.dtype}"


def by_values(H: Hessian, seed: int) -> Iterator[Outcome]:
    """∇f and H against differences of the values of f."""
    weights = list(map(np.ravel, H.function.seeds(H.J.route.model).values())) or [np.ones(1)]
    return against_values(H.J, H.function.of, np.concatenate(weights).astype(np.float64), seed)


@overload
def hessian(
    model: ModelLike, inputs: Mapping[str, Any], *, of: str | None = None, wrt: Names = None,
    weights: Any = None, blocks: None = None, engine: str | None = None,
    straight_through: bool = False,
) -> Hessian: ...
@overload
def hessian(
    model: ModelLike, inputs: Mapping[str, Any], *, of: str | None = None, wrt: Names = None,
    weights: Any = None, blocks: Literal["diagonal"], engine: str | None = None,
    straight_through: bool = False,
) -> Symmetric: ...
@validated
def hessian(
    model: ModelLike,
    inputs: Mapping[str, Any],
    *,
    of: str | None = None,
    wrt: Names = None,
    weights: Any = None,
    blocks: Literal["diagonal"] | None = None,
    engine: str | None = None,
    straight_through: bool = False,
) -> Hessian | Symmetric:
    """H = ∂²(Σ weights ∘ of)/∂wrt² at the point, as a symmetric operator.

    `of` is one tensor; where it has several elements, `weights` of its shape combine them into a
    scalar, without further scaling. `blocks="diagonal"` leaves out the second derivatives between
    two different tensors of `wrt`; else the result is a `Hessian`. H is the linearisation of the
    recorded gradient, so that a product costs about two gradients: for an MLP of L layers in its
    weights, 6 L - 4 matrix products. An input may be a root: then H is the second derivative of the
    whole, in what the root depends on. Shapes: (size of `wrt`)².

    - `model`: the model, as `load` gives it.
    - `inputs`: the point, an array by name for every input; weights may be given too.
    - `wrt`: the tensors to differentiate by, by name; by default all floating inputs.
    - `engine`: `"onnxruntime"` (default where installed), `"numpy"`, `"torch"` or `"jax"` runs
      the model.
    - `straight_through`: True lets tangents pass rounding and quantisation; see `linearize`.

    Raises `InputError` where a name, a shape or a dtype does not fit, and `UnsupportedOp` for an
    operator without a rule; `InputError` also for several elements without `weights`.
    """
    model = as_model(model, of, wrt=wrt, straight_through=straight_through)
    of_names = names_of(model, of, model.outputs, "of")
    own = partial(own_part, model, of_names, weights, engine)
    if is_implied(inputs):
        again: Any = partial(hessian, model, of=of, wrt=wrt, weights=weights, engine=engine)
        whole = chained_hessian(model, inputs, wrt, own, again)
        return whole if blocks is None else diagonal_blocks(whole)
    H, _ = own(inputs, names_of(model, wrt, model.inputs, "wrt"))
    return H if blocks is None else diagonal_blocks(H)


def own_part(
    model: Model, of: tuple[str, ...], weights: Any, engine: str | None,
    inputs: Mapping[str, Any], wrt: tuple[str, ...],
) -> tuple[Hessian, Tensors]:  # fmt: skip
    """H and ∇f of a model whose inputs are numbers."""
    f = Gradient(model, of, wrt, weights, engine)
    H = Hessian(f.linearized(inputs), f)
    return H, H.gradient


@validated
def hvp(
    model: ModelLike,
    primals: Mapping[str, Any],
    tangents: Mapping[str, Any],
    *,
    of: str | None = None,
    weights: Any = None,
    engine: str | None = None,
) -> tuple[Tensors, Tensors]:
    """∇f and H v by name, with H = ∂²f/∂x² and f = Σ weights ∘ of: one product.

    `tangents` names the tensors x that move and gives v; all other tensors stay. Where `of` has
    several elements, `weights` of its shape combine the elements into the scalar f. For several
    products at one point take `hessian`.

    - `model`: the model, as `load` gives it.
    - `primals`: the point, an array by name for every input; weights may be given too.
    - `of`: the tensor f, by name; by default the only floating output.
    - `engine`: `"onnxruntime"` (default where installed), `"numpy"`, `"torch"` or `"jax"` runs
      the model.

    Shapes: v, ∇f and H v have the shapes of the tensors that `tangents` names. Raises `InputError`
    where a name, a shape or a dtype does not fit, and `UnsupportedOp` for an operator without a
    rule; `InputError` also where f is no scalar.
    """
    if not isinstance(tangents, Mapping):
        raise InputError(f"tangents are a dict from name to array, not {type(tangents).__name__}")
    if is_implied(primals):
        raise InputError("hvp takes numbers: behind a root take oj.hessian, and oj.grad")
    H = hessian(model, primals, of=of, wrt=tuple(tangents), weights=weights, engine=engine)
    return dict(H.gradient), H.apply(tangents)
