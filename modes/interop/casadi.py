"""CasADi: models and programs as Functions with exact sparse derivatives, for nlpsol and Opti."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from ...jacobians import Shape, size
from ...jacobians.errors import InputError, optional
from ..model.flow.contents import unique_name
from ..model.primal.inputs import as_point
from ..model.primal.model import Model
from .casadi_callbacks import casadi_function


def at_last_point(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of vectors that is computed again only where they change."""
    known = lru_cache(maxsize=1)(lambda *keys: function(*map(np.frombuffer, keys)))
    return lambda *vectors: known(*(np.asarray(v, float).tobytes() for v in vectors))


def model_to_casadi(functions: Any) -> Any:
    """The Function of a model's `functions` of one vector, from the tensors x to the tensors y."""
    ca, f = optional("casadi", "casadi"), functions
    jac = at_last_point(lambda x: f.linearized(x).tosparse())
    hess = at_last_point(lambda x, u: f.weighted(x, u).tosparse())
    m = sum(map(size, f.shapes.values()))
    core = casadi_function(f.values, jac, hess, lambda x, u: f.linearized(x).T @ u, f.x0, m)
    ins = [ca.MX.sym("x", *dims(tensor.shape)) for tensor in f.start.values()]
    y = core(ca.vertcat(*(ca.vec(X.T) for X in ins)))  # a matrix by columns, a tensor by rows
    ends = np.cumsum([0, *map(size, f.shapes.values())]).tolist()
    pairs = zip(ca.vertsplit(y, ends), f.shapes.values(), strict=True)
    outs = [ca.reshape(part, *dims(shape)[::-1]).T for part, shape in pairs]
    used = set[str]()
    names = ([unique_name(casadi_name(name), used) for name in side]
             for side in (f.start, f.shapes))  # fmt: skip
    return ca.Function("model", ins, outs, *names)


def program_to_casadi(program: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """What `nlpsol` takes for a `program`, and what the solver that it gives is called with."""
    ca, p = optional("casadi", "casadi"), program
    x = ca.MX.sym("x", p.n)
    f = casadi_function(
        p.objective, lambda x: one_row(p.gradient(x)),
        at_last_point(lambda x, u: p.hessian(x, 0.0, u[0])), lambda x, u: u * p.gradient(x),
        p.x0, 1,
    )  # fmt: skip
    c = casadi_function(
        p.constraints, p.jacobian, at_last_point(lambda x, u: p.hessian(x, u, 0.0)),
        lambda x, u: p.jacobian(x).T @ u, p.x0, p.m,
    )  # fmt: skip
    (lbx, ubx), (lbg, ubg) = p.bounds, p.constraint_bounds
    start = {"x0": p.x0, "lbx": lbx, "ubx": ubx, "lbg": lbg, "ubg": ubg}
    return {"x": x, "f": f(x), "g": c(x) if p.m else ca.MX(0, 1)}, start


def example_point(model: Model, names: Iterable[str], inputs: Any) -> dict[str, Any]:
    """The inputs, and ones for the tensors of these names that are not among them."""
    at = dict(as_point(model, {} if inputs is None else inputs))
    for name in {*names} - at.keys():
        spec = model.spec(name)
        if spec.shape is None or not all(isinstance(n, int) for n in spec.shape):
            raise InputError(f"{spec} has no fixed size: give an example in inputs= and name it, "
                             f"wrt={name!r}")  # fmt: skip
        at[name] = np.ones(spec.shape, spec.dtype)
    return at


def one_row(v: np.ndarray) -> csr_array[Any]:
    """A vector as a matrix of one row, in which every entry is kept."""
    return csr_array((v, np.arange(len(v)), [0, len(v)]), (1, len(v)))


def dims(shape: Shape) -> tuple[int, int]:
    """The shape of a tensor as a matrix: of rank 2 as it is, others as a column.

    >>> dims((2, 3)), dims((2, 3, 4)), dims(())
    ((2, 3), (24, 1), (1, 1))
    """
    return (shape[0], shape[1]) if len(shape) == 2 else (size(shape), 1)


NOT_ALLOWED = re.compile(r"^(?=(fwd|adj|jac)[^_]*_|out_|[0-9])")
"""Where names begin that CasADi refuses, or gives to derivatives, with a number before a `_`."""


def casadi_name(name: str) -> str:
    """A name that CasADi takes for a tensor, and for no derivative of one.

    >>> casadi_name("fc1.weight"), casadi_name("_θ"), casadi_name("adjusted_x"), casadi_name("0")
    ('fc1_weight', 'x', 'x_adjusted_x', 'x_0')
    """
    return NOT_ALLOWED.sub("x_", re.sub(r"[^0-9A-Za-z]+", "_", name).strip("_") or "x")
