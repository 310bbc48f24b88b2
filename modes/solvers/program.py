"""Program: a nonlinear program of ONNX models, with exact sparse derivatives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, final

import numpy as np
from scipy.sparse import csr_array

from ...jacobians import Shape, prod_text, size
from ...jacobians.arguments import validated
from ...jacobians.errors import InputError, UnknownTensor, closest
from ..interop.casadi import program_to_casadi
from ..interop.cyipopt import to_cyipopt, to_pynumero
from ..interop.nlopt import to_nlopt
from ..model.primal.inputs import Names, as_point, check_named, distinct, hosted, names_of
from ..model.primal.model import Model, as_model
from ..sparse import pattern
from ..sparse.fixed_pattern import FixedPattern, Placed
from .problem import Problem, split_vector

Pair = tuple[np.ndarray, np.ndarray]
"""Lower and upper bounds, or rows and columns."""


class Functions:
    """f and c of one model in its own variables, and where these lie in x: `columns`.

    `all` computes f, if the model has it, and then c; `objective` and `constraints` one of them.
    """

    def __init__(
        self, model: Model, inputs: Mapping[str, Any], objective: tuple[str, ...],
        constraints: tuple[str, ...], wrt: tuple[str, ...], engine: str | None,
    ) -> None:  # fmt: skip
        def functions(of: tuple[str, ...]) -> Problem[Any]:
            return Problem(model, inputs, of, wrt, engine)

        self.all = functions((*objective, *constraints))
        alone = not (objective and constraints)
        self.objective = self.all if alone else functions(objective)
        self.constraints = self.all if alone else functions(constraints)
        self.names, self.count = constraints, len(objective)
        self.shapes = [self.all.shapes[name] for name in constraints]
        self.columns = np.zeros(0, int)

    def weights(self, multipliers: np.ndarray, factor: float) -> np.ndarray:
        """The multipliers of f and c together."""
        return np.concatenate([np.full(self.count, factor), multipliers])


@final
class NonlinearProgram:
    """min f(x) where lower ≤ x ≤ upper and l ≤ c(x) ≤ u, with ∇f, J = ∂c/∂x and ∇²(σ f + λᵀc).

    x are the tensors of `wrt`, ravelled in order, and c the constraints. J and the Hessian have the
    same entries in the same order at all points and for all multipliers λ: `jac_structure` and
    `hess_structure` are their rows and columns, in int32 where that fits, found from the structure
    of the models and not from numbers. The Hessian is the lower triangle there.

    `x0` is the start, `bounds` and `constraint_bounds` are pairs of vectors, `n` and `m` the sizes
    of x and c; `parts` are the functions of each model. `problem` makes a program.

    Shapes: x is (n,), c(x) and λ (m,), J(x) (m, n), the Hessian (n, n). Raises `InputError` where
    a vector does not fit, and where a point has an entry that the structure does not have, which a
    loop whose number of turns depends on x may cause.
    """

    def __init__(
        self, parts: Sequence[Functions], wrt: tuple[str, ...], bounds: Any, constraint_bounds: Any
    ) -> None:
        self.parts, self.wrt = parts, wrt
        self.start: dict[str, np.ndarray] = {}
        for part in parts:
            for name, tensor in part.all.start.items():
                known = self.start.setdefault(name, tensor)
                if known.shape != tensor.shape:
                    raise InputError(f"{name!r} is {prod_text(known.shape)} in one model and "
                                     f"{prod_text(tensor.shape)} in another")  # fmt: skip
        self.start = {name: self.start[name] for name in wrt}
        self.x0 = self.flatten(self.start)
        self._place()
        self.n, self.m = len(self.x0), sum(len(rows) for rows in self.rows)
        shapes = [(name, x.shape) for name, x in self.start.items()]
        self.bounds = limits(bounds, shapes, (-np.inf, np.inf), "bounds")
        self.names = [pair for part in parts for pair in zip(part.names, part.shapes, strict=True)]
        self.constraint_bounds = limits(constraint_bounds, self.names, (0, 0), "constraint_bounds")
        self._jac = FixedPattern((self.m, self.n), [
            Placed(pattern(J), rows, part.columns)
            for (part, rows), J in zip(self._constrained(), self._jacobians(self.x0), strict=True)
        ])  # fmt: skip
        ones = np.ones(self.m)
        self._hess = FixedPattern((self.n, self.n), [
            Placed(pattern(H), part.columns, part.columns)
            for part, H in zip(parts, self._hessians(self.x0, ones, 1.0), strict=True)
        ], lower=True)  # fmt: skip

    def _place(self) -> None:
        """Where the variables of each part lie in x, and its constraints in c."""
        starts = accumulate((x.size for x in self.start.values()), initial=0)
        first = dict(zip(self.start, starts, strict=False))
        for part in self.parts:
            spans = [first[name] + np.arange(x.size) for name, x in part.all.start.items()]
            part.columns = np.concatenate(spans)
        counts = [sum(map(size, part.shapes)) for part in self.parts]
        tops = accumulate(counts, initial=0)
        self.rows = [top + np.arange(n) for top, n in zip(tops, counts, strict=False)]

    # -- tensors ------------------------------------------------------------------------------

    def flatten(self, tensors: Mapping[str, Any]) -> np.ndarray:
        """The tensors of `wrt`, `tensors` by name, as one vector x."""
        check_named(tensors)
        return np.concatenate([np.ravel(tensors[name]).astype(float) for name in self.wrt])

    def unflatten(self, x: np.ndarray) -> dict[str, np.ndarray]:
        """The tensors of `wrt` in a vector x by name."""
        parts = split_vector(self._checked(x), [tensor.size for tensor in self.start.values()])
        pairs = zip(self.start.items(), parts, strict=True)
        return {name: part.reshape(a.shape).astype(a.dtype) for (name, a), part in pairs}

    # -- values and derivatives -------------------------------------------------------------

    def objective(self, x: np.ndarray) -> float:
        """f(x)."""
        part, x = self.parts[0], self._checked(x)
        return float(part.all.values(self._of(part, x))[0])

    def gradient(self, x: np.ndarray) -> np.ndarray:
        """∇f(x), of shape (n,)."""
        part, x = self.parts[0], self._checked(x)
        return spread(part.objective.slopes(self._of(part, x))[1], part.columns, self.n)

    def constraints(self, x: np.ndarray) -> np.ndarray:
        """c(x), of shape (m,)."""
        x, found = self._checked(x), np.zeros(self.m)
        for part, rows in self._constrained():
            found[rows] = part.all.values(self._of(part, x))[part.count :]
        return found

    def jacobian(self, x: np.ndarray) -> csr_array[Any]:
        """J(x) = ∂c/∂x as a sparse array, whose `data` are in the order of `jac_structure`."""
        return self._jac.matrix(self.jac_values(x))

    def jac_values(self, x: np.ndarray) -> np.ndarray:
        """The entries of J(x), in the order of `jac_structure`."""
        return self._jac.values([J.tosparse() for J in self._jacobians(self._checked(x))])

    def hessian(
        self, x: np.ndarray, multipliers: Any = 0.0, factor: float = 1.0
    ) -> csr_array[Any]:  # fmt: skip
        """∇²(σ f + λᵀc)(x) with λ the `multipliers` and σ the `factor`, a symmetric sparse array.

        The `multipliers` are (m,), or one number for all.
        """
        return self._hess.matrix(self.hess_values(x, multipliers, factor))

    def hess_values(
        self, x: np.ndarray, multipliers: Any = 0.0, factor: float = 1.0
    ) -> np.ndarray:  # fmt: skip
        """The entries of ∇²(σ f + λᵀc)(x) on and below the diagonal, as in `hess_structure`.

        λ are the `multipliers`, σ is the `factor`.
        """
        x, v = self._checked(x), np.asarray(multipliers, float)
        if v.ndim and v.shape != (self.m,):
            raise InputError(f"{v.size} multipliers for {self.m} constraints")
        v = np.broadcast_to(v, self.m)
        return self._hess.values([H.tosparse() for H in self._hessians(x, v, factor)])

    @property
    def jac_structure(self) -> Pair:
        """The rows and columns of the entries of J, at all points."""
        return self._jac.rows, self._jac.columns

    @property
    def hess_structure(self) -> Pair:
        """The rows and columns of the Hessian's entries on and below the diagonal, always."""
        return self._hess.rows, self._hess.columns

    def _jacobians(self, x: np.ndarray) -> Iterator[Any]:
        for part, _ in self._constrained():
            yield part.constraints.linearized(self._of(part, x))

    def _hessians(self, x: np.ndarray, v: np.ndarray, factor: float) -> Iterator[Any]:
        for part, rows in zip(self.parts, self.rows, strict=True):
            yield part.all.weighted(self._of(part, x), part.weights(v[rows], factor))

    def _constrained(self) -> list[tuple[Functions, np.ndarray]]:
        """The parts with constraints, and their rows in c."""
        pairs = zip(self.parts, self.rows, strict=True)
        return [(part, rows) for part, rows in pairs if part.names]

    def _of(self, part: Functions, x: np.ndarray) -> np.ndarray:
        return x[part.columns]

    def _checked(self, x: Any) -> np.ndarray:
        x = np.asarray(x, float)
        if x.shape != (len(self.x0),):
            raise InputError(f"x has shape {list(x.shape)}, not ({len(self.x0)},): the tensors "
                             f"{', '.join(self.wrt)}, as flatten() joins them")  # fmt: skip
        return x

    # -- other tools --------------------------------------------------------------------------

    def to_scipy(self, *, hess: bool = True) -> dict[str, Any]:
        """The arguments of SciPy's `minimize(**p.to_scipy(), method="trust-constr")`.

        Methods without Hessians, as SLSQP, take `hess=False`.
        """
        from scipy.optimize import Bounds, NonlinearConstraint

        def rows_of_c(rows: np.ndarray) -> NonlinearConstraint:
            """Some constraints, whose multipliers v are among λ."""
            by_v: Any = {"hess": lambda x, v: self.hessian(x, spread(v, rows, self.m), 0.0)}
            return NonlinearConstraint(
                lambda x: self.constraints(x)[rows], low[rows], high[rows],
                jac=lambda x: self.jacobian(x)[rows], **(by_v if hess else {}),
            )  # fmt: skip

        low, high = self.constraint_bounds
        kinds = np.flatnonzero(low == high), np.flatnonzero(low < high)  # as SciPy prefers them
        return {
            "fun": self.objective, "x0": self.x0, "jac": self.gradient,
            "hess": self.hessian if hess else None,
            "bounds": Bounds(*self.bounds) if np.isfinite(self.bounds).any() else None,
            "constraints": [rows_of_c(rows) for rows in kinds if len(rows)],
        }  # fmt: skip

    def to_cyipopt(self) -> dict[str, Any]:
        """The arguments of `cyipopt.Problem(**p.to_cyipopt())`, and of pounce's `Problem`."""
        return to_cyipopt(self)

    def to_pynumero(self) -> Any:
        """What PyNumero's `CyIpoptSolver` takes. Needs cyipopt too."""
        return to_pynumero(self)

    def to_casadi(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What CasADi's `nlpsol` takes, x, f and g, and what its solver takes, x0 and the bounds.

        `nlp, start = p.to_casadi()`, then `nlpsol("solver", "ipopt", nlp)(**start)`.
        """
        return program_to_casadi(self)

    @validated
    def to_nlopt(self, algorithm: str = "LD_SLSQP", *, tol: float = 1e-8) -> Any:
        """An `nlopt.opt` with objective, constraints and bounds: `p.to_nlopt().optimize(p.x0)`.

        `algorithm` is NLopt's name of a method, and constraints hold up to `tol`.
        """
        return to_nlopt(self, algorithm, tol)

    def __repr__(self) -> str:
        x = ", ".join(f"{name} {prod_text(a.shape)}" for name, a in self.start.items())
        c = ", ".join(f"{name} {prod_text(shape)}" for name, shape in self.names)
        (f,), st = self.parts[0].all.of[:1], f" subject to {c}" if c else ""
        return f"min {f}({x}){st}: {self.n} variables, {self.m} constraints"


def spread(v: np.ndarray, at: np.ndarray, n: int) -> np.ndarray:
    """A vector of n numbers, v at some places and 0 elsewhere.

    >>> spread(np.array([5.0]), np.array([1]), 3)
    array([0., 5., 0.])
    """
    found = np.zeros(n)
    found[at] = v
    return found


def limits(
    given: Any, tensors: Sequence[tuple[str, Shape]], default: tuple[Any, Any], argument: str
) -> Pair:
    """Lower and upper bounds as vectors, given by a pair for all tensors or by pairs by name.

    >>> limits({"y": (None, [1, 2])}, [("x", (1,)), ("y", (2,))], (0, 0), "bounds")
    (array([  0., -inf, -inf]), array([0., 1., 2.]))
    """
    names = [name for name, _ in tensors]
    pairs = given if isinstance(given, Mapping) else dict.fromkeys(names, given)
    for name in pairs:
        if name not in names:
            raise UnknownTensor(f"{argument}= has no tensor {name!r}.{closest(name, names)}")
    lower, upper = [np.zeros(0)], [np.zeros(0)]
    for name, shape in tensors:
        pair = default if pairs.get(name) is None else pairs[name]
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise InputError(f"{argument}= of {name!r} is a pair (lower, upper), not {pair!r}")
        ends = (end if x is None else x for x, end in zip(pair, (-np.inf, np.inf), strict=True))
        try:
            low, high = (np.broadcast_to(np.asarray(x, float), shape).ravel() for x in ends)
        except (TypeError, ValueError) as error:
            raise InputError(f"{argument}= of {name!r} do not fit {prod_text(shape)}") from error
        if not (low <= high).all():
            raise InputError(f"{argument}= of {name!r}: some lower bound is above the upper one")
        lower, upper = [*lower, low], [*upper, high]
    return np.concatenate(lower), np.concatenate(upper)


@validated
def problem(
    objective: Any,
    inputs: Any,
    *,
    constraints: Any = None,
    wrt: Names = None,
    bounds: Any = None,
    constraint_bounds: Any = None,
    engine: str | None = None,
) -> NonlinearProgram:
    """min f(x) where lower ≤ x ≤ upper and l ≤ c(x) ≤ u: a nonlinear program of ONNX models.

    f, ∇f, c, the sparse J = ∂c/∂x and the sparse Hessian of σ f + λᵀc are exact, and J and the
    Hessian have the same entries at all points. `to_scipy`, `to_cyipopt`, `to_casadi` and
    `to_nlopt` of the result give what these libraries take.

    - `objective`: f, a model with one number as output; `(model, "cost")` names a tensor of it.
    - `inputs`: the start and all other inputs, arrays by name. Inputs of one name in several
      models are one tensor.
    - `constraints`: c, a model with any outputs, `(model, ["a", "b"])` for some tensors of it, or a
      list of such; by default none. Of the model of the objective, all its other outputs.
    - `wrt`: x, inputs or weights by name; by default all floating inputs.
    - `bounds`, `constraint_bounds`: a pair (lower, upper), or such pairs by name, of numbers or of
      arrays; None is no bound. By default x is free, and c(x) = 0.
    - `engine`: `"onnxruntime"` (default where installed), `"numpy"`, `"torch"` or `"jax"` runs
      the models.

    Shapes: x is (n,), n the size of the tensors of `wrt`, c(x) (m,). Raises `InputError` where f
    is not one number and where a name, a shape or a bound does not fit, `UnsupportedOp` for an
    operator without a rule.

    >>> import onnx.parser
    >>> from onnxjac import load
    >>> model = load(onnx.parser.parse_model('''<ir_version: 10, opset_import: ["": 21]>
    ... p (double[2] x) => (double f, double[1] c) <int64[1] all = {0}> {
    ...     f = ReduceSum <keepdims = 0> (x, all)  c = ReduceSumSquare (x, all) }'''))
    >>> p = problem((model, "f"), {"x": [1.0, 0.5]}, constraints=model, constraint_bounds=(1, 1))
    >>> p
    min f(x 2) subject to c 1: 2 variables, 1 constraints
    >>> p.jacobian(p.x0).toarray(), p.hess_structure
    (array([[2., 1.]]), (array([0, 1], dtype=int32), array([0, 1], dtype=int32)))
    """
    loaded: dict[int, Any] = {}
    given = [("objective", objective), *(("constraints", c) for c in listed_functions(constraints))]
    found: dict[int, tuple[list[str], list[str]]] = {}
    for role, function in given:
        thing, names = function if isinstance(function, tuple) else (function, None)
        model = loaded.setdefault(id(thing), as_model(thing))
        f, c = found.setdefault(id(thing), ([], []))
        outputs = {k: spec for k, spec in model.outputs.items() if k not in f}
        chosen = names_of(as_model(model, names), names, outputs, role)
        if role == "objective" and len(chosen) != 1:
            raise InputError(f"the objective is one number, not {', '.join(chosen)}: name it, "
                             f"objective=(model, {chosen[0]!r})")  # fmt: skip
        (f if role == "objective" else c).extend(name for name in chosen if name not in c)
    models = list(loaded.values())
    x = variables_of(models, wrt)
    points = points_of(models, inputs)
    own = [tuple(name for name in x if has_tensor(model, name)) for model in models]
    parts = [
        Functions(model, point, tuple(f), tuple(c), names, engine)
        for model, point, (f, c), names in zip(models, points, found.values(), own, strict=True)
    ]
    if not parts[0].objective.scalar:
        (name,) = parts[0].objective.of
        shape = prod_text(parts[0].objective.shapes[name])
        raise InputError(f"the objective {name!r} is {shape}, not one number")
    return NonlinearProgram(parts, x, bounds, constraint_bounds)


def listed_functions(constraints: Any) -> list[Any]:
    """The constraints as a list of models and pairs."""
    if constraints is None:
        return []
    return list(constraints) if isinstance(constraints, list) else [constraints]


def variables_of(models: Iterable[Model], wrt: Names) -> tuple[str, ...]:
    """The names of the tensors of x; by default all floating inputs of the models."""
    if wrt is None:
        each = (names_of(model, None, model.inputs, "wrt") for model in models)
        return tuple(dict.fromkeys(name for names in each for name in names))
    names = distinct(wrt, "wrt")
    check_known(names, models, "wrt names")
    return names


def points_of(models: Sequence[Model], inputs: Any) -> list[Mapping[str, Any]]:
    """The inputs of each model."""
    if len(models) == 1:
        return [hosted(as_point(models[0], inputs))]
    if not isinstance(inputs, Mapping):
        kind = type(inputs).__name__
        raise InputError(f"inputs of several models are a dict from name to array, not {kind}")
    check_known(inputs, models, "inputs have")
    return [hosted({name: x for name, x in inputs.items() if has_tensor(model, name)})
            for model in models]  # fmt: skip


def check_known(names: Iterable[str], models: Iterable[Model], what: str) -> None:
    """Raises `UnknownTensor` for a name that is an input or a weight of none of the models."""
    for name in names:
        if not any(has_tensor(model, name) for model in models):
            each = ((*model.inputs, *model.initializers) for model in models)
            known = dict.fromkeys(n for names in each for n in names)
            raise UnknownTensor(f"{what} {name!r}, which no model has.{closest(name, known)}")


def has_tensor(model: Model, name: str) -> bool:
    """Whether a name, or the name of a part such as `x[0]`, is an input or a weight."""
    return name.partition("[")[0] in {*model.inputs, *model.initializers}
