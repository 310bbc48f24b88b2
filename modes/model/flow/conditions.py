"""Conditions of a model: those under which a recorded derivative is right, in its metadata."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import onnx_ir as ir

from ....jacobians.arrays import host
from ....jacobians.conditions import Condition
from ....jacobians.errors import InputError, warn
from .contents import Contents, free_sizes

GUARDS = "onnxjac.guards"
"""Key of the metadata with the relations of sizes and integers under which a model is right."""

HELD = "onnxjac.held"
"""Key of the metadata with the tensors that became constants."""

FIXED = "onnxjac.fixed"
"""Key of the metadata with the free sizes and the control flow that are as at the point."""

ELSEWHERE = (
    "for others export it again, at a point of these; where a constant of the file holds the size, "
    "write the file with dynamic axes"
)
"""What to do about a fixed size."""

RELATION_ENTRIES = 2000
"""The most entries of an integer input that relations may read."""


def state(graph: ir.Model, conditions: Iterable[Condition]) -> None:
    """Warn of conditions, each kind of them once, and write them into the metadata of a graph."""
    kinds: dict[str, list[Condition]] = {}
    for condition in conditions:
        kinds.setdefault(condition.kind, []).append(condition)
    if sizes := kinds.get("size"):
        warn(f"{'; '.join(map(str, sizes))}; {ELSEWHERE}")
    for condition in kinds.get("unrolled", ()):
        warn(str(condition))
    if fixed := (*kinds.get("size", ()), *kinds.get("unrolled", ())):
        graph.metadata_props[FIXED] = "\n".join(str(replace(c, reader="")) for c in fixed)
    if held := kinds.get("numbers"):
        parts = ", ".join(f"{c.name!r} ({c.reader})" for c in held)
        warn(f"the derivative holds only for the numbers that the point gives these: {parts}")
        graph.metadata_props[HELD] = ", ".join(c.name for c in held)
    if relations := kinds.get("relation"):
        parts = ", ".join(f"{c.name} ({c.reader})" for c in relations)
        warn(f"the derivative holds only where {parts}")
        graph.metadata_props[GUARDS] = "\n".join(c.name for c in relations)


def where_right(metadata: Mapping[str, str]) -> list[str]:
    """The lines of the metadata that say where a recorded derivative is right."""
    held = filter(None, metadata.get(HELD, "").split(", "))
    said = [str(Condition("numbers", name)) for name in held]
    return [*metadata.get(FIXED, "").splitlines(), *said, *metadata.get(GUARDS, "").splitlines()]


def check_relations(model: Contents, point: Mapping[str, Any]) -> None:
    """Raises `InputError` where a recorded derivative is not valid at the point.

    Relations of intermediate values, and of names that are not identifiers, are not checked.
    """
    numbers = sizes_and_integers(model, point)
    for text in model.ir.metadata_props[GUARDS].splitlines():
        if Condition("relation", text).holds(numbers) is False:
            raise InputError(
                f"this derivative was recorded for points where {text}, which is not so here: "
                "export it again at a point like this one"
            )


def sizes_and_integers(model: Contents, point: Mapping[str, Any]) -> dict[str, int]:
    """The free sizes and the small integers of a point, as relations name them."""
    found: dict[str, int] = {}
    for name, sizes in free_sizes(model.inputs).items():
        array = host(point[name])
        found |= {size: array.shape[axis] for axis, size in sizes.items()}
        if array.dtype.kind in "iu" and array.size <= RELATION_ENTRIES:
            found |= {f"{name}[{k}]": int(n) for k, n in enumerate(array.ravel())}
    return found
