"""Root: x*(p) with F(x*, p) = 0, and its derivatives by the implicit function theorem."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, final

import numpy as np

from ...jacobians import Block, Identity
from ...jacobians.arguments import Above0, Count, NonNegative, Positive, validated
from ...jacobians.arrays import host
from ...jacobians.errors import InputError, NotConverged
from ...jacobians.hooks import to_jax
from ...jacobians.threads import cached_property
from ..gradient import Gradient
from ..hessian import Hessian
from ..linear.chained import Implied, Named, chain_jacobians, chained_hessian, implied_in
from ..linear.derivatives.route import route_of
from ..linear.linearization import Linearization, linearized
from ..linear.symmetric import Curvature, Symmetric
from ..model.flow.contents import unique_name
from ..model.flow.nodes import Nodes
from ..model.primal.inputs import Names, names_of
from ..model.primal.model import Model, ModelLike, as_model
from ..solvers.anderson import anderson
from ..solvers.implicit_system import LinearSolver
from ..solvers.initial_value import trials
from ..solvers.iteration import OptimizeResult, Preconditioner
from ..solvers.levenberg_marquardt import levenberg_marquardt
from ..solvers.roots import newton_krylov
from .export_root import export_root
from .linear_solves import LinearSolves

Method = Literal["newton_krylov", "levenberg_marquardt", "anderson"]


@validated
def root(
    model: ModelLike,
    inputs: Mapping[str, Any],
    *,
    of: Names = None,
    x: Names,
    wrt: Names = None,
    fixed_point: bool = False,
    method: Method | None = None,
    linear_solver: LinearSolver = "auto",
    preconditioner: Preconditioner | None = None,
    rtol: NonNegative | None = None,
    atol: NonNegative | None = None,
    linear_rtol: NonNegative | None = None,
    maxiter: Count | None = None,
    engine: str | None = None,
) -> Root:
    """x* with F(x*, p) = 0, and dx*/dp = −(∂F/∂x)⁻¹ ∂F/∂p as a lazy operator.

    F are the tensors of `of`, x the inputs that `x` names, p the tensors of `wrt`. With
    `fixed_point`, the equation is x = f(x, p) for the tensors f of `of`, and F = f − x.

    | `method` | finds x* by | for |
    |---|---|---|
    | `"newton_krylov"` | steps J δ = −F, see `newton_krylov` | most equations (the default) |
    | `"anderson"` | x + F(x), accelerated, F alone | fixed points (their default) |
    | `"levenberg_marquardt"` | min ‖F‖², see `levenberg_marquardt` | poor guesses |

    The result has the values in `tensors`, by name, and dx*/dp in `J`: a product J v is one solve
    with ∂F/∂x, and Jᵀ u one with its transpose. It may be an input of another model:
    `oj.linearize(loss, {"x": root})` is the derivative of the whole in p, `oj.hessian` the second
    one, and `oj.root` takes it too. `root.at(inputs)` solves again, from this x*.

    - `model`: the model, as `load` gives it.
    - `inputs`: the point, an array by name for every input; x is a first guess.
    - `of`: the tensors F, by name; by default all floating outputs.
    - `x`: the tensors x, by name: inputs of the model.
    - `wrt`: the tensors p, by name; by default all other floating inputs.
    - `fixed_point`: True for x = f(x, p), False for F(x, p) = 0.
    - `method`: from the table.
    - `linear_solver`: `"dense"` or `"sparse"` LU of ∂F/∂x, kept while its entries stay the same, or
      `"krylov"`. By default dense for up to 100 unknowns and for full Jacobians, sparse for others,
      and Krylov with a `preconditioner`, or where ∂F/∂x does not fit in memory.
    - `preconditioner`: an M ≈ (∂F/∂x)⁻¹, or a function that builds it from ∂F/∂x; for
      `"newton_krylov"` and the solves of dx*/dp.
    - `rtol`, `atol`: the tolerances of F, see `newton_krylov`; `linear_rtol`: the tolerance of
      Krylov solves of dx*/dp, see `inverse`.
    - `maxiter`: the most iterations, by default as the method has it.
    - `engine`: `"onnxruntime"` (default where installed), `"numpy"`, `"torch"` or `"jax"` runs
      the model.

    Shapes: J is (size of x, size of p). Raises `InputError` where F holds more or fewer numbers
    than x, where x is among `wrt`, and where a name, a shape or a dtype does not fit;
    `NotConverged` where no root is found; `UnsupportedOp` for an operator without a rule. J raises
    `InputError` where ∂F/∂x is singular.

    Sources: Krantz and Parks, "The implicit function theorem", 2002; Bai, Kolter and Koltun, "Deep
    equilibrium models", 2019.
    """
    source = as_model(model, of, wrt=wrt)
    states = names_of(source, x, source.inputs, "x")
    rows = names_of(source, of, source.outputs, "of")
    equation = residual_of(source, rows, states) if fixed_point else source
    rows = tuple(equation.outputs)[-len(states) :] if fixed_point else rows
    chosen = method or ("anderson" if fixed_point else "newton_krylov")
    solvers: dict[str, Callable[..., OptimizeResult]] = {
        "newton_krylov": partial(newton_krylov, preconditioner=preconditioner),
        "levenberg_marquardt": levenberg_marquardt,
        "anderson": anderson,
    }
    tolerances: dict[str, Any] = {"rtol": rtol, "atol": atol, "maxiter": maxiter, "engine": engine}
    if chosen == "levenberg_marquardt":
        tolerances = {"tol": rtol, "maxiter": maxiter, "engine": engine}
    given = {name: value for name, value in tolerances.items() if value is not None}
    what = f"∂({', '.join(rows)})/∂({', '.join(states)})"
    equations = Equations(
        equation, rows, states, wrt, engine, partial(solvers[chosen], **given),
        LinearSolves(linear_solver, preconditioner, what, linear_rtol), chosen,
    )  # fmt: skip
    return equations.solved(inputs)


def residual_of(model: Model, of: tuple[str, ...], x: tuple[str, ...]) -> Model:
    """f − x for each pair of tensors, as further outputs `x_residual`."""
    if len(of) != len(x):
        raise InputError(f"a fixed point has as many tensors of=, {[*of]}, as x=, {[*x]}")
    copy = model.ir.clone()
    for f, name in zip(of, x, strict=True):
        spec = model.spec(name)
        if spec.dtype is None:
            raise InputError(f"x={name!r} is no tensor of a known type")
        nodes = Nodes(copy, spec.dtype, f"{name}_residual")
        made = nodes.add("Sub", nodes.values[f], nodes.values[name])
        made.name = unique_name(f"{name}_residual", nodes.taken)
        copy.graph.outputs.append(made)
    return Model(copy, model.limits)


@final
@dataclass(frozen=True, eq=False)
class Equations:
    """F(x, p) = 0 and how it is solved: F are the tensors `of` of a `model`, p are `wrt`."""

    model: Model
    of: tuple[str, ...]
    x: tuple[str, ...]
    wrt: Names
    engine: str | None
    solve: Callable[..., OptimizeResult]
    solves: LinearSolves
    method: str

    def solved(self, inputs: Mapping[str, Any]) -> Root:
        """The root near the x of the inputs, some of which may be implied themselves."""
        sources, values = implied_in(inputs)
        if not sources:
            free = {n: spec for n, spec in self.model.inputs.items() if n not in self.x}
            names = names_of(self.model, self.wrt, free, "wrt")
            if twice := {*names} & {*self.x}:
                raise InputError(f"wrt={min(twice)!r} is among x, which the equations define")
        with trials():
            found = self.solve(self.model, values, of=self.of, wrt=self.x)
        if not (found.success and self.vanishes(found)):
            size = float(np.linalg.norm(host(found.fun)))
            raise NotConverged(
                f"{self.method} finds no root of {', '.join(self.of)} in {', '.join(self.x)}: "
                f"{found.message}, with ‖F‖ = {size:.2g} after {found.nit} iterations; give a "
                "better first guess, another method=, or a larger maxiter="
            )
        return Root(self, {**values, **found.tensors}, sources, found)

    def vanishes(self, found: OptimizeResult) -> bool:
        """Whether F is small at the end; a minimum of ‖F‖² need not be a root."""
        if self.method != "levenberg_marquardt":
            return True
        F, x = host(found.fun), host(found.x)
        scale = np.linalg.norm(host(found.jac @ x)) if hasattr(found, "jac") else 0.0
        return bool(np.linalg.norm(F) <= np.finfo(F.dtype).eps ** 0.5 * max(1.0, float(scale)))


@final
class Root(Implied):
    """x*(p) with F(x*, p) = 0: its values in `tensors`, and dx*/dp in `J`.

    `equations` are F and how F = 0 is solved, `point` all inputs of the model there, `sources`
    those among them that are implied themselves, and `result` is the solver's.
    """

    def __init__(
        self, equations: Equations, point: Mapping[str, Any], sources: Mapping[str, Implied],
        result: OptimizeResult,
    ) -> None:  # fmt: skip
        self.equations, self.point, self.sources, self.result = equations, point, sources, result
        self.tensors = {name: result.tensors[name] for name in equations.x}

    @property
    def x(self) -> np.ndarray:
        """x*, flat."""
        return self.result.x

    @cached_property
    def J(self) -> Named:
        """dx*/dp = −(∂F/∂x)⁻¹ ∂F/∂p, between the tensors of `wrt` and of x."""
        e, inputs = self.equations, {**self.point, **self.sources}
        if self.sources:
            return chain_jacobians(
                e.model, inputs, e.wrt, lambda _, wrt: self._own(wrt), self._again
            )
        free = {n: spec for n, spec in e.model.inputs.items() if n not in e.x}
        return self._own(names_of(e.model, e.wrt, free, "wrt"))

    def _again(self, inputs: Mapping[str, Any]) -> Named:
        return self.at(inputs).J

    def _linearized(self, wrt: tuple[str, ...]) -> Linearization:
        """∂F/∂(x, p) at the root."""
        e = self.equations
        route = route_of(e.model, e.of, (*e.x, *wrt), e.engine, e.model.estimates)
        return linearized(route, self.point)  # where a block may be zero

    def _own(self, wrt: tuple[str, ...]) -> Named:
        """dx*/dp in tensors of this model alone."""
        e, whole = self.equations, self._linearized(wrt)
        A, B = whole.block(e.of, e.x), whole.block(e.of, wrt)
        return Named(-(e.solves(A) @ B), B.domain, A.domain, self.tensors, self._again)

    def curvature(self, weights: Mapping[str, Any]) -> Curvature:
        """∂²⟨w, x*(p)⟩/∂p² = Sᵀ ∂²⟨λ, F⟩/∂(x, p)² S, with S = d(x*, p)/dp and ∂F/∂xᵀ λ = −w.

        - `weights`: w, an array by name of x.

        Shape: (size of p, size of p). Raises `InputError` where a weight does not fit.
        """
        e, inputs = self.equations, {**self.point, **self.sources}
        again = partial(self._curved, weights)
        if self.sources:
            return chained_hessian(e.model, inputs, e.wrt, partial(self._own_part, weights), again)
        return self._own_part(weights, inputs, tuple(s.name for s in self.J.domain))[0]

    def _curved(self, weights: Mapping[str, Any], inputs: Mapping[str, Any]) -> Curvature:
        return self.at(inputs).curvature(weights)

    def _own_part(
        self, weights: Mapping[str, Any], _: Mapping[str, Any], wrt: tuple[str, ...]
    ) -> tuple[Curvature, Mapping[str, Any]]:
        """The second and first derivatives of ⟨w, x*⟩ in tensors of this model alone."""
        e, J, A = self.equations, self._own(wrt), self._linearized(())
        multipliers = Named(-e.solves(A).T, A.domain, A.codomain, {})
        f = Gradient(e.model, e.of, (*e.x, *wrt), multipliers.apply(weights), e.engine)
        H = Hessian(f.linearized(self.point), f)
        S = Block([[J.operator], [Identity(J.in_shape, J.dtype)]])
        C = Symmetric(S.T @ (H @ S), J.domain, partial(self._curved, weights), "∂²⟨w, x*⟩/∂p²")
        return C, J.T.apply(weights)

    def at(self, inputs: Mapping[str, Any]) -> Root:
        """The root at other inputs, those that are not given as they were, from this x*.

        - `inputs`: arrays by name.

        Raises what `root` raises.
        """
        return self.equations.solved({**self.point, **self.sources, **inputs})

    def to_jax(self) -> Callable[..., Any]:
        """p ↦ x*(p), the tensors of `wrt` in order, as a function of JAX.

        Newton's method from this x* and its derivatives to any order run inside JAX, under `jit`,
        `vmap` and `grad`; x* is NaN where the method does not converge. Needs `onnxjac[jax]`.

        Shapes: as the model declares its tensors. Raises `InputError` without JAX.
        """
        found: Callable[..., Any] = to_jax(self)
        return found

    @validated
    def export(
        self, loss: ModelLike | None = None, inputs: Mapping[str, Any] | None = None, *,
        of: str | None = None, wrt: Names = None, rtol: Above0 = 1e-6, maxiter: Positive = 50,
    ) -> Any:  # fmt: skip
        """x* and its adjoint as plain ONNX, which any runtime executes: by Loops.

        (inputs, `{x}_cotangent`) ↦ (`{x}_root`, `{x}_residual`, `{p}_cotangent`), and with a `loss`
        (inputs) ↦ (the loss, its `{w}_grad`, `{x}_root`, `{x}_residual`, `{p}_grad`): a training
        step's gradients. `{x}_residual` is ‖F‖. Newton's method starts at the input x, by full
        steps; their systems, and the transposed one of the adjoint, are solved by BiCGSTAB. So the
        adjoint is the implicit function theorem's, to `rtol`. Weights among p and w are inputs, by
        default as they are.

        - `loss`: a model of x*, with one scalar `of`; `inputs` are its inputs, this root among
          them.
        - `wrt`: further tensors w of the loss, by name.
        - `rtol`: ‖F‖ over √(1 + ‖x‖²) at the end, and the relative residual of linear systems.
        - `maxiter`: the most steps of Newton's method; linear systems take up to 20 times as many.

        Shapes: as the models declare their tensors, free dimensions included. Raises `InputError`
        where F is not one tensor of the size of x, and as `oj.export` does.
        """
        return export_root(self, loss, inputs or {}, of, wrt, rtol, maxiter)

    def __repr__(self) -> str:
        e = self.equations
        return (f"root of ({', '.join(e.of)}) in ({', '.join(e.x)}), by {e.method} in "
                f"{self.result.nit} iterations")  # fmt: skip
