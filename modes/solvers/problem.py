"""Problem: a model as functions of one flat vector, as SciPy expects them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Generic, Literal, Never, TypeVar, final, overload

import numpy as np
from scipy.sparse import csr_array

from ...jacobians import Jacobian, Shape, common, dtype_of, hooks, shape_of, size
from ...jacobians.arguments import validated
from ...jacobians.arrays import as_array, host, like, reading_of
from ...jacobians.base import Wrapper
from ...jacobians.errors import InputError, optional
from ...jacobians.readings import is_kept, module_of
from ...ops.registry import version
from ..curvature import over_data
from ..curvature.over_data import value_and_grad
from ..data.batches import as_batch, batches_of, is_data
from ..data.comm import Comm, agreed, as_comm, joined_arrays, same_on_all, sum_arrays
from ..gradient import Gradient
from ..hessian import Hessian, hessian
from ..interop import casadi
from ..interop.operators import asoperator
from ..linear.linearization import Linearization
from ..linearize import linearize
from ..model.primal.evaluate import evaluate
from ..model.primal.inputs import Names, check_inputs, check_named, is_float, listed, names_of
from ..model.primal.model import Model, ModelLike, TensorSpec, as_model
from ..reverse import ValueAndGrad
from ..sparse import sparse
from ..sparse.sweep import strip_wrappers

Form = Literal["operator", "dense", "sparse"]


ALSO = {
    "jac": "; a NonlinearConstraint also takes form='sparse'",
    "hess": "; trust-ncg and trust-krylov also take hessp= in place of hess=",
    "ode_jac": "; BDF and Radau also take form='sparse'",
}
"""A function of `Problem` -> what works as well where SciPy needs an array of it.

SciPy does not tell a function which method calls it, but each function has its own methods.
"""


class NotDense:
    """An operator or a sparse array for SciPy, which is never taken for an array of one object."""

    given_by = "jac"

    if not TYPE_CHECKING:

        def __array__(self, *_: Any, **__: Any) -> Any:
            raise InputError(
                f"{self.given_by} gives an operator or a sparse array, but an array is needed: "
                f"as_scipy(..., form='dense'){ALSO[self.given_by]}"
            )

        flags = property(__array__)  # what LAPACK's wrappers ask an array first


@final
class SparseArray(NotDense, csr_array):
    """A sparse array of SciPy."""


@final
class Lazy(NotDense, Wrapper):
    """y = J x, an operator of SciPy."""

    def _transpose(self) -> Jacobian:
        return self.operator.T

    def __getitem__(self, key: Any) -> Jacobian:
        return Lazy(super().__getitem__(key))  # trust-constr stacks rows of constraints, and −J

    def __neg__(self) -> Jacobian:  # type: ignore[override]
        return Lazy(super().__neg__())

    def __repr__(self) -> str:
        return repr(self.operator)


@strip_wrappers.register
def _(operator: Lazy) -> Jacobian:
    return strip_wrappers(operator.operator)


FORMS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "operator": (Lazy, Lazy),
    "dense": (lambda J: J.toarray(), lambda H: H.toarray()),
    "sparse": (lambda J: SparseArray(sparse(J)), lambda H: Lazy(asoperator(sparse(H)))),
}
"""form -> how a Jacobian and a Hessian are returned."""

Given = TypeVar("Given")
"""What `jac` of a vector, `hess` and `ode_jac` return: an array, or what the form says."""


@final
class Problem(Generic[Given]):
    """x ↦ f(x), J(x) = ∂f/∂x, H(x) = ∂²f/∂x², with x the tensors of `wrt`, ravelled in order.

    Where `of` is one tensor of one element, `fun` is a float, `jac` its gradient and `hessp` a
    product with its Hessian. Otherwise `fun` is the flat vector of the tensors of `of`, `jac` is J
    in the given `form`, and `hess` takes multipliers. Nothing is scaled: the reduction is the
    model's own. Other inputs of the `model` stay at `inputs`; `t` names the time, and `engine` runs
    the model. Results are cached for the last point; J and H at a new point are relinearised.

    With `over`, the options `shared`, `batch_size` and, of a loss, `reduction`, the inputs may be
    data: f, ∇f and H are taken over all batches, and a vector f has the rows of all batches. With
    `comm` in it, all batches of all ranks count; x0 comes from the first rank with a batch.
    """

    def __init__(
        self,
        model: ModelLike,
        inputs: Any,
        of: Names,
        wrt: Names,
        engine: str | None = None,
        form: Form = "operator",
        t: str | None = None,
        over: Mapping[str, Any] | None = None,
    ) -> None:
        model = as_model(model, of, wrt=wrt)
        self.of, self.wrt = names_of(model, of, model.outputs, "of"), states_of(model, wrt, t)
        self.data, self.over = inputs, {} if over is None else {**over}
        self.comm = None if self.over.get("comm") is None else as_comm(self.over["comm"])
        over_ranks = self.comm is not None
        several = over_ranks or (over is not None and is_data(inputs, over.get("batch_size")))
        if not several and self.over.get("shared") and isinstance(inputs, Mapping):
            inputs = {**self.over["shared"], **inputs}
        self.several, self.model = several, model
        self.engine, self.form, self.t = engine, form, t
        self.inputs, self.start, self.count = dict[str, Any](), dict[str, Any](), 0
        if self.comm is None:
            self._begin(self._first() if several else inputs)
        else:
            self._begin_together(self.comm)
        time_of(model, self.inputs, t)
        self.values, self.linearized = Memoized(self._values), Memoized(self._linearized)
        self.slopes, self.curvature = Memoized(self._slopes), Memoized(self._curvature)
        self.shapes: dict[str, Shape] = {}
        self.gradient = ValueAndGrad(Gradient(model, self.of[:1], self.wrt, None, engine))
        self.x0 = self.flatten(self.start)
        if dtype_of(self.x0).kind != "f":
            raise InputError(f"SciPy solves nothing in {self.x0.dtype}: load(dtype='float64').")
        if not several:
            self.count = len(self.values(self.x0))
        self.scalar = len(self.of) == 1 and self.count == 1
        if t is not None:
            self.ode(time_of(model, self.inputs, t), self.x0)

    def _first(self) -> dict[str, Any] | None:
        """The inputs of the first batch; None without batches, which only a rank may be."""
        batch = next(iter(batches_of(self.data, self.over["batch_size"])), None)
        if batch is None and self.comm is None:
            raise InputError("there are no batches")
        return None if batch is None else {**self.over["shared"], **as_batch(batch)}

    def _begin(self, inputs: Any) -> None:
        """Take the start x0 from these inputs, and, over data, the size of f from a batch."""
        self.inputs = check_inputs(self.model, inputs, engine=self.engine)
        self.start = evaluate(self.model, self.inputs, self.wrt, engine=self.engine)
        if self.several:
            found = evaluate(self.model, self.inputs, self.of, engine=self.engine)
            self.count = size(shape_of(found[self.of[0]]))

    def _begin_together(self, comm: Comm) -> None:
        """Take the start of the first rank that has a batch: it is the same on all ranks."""

        def begun() -> bool:
            inputs = self._first()
            if inputs is not None:
                self._begin(inputs)
            return inputs is not None

        chosen = [rank for rank, has in enumerate(agreed(comm, begun)) if has][:1]
        own = {**self.over["shared"], **self.start}

        def start() -> tuple[list[np.ndarray], int] | None:
            arrays = [np.asarray(host(x)) for x in self.start.values()]
            return (arrays, self.count) if [comm.rank] == chosen else None

        arrays, (self.count,) = sum_arrays(comm, start)
        named = zip(self.wrt, arrays, strict=True)
        self.start = {name: like(x, own[name]) if name in own else x for name, x in named}
        kinds = agreed(comm, lambda: [type(x).__name__ for x in self.start.values()])
        same_on_all(dict(enumerate(kinds)), "arrays of wrt")

    def flatten(self, tensors: Mapping[str, Any]) -> np.ndarray:
        """The tensors of `wrt`, `tensors` by name, as one vector."""
        check_named(tensors)
        zero = np.zeros((), common(*map(dtype_of, self.start.values())))
        given = (tensors[name] for name in self.wrt)
        arrays = [x if is_kept(x) else as_array(x) for x in given]
        op = reading_of(*self.start.values())
        return op.CastLike(op.Concat(*(x.reshape(-1) for x in arrays), axis=0), zero)

    def unflatten(self, x: np.ndarray) -> dict[str, np.ndarray]:
        """The tensors of `wrt` in a vector x by name, each in its shape and dtype."""
        x = x if is_kept(x) else np.ravel(x)
        if len(x) != len(self.x0):
            raise InputError(
                f"a vector of {len(x)} numbers, but wrt ({', '.join(self.wrt)}) has "
                f"{len(self.x0)}: give a vector like x0, which flatten() makes of tensors"
            )
        if dtype_of(x).kind == "c":
            raise InputError("a model takes real numbers, not complex ones: jac=p.jac is exact and "
                             "needs no complex step")  # fmt: skip
        parts = split_vector(x, [size(shape_of(y)) for y in self.start.values()])
        pairs = zip(self.start.items(), parts, strict=True)
        return {name: like(part.reshape(y.shape), y) for (name, y), part in pairs}

    def point(self, x: np.ndarray, *time: float) -> dict[str, Any]:
        """All inputs of the model, with the tensors of `wrt` at x; the time as given, or `time`."""
        given = self.inputs.get(self.t or "")
        now = [(self.t, module_of(given).full_like(given, t)) for t in time if self.t]
        return {**self.inputs, **dict(now), **self.unflatten(x)}

    # -- called by SciPy ----------------------------------------------------------------------

    def fun(self, x: np.ndarray, *rest: Never) -> Any:
        """f(x): a float, or a vector. SciPy's `args`, as `rest`, are refused."""
        values = self.values(check_alone(x, rest))
        return float(values[0]) if self.scalar else values

    def jac(self, x: np.ndarray, *rest: Never) -> Given:
        """∇f(x) of a scalar f; else J(x). SciPy's `args`, as `rest`, are refused."""
        check_alone(x, rest)
        if self.scalar:
            return match_precision(self.slopes(x)[1], x)
        return self._given("jac", self.linearized(x), x)

    def value_and_grad(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """f(x) and ∇f(x) of a scalar f by one program, as `minimize(jac=True)` expects."""
        if not self.scalar:
            raise InputError(f"{', '.join(self.of)} is not one number: fun and jac are for vectors")
        f, slopes = self.slopes(x)
        return float(f), match_precision(slopes, x)

    def hess(self, x: np.ndarray, v: Any = None) -> Given:
        """H(x) of a scalar f; with multipliers v, Σᵢ vᵢ ∂²fᵢ/∂x², as for `NonlinearConstraint`."""
        return self._given("hess", self.curvature(x) if v is None else self.weighted(x, v), x)

    def hessp(self, x: np.ndarray, p: np.ndarray) -> np.ndarray:
        """H(x) p, one product."""
        return self.curvature(x) @ p

    def ode(self, t: float, x: np.ndarray, *rest: Never) -> np.ndarray:
        """f(t, x) as a vector, the right-hand side of ẋ = f(t, x) for `solve_ivp`.

        SciPy's `args`, as `rest`, are refused.
        """
        rates = self.values(x, *self._time(t, rest))
        if len(rates) != len(self.x0):
            raise InputError(f"{len(rates)} rates for {len(self.x0)} states ({', '.join(self.wrt)})"
                             ": name the states by wrt= and the time by t=")  # fmt: skip
        return rates

    def ode_jac(self, t: float, x: np.ndarray, *rest: Never) -> Given:
        """∂f/∂x at (t, x), for `solve_ivp(jac=...)` and `BDF`, `Radau`, `LSODA`.

        SciPy's `args`, as `rest`, are refused.
        """
        return self._given("ode_jac", self.linearized(x, *self._time(t, rest)), x)

    def __repr__(self) -> str:
        at = (TensorSpec(n, shape_of(x), dtype_of(x)) for n, x in self.start.items())
        x, f = listed(tuple(at), shapes=True), ", ".join(self.of)
        return f"as_scipy: x = ({x}), of {len(self.x0)} ↦ ({f}), form={self.form!r}"

    def _given(self, by: str, operator: Any, x: Any) -> Any:
        """A Jacobian or a Hessian in the form asked for, which knows the function that gives it."""
        made = match_precision(FORMS[self.form][by == "hess"](operator), x)
        if isinstance(made, NotDense):
            made.given_by = by
        return made

    # -- also called by our own solvers -------------------------------------------------------

    def _time(self, t: float, rest: tuple[Any, ...]) -> tuple[float, ...]:
        """The time, if f depends on it."""
        if rest:
            raise InputError("ode and ode_jac take (t, x) alone, without args=: other inputs are "
                             "parameters, for which as_scipy is called again")  # fmt: skip
        if np.ndim(t):
            raise InputError("ode and ode_jac take (t, x), one time and then one state: "
                             "odeint(..., tfirst=True)")  # fmt: skip
        return () if self.t is None else (t,)

    def weighted(self, x: np.ndarray, v: Any) -> Hessian:
        """Σᵢ vᵢ ∂²fᵢ/∂x² at x, with multipliers v."""
        sizes = [size(shape) for shape in self.shapes.values()]
        if np.size(v) != sum(sizes):
            raise InputError(f"{np.size(v)} multipliers for {sum(sizes)} numbers of f")
        pairs = zip(self.shapes.items(), split_vector(v, sizes), strict=True)
        weights = {name: part.reshape(shape) for (name, shape), part in pairs}
        f = Gradient(self.model, self.of, self.wrt, weights, self.engine)
        return Hessian(f.linearized(self.point(x)), f)

    def _slopes(self, x: np.ndarray) -> tuple[Any, np.ndarray]:
        if self.several:
            f = value_and_grad(self.model, of=self.of[0], wrt=self.wrt, engine=self.engine)
            value, slopes = f(self.data, **self.at(x))
        else:
            value, slopes = self.gradient(self.point(x))
        return value, self.flatten(slopes)

    def at(self, x: np.ndarray) -> dict[str, Any]:
        """How data is taken at x, for functions that take data."""
        return {**self.over, "shared": {**self.over["shared"], **self.unflatten(x)}}

    def _over_data(self, x: np.ndarray) -> np.ndarray:
        """f over all batches: one number, or their vectors one after the other."""
        if self.over.get("reduction"):
            return np.reshape(self.slopes(x)[0], 1)
        shared, size = self.at(x)["shared"], self.over["batch_size"]

        def rows() -> np.ndarray | None:
            parts: list[Any] = []
            for batch in batches_of(self.data, size):
                given = {**shared, **batch}
                point = check_inputs(self.model, given, keep=False, engine=self.engine)
                found = evaluate(self.model, point, self.of, engine=self.engine)
                parts += [host(found[name]).reshape(-1) for name in self.of]
            return np.concatenate(parts) if parts else None

        return joined_arrays(self.comm, rows)

    def _values(self, x: np.ndarray, *time: float) -> np.ndarray:
        if not time and (slopes := self.slopes.known(x)):
            return np.reshape(slopes[0], 1)
        if self.several:
            return self._over_data(x)
        if J := self.linearized.known(x, *time):
            found: Any = J.primal
        else:
            found = evaluate(self.model, self.point(x, *time), self.of, engine=self.engine)
        self.shapes = {name: shape_of(found[name]) for name in self.of}
        parts = [found[name].reshape(-1) for name in self.of]
        return module_of(parts[0]).concatenate(parts)

    def _linearized(self, x: np.ndarray, *time: float) -> Linearization:
        if self.several:
            over = {k: v for k, v in self.at(x).items() if k != "reduction"}
            J: Any = over_data.linearize(
                self.model, self.data, of=self.of, wrt=self.wrt, engine=self.engine, **over
            )
            return J
        point = self.point(x, *time)
        if self.linearized.last:
            return self.linearized.last[0].relinearize(point)
        return linearize(self.model, point, of=self.of, wrt=self.wrt, engine=self.engine)

    def _curvature(self, x: np.ndarray) -> Hessian:
        if self.several:
            H: Any = over_data.hessian(
                self.model, self.data, of=self.of[0], wrt=self.wrt, engine=self.engine, **self.at(x)
            )
            return H
        if self.curvature.last:
            return self.curvature.last[0].relinearize(self.point(x))
        if not self.scalar:
            names = ", ".join(self.of)
            raise InputError(f"{names}: a Hessian of several numbers needs multipliers, hess(x, v)")
        point, of, wrt = self.point(x), self.of[0], self.wrt
        return hessian(self.model, point, of=of, wrt=wrt, engine=self.engine)


def time_of(model: Model, inputs: Mapping[str, Any], t: str | None) -> float:
    """The time that the input named t holds, 0 without one; checks that t may take any value."""
    if t is None:
        return 0.0
    given = inputs.get(t)
    if given is None or size(shape_of(given)) != 1 or not is_float(dtype_of(given)):
        raise InputError(f"t={t!r} does not name a floating input of one number: the inputs are "
                         f"{', '.join(map(str, model.inputs.values()))}")  # fmt: skip
    return float(given.item())


def match_precision(found: Any, x: Any) -> Any:
    """An array in the precision of x, if that is higher: compiled methods take no other."""
    return found * np.ones((), np.asarray(x).dtype) if isinstance(found, np.ndarray) else found


def check_alone(x: Any, rest: tuple[Any, ...]) -> Any:
    """x, if nothing is given besides it."""
    if rest:
        raise InputError("fun and jac take x alone, for other inputs call as_scipy again: "
                         "solve_ivp takes p.ode and p.ode_jac")  # fmt: skip
    return x


def split_vector(x: Any, sizes: list[int]) -> list[np.ndarray]:
    """A vector, split into parts of these sizes.

    >>> split_vector([1, 2, 3], [1, 2])
    [array([1]), array([2, 3])]
    """
    x = x if is_kept(x) else np.ravel(x)
    return [x[end - n : end] for n, end in zip(sizes, accumulate(sizes), strict=True)]


@overload
def as_scipy(
    model: ModelLike, inputs: Mapping[str, Any], *, of: Names = None, wrt: Names = None,
    engine: str | None = None, form: Literal["dense"], t: str | None = None,
) -> Problem[np.ndarray]: ...
@overload
def as_scipy(
    model: ModelLike, inputs: Mapping[str, Any], *, of: Names = None, wrt: Names = None,
    engine: str | None = None, form: Form = "operator", t: str | None = None,
) -> Problem[Any]: ...
@validated
def as_scipy(
    model: ModelLike,
    inputs: Mapping[str, Any],
    *,
    of: Names = None,
    wrt: Names = None,
    engine: str | None = None,
    form: Form = "operator",
    t: str | None = None,
) -> Problem[Any]:
    """x ↦ f(x), J(x), H(x) p: the model as `scipy.optimize` expects it.

    Use `minimize(p.fun, p.x0, jac=p.jac, hessp=p.hessp)` for a scalar `of`, or by one program
    `minimize(p.value_and_grad, p.x0, jac=True)`;
    `least_squares(p.fun, p.x0, jac=p.jac)` and `root(p.fun, p.x0, jac=p.jac)` for residuals, and
    `solve_ivp(p.ode, span, p.x0, method="BDF", jac=p.ode_jac)` for ẋ = f(x). Where f depends on the
    time, `t` is the input that holds it. `p.unflatten(x)` returns the tensors by name. x0, and ∇f
    and dense J at such an x, are of double precision: some methods take no other.

    `form` is the form of `jac` of a vector and of `hess`: an operator, an array or a sparse array.
    SciPy's methods multiply by Hessians or take them as arrays, so that `"sparse"` gives `hess` as
    an operator over the sparse entries, `hess(x).tosparse()`. A method that needs an array refuses
    any form except `"dense"`: "Implicit solvers" in the guide lists all methods by their forms.

    - `model`: the model, as `load` gives it.
    - `inputs`: the point, an array by name for every input; weights may be given too.
    - `of`: the tensors f, by name; by default all floating outputs.
    - `wrt`: the tensors x, by name; by default all floating inputs except `t`.
    - `engine`: `"onnxruntime"` (default where installed), `"numpy"`, `"torch"` or `"jax"` runs
      the model.

    Shapes: x is (n,), n the size of the tensors of `wrt`; f(x) is a float, or (m,), m the size of
    the tensors of `of`; J(x) is (m, n), ∇f(x) of a scalar (n,), H(x) (n, n), and multipliers v are
    (m,). Raises `InputError` for an unknown `form`, for bfloat16, which SciPy does not support,
    and where a name, a shape or a dtype does not fit; `UnsupportedOp` for an operator without a
    rule.
    """
    problem = Problem[Any](model, inputs, of, wrt, engine, form, t)
    if isinstance(problem.x0, np.ndarray):
        problem.x0 = problem.x0.astype(np.float64)
    return problem


@hooks.to_casadi.register(Model)
def to_casadi(
    model: ModelLike, *, of: Names, wrt: Names, inputs: Mapping[str, Any] | None, engine: str | None
) -> Any:  # fmt: skip
    """See `Model.to_casadi`: ones where no example is given."""
    optional("casadi", "casadi")
    model, at = as_model(model, of, wrt=wrt), dict(inputs or {})
    free = {name: spec for name, spec in model.inputs.items() if name not in at}
    chosen = names_of(model, wrt, free, "wrt")
    at = casadi.example_point(model, {*chosen} & free.keys(), at)
    return casadi.model_to_casadi(Problem(model, at, of, chosen, engine))


def states_of(model: Model, wrt: Names, t: str | None) -> tuple[str, ...]:
    """The tensors of `wrt`, by default all floating inputs but the time."""
    names = names_of(model, wrt, {k: spec for k, spec in model.inputs.items() if k != t}, "wrt")
    if t in names:
        raise InputError(f"t={t!r} is the time, and also among the states, wrt={[*names]}")
    return names


Value = TypeVar("Value")


class Memoized(Generic[Value]):
    """x ↦ f(x), computed again only if x differs from the last point; `count` says how often.

    f is also computed again after the declaration of an operator has changed. Threads may share f:
    the last point and its value are one object.

    >>> square = Memoized(lambda x: x @ x)
    >>> [square(np.array(x)) for x in ([1.0, 2.0], [1.0, 2.0], [0.0, 3.0])]
    [np.float64(5.0), np.float64(5.0), np.float64(9.0)]
    >>> square.count
    2
    """

    def __init__(self, compute: Callable[..., Value]) -> None:
        self.compute, self.count = compute, 0
        self.last: tuple[Value, Any, Any] | None = None

    def __call__(self, x: Any, *more: float) -> Value:
        x = x if is_kept(x) else np.asarray(x)
        value = self.known(x, *more)
        if value is None:
            declared, value = version(), self.compute(x, *more)
            self.last = value, deepcopy(x), (more, declared)
            self.count += 1
        return value

    def known(self, x: np.ndarray, *more: float) -> Value | None:
        """f(x), if x is the last point."""
        value, old, rest = self.last or (None, x, None)
        same = rest == (more, version()) and old.shape == x.shape and bool((old == x).all())
        return value if same else None
