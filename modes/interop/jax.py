"""JAX: operators and models as functions that `jit`, `vmap`, `jvp` and `grad` transform.

Both are computed by JAX itself, without calls of the host. The derivative of a model is a
`custom_jvp`: J v, recorded as a model by the rules of this package, which is such a function again.
JAX transposes it, since it is linear in v.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from ...jacobians import Diagonal, Identity, Jacobian, Scalar, dtype_of, hooks, shape_of
from ...jacobians.arguments import validated
from ...jacobians.errors import InputError, UnsupportedOp, optional
from ...jacobians.threads import remembered
from ..model.primal.evaluate import evaluate
from ..model.primal.inputs import Names, check_inputs, is_float
from ..model.primal.model import Model
from ..recording.derive import jvp_graph
from ..recording.guarded import shared
from . import trees  # noqa: F401  (operators as arguments of functions of JAX)
from .functions import Primal, check_vectors, model_function


@hooks.to_jax.register(Jacobian)
def _operator(J: Jacobian) -> Callable[[Any], Any]:
    """v ↦ J v along the last axis; a floating dtype of v is kept."""
    jnp = optional("jax.numpy", "jax")

    def product(v: Any) -> Any:
        v = jnp.asarray(v)
        check_vectors(J, v.shape)
        y = J @ v if v.ndim == 1 else (J @ v.reshape(-1, v.shape[-1]).T).T
        y = y.reshape(*v.shape[:-1], J.shape[0])
        return y.astype(v.dtype) if is_float(dtype_of(v)) else y

    return product


@hooks.to_lineax.register(Jacobian)
def _lineax(J: Jacobian, tags: tuple[Any, ...]) -> Any:
    """J as a `lineax.FunctionLinearOperator`: see `Jacobian.to_lineax`."""
    lineax, jax = optional("lineax", "lineax"), optional("jax", "jax")
    diagonal = isinstance(J.structure, Diagonal | Identity | Scalar)
    known = {
        lineax.symmetric_tag: J.T is J, lineax.diagonal_tag: diagonal,
        lineax.positive_semidefinite_tag: diagonal and bool((J.diagonal() >= 0).all()),
    }  # fmt: skip
    kind = jax.dtypes.canonicalize_dtype(J.dtype)
    return lineax.FunctionLinearOperator(
        J.to_jax(), jax.ShapeDtypeStruct(J.shape[1:], kind),
        frozenset(tags) | {tag for tag, holds in known.items() if holds},
    )  # fmt: skip


@hooks.to_jax.register(Model)
@validated
def to_jax(
    model: Model, *, of: Names = None, wrt: Names = None, inputs: Mapping[str, Any] | None = None,
    engine: str | None = None,
) -> Callable[..., Any]:  # fmt: skip
    """x ↦ f(x) as a function of JAX, which differentiates it by J at x, to any order.

    The function takes the tensors of `wrt` in order (by default the floating inputs that `inputs`
    does not fix), and any other input by keyword; and returns the tensors of `of`, as a tuple if
    several. JAX computes all of it, operator by operator or inside its transformations: forward
    mode is J v, reverse mode its transpose, and a derivative of any order follows the rules and
    conventions of this package. Whole numbers that decide a size have to be known while JAX traces:
    given to `inputs`, or as NumPy arrays. Results have 32 bits unless 64-bit types are enabled in
    JAX. Needs `onnxjac[jax]`.

    - `model`: the model, as `load` gives it.
    - `of`: the results, by name; by default all floating outputs.
    - `inputs`: values of inputs that stay as they are, by name.
    - `engine`: `"jax"`, which is the default; no other engine runs inside JAX.

    Shapes: arrays in and out have the shapes of the model's tensors. Raises `InputError` without
    JAX, for a name in `wrt` that the model computes, and where an argument does not fit;
    `UnsupportedOp` names an operator that has no kernel for JAX, or no rule, or whose derivative
    depends on numbers of the point.
    """
    optional("jax", "jax")
    if engine not in (None, "jax"):
        raise InputError(f"a function of JAX is computed by JAX, not by engine={engine!r}: leave "
                         "engine out")  # fmt: skip
    natives: dict[Primal, Native] = {}

    def call(primal: Primal, operands: list[Any]) -> Sequence[Any]:
        if primal not in natives:
            names = (*primal.wrt, *primal.others)
            natives[primal] = Native(primal.model, primal.of, names, primal.fixed)
        return natives[primal](operands)

    return model_function(call, model, of, wrt, inputs, "jax")


# -- models as functions of JAX --------------------------------------------------------------------


@dataclass(eq=False)
class Native:
    """(tensors of `names`) ↦ `of`, with all other inputs at the values of `fixed`."""

    model: Model
    of: tuple[str, ...]
    names: tuple[str, ...]
    fixed: Mapping[str, Any]
    _derivatives: dict[Any, NativeDerivative] = field(default_factory=dict)

    def __call__(self, operands: Sequence[Any]) -> list[Any]:
        import jax

        known = {n: x for n, x in zip(self.names, operands, strict=True) if is_static(x)}
        free = [n for n in self.names if n not in known]
        args = (jax.numpy.asarray(x) for x in operands if not is_static(x))
        function = jax.custom_jvp(partial(self.values, tuple(free), known))
        function.defjvp(partial(self.pushed, tuple(free), known), symbolic_zeros=True)
        made: list[Any] = function(*args)
        return made

    def values(self, free: tuple[str, ...], known: Mapping[str, Any], *args: Any) -> list[Any]:
        """The tensors of `of`, in types that JAX knows."""
        from ...ops.jax.table import as_chosen, to_jax_array

        point = {**self.fixed, **known, **dict(zip(free, args, strict=True))}
        with as_chosen():
            inputs = check_inputs(self.model, point, keep=False, engine="jax")
            made = evaluate(self.model, inputs, self.of, engine="jax")
            return [to_jax_array(made[name]) for name in self.of]

    def pushed(self, free: tuple[str, ...], known: Any, primals: Any, tangents: Any) -> Any:
        """The values and their tangents; only those inputs move that have a tangent."""
        import jax

        zero = jax.custom_derivatives.SymbolicZero
        point = dict(zip(free, primals, strict=True))
        moved = {n: t for n, t in zip(free, tangents, strict=True)
                 if not isinstance(t, zero) and is_float(dtype_of(point[n]))}  # fmt: skip
        values = self([{**known, **point}[name] for name in self.names])
        floats = tuple(n for n, y in zip(self.of, values, strict=True) if is_float(dtype_of(y)))
        found: dict[str, Any] = {}
        if moved and floats:
            made = self.derivative({**known, **point}, tuple(moved), floats)
            given = {**known, **point, **dict(zip(made.tangents, moved.values(), strict=True))}
            found = dict(zip(floats, made([given[name] for name in made.names]), strict=True))
        return values, [found.get(n, no_tangent(y)) for n, y in zip(self.of, values, strict=True)]

    def derivative(
        self, point: Mapping[str, Any], wrt: tuple[str, ...], of: tuple[str, ...]
    ) -> NativeDerivative:
        """(the point, v) ↦ J v for tangents v of `wrt`, at all points of these shapes."""
        key = wrt, of, *((n, shape_of(x), dtype_of(x)) for n, x in sorted(point.items()))
        return remembered(self._derivatives, key, partial(self._recorded, point, wrt, of))

    def _recorded(
        self, point: Mapping[str, Any], wrt: tuple[str, ...], of: tuple[str, ...]
    ) -> NativeDerivative:
        """J v recorded at some numbers, which have to be like any others."""
        inputs = {n: x if is_static(x) else some(x) for n, x in {**self.fixed, **point}.items()}
        given = check_inputs(self.model, inputs)
        t, is_general = shared(self.model, partial(jvp_graph, self.model, given, of, wrt, None))
        if not is_general:
            raise UnsupportedOp(f"the derivative of {', '.join(of)} depends on numbers of the "
                                "point, which nobody knows while JAX traces: give what decides "
                                "them to inputs=")  # fmt: skip
        model = Model(t.model("derivative").ir, self.model.limits)
        tangents = tuple(str(value.name) for value in t.inputs[len(t.inputs) - len(wrt) :])
        held = {*model.inputs, *model.initializers}
        names = tuple(n for n in (*self.names, *tangents) if n in held)
        fixed = {n: x for n, x in self.fixed.items() if n in held}
        return NativeDerivative(model, t.derived, names, fixed, tangents=tangents)


@dataclass(eq=False)
class NativeDerivative(Native):
    """J v, with the names of the tangents v."""

    tangents: tuple[str, ...] = ()


def is_static(x: Any) -> bool:
    """Whether this stays as it is while JAX traces: whole numbers of NumPy, and sequences."""
    if isinstance(x, list | str | bool | int):
        return True
    return isinstance(x, np.ndarray | np.generic) and x.dtype.kind not in "fcV"


def some(x: Any) -> np.ndarray:
    """Numbers of the shape and dtype of x, which are not special: for floats, between 0 and 1."""
    shape, dtype = shape_of(x), dtype_of(x)
    if not is_float(dtype):
        return np.zeros(shape, dtype)
    return np.random.default_rng(0).uniform(0.1, 0.9, shape).astype(dtype)


def no_tangent(y: Any) -> Any:
    """The tangent 0, of the type that JAX has for whole numbers."""
    import jax

    return np.zeros(y.shape, y.dtype if is_float(dtype_of(y)) else jax.dtypes.float0)
