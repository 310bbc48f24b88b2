"""Steps: the entry ∂y_i/∂x_i′ of an operator in index notation, read from the operator itself.

Every operator says which entries of x one entry of y takes, with which factor: y_i = Σ c x_p. That
J maps v so, for any v, is its formula, and with v_i′ = 1 alone it is the entry of J.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import singledispatch
from itertools import count, permutations
from math import prod
from typing import Any

import numpy as np
import sympy as sp
from sympy.core.function import AppliedUndef
from sympy.printing.str import StrPrinter

from ...jacobians import Jacobian
from ...jacobians.contraction import Contraction
from ...jacobians.convolution import Convolution
from ...jacobians.elementwise import Cast, Diagonal, Identity, Scalar
from ...jacobians.layout import Broadcast, Embed, Permutation, Reshape, Scatter, Slice, SumTo, Take
from ...jacobians.matrices import BlockDiagonal, Dense, Eye, Kron
from ...jacobians.products import Product
from ...jacobians.sums import Sum
from ...jacobians.transforms import Cumulative, Fourier
from ...ops.symbols import Tensor, nearby_closed_form

LABELS, SUMMED = "ijklmnabcdefgh", "pqrstuvw"
"""Indices of y, and indices of sums."""


@dataclass(frozen=True)
class IndexTerm:
    """Σ over `sums` of `factor` · x[place], where `where` holds."""

    factor: sp.Expr
    place: tuple[sp.Expr, ...]
    sums: tuple[tuple[sp.Symbol, int], ...] = ()
    where: tuple[sp.Expr, ...] = ()


@dataclass
class Names:
    """Names of the tensors in a formula: entries of known tensors, and numbers of their own."""

    tensors: Mapping[str, Tensor]
    own: dict[str, Any] = field(default_factory=dict)
    fresh: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        self.places = {number.expr: (name, place) for name, tensor in self.tensors.items()
                       for place, number in np.ndenumerate(tensor.entries)}  # fmt: skip

    def summed(self) -> sp.Symbol:
        """A new index of a sum."""
        k = next(self.fresh)
        return sp.Symbol(SUMMED[k % len(SUMMED)] + "′" * (k // len(SUMMED)), integer=True)

    def entry(self, array: Any, place: tuple[Any, ...]) -> sp.Expr:
        """array[place] as an expression of entries of known tensors, or of a tensor of its own."""
        shape = np.shape(array.entries if isinstance(array, Tensor) else array)
        place = place[len(place) - len(shape) :]
        held = array.exprs if isinstance(array, Tensor) else exact_entries(array)
        if (found := self.generalised(held, place)) is not None:
            return found
        return sp.Function(self.named(held))(*without_units(place, shape))

    def named(self, array: Any) -> str:
        """The name of an array of its own; equal arrays share one."""
        for name, held in self.own.items():
            if held.shape == array.shape and np.all(held == array):
                return name
        letter = "T" if isinstance(array, np.ndarray) and array.dtype.kind in "iu" else "D"
        name = f"{letter}{sum(n[0] == letter for n in self.own) or ''}"
        self.own[name] = array
        return name

    def generalised(self, entries: np.ndarray, place: tuple[Any, ...]) -> sp.Expr | None:
        """The expression that gives every entry at its own place; None where there is none."""
        found: set[sp.Expr] = set()
        seen: dict[str, dict[tuple[int, ...], tuple[int, ...]]] = {}
        for p, e in np.ndenumerate(entries):
            for symbol in e.free_symbols:
                if symbol not in self.places:
                    return None
                name, q = self.places[symbol]
                if seen.setdefault(name, {}).setdefault(p, q) != q:
                    return None
        index: dict[str, tuple[sp.Expr, ...]] = {}
        for name, pairs in seen.items():
            made = self.along(self.tensors[name].shape, entries.shape, pairs, place)
            if made is None:
                return None
            index[name] = made
        for e in entries.ravel():
            at = {s: sp.Function(self.places[s][0])(*index[self.places[s][0]])
                  for s in e.free_symbols}  # fmt: skip
            found.add(e.xreplace(at))
            if len(found) > 1:
                return None
        return found.pop() if found else sp.S.Zero

    def along(
        self, shape: Any, of: Any, pairs: Mapping[Any, Any], place: tuple[Any, ...]
    ) -> tuple[sp.Expr, ...] | None:
        """The place in a tensor of this shape for a place in the entries, axis by axis."""
        found: list[sp.Expr] = []
        for k, n in enumerate(shape):
            if n == 1:
                continue
            first = k + len(of) - len(shape)
            axes = sorted(range(len(of)), key=lambda a: a != first)
            fits = [a for a in axes if all(q[k] == p[a] for p, q in pairs.items()) and of[a] == n]
            if not fits:
                return None
            found.append(place[fits[0]])
        return tuple(found)


def as_expr(x: Any) -> sp.Expr:
    """A whole number as an expression; an expression as it is."""
    return x if isinstance(x, sp.Basic) else sp.Integer(x)


def exact_entries(array: Any) -> np.ndarray:
    """Numbers as exact expressions; integers stay as they are."""
    held = np.asarray(array)
    if held.dtype.kind in "iu":
        return np.frompyfunc(sp.Integer, 1, 1)(held).astype(object).reshape(held.shape)
    made = np.empty(held.shape, object)
    for place, x in np.ndenumerate(held):
        made[place] = nearby_closed_form(x.item())
    return made


def without_units(place: tuple[Any, ...], shape: Any) -> tuple[Any, ...]:
    """The place without the axes of length 1."""
    return tuple(i for i, n in zip(place, shape, strict=True) if n != 1)


# -- one entry of y = J x, for every operator ------------------------------------------------------


@singledispatch
def terms_of_entry(J: Jacobian, at: IndexTerm, names: Names) -> Iterator[IndexTerm]:
    """The entry of y = J x at a place, as terms in entries of x."""
    del at, names
    raise NotImplementedError(type(J).__name__)


@terms_of_entry.register(Identity)
@terms_of_entry.register(Cast)
def _(J: Identity, at: IndexTerm, names: Names) -> Iterator[IndexTerm]:
    yield at


@terms_of_entry.register
def _(J: Scalar, at: IndexTerm, names: Names) -> Iterator[IndexTerm]:
    yield replace(at, factor=at.factor * nearby_closed_form(float(J.factor)))


@terms_of_entry.register
def _(J: Diagonal, at: IndexTerm, names: Names) -> Iterator[IndexTerm]:
    yield replace(at, factor=at.factor * names.entry(J.d, at.place))


@terms_of_entry.register
def _(J: Sum, at: IndexTerm, names: Names) -> Iterator[IndexTerm]:
    for part in J.terms:
        yield from terms_of_entry(part, at, names)


@terms_of_entry.register
def _(J: Product, at: IndexTerm, names: Names) -> Iterator[IndexTerm]:
    found = [at]
    for part in J.factors:
        found = [made for one in found for made in terms_of_entry(part, one, names)]
    yield from found


@terms_of_entry.register
def _(J: Broadcast, at: IndexTerm, names: Names) -> Iterator[IndexTerm]:
    kept = at.place[len(J.out_shape) - len(J.in_shape) :]
    yield replace(at, place=tuple(sp.S.Zero if n == 1 else i
                                  for n, i in zip(J.in_shape, kept, strict=True)))  # fmt: skip


@terms_of_entry.register
def _(J: SumTo, at: IndexTerm, names: Names) -> Iterator[IndexTerm]:
    new = len(J.in_shape) - len(J.out_shape)
    place, sums = [], list(at.sums)
    for k, n in enumerate(J.in_shape):
        if k >= new and (J.out_shape[k - new] == n):
            place.append(at.place[k - new])
            continue
        sums.append((s := names.summed(), n))
        place.append(s)
    yield replace(at, place=tuple(place), sums=tuple(sums))


@terms_of_entry.register
def _(J: Permutation, at: IndexTerm, names: Names) -> Iterator[IndexTerm]:
    yield replace(at, place=tuple(at.place[J.perm.index(k)] for k in range(len(J.perm))))


@terms_of_entry.register
def _(J: Reshape, at: IndexTerm, names: Names) -> Iterator[IndexTerm]:
    yield replace(at, place=place_in_shape(at.place, J.out_shape, J.in_shape))


def place_in_shape(place: tuple[Any, ...], shape: Any, other: Any) -> tuple[Any, ...]:
    """The same place in row-major order in another shape: axes that stay, that join or split."""
    made: list[Any] = []
    left = [(i, n) for i, n in zip(place, shape, strict=True) if n != 1]
    sizes = [n for n in other if n != 1]
    while sizes:
        run, wide = [left.pop(0)], [sizes.pop(0)]
        while (a := prod(n for _, n in run)) != (b := prod(wide)):
            if a < b:
                run.append(left.pop(0))
            else:
                wide.append(sizes.pop(0))
        if len(run) == len(wide) == 1:
            made.append(run[0][0])
            continue
        flat: Any = sp.S.Zero
        for i, n in run:
            flat = flat * n + i
        for k in range(len(wide)):
            step = prod(wide[k + 1 :])
            one = flat if step == 1 else sp.floor(flat / step)
            made.append(one if k == 0 else sp.Mod(one, wide[k]))
    return tuple(sp.S.Zero if n == 1 else made.pop(0) for n in other)


@terms_of_entry.register
def _(J: Slice, at: IndexTerm, names: Names) -> Iterator[IndexTerm]:
    spans = zip(J.spans, at.place, strict=True)
    yield replace(at, place=tuple(start + step * i for (start, step, _), i in spans))


@terms_of_entry.register
def _(J: Embed, at: IndexTerm, names: Names) -> Iterator[IndexTerm]:
    place, sums, where = [], list(at.sums), list(at.where)
    for (start, step, n), i, m in zip(J.spans, at.place, J.out_shape, strict=True):
        if (start, step, n) == (0, 1, m):
            place.append(i)
            continue
        sums.append((s := names.summed(), n))
        where.append(sp.Eq(i, start + step * s, evaluate=False))
        place.append(s)
    yield IndexTerm(at.factor, tuple(place), tuple(sums), tuple(where))


@terms_of_entry.register
def _(J: Take, at: IndexTerm, names: Names) -> Iterator[IndexTerm]:
    axis, rank = len(J.in_shape) + J.axis, np.ndim(J.index)
    here = sp.Function(names.named(np.asarray(J.index)))(
        *without_units(at.place[axis : axis + rank], np.shape(J.index)))  # fmt: skip
    yield replace(at, place=(*at.place[:axis], here, *at.place[axis + rank :]))


@terms_of_entry.register
def _(J: Scatter, at: IndexTerm, names: Names) -> Iterator[IndexTerm]:
    axis, shape = len(J.out_shape) + J.axis, np.shape(J.index)
    new = [(names.summed(), n) for n in shape]
    own = without_units(tuple(s for s, _ in new), shape)
    index = sp.Function(names.named(np.asarray(J.index)))(*own)
    where = sp.Eq(index, at.place[axis], evaluate=False)
    place = (*at.place[:axis], *(s for s, _ in new), *at.place[axis + 1 :])
    yield IndexTerm(at.factor, place, (*at.sums, *new), (*at.where, where))


@terms_of_entry.register
def _(J: Dense, at: IndexTerm, names: Names) -> Iterator[IndexTerm]:
    (row,), new = place_in_shape(at.place, J.out_shape, (J.shape[0],)), names.summed()
    place = place_in_shape((new,), (J.shape[1],), J.in_shape)
    yield replace(at, factor=at.factor * names.entry(J.a, (row, new)), place=place,
                  sums=(*at.sums, (new, J.shape[1])))  # fmt: skip


@terms_of_entry.register
def _(J: BlockDiagonal, at: IndexTerm, names: Names) -> Iterator[IndexTerm]:
    new, place = names.summed(), at.place[:-1]
    yield replace(at, factor=at.factor * names.entry(J.blocks, (*at.place, new)),
                  place=(*place, new), sums=(*at.sums, (new, J.in_shape[-1])))  # fmt: skip


@terms_of_entry.register
def _(J: Kron, at: IndexTerm, names: Names) -> Iterator[IndexTerm]:
    *batch, row, column = at.place
    factor, sums, place = at.factor, list(at.sums), []
    for held, i, n in ((J.left, row, J.in_shape[-2]), (J.right, column, J.in_shape[-1])):
        if isinstance(held, Eye):
            place.append(i)
            continue
        sums.append((s := names.summed(), n))
        factor *= names.entry(held, (*batch, i, s))
        place.append(s)
    yield replace(at, factor=factor, place=(*batch, *place), sums=tuple(sums))


@terms_of_entry.register
def _(J: Contraction, at: IndexTerm, names: Names) -> Iterator[IndexTerm]:
    known: dict[str, Any] = {}
    where = list(at.where)
    for label, i in zip(J.out_term, at.place, strict=True):
        if label in known:
            where.append(sp.Eq(known[label], i, evaluate=False))
        known.setdefault(label, i)
    sums = list(at.sums)
    for label, n in J.sizes.items():
        if label not in known:
            sums.append((names.summed(), n))
            known[label] = sums[-1][0]
    factor = at.factor
    for array, labels in J.factors:
        factor *= names.entry(array, tuple(known[c] for c in labels))
    yield IndexTerm(factor, tuple(known[c] for c in J.in_term), tuple(sums), tuple(where))


@terms_of_entry.register
def _(J: Convolution, at: IndexTerm, names: Names) -> Iterator[IndexTerm]:
    """u[n, m, o] = Σ w[m, c, t] x[n, c, s o + d t - p], with respect to x or w, or transposed."""
    g, d = J.geometry, len(J.geometry.strides)
    if g.group != 1:
        raise NotImplementedError("a convolution in groups")
    ends = {J.target: at.place}
    n, m, c = (names.summed() for _ in range(3))
    o, t = ([names.summed() for _ in range(d)] for _ in range(2))
    free: dict[str, Any] = {"x": (n, c), "w": (m, c), "u": (n, m)}
    known = dict(zip(free[J.target], at.place[:2], strict=True))
    moves = {"u": o, "w": t}
    known |= dict(zip(moves.get(J.target, []), at.place[2:], strict=False))
    inside = tuple(s * a + b * e - p for s, a, b, e, p in
                   zip(g.strides, o, g.dilations, t, g.pads, strict=False))  # fmt: skip
    full = {"x": (n, c, *inside), "w": (m, c, *t), "u": (n, m, *o)}
    sizes = dict(zip((n, m, c, *o, *t), (g.x[0], g.w[0], g.w[1], *g.u[2:], *g.w[2:]), strict=True))
    met = zip(ends[J.target][2:], inside, strict=True) if J.target == "x" else ()
    where = tuple(sp.Eq(i, e.subs(known), evaluate=False) for i, e in met)
    sums = tuple((s, size) for s, size in sizes.items() if s not in known)
    ones = {s: sp.S.Zero for s, size in sums if size == 1}

    def settle(e: Any) -> sp.Expr:
        return as_expr(e).subs(known).subs(ones)

    held = names.entry(J.held, tuple(map(settle, full[J.third])))
    yield IndexTerm(at.factor * held, tuple(map(settle, full[J.source])),
               (*at.sums, *((s, size) for s, size in sums if size > 1)),
               (*at.where, *(w.subs(ones) for w in where)))  # fmt: skip


@terms_of_entry.register
def _(J: Cumulative, at: IndexTerm, names: Names) -> Iterator[IndexTerm]:
    axis = len(J.in_shape) + J.axis
    new, i = names.summed(), at.place[axis]
    low, high = (i, new) if J.reverse else (new, i)
    where = sp.StrictLessThan(low, high) if J.exclusive else sp.LessThan(low, high)
    place = (*at.place[:axis], new, *at.place[axis + 1 :])
    yield IndexTerm(at.factor, place, (*at.sums, (new, J.in_shape[axis])), (*at.where, where))


@terms_of_entry.register
def _(J: Fourier, at: IndexTerm, names: Names) -> Iterator[IndexTerm]:
    """(re, im) of the index k turned by 2π k p / n: a rotation of the last axis."""
    axis, n = len(J.in_shape) + J.axis, J.in_shape[J.axis]
    new, part = names.summed(), names.summed()
    turn = 2 * sp.pi * at.place[axis] * new / n * (1 if J.inverted else -1)
    factor = sp.cos(turn - sp.pi / 2 * (at.place[-1] - part)) / (n if J.inverted else 1)
    place = (*at.place[:axis], new, *at.place[axis + 1 : -1], part)
    yield replace(at, factor=at.factor * factor, place=place, sums=(*at.sums, (new, n), (part, 2)))


# -- as text ---------------------------------------------------------------------------------------


def index_labels(shape: Any, prime: str = "") -> tuple[sp.Expr, ...]:
    """The indices of a tensor; the index of an axis of length 1 is 0.

    >>> index_labels((2, 1, 3), "′")
    (i′, 0, j′)
    """
    names = iter(LABELS)
    return tuple(sp.S.Zero if n == 1 else sp.Symbol(next(names) + prime, integer=True)
                 for n in shape)  # fmt: skip


def write_product(J: Jacobian, names: Names, x: str) -> str:
    """y_i = Σ c x_p: what J maps x to, at one entry."""
    names.fresh = count()
    made = map(settle_sums, terms_of_entry(J, start(J), names))
    return joined_terms(
        term_text(t, entry_text(x, without_units(t.place, J.in_shape))) for t in made
    )


def write_entry(J: Jacobian, names: Names) -> str:
    """∂y_i/∂x_i′: the entry of J."""
    return joined_terms(term_text(t, "") for t in entry_terms(J, names))


def entry_terms(J: Jacobian, names: Names) -> list[IndexTerm]:
    """The terms of ∂y_i/∂x_i′, with the conditions under which they count."""
    columns, found, names.fresh = index_labels(J.in_shape, "′"), [], count()
    for t in terms_of_entry(J, start(J), names):
        deltas = []
        for k, (column, n) in enumerate(zip(columns, J.in_shape, strict=True)):
            p = t.place[k]
            if n == 1 or p == column:
                continue
            if p in dict(t.sums):
                t = with_index(t, p, column)
            else:
                deltas.append((k, column))
        equal = (sp.Eq(t.place[k], column, evaluate=False) for k, column in deltas)
        found.append(settle_sums(replace(t, where=(*joined_digits(list(equal)), *t.where))))
    return found


def joined_digits(equal: list[Any]) -> list[Any]:
    """⌊e / n⌋ = i and e mod n = j as e = n i + j."""
    for a, b in permutations(equal, 2):
        low = b.lhs
        if not isinstance(low, sp.Mod):
            continue
        e, n = low.args
        high = sp.floor(e / n)
        top = isinstance(a.lhs, sp.Mod) and a.lhs.args[0] == high
        if a.lhs == high or top:
            lhs = sp.Mod(e, n * a.lhs.args[1]) if top else e
            rest = [c for c in equal if c is not a and c is not b]
            return joined_digits([sp.Eq(lhs, n * a.rhs + b.rhs, evaluate=False), *rest])
    return equal


def start(J: Jacobian) -> IndexTerm:
    """The entry of y at its own indices."""
    return IndexTerm(sp.S.One, index_labels(J.out_shape))


def with_index(t: IndexTerm, old: sp.Symbol, new: Any) -> IndexTerm:
    """A term without the sum over an index."""
    return IndexTerm(t.factor.subs(old, new), tuple(as_expr(p).subs(old, new) for p in t.place),
                tuple(s for s in t.sums if s[0] != old),
                tuple(w.subs(old, new) for w in t.where))  # fmt: skip


def settle_sums(t: IndexTerm) -> IndexTerm:
    """Sums over one entry, and over an index that a condition gives, are written out."""
    for s, n in t.sums:
        if n == 1:
            return settle_sums(with_index(t, s, sp.S.Zero))
        for w in t.where:
            if isinstance(w, sp.Eq) and s in w.args:
                other = w.args[1] if w.args[0] == s else w.args[0]
                rest = replace(t, where=tuple(v for v in t.where if v != w))
                return settle_sums(with_index(rest, s, other))
    return replace(t, where=tuple(w for w in t.where if w is not sp.true))


class Plain(StrPrinter):
    """Formulas as plain text: x_ij for entries, [c] for conditions."""

    def _print_Function(self, expr: Any) -> Any:
        if isinstance(expr, AppliedUndef):
            return entry_text(expr.func.__name__, expr.args)
        return super()._print_Function(expr)

    def _print_Pow(self, expr: Any, rational: bool = False) -> Any:
        return super()._print_Pow(expr, rational).replace("**", "^")

    def _print_Piecewise(self, expr: Any) -> str:
        *cases, (last, _) = expr.args
        said = [f"{self._print(value)} if {self._print(when)} else " for value, when in cases]
        return f"({''.join(said)}{self._print(last)})"

    def _print_Mod(self, expr: Any) -> str:
        return f"({self._print(expr.args[0])} mod {self._print(expr.args[1])})"

    def _print_floor(self, expr: Any) -> str:
        return f"⌊{self._print(expr.args[0])}⌋"

    def _print_Abs(self, expr: Any) -> str:
        return f"|{self._print(expr.args[0])}|"

    def _print_Relational(self, expr: Any) -> str:
        sign = {"==": "=", "<=": "≤", ">=": "≥", "!=": "≠"}.get(expr.rel_op, expr.rel_op)
        return f"{self._print(expr.lhs)} {sign} {self._print(expr.rhs)}"


def plain_text(expr: Any) -> str:
    """An expression on one line.

    >>> x = sp.Symbol("x")
    >>> plain_text(sp.Piecewise((x**2, x > 0), (0, True)))
    '(x^2 if x > 0 else 0)'
    """
    return str(Plain().doprint(as_expr(expr)))


def entry_text(name: str, place: tuple[Any, ...]) -> str:
    """The entry of a tensor: x_ij, or x[2i, j] where an index is computed.

    >>> i, j = index_labels((2, 3))
    >>> entry_text("x", (i, j)), entry_text("x", (2 * i, j)), entry_text("x", ())
    ('x_ij', 'x[2*i, j]', 'x')
    """
    if not place:
        return name
    simple = all(getattr(p, "is_Symbol", False) or getattr(p, "is_Integer", False) for p in place)
    said = [plain_text(p) for p in place]
    return f"{name}_{''.join(said)}" if simple and "_" not in name else f"{name}[{', '.join(said)}]"


def term_text(t: IndexTerm, x: str) -> str:
    """Σ factor x [where]."""
    parts = [delta_text(w) for w in t.where]
    factor = sp.powsimp(t.factor)
    negative = factor.could_extract_minus_sign()
    if negative:
        factor = -factor
    if factor != 1 or not (x or parts):
        said = plain_text(factor)
        parts.append(f"({said})" if factor.is_Add and (x or parts) else said)
    if x:
        parts.append(x)
    over = "".join(f"Σ_{s} " for s, _ in t.sums)
    return ("-" if negative else "") + over + " ".join(parts)


def delta_text(w: Any) -> str:
    """δ_ij for two indices, [c] for any other condition."""
    if isinstance(w, sp.Eq) and all(side.is_Symbol for side in w.args):
        return f"δ_{w.args[0]}{w.args[1]}"
    return f"[{plain_text(w)}]"


def joined_terms(found: Iterable[str]) -> str:
    """Terms joined by + and -, those without a sign first.

    >>> joined_terms(["-a", "b", "-c"])
    'b - a - c'
    """
    ordered = sorted(found, key=lambda term: term.startswith("-"))
    return " + ".join(ordered).replace("+ -", "- ") or "0"
