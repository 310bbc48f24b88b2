"""Layers: implied tensors as functions of PyTorch and JAX, which train."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from ...jacobians import hooks
from ...jacobians.arrays import as_array, untraced
from ...jacobians.errors import InputError, optional
from ..interop.torch import own_tensor
from ..linear.chained import Implied
from ..model.primal.inputs import names_of
from ..solvers.implicit_system import DENSE_STATES
from .root import Root

NEWTON_STEPS = 50
"""The most steps of Newton's method inside JAX."""


@hooks.to_torch.register(Implied)
def torch_layer(implied: Any) -> Callable[..., Any]:
    """p ↦ x(p) as a function of PyTorch: see `Root.to_torch`."""
    apply, here = solved_function().apply, [implied]
    names = tuple(spec.name for spec in implied.J.domain)

    def layer(*tensors: Any) -> Any:
        check_count(tensors, names)
        values: tuple[Any, ...] = apply(here, names, *map(own_tensor, tensors))
        return values[0] if len(values) == 1 else values

    return untraced(layer)


def check_count(given: tuple[Any, ...], names: tuple[str, ...]) -> None:
    """Raises `InputError` unless there is an argument for each parameter."""
    if len(given) != len(names):
        raise InputError(f"give {len(names)} arguments, {[*names]}, not {len(given)}")


@cache
def solved_function() -> Any:
    """The `torch.autograd.Function` of a solution; its backward is a product with Jᵀ."""
    torch = optional("torch", "torch")
    Base: Any = torch.autograd.Function

    class Solved(Base):
        @staticmethod
        def forward(ctx: Any, here: list[Any], names: tuple[str, ...], *tensors: Any) -> Any:
            here[0] = ctx.found = here[0].at(dict(zip(names, map(as_array, tensors), strict=True)))
            ctx.names, ctx.dtypes = names, [t.dtype for t in tensors]
            ctx.save_for_backward(*tensors)  # so that a change in place is noticed
            return tuple(map(own_tensor, ctx.found.tensors.values()))

        @staticmethod
        def backward(ctx: Any, *u: Any) -> Any:
            if torch.is_grad_enabled() and any(map(needs_gradient, (*u, *ctx.saved_tensors))):
                raise InputError("a layer of a root has first derivatives alone: for second ones "
                                 "take oj.hessian(model, {name: root})")  # fmt: skip
            cotangents = dict(zip(ctx.found.tensors, map(as_array, u), strict=True))
            made = ctx.found.J.T.apply(cotangents)
            slopes = (own_tensor(made[name]).to(dtype)
                      for name, dtype in zip(ctx.names, ctx.dtypes, strict=True))  # fmt: skip
            return None, None, *slopes

    return Solved


def needs_gradient(tensor: Any) -> bool:
    """Whether a derivative of a derivative is asked for."""
    return bool(tensor.requires_grad)


@hooks.to_jax.register(Root)
def jax_layer(root: Root) -> Callable[..., Any]:
    """p ↦ x*(p) as a function of JAX: see `Root.to_jax`."""
    jax = optional("jax", "jax")
    jnp, equations, norm = jax.numpy, root.equations, jax.numpy.linalg.norm
    free = {n: s for n, s in equations.model.inputs.items() if n not in equations.x}
    names = names_of(equations.model, equations.wrt, free, "wrt")
    fixed = {n: v for n, v in root.point.items() if n not in (*names, *equations.x)}
    F = equations.model.to_jax(of=equations.of, wrt=(*equations.x, *names), inputs=fixed)
    start = [jnp.asarray(root.tensors[name]) for name in equations.x]
    flat, unflatten = optional("jax.flatten_util", "jax").ravel_pytree(start)
    eps = float(jnp.finfo(flat.dtype).eps)

    def solve(A: Any, b: Any) -> Any:
        """A⁻¹ b: by a dense matrix where there are few unknowns, else by GMRES."""
        if b.size <= DENSE_STATES:
            return jnp.linalg.solve(jax.jacobian(A)(b), b)

        def gmres(A: Any, b: Any) -> Any:
            return jax.scipy.sparse.linalg.gmres(A, b, tol=eps**0.75, atol=0.0, maxiter=100)[0]

        return jax.lax.custom_linear_solve(A, b, gmres, gmres)  # whose tolerance is not linear in b

    def residual(x: Any, args: Any) -> Any:
        values = F(*unflatten(x), *args)
        several = values if isinstance(values, tuple) else (values,)
        return jnp.concatenate([jnp.ravel(value) for value in several])

    @jax.custom_jvp
    def newton(args: Any) -> Any:
        """Steps t δ with ∂F/∂x δ = −F, t = 1, ½, …, as long as ‖F‖ falls; NaN where it stays."""

        def step(state: Any) -> Any:
            x, value, _, k = state
            size = norm(value)
            delta = solve(jax.linearize(lambda x: residual(x, args), x)[1], -value)

            def rises(t: Any) -> Any:
                return (norm(residual(x + t * delta, args)) > size) & (t > 1e-3)

            t = jax.lax.while_loop(rises, lambda t: t / 2, jnp.ones((), x.dtype))
            return x + t * delta, residual(x + t * delta, args), size, k + 1

        def goes_on(state: Any) -> Any:
            _, value, before, k = state
            return (norm(value) > 0) & (norm(value) < 0.9 * before) & (k < NEWTON_STEPS)

        start = flat, residual(flat, args), jnp.asarray(jnp.inf, flat.dtype), 0
        x, value, *_ = jax.lax.while_loop(goes_on, step, start)
        return jnp.where(norm(value) <= eps**0.5 * (1 + norm(x)), x, jnp.nan)

    @newton.defjvp
    def moved(primals: Any, tangents: Any) -> Any:
        """dx = −(∂F/∂x)⁻¹ ∂F/∂p dp."""
        (args,) = primals
        x = newton(args)
        _, pushed = jax.jvp(lambda args: residual(x, args), primals, tangents)
        return x, solve(jax.linearize(lambda x: residual(x, args), x)[1], -pushed)

    def layer(*args: Any) -> Any:
        check_count(args, names)
        x = unflatten(newton(tuple(map(jnp.asarray, args))))
        return x[0] if len(x) == 1 else tuple(x)

    return layer
