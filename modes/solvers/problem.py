"""Problem: a model as functions of one flat vector, as SciPy expects them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, Generic, Literal, TypeVar, final

import numpy as np

from ...jacobians import common, dtype_of, shape_of, size
from ...jacobians.arrays import like, reading_of
from ...jacobians.errors import InputError, not_allowed
from ...jacobians.foreign import as_array, is_tensor, space
from ...ops.registry import version
from ..gradient import Gradient
from ..hessian import Hessian, hessian_of
from ..linearization import Linearization
from ..linearize import linearize
from ..naming.names import Names, check_named, listed, names_of
from ..primal.evaluate import evaluate
from ..primal.inputs import check_inputs
from ..primal.model import Model, TensorSpec
from ..reverse import value_and_grad
from ..sparse import sparse

Form = Literal["operator", "dense", "sparse"]

MADE = {"operator": lambda J: J, "dense": lambda J: J.toarray(), "sparse": sparse}
"""form -> how a Jacobian or Hessian is returned."""


@final
class Problem:
    """x ↦ f(x), J(x) = ∂f/∂x, H(x) = ∂²f/∂x², with x the tensors of `wrt`, ravelled in order.

    Where `of` is one tensor of one element, `fun` is a float, `jac` its gradient and `hessp` a
    product with its Hessian. Otherwise `fun` is the flat vector of the tensors of `of`, `jac` is J
    in the given `form`, and `hess` takes multipliers. Nothing is scaled: the reduction is the
    model's own. Results are cached for the last point; J and H at a new point are relinearised.
    """

    def __init__(
        self,
        model: Model,
        inputs: Mapping[str, Any],
        of: tuple[str, ...],
        wrt: tuple[str, ...],
        engine: str | None = None,
        form: Form = "operator",
    ) -> None:
        if form not in MADE:
            raise not_allowed("form", form, MADE)
        self.model, self.inputs = model, check_inputs(model, inputs, engine=engine)
        self.of, self.wrt, self.engine, self.form = of, wrt, engine, form
        self.start = evaluate(model, self.inputs, wrt, engine=engine)
        self.values, self.jacobian = Memoized(self._values), Memoized(self._jacobian)
        self.slopes, self.hessian = Memoized(self._slopes), Memoized(self._hessian)
        self.x0 = self.flatten(self.start)
        if dtype_of(self.x0).kind != "f":
            raise InputError(f"SciPy solves nothing in {self.x0.dtype}: load(dtype='float64').")
        self.scalar = len(of) == 1 and len(self.values(self.x0)) == 1

    def flatten(self, tensors: Mapping[str, Any]) -> np.ndarray:
        """The tensors of `wrt` as one vector."""
        check_named(tensors)
        zero = np.zeros((), common(*map(dtype_of, self.start.values())))
        arrays = [tensors[name] if is_tensor(tensors[name]) else as_array(tensors[name])
                  for name in self.wrt]  # fmt: skip
        op = reading_of(*self.start.values())
        return op.CastLike(op.Concat(*(x.reshape(-1) for x in arrays), axis=0), zero)

    def unflatten(self, x: np.ndarray) -> dict[str, np.ndarray]:
        """The tensors of `wrt` by name, each in its shape and dtype."""
        x = x if is_tensor(x) else np.ravel(x)
        if len(x) != len(self.x0):
            raise InputError(
                f"x has {len(x)} numbers, but {', '.join(self.wrt)} have {len(self.x0)}: give "
                "a vector like x0, which flatten() makes of tensors"
            )
        parts = split(x, [size(shape_of(y)) for y in self.start.values()])
        pairs = zip(self.start.items(), parts, strict=True)
        return {name: like(part.reshape(y.shape), y) for (name, y), part in pairs}

    def point(self, x: np.ndarray) -> dict[str, Any]:
        """All inputs of the model, with the tensors of `wrt` at x."""
        return {**self.inputs, **self.unflatten(x)}

    # -- called by SciPy ----------------------------------------------------------------------

    def fun(self, x: np.ndarray) -> Any:
        """f(x): a float, or a vector."""
        values = self.values(x)
        return float(values[0]) if self.scalar else values

    def jac(self, x: np.ndarray) -> Any:
        """∇f(x) of a scalar f; else J(x)."""
        return self.slopes(x)[1] if self.scalar else MADE[self.form](self.jacobian(x))

    def value_and_grad(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """f(x) and ∇f(x) of a scalar f by one program, as `minimize(jac=True)` expects."""
        if not self.scalar:
            raise InputError(f"{', '.join(self.of)} is not one number: fun and jac are for vectors")
        f, slopes = self.slopes(x)
        return float(f), slopes

    def hess(self, x: np.ndarray, v: Any = None) -> Any:
        """H(x) of a scalar f; with multipliers, Σᵢ vᵢ ∂²fᵢ/∂x², as for `NonlinearConstraint`."""
        return MADE[self.form](self.hessian(x) if v is None else self.weighted(x, v))

    def hessp(self, x: np.ndarray, p: np.ndarray) -> np.ndarray:
        """H(x) p, one product."""
        return self.hessian(x) @ p

    def __repr__(self) -> str:
        at = (TensorSpec(n, shape_of(x), dtype_of(x)) for n, x in self.start.items())
        x, f = listed(tuple(at), shapes=True), ", ".join(self.of)
        return f"as_scipy: x = ({x}), of {len(self.x0)} ↦ ({f}), form={self.form!r}"

    # -- also called by our own solvers -------------------------------------------------------

    def weighted(self, x: np.ndarray, v: Any) -> Hessian:
        """Σᵢ vᵢ ∂²fᵢ/∂x², relinearised if x or the multipliers change."""
        J, point = self.jacobian(x), self.point(x)
        if np.size(v) != J.shape[0]:
            raise InputError(f"{np.size(v)} multipliers for {J.shape[0]} numbers of f")
        parts = split(v, [J.primal[name].size for name in self.of])
        weights = {name: part.reshape(J.primal[name].shape)
                   for name, part in zip(self.of, parts, strict=True)}  # fmt: skip
        f = Gradient(self.model, self.of, self.wrt, weights, self.engine)
        return Hessian(f.linearized(point), f)

    def _slopes(self, x: np.ndarray) -> tuple[Any, np.ndarray]:
        f = value_and_grad(self.model, of=self.of[0], wrt=self.wrt, engine=self.engine)
        value, slopes = f(self.point(x))
        return value, self.flatten(slopes)

    def _values(self, x: np.ndarray) -> np.ndarray:
        if self.slopes.knows(x):
            return self.slopes.value[0].reshape(1)
        if self.jacobian.knows(x):
            found = self.jacobian.value.primal
        else:
            found = evaluate(self.model, self.point(x), self.of, engine=self.engine)
        parts = [found[name].reshape(-1) for name in self.of]
        return space(parts[0]).concatenate(parts)

    def _jacobian(self, x: np.ndarray) -> Linearization:
        if self.jacobian.count:
            return self.jacobian.value.relinearize(self.point(x))
        return linearize(self.model, self.point(x), of=self.of, wrt=self.wrt, engine=self.engine)

    def _hessian(self, x: np.ndarray) -> Hessian:
        if self.hessian.count:
            return self.hessian.value.relinearize(self.point(x))
        if len(self.of) > 1:
            names = ", ".join(self.of)
            raise InputError(f"{names}: a Hessian of several needs multipliers, hess(x, v)")
        return hessian_of(self.model, self.point(x), self.of[0], self.wrt, engine=self.engine)


def split(x: Any, sizes: list[int]) -> list[np.ndarray]:
    """A vector, split into parts of these sizes.

    >>> split([1, 2, 3], [1, 2])
    [array([1]), array([2, 3])]
    """
    return list(x.split(sizes)) if is_tensor(x) else np.split(np.ravel(x), np.cumsum(sizes)[:-1])


def as_scipy(
    model: Model,
    inputs: Mapping[str, Any],
    *,
    of: Names = None,
    wrt: Names = None,
    engine: str | None = None,
    form: Form = "operator",
) -> Problem:
    """x ↦ f(x), J(x), H(x) p: the model as `scipy.optimize` expects it.

    Use `minimize(p.fun, p.x0, jac=p.jac, hessp=p.hessp)` for a scalar `of`, or by one program
    `minimize(p.value_and_grad, p.x0, jac=True)`;
    `least_squares(p.fun, p.x0, jac=p.jac)` and `root(p.fun, p.x0, jac=p.jac)` for residuals. `form`
    is the form of `jac` (of a vector) and `hess`: `"operator"`; `"dense"`, which `root`, SLSQP,
    `trust-exact` and similar methods need; or `"sparse"`. In dense or sparse form, a vector is also
    a constraint, `NonlinearConstraint(p.fun, low, high, jac=p.jac, hess=p.hess)`. `p.unflatten(x)`
    returns the tensors by name.

    Shapes: x is (n,), n the size of the tensors of `wrt`; f(x) is a float, or (m,), m the size of
    the tensors of `of`; J(x) is (m, n), ∇f(x) of a scalar (n,), H(x) (n, n), and multipliers v are
    (m,). Raises `InputError` for an unknown `form`, for bfloat16, which SciPy does not support,
    and where a name, a shape or a dtype does not fit; `UnsupportedOp` for an operator without a
    rule.
    """
    of_names = names_of(model, of, model.outputs, "of")
    return Problem(model, inputs, of_names, names_of(model, wrt, model.inputs, "wrt"), engine, form)


Value = TypeVar("Value")


class Memoized(Generic[Value]):
    """x ↦ f(x), computed again only if x differs from the last point; `count` says how often.

    It is also computed again after the declaration of an operator has changed.

    >>> square = Memoized(lambda x: x @ x)
    >>> [square(np.array(x)) for x in ([1.0, 2.0], [1.0, 2.0], [0.0, 3.0])]
    [np.float64(5.0), np.float64(5.0), np.float64(9.0)]
    >>> square.count
    2
    """

    def __init__(self, compute: Callable[[np.ndarray], Value]) -> None:
        self.compute, self.count = compute, 0
        self.x: np.ndarray | None = None

    def __call__(self, x: np.ndarray) -> Value:
        if not self.knows(x):
            self.declared = version()
            self.value, self.x = self.compute(x), deepcopy(x)
            self.count += 1
        return self.value

    def knows(self, x: np.ndarray) -> bool:
        """Whether f(x) is known, because x is the last point."""
        if self.x is None or self.declared != version():
            return False
        return self.x.shape == x.shape and bool((self.x == x).all())
