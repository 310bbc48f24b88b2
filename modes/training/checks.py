"""What the specification of Gradient asks of a node, and onnx's checker does not look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir

from ...jacobians import Dag, dtype_of
from ...jacobians.errors import InputError, UnknownTensor, closest
from ...ops import Step
from ...ops.graphs import operands_of
from ..flow.steps import reads
from ..naming.names import is_float
from ..tape.active import is_zero, reach_forward
from .walk import INITIALIZER, ancestors, leaves

Names = tuple[str, ...]


def attributes(step: Step) -> tuple[Names, Names, str]:
    """`xs`, `zs` and `y`, with no tensor listed twice."""
    xs, zs = tuple(step.attrs.get("xs", ())), tuple(step.attrs.get("zs", ()))
    twice = [name for k, name in enumerate((*xs, *zs)) if name in (*xs, *zs)[:k]]
    if twice:
        raise InputError(f"{step} lists {twice[0]!r} twice in xs and zs")
    return xs, zs, step.attrs["y"]


def arity(step: Step, inputs: Sequence[Any], xs: Names, zs: Names) -> None:
    """One input for every listed tensor, at most one output for every x."""
    if len(inputs) != len(xs) + len(zs) or None in inputs:
        given = len([value for value in inputs if value is not None])
        listed = ", ".join((*xs, *zs))
        count = len(xs) + len(zs)
        raise InputError(f"{step} has {given} inputs, but lists {count} tensors: {listed}")
    if len(step.outputs) > len(xs):
        raise InputError(f"{step} has {len(step.outputs)} outputs for {len(xs)} tensors in xs")


def find(values: Mapping[str, ir.Value], step: Step, name: str) -> ir.Value:
    """The tensor of a name, which must stand before the node."""
    if name not in values:
        raise UnknownTensor(
            f"{step} names {name!r}, which is no input, no initializer and nothing that an earlier "
            f"node computes.{closest(name, values)}"
        )
    return values[name]


def floating(step: Step, names: Names, values: Sequence[ir.Value]) -> None:
    """y and every x are floating tensors."""
    for name, value in zip(names, values, strict=True):
        if not is_float(dtype_of(value)):
            kind = dtype_of(value)
            raise InputError(f"{step} cannot differentiate: {name!r} is a tensor of {kind}")


def same_types(
    step: Step, names: Names, values: Sequence[ir.Value], inputs: Sequence[ir.Value]
) -> None:
    """A given value has the type of the tensor that it stands for."""
    for name, value, given in zip(names, values, inputs, strict=True):
        old, new = dtype_of(value), dtype_of(given)
        if old != new:
            raise InputError(f"{step} is given {new} for {name!r}, which is {old}")


def independent(step: Step, names: Names, values: Sequence[ir.Value]) -> None:
    """No listed tensor is computed from another one."""
    known: dict[ir.Value, str] = {}
    for name, value in zip(names, values, strict=True):
        if value in known:
            first = known[value]
            raise InputError(f"{step} lists {first!r} and {name!r}, which are the same tensor")
        known[value] = name
    for value, name in known.items():
        for node in ancestors([value]):
            for other in operands_of(node):
                if other in known:
                    raise InputError(
                        f"{step} lists {name!r}, which is determined by {known[other]!r}, listed "
                        "too: the tensors in xs and zs must be independent"
                    )


def complete(step: Step, nodes: list[ir.Node], listed: Sequence[ir.Value], y: ir.Value) -> None:
    """The listed tensors and initializers determine y."""
    open_leaves = [value for value in leaves(nodes, y)
                   if value.const_value is None and INITIALIZER not in value.meta]  # fmt: skip
    missing = [value.name or "" for value in open_leaves if value not in listed]
    if missing:
        named = ", ".join(map(repr, missing))
        raise InputError(
            f"{step}: {step.attrs['y']!r} also depends on {named}, in neither xs nor zs: list "
            "what it depends on and is not differentiated in zs"
        )


def differentiable(step: Step, steps: Sequence[Step], dag: Dag, wrt: Names, y: str) -> None:
    """Where y depends on an x, some path must have a derivative.

    Steps without a name stem from other Gradients: what cuts the way there is a derivative that
    vanishes almost everywhere, as that of Relu's step does, and zero is right.
    """
    for name, source in zip(wrt, dag.sources, strict=True):
        if dag.joins(source, dag.sinks[0]) or name == y:
            continue
        reached = reach_forward(steps, [name])
        cut = [s for s in steps if s.name and is_zero(s) and not reached.isdisjoint(reads(s))]
        if cut:
            raise InputError(
                f"{step}: {y!r} is not differentiable in {name!r}, as {cut[0]} lies between"
            )
