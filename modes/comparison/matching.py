"""Matching: which tensor of one model is which tensor of its twin, where names differ."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from ..model.primal.inputs import is_float
from ..model.primal.model import TensorSpec

DIFFERENCE = 0.2
"""Tensors whose relative difference is larger than this are not alike."""

SAMPLED = 4096
"""Up to this many entries of a tensor are looked at."""


class Pair(NamedTuple):
    """A tensor of each model, and by what they were matched: `"name"`, `"position"`, `"value"`."""

    a: str
    b: str
    by: str


def ends_matched(
    a: Mapping[str, TensorSpec], b: Mapping[str, TensorSpec],
    values: tuple[Mapping[str, Any], Mapping[str, Any]] = ({}, {}),
) -> list[Pair]:  # fmt: skip
    """Inputs or outputs: by name, then the nearest of the `values`, then in order.

    Kind and shape have to fit.

    >>> x, y = (TensorSpec(name, (None, 3), np.dtype("f4")) for name in "xy")
    >>> ends_matched({"x": x}, {"y": y._replace(shape=(1, 3))})
    [Pair(a='x', b='y', by='position')]
    """
    found = {n: Pair(n, n, "name") for n in a if n in b and may_match(a[n], b[n])}
    sides = ([n for n in side if n not in found] for side in (a, b))
    some = ({n: v[n] for n in names if n in v} for names, v in zip(sides, values, strict=True))
    for pair in near_by_shape(*map(group_by_shape, some)):
        found[pair.a] = pair
    free = [n for n in b if n not in {pair.b for pair in found.values()}]
    for name in (n for n in a if n not in found):
        other = next((n for n in free if may_match(a[name], b[n])), None)
        if other is not None:
            free.remove(other)
            found[name] = Pair(name, other, "position")
    return [found[name] for name in a if name in found]


def may_match(one: TensorSpec, other: TensorSpec) -> bool:
    """Whether two tensors may hold the same numbers: kind, and the sizes that both state."""
    if (one.dtype is None) or (other.dtype is None):
        return one.dtype is other.dtype
    if is_float(one.dtype) != is_float(other.dtype):
        return False
    if one.shape is None or other.shape is None:
        return True
    pairs = zip(one.shape, other.shape, strict=False)
    stated = all(n == m for n, m in pairs if isinstance(n, int) and isinstance(m, int))
    return len(one.shape) == len(other.shape) and stated


def layers_matched(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Pair]:
    """Intermediates by their values at a point: of one name and alike, then the nearest by value.

    By value, each has to be the nearest of the other, within a relative difference of 0.2. What is
    left and has one name and one shape is matched at last: it differs.

    >>> x = np.arange(4.0)
    >>> layers_matched({"h": x, "k": x + 9}, {"h": x + 0.1, "z": x + 9.1, "u": x - 9})
    [Pair(a='h', b='h', by='name'), Pair(a='k', b='z', by='value')]
    """
    rows, columns = group_by_shape(a), group_by_shape(b)
    twins = [(shape, name) for shape in rows.keys() & columns.keys()
             for name in rows[shape].keys() & columns[shape].keys()]  # fmt: skip
    near = ((name, relative_difference(rows[s][name], columns[s][name])) for s, name in twins)
    found = {name: Pair(name, name, "name") for name, d in near if d <= DIFFERENCE}
    rest = ({shape: {n: x for n, x in held.items() if n not in found}
             for shape, held in side.items()} for side in (rows, columns))  # fmt: skip
    found |= {pair.a: pair for pair in near_by_shape(*rest)}
    taken = {pair.b for pair in found.values()}
    found |= {name: Pair(name, name, "name") for _, name in twins
              if name not in found and name not in taken}  # fmt: skip
    return [found[name] for name in a if name in found]


Groups = Mapping[tuple[int, ...], Mapping[str, np.ndarray]]


def near_by_shape(a: Groups, b: Groups) -> Iterator[Pair]:
    """The nearest pairs of each shape."""
    for shape in a.keys() & b.keys():
        yield from nearest_pairs(a[shape], b[shape])


def group_by_shape(values: Mapping[str, Any]) -> Groups:
    """Shape -> a sample of the entries of each floating tensor of this shape, by name."""
    groups: dict[tuple[int, ...], dict[str, np.ndarray]] = defaultdict(dict)
    for name, value in values.items():
        if isinstance(value, np.ndarray) and is_float(value.dtype) and value.size:
            step = -(-value.size // SAMPLED)
            groups[value.shape][name] = value.ravel()[::step].astype(np.float64)
    return groups


def nearest_pairs(
    left: Mapping[str, np.ndarray], right: Mapping[str, np.ndarray]
) -> Iterator[Pair]:
    """Pairs of which each is the nearest of the other; of equal ones, the first ones."""
    if not (left and right):
        return
    names, others = list(left), list(right)
    apart = np.array([[relative_difference(left[n], right[m]) for m in others] for n in names])
    while apart.min(initial=np.inf) <= DIFFERENCE:
        i, j = np.unravel_index(int(apart.argmin()), apart.shape)
        yield Pair(names[i], others[j], "value")
        apart[i, :] = apart[:, j] = np.inf


def relative_difference(a: Any, b: Any) -> float:
    """‖a − b‖ / ‖a‖; 0 for two zeros, infinite where one is not finite alone.

    >>> relative_difference(np.array([3.0, 4.0]), np.array([3.0, 4.5]))
    0.1
    >>> relative_difference(np.zeros(2), np.ones(2))
    inf
    """
    x, y = (np.asarray(v, np.float64).ravel() for v in (a, b))
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    off = float(np.linalg.norm(np.where(same, 0.0, x - y)))
    scale = float(np.linalg.norm(np.where(np.isfinite(x), x, 0.0)))
    if off != off:
        return np.inf
    return off / scale if scale else (np.inf if off else 0.0)


def unmatched(names: Iterable[str], pairs: Iterable[Pair], side: str) -> tuple[str, ...]:
    """The names on a side, `"a"` or `"b"`, that are in no pair."""
    taken = {getattr(pair, side) for pair in pairs}
    return tuple(name for name in names if name not in taken)
