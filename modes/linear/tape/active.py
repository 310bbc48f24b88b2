"""Active steps: the steps on a path between two sets of tensors, and what moves with them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from ....jacobians import Dag, Jacobian, size
from ....jacobians.arrays import buffer_of
from ....ops import Step, find
from ....ops.registry import traits_of
from ....ops.rules.quantization import DOMAIN as ESTIMATORS
from ...model.flow.steps import SHAPES, reads

Slot = tuple[int, int]
"""(output, input) of a step."""


Exact = Callable[[str], bool]

FEW = 2
"""How many of the steps that cut the same paths are named."""


@dataclass(frozen=True)
class ActiveStep:
    """A step on a path, and the blocks of its Jacobian that the path needs."""

    step: Step
    wanted: frozenset[Slot]

    @property
    def tensors(self) -> tuple[str, ...]:
        """The names of its inputs, then of its outputs."""
        return tuple(name for name in (*self.step.inputs, *self.step.outputs) if name is not None)


def without(steps: Iterable[Step], given: Collection[str]) -> tuple[Step, ...]:
    """The steps, without the outputs that are given instead of computed."""
    if not given:
        return tuple(steps)
    return tuple(
        replace(step, outputs=tuple(None if name in given else name for name in step.outputs))
        for step in steps
    )


def active_steps(
    steps: Iterable[Step], wrt: Iterable[str], of: Iterable[str]
) -> tuple[ActiveStep, ...]:
    """The steps on a differentiable path from a tensor of `wrt` to one of `of`, in order."""
    order = tuple(steps)
    reached = reach_forward(order, wrt)
    needed = reach_backward(order, of)
    found = []
    for step in order:
        if is_zero(step):
            continue
        outs = [o for o, name in enumerate(step.outputs) if name in needed]
        ins = [i for i, name in enumerate(step.inputs) if name in reached]
        if outs and not reached.isdisjoint(carriers(step)):
            found.append(ActiveStep(step, frozenset((o, i) for o in outs for i in ins)))
    return tuple(found)


def carriers(step: Step) -> Iterable[str | None]:
    """The tensors whose tangents the outputs may take."""
    return reads(step) if step.surrogate is None else (step.inputs[step.surrogate],)


def is_zero(step: Step | ir.Node) -> bool:
    """Whether the operator is declared to have no derivative."""
    declared = find(step.op_type, step.domain)
    return declared is not None and declared.zero is not None


def reach_forward(steps: Iterable[Step], names: Iterable[str]) -> set[str | None]:
    """The tensors that depend differentiably on some of the named ones."""
    reached: set[str | None] = set(names)
    for step in steps:
        if not is_zero(step) and not reached.isdisjoint(carriers(step)):
            reached.update(step.outputs)
    return reached - {None}


def reach_backward(steps: tuple[Step, ...], names: Iterable[str]) -> set[str | None]:
    """The tensors on which some of the named ones depend differentiably."""
    needed: set[str | None] = set(names)
    for step in reversed(steps):
        if not is_zero(step) and not needed.isdisjoint(step.outputs):
            needed.update(carriers(step))
    return needed - {None}


def cuts(
    steps: tuple[Step, ...], wrt: Iterable[str], of: Iterable[str], exact: Exact = lambda _: False
) -> tuple[tuple[Step, str], ...]:
    """The steps without a derivative on the paths between tensors, each with the reason.

    `exact` tells which tensors hold no floating-point numbers.
    """
    reached, behind = reach_forward(steps, wrt), set(of)
    for step in reversed(steps):
        if not behind.isdisjoint(step.outputs):
            behind.update(reads(step))
    found = []
    for step in steps:
        declared = find(step.op_type, step.domain)
        met = not reached.isdisjoint(reads(step)) and not behind.isdisjoint(step.outputs)
        if declared and declared.zero and met:
            found.append((step, declared.zero))
        elif met and is_rounded(reached.intersection(reads(step)), behind & {*step.outputs}, exact):
            found.append((step, "its result is not floating"))
    return tuple(found)


def is_rounded(read: Collection[Any], made: Collection[Any], exact: Exact) -> bool:
    """Whether a step makes other numbers than floating ones of floating ones."""
    return all(map(exact, made)) and not all(map(exact, read))


def unjoined(
    steps: tuple[Step, ...], dag: Dag, wrt: tuple[str, ...], of: tuple[str, ...],
    exact: Exact = lambda _: False,
) -> tuple[str, ...]:
    """The pairs of source and sink that no path of a DAG joins, and the steps that cut the paths.

    Pairs with an empty tensor are left out.
    """
    return tuple(
        f"{o!r} does not depend differentiably on {w!r}{because(steps, w, o, exact)}"
        for o, sink, behind in zip(of, dag.sinks, map(dag.behind, dag.sinks), strict=True)
        for w, source in zip(wrt, dag.sources, strict=True)
        if o != w and source not in behind and all(size(dag.shapes[i]) for i in (sink, source))
    )


def because(steps: tuple[Step, ...], wrt: str, of: str, exact: Exact) -> str:
    """The first steps that cut all paths between two tensors, as text; empty where none does."""
    found = [f"{s.op_type} {s.name!r} ({why})" for s, why in cuts(steps, [wrt], [of], exact)]
    text = ", ".join(found[:FEW]) + (f" and {len(found) - FEW} more" if found[FEW:] else "")
    return f" (cut by {text})" if text else ""


def straight_through(steps: Iterable[Step]) -> tuple[Step, ...]:
    """The same steps; roundings become estimators."""
    return tuple(
        replace(step, domain=ESTIMATORS, version=1)
        if not step.domain and find(step.op_type, ESTIMATORS)
        else step
        for step in steps
    )


def behind(step: Step, blocks: Iterable[Jacobian], values: Mapping[str, Any]) -> frozenset[str]:
    """The tensors of a step that its blocks depend on.

    A rule never looks at floating numbers, so a block depends on the tensors that it holds and on
    all integer and boolean tensors. A block with arrays that the rule computed depends on all
    tensors of the step, and so does a block of a foreign operator, whose rule may do anything.
    """
    names = frozenset(name for name in (*step.inputs, *step.outputs) if name is not None)
    owners = {buffer_of(values.get(name)): name for name in names}
    held = {buffer_of(array) for J in blocks for array in J.arrays()}
    if step.domain not in ("", "ai.onnx") or not held <= owners.keys():
        return names
    return frozenset(n for n in names if is_discrete(values.get(n))) | {owners[k] for k in held}


def is_discrete(value: Any) -> bool:
    """Whether a rule may look at the numbers of a value: integers, booleans, sequences."""
    return not isinstance(value, np.ndarray) or value.dtype.kind in "iub"


def moving(steps: Iterable[Step], names: Iterable[str], *, shapes: bool = False) -> set[str]:
    """The tensors that depend on the numbers, or also on the `shapes`, of named tensors."""
    found = set(names)
    for step in steps:
        seen = shapes or step.op_type not in SHAPES
        if traits_of(step).random or (seen and not found.isdisjoint(reads(step))):
            found.update(name for name in step.outputs if name is not None)
    return found
