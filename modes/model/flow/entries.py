"""Entries: `logits[0,3]` and `logits[:, 3]` name parts of a tensor, as NumPy indexes it.

A part that is read is selected behind the tensor. A part that is perturbed is selected and put back
into the tensor, whose readers read the result.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable
from functools import partial
from types import EllipsisType
from typing import Any

import numpy as np
import onnx_ir as ir

from ....jacobians.errors import InputError
from .contents import Contents, TensorSpec, unique_name
from .nodes import Nodes

Index = tuple[int | slice | EllipsisType, ...]

PART = re.compile(r"(.+)\[([^][]*)\]", re.DOTALL)
ENDS = np.iinfo(np.int64)


def with_entries(model: Contents, read: Iterable[Any], perturbed: Any = None) -> Contents:
    """The model with tensors of the names `read` and `perturbed` that are parts of tensors."""
    of, wrt = (tuple(n for each in sides for n in named_parts(model, each))
               for sides in (read, (perturbed,)))  # fmt: skip
    if not of and not wrt:
        return model
    parts = {name: split_part(model, name) for name in (*wrt, *of)}
    return model.variant(("entries", of, wrt), partial(add_parts, parts=parts, perturbed=wrt))


def named_parts(model: Contents, names: Any) -> list[str]:
    """The names that are parts of tensors of the model, and no tensors."""
    given = [names] if isinstance(names, str) else names if isinstance(names, Collection) else ()
    found = ((name, PART.fullmatch(name)) for name in given if isinstance(name, str))
    return [name for name, part in found if part and part[1] in model and name not in model]


def split_part(model: Contents, name: str) -> tuple[str, Index]:
    """The tensor and the index in the name of a part, without an ellipsis."""
    match = PART.fullmatch(name)
    assert match is not None
    try:
        given = ast.parse(f"_[{match[2]}]", mode="eval").body
        assert isinstance(given, ast.Subscript)
        parts = given.slice.elts if isinstance(given.slice, ast.Tuple) else [given.slice]
        index = tuple(map(read_index, parts))
    except (SyntaxError, ValueError) as error:
        raise InputError(
            f"{name!r} is no part of {match[1]!r}: name entries and slices by whole numbers, such "
            f"as '{match[1]}[0,3]' or '{match[1]}[:,3]'"
        ) from error
    return match[1], fit_index(model.spec(match[1]), index, name)


def read_index(node: ast.expr) -> Any:
    """An index in Python's syntax; raises `ValueError` for anything but numbers and slices."""
    if isinstance(node, ast.Slice):
        ends = (
            None if end is None else read_index(end) for end in (node.lower, node.upper, node.step)
        )
        start, stop, step = ends
        if step == 0 or not all(isinstance(x, int | None) for x in (start, stop, step)):
            raise ValueError
        return slice(start, stop, step)
    value = ast.literal_eval(node)
    if value is not ... and type(value) is not int:
        raise ValueError
    return value


def fit_index(spec: TensorSpec, index: Index, name: str) -> Index:
    """The index without an ellipsis, checked against the shape as far as the model declares it."""
    shape, count = spec.shape, sum(part is not ... for part in index)
    if ... in index:
        if shape is None or index.count(...) > 1:
            unknown = f"the model does not say how many axes {spec.name!r} has"
            raise InputError(f"{name!r}: {unknown if shape is None else 'there are two ellipses'}")
        at = index.index(...)
        index = (*index[:at], *[slice(None)] * (len(shape) - count), *index[at + 1 :])
    if shape is not None and count > len(shape):
        raise InputError(f"{name!r} has {count} indices, but {spec} has {len(shape)} axes")
    for axis, (k, n) in enumerate(zip(index, shape or (), strict=False)):
        if isinstance(k, int) and isinstance(n, int) and not -n <= k < n:
            raise InputError(f"{name!r}: axis {axis} of {spec} has {n} entries, and no entry {k}")
    return index


def add_parts(
    model: ir.Model, parts: dict[str, tuple[str, Index]], perturbed: Collection[str]
) -> None:
    """Add the parts to a graph; those that are `perturbed` are put back into their tensors."""
    nodes = Nodes(model, np.dtype(np.float32), "part")
    values, whole, made = nodes.values, dict[str, ir.Value](), set[str]()
    for name, (base, index) in parts.items():
        if name in made:
            continue
        made.add(name)
        if name not in perturbed:
            cut_part(nodes, whole.get(base, values[base]), index).name = name
            continue
        x = whole.get(base, values[base])
        readers = [(use.node, use.idx) for use in x.uses()]
        entry = cut_part(nodes, values[base], index)
        entry.name = name
        whole[base] = put_back(nodes, x, entry, index)
        whole[base].name = unique_name(f"{base}_with_parts", nodes.taken)
        for node, place in readers:
            node.replace_input_with(place, whole[base])
    model.graph.sort()


def cut_part(nodes: Nodes, x: ir.Value, index: Index) -> ir.Value:
    """A part of a tensor."""
    cut = {k: s for k, s in enumerate(index) if isinstance(s, slice) and s != slice(None)}
    y = x
    if cut:
        steps = [s.step or 1 for s in cut.values()]
        starts = [(0 if step > 0 else ENDS.max) if s.start is None else s.start
                  for s, step in zip(cut.values(), steps, strict=True)]  # fmt: skip
        stops = [(ENDS.max if step > 0 else ENDS.min) if s.stop is None else s.stop
                 for s, step in zip(cut.values(), steps, strict=True)]  # fmt: skip
        y = nodes.add("Slice", y, *map(np.array, (starts, stops, [*cut], steps)))
    for axis in reversed([k for k, s in enumerate(index) if isinstance(s, int)]):
        y = nodes.add("Gather", y, np.array(index[axis]), axis=axis)
    return nodes.add("Identity", y) if y is x else y


def put_back(nodes: Nodes, x: ir.Value, entry: ir.Value, index: Index) -> ir.Value:
    """The tensor with a part in its place."""
    shape, line = nodes.add("Shape", x), np.array([-1])
    count = nodes.add("Range", np.array(0), nodes.add("Size", x), np.array(1))
    places = cut_part(nodes, nodes.add("Reshape", count, shape), index)
    flat = (nodes.add("Reshape", value, line) for value in (x, places, entry))
    return nodes.add("Reshape", nodes.add("ScatterElements", *flat, axis=0), shape)
