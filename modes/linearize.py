"""Linearize: the model at a point becomes one Jacobian, shared by all its products."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..jacobians import Dag
from ..jacobians.errors import OnnxJacWarning
from .active import ActiveStep, active_steps, cuts
from .finite import warn_nonfinite
from .inputs import check_inputs
from .linearization import Linearization
from .model import Model, TensorSpec
from .names import Names, names_of
from .primal import evaluate
from .tape import dag_of, record


@dataclass(frozen=True)
class Plan:
    """All of a linearisation that does not depend on the point."""

    model: Model
    of: tuple[str, ...]
    wrt: tuple[str, ...]
    engine: str | None
    active: tuple[ActiveStep, ...]

    @classmethod
    def between(cls, model: Model, of: tuple[str, ...], wrt: tuple[str, ...], engine: str | None) -> Plan:
        """The plan for tensors that are known to be in the model."""
        return cls(model, of, wrt, engine, active_steps(model.steps, wrt, of))

    @property
    def values(self) -> tuple[str, ...]:
        """The tensors whose values the rules may read, and those at the two ends."""
        met = (n for a in self.active for n in (*a.step.inputs, *a.step.outputs) if n is not None)
        return tuple(dict.fromkeys((*met, *self.of, *self.wrt)))

    def at(self, inputs: Mapping[str, Any]) -> Linearization:
        """The Jacobian at a point."""
        point = check_inputs(self.model, inputs)
        values = evaluate(self.model, point, self.values, engine=self.engine)
        primal = {name: values[name] for name in self.of}
        warn_nonfinite(self.model, primal, point)
        shapes = {name: np.shape(value) for name, value in values.items()}
        dtypes = {name: np.asarray(values[name]).dtype for name in (*self.wrt, *self.of)}
        entries = record(self.active, values)
        dtype = np.result_type(*dtypes.values())
        dag = dag_of(entries, shapes, self.wrt, self.of, dtype)
        domain, codomain = (
            tuple(TensorSpec(n, shapes[n], dtypes[n]) for n in names) for names in (self.wrt, self.of)
        )
        return Linearization(
            dag, domain, codomain, primal=primal, point=point, entries=entries, plan=self
        )

    def zeros(self, dag: Dag, of: tuple[str, ...], wrt: tuple[str, ...]) -> tuple[str, ...]:
        """The pairs of tensors that no differentiable path joins, and what cuts the way."""
        return tuple(
            f"{o!r} does not depend differentiably on {w!r}{self._because(o, w)}"
            for o, sink in zip(of, dag.sinks, strict=True)
            for w, source in zip(wrt, dag.sources, strict=True)
            if o != w and not dag.joins(source, sink)
        )

    def _because(self, of: str, wrt: str) -> str:
        found = cuts(self.model.steps, wrt, of)
        return f" (cut by {', '.join(found)})" if found else ""


def linearize(
    model: Model,
    inputs: Mapping[str, Any],
    *,
    of: Names = None,
    wrt: Names = None,
    engine: str | None = None,
) -> Linearization:
    """J = ∂of/∂wrt at the point `inputs`, as a lazy linear operator.

    `wrt` and `of` name any tensors of the model: inputs, initializers, intermediates. By default
    they are all floating graph inputs and outputs. A tensor of `wrt` is perturbed where it
    stands: an intermediate keeps its dependence on other tensors of `wrt`.

    Shapes: (total size of `of`, total size of `wrt`), tensors ravelled and concatenated in order.
    Raises `InputError` for what does not fit, `UnsupportedOp` for an operator without a rule.
    """
    of_names = names_of(model, of, model.outputs, "of")
    wrt_names = names_of(model, wrt, model.inputs, "wrt")
    J = Plan.between(model, of_names, wrt_names, engine).at(inputs)
    if zeros := J.plan.zeros(J.dag, of_names, wrt_names):
        shown = "; ".join(zeros[:3]) + (f"; and {len(zeros) - 3} more" if zeros[3:] else "")
        warnings.warn(f"{shown}: zero blocks", OnnxJacWarning, stacklevel=2)
    return J
