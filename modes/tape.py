"""Tape: the model at a point, and the Jacobian blocks of the steps that matter there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..jacobians import Dag, Edge, Jacobian, Zero, dtype_of
from ..jacobians.errors import OnnxJacError, UnsupportedOp
from ..ops import Node, Step, find, numbers
from .active import ActiveStep
from .names import is_float

Values = dict[str, Any]


@dataclass(frozen=True)
class Entry:
    """One active step and its blocks, (output, input) -> operator."""

    step: Step
    blocks: Mapping[tuple[int, int], Jacobian]


def record(active: tuple[ActiveStep, ...], values: Values, op: Any = numbers) -> tuple[Entry, ...]:
    """The blocks of every active step; a value is let go when the last rule has seen it."""
    last = {name: k for k, a in enumerate(active) for name in (*a.step.inputs, *a.step.outputs)}
    entries = []
    for k, a in enumerate(active):
        entries.append(Entry(a.step, blocks_of(a, values, op)))
        for name in {*a.step.inputs, *a.step.outputs}:
            if name is not None and last[name] == k:
                values.pop(name, None)
    return tuple(entries)


def blocks_of(active: ActiveStep, values: Mapping[str, Any], op: Any) -> dict[tuple[int, int], Jacobian]:
    """The wanted blocks of a step between floating tensors, by its rule."""
    step = active.step
    declared = find(step.op_type, step.domain)
    if declared is None:
        raise UnsupportedOp(
            f"{step} has neither a rule nor a function body: register one with "
            f"@onnxjac.jacobian({(step.domain + '::' if step.domain else '') + step.op_type!r}), "
            f"see ops/ for examples. Its tensors: {tensors_text(step, values)}"
        )
    inputs, outputs = (tuple(None if n is None else values[n] for n in names)
                       for names in (step.inputs, step.outputs))  # fmt: skip
    wanted = frozenset((o, i) for o, i in active.wanted if has_tangent(outputs[o]) and has_tangent(inputs[i]))
    if not wanted:
        return {}
    try:
        with np.errstate(all="ignore"):
            blocks = declared.rule(op, Node(step, inputs, outputs, wanted))
    except OnnxJacError:
        raise
    except Exception as error:
        raise OnnxJacError(
            f"the rule of {step} failed on {tensors_text(step, values)}: "
            f"{type(error).__name__}: {error}"
        ) from error
    return {key: J for key, J in blocks.items() if key in wanted and not isinstance(J, Zero)}


def has_tangent(value: Any) -> bool:
    """Whether a value is a floating tensor."""
    return hasattr(value, "dtype") and is_float(dtype_of(value))


def tensors_text(step: Step, values: Mapping[str, Any]) -> str:
    """The tensors of a step with dtype and shape, for a message."""
    names = [n for n in (*step.inputs, *step.outputs) if n is not None]
    return ", ".join(
        f"{n} {values[n].dtype}{list(values[n].shape)}" if hasattr(values.get(n), "shape") else n
        for n in names
    )


def dag_of(
    entries: tuple[Entry, ...],
    shapes: Mapping[str, tuple[int, ...]],
    wrt: tuple[str, ...],
    of: tuple[str, ...],
    dtype: np.dtype,
) -> Dag:
    """The DAG of tensors and blocks between `wrt` and `of`.

    Tensors are numbered as the steps meet them, inputs before outputs, so that edges lead up.
    """
    number: dict[str, int] = {}
    edges, sizes = [], []
    for name in _met(entries, wrt, of):
        if name not in number:
            number[name] = len(sizes)
            sizes.append(shapes[name])
    for entry in entries:
        for (o, i), J in entry.blocks.items():
            start, end = entry.step.inputs[i], entry.step.outputs[o]
            edges.append(Edge(number[start or ""], number[end or ""], J))
    ends = (tuple(number[name] for name in names) for names in (wrt, of))
    return Dag(tuple(sizes), edges, *ends, dtype)


def _met(entries: tuple[Entry, ...], wrt: tuple[str, ...], of: tuple[str, ...]) -> Iterator[str]:
    for entry in entries:
        for names, slot in ((entry.step.inputs, 1), (entry.step.outputs, 0)):
            yield from (names[key[slot]] or "" for key in entry.blocks)
    yield from (*wrt, *of)
