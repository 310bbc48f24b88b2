"""Checks: what a case must satisfy. Each gives the greatest error over the error that it allows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...jacobians import Jacobian
from ...jacobians.cached import cached_property
from ..checking.check import dot_error
from ..hessian import hessian
from ..linearization import Linearization
from ..linearize import linearize
from ..load import load
from ..model import Model
from ..primal.evaluate import evaluate
from ..recording.derive import jvp_graph, vjp_graph
from .cases import Case
from .differences import SINGLE, STEPS, has_tangents, is_single, mismatch, slope_error

NUMPY = "numpy"
WIDTHS = {8: 1e-9, 4: 1e-4, 2: 5e-2}
"""Bytes of a float -> what rounding may cost in a product."""


@dataclass(frozen=True)
class Problem:
    """A model at a point, and its Jacobian between all floating inputs and outputs."""

    model: Model
    point: Mapping[str, Any]
    J: Linearization

    @cached_property
    def single(self) -> bool:
        """Whether single precision is met on the way."""
        return is_single(self.model)

    @property
    def tolerance(self) -> float:
        """What rounding may cost in a product, by the narrowest tensor at an end."""
        ends = (np.dtype(spec.dtype).itemsize for spec in (*self.J.domain, *self.J.codomain))
        return WIDTHS[min(self.J.dtype.itemsize, 4 if self.single else 8, *ends)]

    def draw(self, seed: int, specs: Any) -> dict[str, np.ndarray]:
        """Normal numbers in the space of every tensor."""
        rng = np.random.default_rng(seed)
        return {s.name: np.asarray(rng.standard_normal(s.shape), s.dtype) for s in specs}


def problem(case: Case, point: Mapping[str, Any], dtype: str | None) -> Problem | None:
    """The case in double precision or its own; None without floating tensors on both ends.

    A whole model is differentiated in its weights, too.
    """
    model = load(case.model, dtype=dtype)
    weights = {} if case.kind == "node" else model.initializers
    of, wrt = (
        tuple(n for n, spec in side.items() if spec.dtype is not None and has_tangents(spec.dtype))
        for side in (model.outputs, {**model.inputs, **weights})
    )
    if not of or not wrt:
        return None
    given = {name: x.astype(model.inputs[name].dtype) for name, x in point.items()}
    given.update((name, model.constants[name]) for name in weights if name in wrt)
    return Problem(model, given, linearize(model, given, of=of, wrt=wrt, engine=NUMPY))


def slopes(p: Problem) -> float:
    """J v against central differences, v in one floating input after the other."""
    steps, enough = (SINGLE, 2e-3) if p.single else (STEPS, 1e-6)
    model = p.J.route.model  # which holds what random operators drew

    def run(point: Mapping[str, Any]) -> dict[str, np.ndarray]:
        return evaluate(model, point, p.model.outputs, engine=NUMPY)

    errors = [
        slope_error(run, p.point, {name: v}, finite_part(p, p.J.apply({name: v})), steps, enough)
        for name, v in p.draw(0, p.J.domain).items()
        if v.size
    ]
    return max(errors, default=0.0) / enough


def finite_part(p: Problem, pushed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The tangents of finite results; an infinite one, as masks give, has no slope."""
    return {name: np.where(np.isinf(p.J.primal[name]), 0, dy) for name, dy in pushed.items()}


def is_zero(p: Problem) -> bool:
    """Whether J takes a random vector to zero."""
    return not np.any(p.J @ np.random.default_rng(5).standard_normal(p.J.shape[1]))


def adjoint(p: Problem) -> float:
    """⟨u, J v⟩ = ⟨Jᵀ u, v⟩."""
    rng = np.random.default_rng(1)
    u, v = (rng.standard_normal(n).astype(p.J.dtype) for n in p.J.shape)
    return dot_error(p.J, u, v) / p.tolerance


def recorded(p: Problem, engine: str) -> float:
    """The JVP and the VJP as graphs, run by an engine, against the products with numbers."""
    of, wrt = (tuple(spec.name for spec in side) for side in (p.J.codomain, p.J.domain))
    errors = []
    for make, K, kind in ((jvp_graph, p.J, "tangent"), (vjp_graph, p.J.T, "cotangent")):
        seeds = p.draw(2, K.domain)
        graph = make(p.model, p.point, of, wrt, NUMPY).model(kind)
        given = {**p.point, **{f"{name}_{kind}": seed for name, seed in seeds.items()}}
        found = evaluate(graph, given, graph.outputs, engine=engine)
        for name, y in K.apply(seeds).items():
            recorded = found[f"{name}_{kind}"].astype(float)
            errors.append(mismatch(recorded, y.astype(float), floor=1.0))
    return max(errors) / p.tolerance


def symmetry(p: Problem) -> float:
    """⟨u, H v⟩ = ⟨v, H u⟩ for the Hessian H of a random combination of each output."""
    wrt = tuple(spec.name for spec in p.J.domain)
    errors = [
        asymmetry(hessian(p.model, p.point, of=of, wrt=wrt, weights=w, engine=NUMPY))
        for of, w in p.draw(3, p.J.codomain).items()
    ]
    return max(errors) / p.tolerance


def asymmetry(H: Jacobian) -> float:
    """|⟨u, H v⟩ - ⟨v, H u⟩| over ‖u‖ ‖H v‖."""
    u, v = np.random.default_rng(4).standard_normal((2, H.shape[0])).astype(H.dtype)
    Hu, Hv = H @ u, H @ v
    scale = max(float(np.linalg.norm(u) * np.linalg.norm(Hv)), 1.0)
    return abs(float(u @ Hv) - float(v @ Hu)) / scale
