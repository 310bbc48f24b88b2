"""Initial value problems: M u̇ = f(t, u) for a model of f, stiff or differential-algebraic."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Literal, cast

import numpy as np

from ...jacobians import dtype_of, shape_of, size
from ...jacobians.arguments import Above0, Range, validated
from ...jacobians.arrays import host
from ...jacobians.errors import InputError, NotConverged, OnnxJacWarning
from ..model.primal.inputs import Names
from ..model.primal.model import ModelLike
from .implicit_system import ImplicitSystem, LinearSolver, first_length, started
from .iteration import OptimizeResult, Preconditioner
from .problem import Problem

Event = Callable[[float, np.ndarray], Any]


class OdeResult(OptimizeResult):
    """SciPy's result of `solve_ivp`, with the states by name in `tensors`."""

    t: np.ndarray  # type: ignore[assignment]  # all times, where others have one
    y: np.ndarray
    sol: Any
    t_events: Any
    y_events: Any
    nlu: int


@validated
def solve_ivp(
    model: ModelLike,
    inputs: Mapping[str, Any],
    t_span: Sequence[float],
    *,
    of: Names = None,
    wrt: Names = None,
    t: str | None = None,
    method: Literal["BDF", "Rosenbrock"] = "BDF",
    mass: Any = None,
    rtol: Above0 = 1e-3,
    atol: Any = 1e-6,
    max_order: Annotated[int, Range(1, below=6)] = 5,
    first_step: Above0 | None = None,
    max_step: Annotated[float, Range(0, open=True, limit=True)] = np.inf,
    linear_solver: LinearSolver = "auto",
    preconditioner: Preconditioner | None = None,
    t_eval: Any = None,
    dense_output: bool = False,
    events: Event | Sequence[Event] | None = None,
    engine: str | None = None,
) -> OdeResult:
    """M u̇ = f(t, u) over `t_span`, by implicit methods with exact Jacobians and step control.

    f are the tensors of `of`, and u the tensors of `wrt`, in the same order. A singular `mass`
    makes some equations algebraic, 0 = f: a DAE, which must be of index 1. Its algebraic states are
    a guess at the start, corrected by Newton's method with M u unchanged.

    | `method` | order | a step | for |
    |---|---|---|---|
    | `"BDF"` | 1 to `max_order` | 1 to 2 f; J and LU once in several steps | most |
    | `"Rosenbrock"` | 5 | 8 f, J, LU | low accuracy, oscillations, many events |

    The error of a step is at most `atol` + `rtol` |u|, as a root mean square. SciPy's `solve_ivp`
    follows the steps: `t_eval`, `dense_output`, `events` and the fields of the result are as there,
    `t`, `y`, `sol`, `t_events`, `y_events`, `nfev`, `njev`, `nlu`, `status`, `message`, `success`.
    Besides, `tensors` has the states by name, a time per row, and `products` the number of products
    with M − c J that GMRES took.

    - `model`: the model of f, as `load` gives it.
    - `inputs`: the point at the start; other inputs than u and the time are parameters.
    - `t`: the input that holds the time, if f depends on it; it runs over `t_span`.
    - `mass`: M, as a vector (its diagonal), an array, a sparse array or an operator; by default I.
    - `atol`: a number, or one for every state.
    - `first_step`, `max_step`: lengths of steps; by default the first follows from ü.
    - `linear_solver`: `"dense"` or `"sparse"` LU of M − c J, or `"krylov"`: GMRES, by products with
      J alone. By default dense for up to 100 states and for full Jacobians, sparse for others, and
      Krylov with a `preconditioner`, or where J does not fit in memory.
    - `preconditioner`: an M ≈ A⁻¹ for A = M − c J, or a function that builds it from A, which is
      called again where it no longer serves.
    - `events`: functions of (t, u), whose zeros are found; with attributes `terminal`, `direction`.
    - `engine`: `"onnxruntime"` (default where installed), `"numpy"`, `"torch"` or `"jax"` runs
      the model.

    Shapes: u and f are (n,), flat, in events too; M and J are (n, n); `y` is (n, times). Raises
    `InputError` where a shape, a name or an option does not fit, where f or an event is not finite,
    and for initial values that no correction makes consistent; `UnsupportedOp` for an operator
    without a rule. A step that becomes too small raises nothing: see `success` and `message`.

    Sources: Shampine and Reichelt, "The MATLAB ODE suite", 1997; Steinebach, "Construction of
    Rosenbrock-Wanner method Rodas5P", BIT 63, 2023.
    """
    from scipy import integrate  # which imports much

    from .bdf import BDF
    from .rosenbrock import Rosenbrock
    from .step_control import least_step

    problem = Problem[Any](model, inputs, of, wrt, engine, t=t)
    begin, end = checked_span(t_span)
    tolerance = error_scale(rtol, atol, problem)
    times, events = checked_times(t_eval, begin, end), checked_events(events)
    if max_step < (least := least_step(max(abs(begin), abs(end)))):
        raise InputError(f"max_step={max_step:g} is below {least:.0e}, as far as times go that "
                         f"are as large as {max(abs(begin), abs(end)):g}")  # fmt: skip
    with trials():
        system = ImplicitSystem(problem, mass, linear_solver, preconditioner)
        y, slope, second = consistent_start(system, begin, tolerance)
        if first_step is None:
            first_step = min(0.01 * abs(end - begin), first_length(second, tolerance(y)))
        found = cast(Any, integrate.solve_ivp)(
            system.rates, (begin, end), y, BDF if method == "BDF" else Rosenbrock, times,
            dense_output, events or None, system=system, slope=slope, tolerance=tolerance,
            max_order=max_order, first_step=first_step, max_step=max_step,
        )  # fmt: skip
    found.t = np.asarray(found.t)
    found.y = np.reshape(found.y, (len(y), len(found.t)))  # where t_eval is empty, SciPy gives []
    counts = {name: getattr(system, name) for name in ("nfev", "njev", "nlu", "products")}
    return OdeResult({**found, **counts, "tensors": by_name(problem, found.y)})


def by_name(problem: Problem, y: np.ndarray) -> dict[str, np.ndarray]:
    """y of shape (n, times) as the states, each of shape (times, …)."""
    ends = np.cumsum([size(shape_of(u)) for u in problem.start.values()])
    parts = zip(problem.start.items(), np.split(y, ends[:-1]), strict=True)
    return {name: part.T.reshape(y.shape[1], *shape_of(u)) for (name, u), part in parts}


@contextmanager
def trials() -> Iterator[None]:
    """Without warnings that are none here: a trial that overflows, or leaves the domain of f, is a
    step that fails, and states and the time need not be in every equation.

    Where a path is cut, as by a tree's thresholds, the warning of zeros remains.
    """
    with np.errstate(all="ignore"), warnings.catch_warnings():
        for usual in (".* is not finite at this point", "(?!.*cut by).*: zero blocks"):
            warnings.filterwarnings("ignore", usual, OnnxJacWarning)
        yield


def consistent_start(
    system: ImplicitSystem, begin: float, tolerance: Callable[[np.ndarray], np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """u, u̇ and ü at the start; raises `InputError` where nothing near satisfies a DAE."""
    try:
        return started(system, begin, checked_start(system, begin), tolerance)
    except NotConverged as error:
        message = f"no consistent start: {error}. The algebraic equations must determine the "
        message += "algebraic states (index 1), from a guess near them"
        raise InputError(message) from None


def checked_start(system: ImplicitSystem, begin: float) -> np.ndarray:
    """u at the start, where u and f are finite, and f has the shapes of u."""
    u = host(system.problem.x0).astype(float)
    f, rates = system.rates(begin, u), system.problem.shapes
    states = {name: shape_of(x) for name, x in system.problem.start.items()}
    if [*rates.values()] != [*states.values()]:
        raise InputError(f"the rates have shapes {rates}, but the states {states}: name the states "
                         "by wrt=, and their rates, in the same order, by of=")  # fmt: skip
    for name, values in (("the state", u), ("the rate", f)):
        if not (finite := np.isfinite(values)).all():
            k = int(np.argmin(finite))
            raise InputError(f"{name} is {values[k]} at the start, t={begin:g}, in entry {k}")
    return u


def checked_span(span: Any) -> tuple[float, float]:
    """The times at the start and at the end."""
    times = as_numbers(span)
    if times is None or times.shape != (2,) or not np.isfinite(times).all():
        raise InputError(f"t_span={span!r} is not two finite times, the start and the end")
    return float(times[0]), float(times[1])


def checked_times(given: Any, begin: float, end: float) -> np.ndarray | None:
    """The times of `t_eval`: inside the span, and in its direction."""
    if given is None:
        return None
    times, forward = as_numbers(given), 1 if end >= begin else -1
    if times is None or times.ndim != 1 or not (
        (np.diff(forward * times) > 0).all()
        and ((times - begin) * forward >= 0).all() and ((end - times) * forward >= 0).all()
    ):  # fmt: skip
        raise InputError(f"t_eval holds no times from {begin:g} to {end:g}, in this order, each "
                         "once")  # fmt: skip
    return times


def as_numbers(given: Any) -> np.ndarray | None:
    """An array of real numbers, or None."""
    try:
        array = np.asarray(given)
    except ValueError:  # of lists of several lengths
        return None
    return array.astype(float) if array.dtype.kind in "fiu" else None


def error_scale(rtol: float, atol: Any, problem: Problem) -> Callable[[np.ndarray], np.ndarray]:
    """u ↦ atol + rtol |u|."""
    absolute, n = as_numbers(atol), len(problem.x0)
    if absolute is None or absolute.shape not in ((), (n,)) or not (
        np.isfinite(absolute) & (absolute > 0)
    ).all():  # fmt: skip
        raise InputError(f"atol must be a number above 0, or one for each of the {n} states: at 0 "
                         "a state has no relative error")  # fmt: skip
    dtype = dtype_of(problem.x0)
    if rtol < (least := 10 * float(np.finfo(dtype).eps)):
        raise InputError(f"rtol={rtol:g} is below {least:.0e}, as far as numbers of {dtype} go: "
                         "load(dtype='float64') has more digits")  # fmt: skip
    return lambda y: absolute + rtol * np.abs(y)


def checked_events(given: Any) -> list[Event]:
    """The events as SciPy takes them; their values are checked as they come."""
    several = given if isinstance(given, list | tuple) else [] if given is None else [given]
    return [checked_event(event) for event in several]


def checked_event(event: Event) -> Event:
    """An event whose values are finite numbers."""
    count, way = getattr(event, "terminal", None) or 0, as_numbers(getattr(event, "direction", 0.0))
    if not (callable(event) and isinstance(count, int | np.integer | np.bool_) and count >= 0
            and way is not None and way.ndim == 0):  # fmt: skip
        raise InputError(f"{event!r} is no event: a function of (t, u), with `terminal` True, "
                         "False or a count, and `direction` a number")  # fmt: skip

    def checked(t: float, y: np.ndarray) -> float:
        value = as_numbers(given := event(t, y))
        if value is None or value.size != 1 or not np.isfinite(value).all():
            raise InputError(f"an event has the value {given!r} at t={t:g}: one finite number is "
                             "due, which changes its sign where the event is")  # fmt: skip
        return float(value.item())

    checked.terminal, checked.direction = count, way  # type: ignore[attr-defined]  # SciPy's
    return checked
