"""Lines: the text of index notation, read without SymPy, and its indices at a node's shapes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from ..jacobians import Jacobian, Shape, size
from ..jacobians.errors import InputError
from ..jacobians.symint import agree, quotient, same
from .trees import REST, WHOLE, Access, Index, Labels, Stage, accesses

LINE = re.compile(r"\s*(\w+)\s*(\[[^=]*\])?\s*=(?!=)(.*)", re.DOTALL)


@dataclass(frozen=True)
class IndexedLine:
    """A line name[indices] = body, its indices axis by axis: `i`, `*r` or the parts of an axis."""

    name: str
    axes: tuple[Labels, ...]
    body: str

    @property
    def labels(self) -> Labels:
        return tuple(label.lstrip("*") for parts in self.axes for label in parts)


def read_lines(text: str) -> Iterator[IndexedLine]:
    """The lines of a text, read without SymPy.

    >>> [line.axes for line in read_lines("y[*r, (i, j)] = x[*r, j, i]")]
    [(('*r',), ('i', 'j'))]
    """
    for line in filter(None, map(str.strip, text.splitlines())):
        head = LINE.fullmatch(line)
        if head is None:
            raise InputError(f"the line {line!r} is not like 'y[i] = x[i]'")
        name, indices, body = head.groups()
        left = ast.parse(f"{name}{indices or '[()]'}", mode="eval").body
        yield IndexedLine(name, read_axes(left), body.strip())


def read_axes(node: ast.AST) -> tuple[tuple[str, ...], ...]:
    """The indices of x[n, *r, (i, j)], axis by axis; empty text for an index that is computed."""
    assert isinstance(node, ast.Subscript)
    inner = node.slice
    parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
    return tuple(tuple(map(read_label, part.elts)) if isinstance(part, ast.Tuple)
                 else (read_label(part),) for part in parts)  # fmt: skip


def read_label(node: ast.AST) -> str:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Starred(value=ast.Name(id=name)):
            return f"*{name}"
        case ast.Constant(value=value) if value is ...:
            return REST
        case ast.Slice():
            return WHOLE
    return ""


def find_patterns(body: str) -> dict[str, tuple[Labels, ...]]:
    """The indices of each tensor where it first occurs, in the order of the text."""
    tree = ast.parse(body, mode="eval")
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Subscript)]
    found.sort(key=lambda node: (node.lineno, node.col_offset))
    made = dict[str, tuple[Labels, ...]]()
    for node in found:
        if isinstance(node.value, ast.Name):
            made.setdefault(node.value.id, read_axes(node))
    return made


class IndexedText:
    """One text: its lines, how each tensor is indexed, and its stages by the absent inputs."""

    def __init__(self, text: str, broadcasts: bool = False) -> None:
        self.lines = tuple(read_lines(text))
        self.text = "; ".join(line.strip() for line in text.strip().splitlines())
        self.patterns = dict[str, tuple[Labels, ...]]()
        for line in self.lines:
            self.patterns |= find_patterns(line.body) | self.patterns
        self.known: dict[Any, dict[str, Stage]] = {}
        parsed = [ast.parse(line.body, mode="eval") for line in self.lines]
        outer = [n for tree in parsed for n in ast.walk(tree) if isinstance(n, ast.Subscript)]
        self.integers = frozenset(
            n.id for access in outer for n in ast.walk(access.slice) if isinstance(n, ast.Name)
        )
        """The names between brackets: indices, and inputs that are indices of others."""
        self.indices = {name: tuple(label.lstrip("*") for parts in axes for label in parts)
                        for name, axes in self.patterns.items()}  # fmt: skip
        """The indices of each tensor where it first occurs, without stars."""
        made = {line.name for line in self.lines}
        self.tensors = tuple(name for name in self.patterns if name not in made)
        used = [label for axes in self.patterns.values() for parts in axes for label in parts]
        self.broadcasts = broadcasts or any(label[:1] in "*." for label in used if label)
        """Whether axes of length 1 are repeated."""

    def stages(
        self, variables: Labels, absent: Mapping[str, float], repeats: bool = False
    ) -> dict[str, Stage]:
        """The stage of every line, by its name; an index of y alone `repeats` the entries."""
        key = tuple(absent.items())
        if key not in self.known:
            from .symbols.stages import stages_of

            lines = tuple((line.name, line.labels, line.body) for line in self.lines)
            self.known[key] = stages_of(lines, variables, key, repeats)
        return self.known[key]


class AxisLayout:
    """The indices of a text at the shapes of a node: the axes of each, and their lengths."""

    def __init__(
        self, form: IndexedText, shapes: Mapping[str, Shape],
        given: Mapping[str, tuple[int, ...]] | None, sizes: Mapping[str, Any],
        stages: Sequence[Stage],
    ) -> None:  # fmt: skip
        self.form, self.given, self.sizes = form, given, dict(sizes)
        self.links: dict[Any, Jacobian] = {}
        self.found: dict[Access, Labels] = {}
        self.known: dict[Labels, Labels] = {}
        self.slots: dict[str, list[tuple[int, int | None]]] = {}
        self.views: dict[str, Shape] = {}
        self.expansions: dict[str, Labels] = {}
        self.ranks: dict[str, int] = {}
        first = next((n for n in form.patterns if n in shapes), "")
        self.rank = len(shapes.get(first, ()))
        for name, shape in shapes.items():
            self.slots[name], self.views[name] = [], shape
            if name in form.patterns:
                self.place(name, shape, name == first)
        top = form.lines[-1]
        used = tuple({id(a): a for s in stages for a in accesses(s)}.values())
        for access in sorted(used, key=lambda a: any(isinstance(i, Access) for i in a.indices)):
            self.expand(access, access.name == first)
        self.rest = self.of(tuple(n for n in top.labels if n != REST))
        self.measure(used)
        self.found.clear()  # lengths were not known
        self.seen = {name: self.see(name) for name in shapes}

    def see(self, name: str) -> Shape:
        """The shape of an input with its axes split, without the axes of length 1 that repeat."""
        pattern = self.form.indices.get(name)
        if pattern is None:
            return self.views[name]
        pairs = zip(self.spelled(Access(name, pattern, pattern)), self.views[name], strict=True)
        return tuple(n for label, n in pairs if not self.is_repeated(label, n))

    def place(self, name: str, shape: Shape, first: bool) -> None:
        """Which index each axis of an input belongs to: its place among the indices, and for one
        with a star its number from the right.
        """
        pattern, rank = self.form.patterns[name], len(shape)
        if pattern == ((WHOLE,),):
            self.slots[name], self.views[name] = [(0, None)], (size(shape),)
            return
        starts, at = [], 0
        for parts in pattern:
            starts.append(at)
            at += len(parts)
        given = self.given or {} if first or rank == self.rank else {}
        owner: dict[int, int] = {}
        for element, parts in enumerate(pattern):
            for axis in given.get(parts[0].lstrip("*"), ()):
                owner[axis] = element
        left = [axis for axis in range(rank) if axis not in owner]
        rest = [e for e, parts in enumerate(pattern) if parts[0].lstrip("*") not in given]
        stars = [e for e in rest if pattern[e][0][:1] in ("*", ".")]
        room = len(left) - len(rest) + len(stars)
        order = [e for e in rest for _ in range(room if e in stars else 1)]
        if len(stars) > 1 or room < 0 or len(order) != len(left):
            raise InputError(f"{name} has {len(rest)} indices, not the shape {list(shape)}")
        owner |= dict(zip(left, order, strict=True))
        later = [sum(owner[b] == owner[a] for b in range(a + 1, rank)) for a in range(rank)]
        slots, view = list[tuple[int, int | None]](), []
        for axis in range(rank):
            parts = pattern[owner[axis]]
            if parts[0][:1] in ("*", "."):
                slots.append((starts[owner[axis]], later[axis]))
                view.append(shape[axis])
                continue
            slots += [(starts[owner[axis]] + k, None) for k in range(len(parts))]
            view += self.split(parts, shape[axis])
        self.slots[name], self.views[name] = slots, tuple(view)

    def split(self, parts: Labels, n: Any) -> list[Any]:
        """The lengths of the indices that share an axis, of which at most one is not given."""
        if len(parts) == 1:
            return [n]
        known = prod(self.sizes[part] for part in parts if part in self.sizes)
        return [self.sizes.get(part, quotient(n, known)) for part in parts]

    def expand(self, access: Access, first: bool) -> None:
        """The axes of the indices of an access."""
        found = dict[str, list[str]]()
        for axis, index in enumerate(self.spelled(access, rest=REST)):
            for label in self.labels_in(index):
                name = label.partition(".")[0] if isinstance(index, str) else ""
                if name and label not in found.setdefault(name, []):
                    found[name].append(label)
                if first and self.given is not None:
                    self.ranks[label] = axis
        for label in access.labels:
            axes = tuple(found.get(label, ()))
            if label not in access.indices:  # of an index that is computed
                self.expansions.setdefault(label, (label,))
            elif label != REST and len(axes) >= len(self.expansions.get(label, ())):
                self.expansions[label] = axes

    def labels_in(self, index: Index) -> Labels:
        """The axes in an index: a name, one that is computed, or entries of another input."""
        if isinstance(index, Access):
            return self.have(index)
        return (index,) if isinstance(index, str) else tuple(filter(None, index))

    @staticmethod
    def concrete(label: str, k: int | None) -> str:
        return label if k is None else f"{label}.{k}"

    def of(self, labels: Labels) -> Labels:
        """The axes of some indices; where axes are given, in the order of the first input."""
        if labels not in self.known:
            made = [c for label in labels for c in self.expansions.get(label, (label,))]
            made.sort(key=lambda c: self.ranks.get(c, len(self.ranks)))
            self.known[labels] = tuple(made)
        return self.known[labels]

    def have(self, access: Access) -> Labels:
        """The axes of an access, without the axes of length 1 that are broadcast."""
        if access not in self.found:
            self.found[access] = self.find_axes(access)
        return self.found[access]

    def find_axes(self, access: Access) -> Labels:
        pairs = zip(self.spelled(access), self.views[access.name], strict=True)
        kept = (i for i, n in pairs if not (isinstance(i, str) and self.is_repeated(i, n)))
        return tuple(dict.fromkeys(label for index in kept for label in self.labels_in(index)))

    def spelled(self, access: Access, rest: str = "") -> tuple[Index, ...]:
        """The index of every axis of an access, also of those of length 1."""
        found: list[Index] = []
        for at, k in self.slots[access.name]:
            index = access.indices[at]
            if index == REST:
                index = rest or self.rest[-1 - (k or 0)]
            found.append(self.concrete(index, k) if isinstance(index, str) and index != REST
                         and access.indices[at] != REST else index)  # fmt: skip
        return tuple(found)

    def is_repeated(self, label: str, n: Any) -> bool:
        return self.form.broadcasts and same(n, 1) and not same(self.sizes.get(label, 1), 1)

    def measure(self, used: Sequence[Access]) -> None:
        """The length of every index; one in `2*i + k` alone is as long as fits."""
        computed = []
        for access in used:
            shape = self.views[access.name]
            if len(self.slots[access.name]) != len(shape):
                raise InputError(f"{access.name} has {len(self.slots[access.name])} indices, "
                                 f"not the shape {list(shape)}")  # fmt: skip
            for axis, (index, n) in enumerate(zip(self.spelled(access), shape, strict=True)):
                if isinstance(index, str):
                    self.agree(index, n, access.name, axis)
                elif isinstance(index, Mapping):
                    computed.append((access.name, axis, index, int(n)))
        for name, axis, index, n in computed:
            unknown = [label for label in index if label and label not in self.sizes]
            last = n - 1 - index.get("", 0)
            last -= sum(c * (int(self.sizes[k]) - 1) for k, c in index.items()
                        if k in self.sizes and c > 0)  # fmt: skip
            if len(unknown) > 1 or last < 0 or any(index[k] < 1 for k in unknown):
                raise InputError(f"index {axis} of {name} does not fit its length {n}")
            self.sizes.update((label, last // index[label] + 1) for label in unknown)

    def agree(self, label: str, n: Any, name: str, axis: int) -> None:
        """Notes the length of an index; an axis of length 1 may be repeated."""
        known = self.sizes.setdefault(label, n)
        if same(known, n):
            return
        if self.form.broadcasts and same(known, 1):
            self.sizes[label] = n
        elif not (self.form.broadcasts and same(n, 1)) and not agree(known, n):
            raise InputError(f"the index {label} runs to {known}, and to {n} "
                             f"in axis {axis} of {name}")  # fmt: skip
