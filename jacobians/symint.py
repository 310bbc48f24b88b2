"""Symbolic integers: the sizes and indices of a derivative that is recorded for many points.

A `SymInt` is a polynomial over atoms: a dimension of a tensor, an entry of an integer tensor, or a
quotient or maximum of such numbers. A symbolic integer has a number at the point of recording
(`at`), and a graph can compute it at any other point. Rules and operators calculate with it as with
an int.

There are three kinds of comparison. `same` is provable equality, for simplifications. `agree` is
equality at the point, for sizes that an operator's definition makes equal, such as the inner
dimensions of a matrix product. `==`, `<` and the like are decisions: they are evaluated at the
point and leave a `Condition`, as the recording holds only where the decision is the same.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np

from .conditions import Condition
from .errors import OnnxJacError
from .vocabulary import Array, Op

Monomial = tuple["Atom", ...]
Polynomial = dict[Monomial, int]
Number = Any
"""An int or a SymInt."""

PLAIN = frozenset({int})
"""The types of numbers that are never symbolic: a fast path that skips a call per number."""

RELATIONS: dict[str, Callable[[int, int], bool]] = {"==": operator.eq, "<": operator.lt}


@dataclass(frozen=True, eq=False)
class Atom:
    """An integer not expressed by simpler ones; `least` is a lower bound, if there is one.

    `lower(op)` is its graph value, of shape [1]. An atom is the size of `tensor` along `axis` or,
    if there is no axis, one of its entries; and `free` if it is an input's size that the model
    leaves open. A derived atom has `operands`. `depth` is the number of control-flow bodies around
    the tensor, which cannot be read outside of them.
    """

    symbols: Symbols
    order: int
    name: str
    at: int
    lower: Callable[[Any], Any]
    least: int | None = None
    tensor: str = ""
    axis: int | None = None
    free: bool = False
    depth: int = 0
    operands: tuple[Number, ...] = ()

    def __lt__(self, other: Atom) -> bool:
        return self.order < other.order

    @property
    def is_entry(self) -> bool:
        """Whether it is an entry of a tensor."""
        return self.axis is None and not self.operands

    def roots(self) -> set[Atom]:
        """The atoms from which it is derived."""
        if not self.operands:
            return {self}
        return set().union(*(x.roots() for x in self.operands if isinstance(x, SymInt)))


class Symbols:
    """The atoms of one recording, and the conditions under which it holds at other points.

    `fixed` names sizes and tensors that do not become atoms.
    """

    def __init__(self, fixed: Collection[str] = ()) -> None:
        self.fixed = fixed
        self.conditions: dict[Any, Condition] = {}
        self.derived: dict[tuple[Any, ...], SymInt] = {}
        self.reader = ""
        self.count = 0

    def atom(self, name: str, at: int, lower: Callable[[Any], Any], **known: Any) -> SymInt:
        """A new atom, as a `SymInt`."""
        self.count += 1
        return SymInt({(Atom(self, self.count, name, int(at), lower, **known),): 1})

    def check_depth(self, depth: int) -> None:
        """Raises `OnnxJacError` where a decision depends on a tensor inside a deeper body."""
        for relation in self.relations():
            if depth_of(relation.of) > depth:
                raise OnnxJacError(
                    f"{relation.reader} needs {relation.name}, which another turn may change"
                )

    def pin(self, tensor: str, reader: str, value: Any = None) -> None:
        """A tensor must have the numbers that it has at the point; a value may get a name later."""
        condition = Condition("numbers", tensor, reader, of=value)
        self.conditions.setdefault(tensor or value, condition)

    def relations(self, sign: str = "") -> list[Condition]:
        """The relations that rules decided by, or the relations of a sign, such as `==`."""
        found = (c for c in self.conditions.values() if c.kind == "relation")
        return [c for c in found if sign in ("", c.here)]

    def pinned(self) -> dict[str, str]:
        """The tensors that must have the same numbers as at the point, with their readers."""
        found = (c for c in self.conditions.values() if c.kind == "numbers")
        return {c.name or str(c.of.name): c.reader for c in found}

    def decided(self) -> dict[str, str]:
        """The tensors that are pinned, or by a number of theirs in an equation, with readers."""
        equations = ((a, c) for c in self.relations("==") for a in c.of.roots())
        return {a.tensor: c.reader for a, c in equations if not a.free} | self.pinned()

    def decide(self, difference: SymInt, relation: str) -> bool:
        """Whether `difference relation 0` at the point; a condition unless bounds prove it."""
        low, high = bounds(difference)
        if relation == "==" and ((low is not None and low > 0) or (high is not None and high < 0)):
            return False
        if relation == "<" and ((low is not None and low >= 0) or (high is not None and high < 0)):
            return high is not None and high < 0
        truth = RELATIONS[relation](difference.at, 0)
        if relation == "==" and truth and (choices := by_maxima(difference)):
            kept = [choice >= 0 for choice in choices]  # each is a condition
            return all(kept)
        same_either_way = relation == "==" and (-difference).key
        key = min(difference.key, same_either_way or difference.key), relation
        if key not in self.conditions:
            self.conditions[key] = relation_to_zero(difference, relation, truth, self.reader)
        return truth


class SymInt:
    """A symbolic integer Σ coefficient · ∏ atoms, equal to `at` at the point."""

    __slots__ = ("at", "key", "terms")
    __array_ufunc__ = None  # keeps NumPy from making it an object array

    def __init__(self, terms: Polynomial) -> None:
        self.terms = terms
        self.at = sum(c * math.prod(a.at for a in atoms) for atoms, c in terms.items())
        order = ((tuple(a.order for a in atoms), c) for atoms, c in terms.items())
        self.key = tuple(sorted(order))

    @property
    def symbols(self) -> Symbols:
        """The recording that it belongs to."""
        return next(atom for atoms in self.terms for atom in atoms).symbols

    def roots(self) -> set[Atom]:
        """The atoms that it is computed from."""
        return set().union(*(atom.roots() for atoms in self.terms for atom in atoms))

    def __repr__(self) -> str:
        return polynomial_text(self.terms)

    def __hash__(self) -> int:
        return hash(self.key)

    # -- arithmetic

    def __add__(self, other: Number) -> Number:
        added = polynomial(other)
        if added is None:
            return NotImplemented
        terms = dict(self.terms)
        for atoms, c in added.items():
            terms[atoms] = terms.get(atoms, 0) + c
        return from_polynomial(terms)

    __radd__ = __add__

    def __neg__(self) -> Number:
        return from_polynomial({atoms: -c for atoms, c in self.terms.items()})

    def __pos__(self) -> SymInt:
        return self

    def __sub__(self, other: Number) -> Number:
        return NotImplemented if polynomial(other) is None else self + -whole(other)

    def __rsub__(self, other: Number) -> Number:
        return NotImplemented if polynomial(other) is None else -self + other

    def __mul__(self, other: Number) -> Number:
        if isinstance(other, float | np.floating):
            return Ratio(float(other), self, 1)
        factor = polynomial(other)
        if factor is None:
            return NotImplemented
        terms: Polynomial = {}
        for atoms, c in self.terms.items():
            for more, d in factor.items():
                key = tuple(sorted(atoms + more))
                terms[key] = terms.get(key, 0) + c * d
        return from_polynomial(terms)

    __rmul__ = __mul__

    def __pow__(self, exponent: int) -> Number:
        return math.prod([self] * int(exponent))

    def __floordiv__(self, other: Number) -> Number:
        return NotImplemented if polynomial(other) is None else quotient(self, other)

    def __rfloordiv__(self, other: Number) -> Number:
        return NotImplemented if polynomial(other) is None else quotient(other, self)

    def __mod__(self, other: Number) -> Number:
        return self - self // other * other

    def __rmod__(self, other: Number) -> Number:
        return other - other // self * self

    def __divmod__(self, other: Number) -> Number:
        return self // other, self % other

    def __truediv__(self, other: Number) -> Number:
        return Ratio(1.0, self, 1) / other

    def __rtruediv__(self, other: Number) -> Number:
        return other / Ratio(1.0, self, 1)

    def __abs__(self) -> Number:
        return self if self >= 0 else -self

    # -- decisions

    def _decides(self, other: Number, relation: str) -> Any:
        if polynomial(other) is None:
            return NotImplemented
        difference = self - other
        if not isinstance(difference, SymInt):
            return RELATIONS[relation](difference, 0)
        return self.symbols.decide(difference, relation)

    def __eq__(self, other: object) -> bool:
        return self._decides(other, "==")

    def __ne__(self, other: object) -> bool:
        equal = self._decides(other, "==")
        return equal if equal is NotImplemented else not equal

    def __lt__(self, other: Number) -> bool:
        return self._decides(other, "<")

    def __ge__(self, other: Number) -> bool:
        less = self._decides(other, "<")
        return less if less is NotImplemented else not less

    def __gt__(self, other: Number) -> bool:
        return (-self)._decides(-other, "<")

    def __le__(self, other: Number) -> bool:
        return not self > other

    def __bool__(self) -> bool:
        return bool(self != 0)

    # -- conversions to a plain number, which leave a condition

    def __index__(self) -> int:
        self.symbols.decide(self - self.at, "==")
        return self.at

    __int__ = __index__

    def __float__(self) -> float:
        return float(int(self))


@dataclass(frozen=True, eq=False)
class Ratio:
    """c · n / d: a floating factor made of sizes."""

    c: float
    n: Number
    d: Number
    __array_ufunc__ = None

    @property
    def at(self) -> float:
        """Its number at the point."""
        return self.c * at(self.n) / at(self.d)

    def __mul__(self, other: Number) -> Number:
        if isinstance(other, Ratio):
            return Ratio(self.c * other.c, self.n * other.n, self.d * other.d)
        if isinstance(other, SymInt):
            return Ratio(self.c, self.n * other, self.d)
        if np.ndim(other):
            return NotImplemented
        return Ratio(self.c * float(other), self.n, self.d)

    __rmul__ = __mul__

    def __truediv__(self, other: Number) -> Number:
        return self * (1 / other if not isinstance(other, SymInt) else Ratio(1.0, 1, other))

    def __rtruediv__(self, other: Number) -> Number:
        return other * Ratio(1 / self.c, self.d, self.n)

    def __neg__(self) -> Ratio:
        return Ratio(-self.c, self.n, self.d)

    def __float__(self) -> float:
        return self.c * int(self.n) / int(self.d)

    def __repr__(self) -> str:
        return f"{self.c:g}·({self.n})/({self.d})"


def from_polynomial(terms: Polynomial) -> Number:
    """The number of a polynomial, without zero terms; constants become plain ints."""
    terms = {atoms: c for atoms, c in terms.items() if c}
    return SymInt(terms) if terms.keys() - {()} else terms.get((), 0)


def polynomial(x: object) -> Polynomial | None:
    """The terms of an integer, None for anything else."""
    if isinstance(x, SymInt):
        return x.terms
    if isinstance(x, np.ndarray) and x.ndim == 0:
        x = x.item()
    return {(): int(x)} if isinstance(x, int | np.integer) else None


def whole(x: Number) -> Number:
    """An integer as an int or a SymInt."""
    return x if isinstance(x, SymInt) else int(x)


def bounds(x: SymInt) -> tuple[int | None, int | None]:
    """A lower and an upper bound; None where there is no such bound."""
    low: int | None = x.terms.get((), 0)
    high: int | None = low
    for atoms, c in x.terms.items():
        if not atoms:
            continue
        least = [atom.least for atom in atoms]
        if any(n is None or (n < 0 and len(atoms) > 1) for n in least):
            return None, None
        product = c * math.prod(n for n in least if n is not None)
        low = None if c < 0 or low is None else low + product
        high = None if c > 0 or high is None else high + product
    return low, high


# -- the relations that leave no condition


def depth_of(x: Number) -> int:
    """The greatest number of control-flow bodies around a tensor that a number is read from."""
    return max((atom.depth for atom in x.roots()), default=0) if isinstance(x, SymInt) else 0


def is_symbolic(x: object) -> bool:
    """Whether a number, or some number in a tuple or list, is symbolic."""
    if isinstance(x, tuple | list):
        return not PLAIN.issuperset(map(type, x)) and any(map(is_symbolic, x))
    return isinstance(x, SymInt | Ratio)


def at(x: Any) -> Any:
    """A number, or a tuple of them, at the point: for descriptions, not for decisions."""
    if type(x) in PLAIN:
        return x
    if isinstance(x, tuple):
        return x if PLAIN.issuperset(map(type, x)) else tuple(map(at, x))
    return x.at if isinstance(x, SymInt | Ratio) else x


def same(a: Number | tuple[Number, ...], b: Number | tuple[Number, ...]) -> bool:
    """Whether two numbers or shapes are equal at every point, as far as that can be proved.

    >>> same((2, 3), (2, 3)), same((2,), (2, 1))
    (True, False)
    """
    if isinstance(a, tuple):
        if PLAIN.issuperset(map(type, a + b)):
            return a == b
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, SymInt) and isinstance(b, SymInt):
        return a.key == b.key
    return not isinstance(a, SymInt | Ratio) and not isinstance(b, SymInt | Ratio) and bool(a == b)


def agree(a: Number | tuple[Number, ...], b: Number | tuple[Number, ...]) -> bool:
    """Whether numbers or shapes that an operator's definition makes equal agree at the point.

    >>> agree((2, 3), (2, 3)), agree((2,), (3,))
    (True, False)
    """
    return bool(at(a) == at(b))


# -- numbers that are derived from others


def derived_atom(
    kind: str, operands: tuple[Number, ...], value: Callable[..., int],
    lower: Callable[[Any], Any], least: int | None,
) -> SymInt:  # fmt: skip
    """An atom derived from other numbers; equal operands share one."""
    symbols = next(x.symbols for x in operands if isinstance(x, SymInt))
    key = kind, *(x.key if isinstance(x, SymInt) else x for x in operands)
    if key not in symbols.derived:
        name = f"{kind}({', '.join(map(str, operands))})"
        here = value(*map(at, operands))
        symbols.derived[key] = symbols.atom(name, here, lower, least=least, operands=operands)
    return symbols.derived[key]


def quotient(a: Number, b: Number) -> Number:
    """⌊a / b⌋."""
    if not is_symbolic((a, b)):
        return a // b
    exact = divided(a, b)
    if exact is not None:
        return exact
    a, b = cancelled(a, b)
    least = 0 if is_positive(a, strictly=False) and is_positive(b) else None

    def lower(op: Op) -> Array:
        x, y = lowered(op, a), lowered(op, b)
        return op.Div(op.Sub(x, op.Mod(x, y)), y)  # Mod has the sign of y: the quotient is exact

    return derived_atom("floor", (a, b), operator.floordiv, lower, least)


def cancelled(a: Number, b: Number) -> tuple[Any, Any]:
    """Two numbers divided by the positive factor that all their terms share."""
    terms = [*(polynomial(a) or {}).items(), *(polynomial(b) or {}).items()]
    shared = [x for x in terms[0][0] if x.least is not None and x.least > 0]
    for atoms, _ in terms:
        shared = [x for x in set(shared) for _ in range(min(shared.count(x), atoms.count(x)))]
    factor = from_polynomial({tuple(sorted(shared)): math.gcd(*(c for _, c in terms))})
    return divided(a, factor), divided(b, factor)


def divided(a: Number, b: Number) -> Number | None:
    """a / b where b is one product of atoms that divides every term of a; else None.

    >>> divided(6, 3), divided(6, 4), divided(6, 0)
    (2, None, None)
    """
    if not is_symbolic((a, b)):
        return a // b if b and a % b == 0 else None
    over = polynomial(b) or {}
    if isinstance(a, SymInt) and isinstance(b, SymInt) and a.key == b.key:
        return 1
    if len(over) != 1:
        return None
    ((factors, c),) = over.items()
    if not c:
        return None
    terms: Polynomial = {}
    for atoms, d in (polynomial(a) or {}).items():
        rest = list(atoms)
        for factor in factors:
            if factor not in rest:
                return None
            rest.remove(factor)
        if Fraction(d, c).denominator > 1:
            return None
        terms[tuple(rest)] = d // c
    return from_polynomial(terms)


def is_positive(x: Number, *, strictly: bool = True) -> bool:
    """Whether a number is provably > 0, or ≥ 0 if not `strictly`."""
    low = bounds(x)[0] if isinstance(x, SymInt) else x
    return low is not None and low >= int(strictly)


def largest(*numbers: Number) -> Number:
    """The maximum of some numbers, without a decision.

    >>> largest(2, 5, 3)
    5
    """
    return reduce(larger, numbers)


def smallest(*numbers: Number) -> Number:
    """The minimum of some numbers, without a decision."""
    return -largest(*(-n for n in numbers))


def larger(a: Number, b: Number) -> Number:
    """The maximum of two numbers, without a decision."""
    difference = a - b
    if not isinstance(difference, SymInt):
        return a if difference >= 0 else b
    low, high = bounds(difference)
    if low is not None and low >= 0:
        return a
    if high is not None and high <= 0:
        return b
    known = [n for n in (floor_of(a), floor_of(b)) if n is not None]

    def lower(op: Op) -> Array:
        return op.Max(lowered(op, a), lowered(op, b))

    return derived_atom("max", (a, b), max, lower, max(known, default=None))


def by_maxima(x: Number) -> list[Number]:
    """a - b of each max(a, b) = a at the point, if x is 0 wherever all of these are ≥ 0; else none.

    `seq - min(seq, 32)` is 0 up to 32, not at one length alone.
    """
    found: list[Number] = []
    while isinstance(x, SymInt):
        met = (atom for atoms in x.terms for atom in atoms)
        atom = next((a for a in met if a.operands and a.name.startswith("max(")), None)
        if atom is None:
            return []
        small, large = sorted(atom.operands, key=at)
        x, *found = (replaced(n, atom, large) for n in (x, *found, large - small))
    return found if x == 0 else []


def replaced(x: Number, atom: Atom, by: Number) -> Number:
    """A number in which another one stands for an atom."""
    terms = polynomial(x) or {}
    return sum(c * math.prod(by if a is atom else from_polynomial({(a,): 1}) for a in atoms)
               for atoms, c in terms.items())  # fmt: skip


def floor_of(x: Number) -> int | None:
    """A lower bound of a number, or None."""
    return bounds(x)[0] if isinstance(x, SymInt) else int(x)


def if_negative(x: Number, then: Number, otherwise: Number) -> Number:
    """`then` where x < 0, else `otherwise`, without a decision."""
    if not isinstance(x, SymInt):
        return then if x < 0 else otherwise
    low, high = bounds(x)
    if low is not None and low >= 0:
        return otherwise
    if high is not None and high < 0:
        return then

    def lower(op: Op) -> Array:
        negative = op.Less(lowered(op, x), np.array([0]))
        return op.Where(negative, lowered(op, then), lowered(op, otherwise))

    def value(x: int, then: int, otherwise: int) -> int:
        return then if x < 0 else otherwise

    floors = floor_of(then), floor_of(otherwise)
    least = None if None in floors else min(n for n in floors if n is not None)
    return derived_atom("choose", (x, then, otherwise), value, lower, least)


def lowered(op: Op, x: Number) -> Array:
    """The graph value of a number: int64 of shape [1]."""
    if not isinstance(x, SymInt):
        return np.array([int(x)], np.int64)
    total = None
    for atoms, c in sorted(x.terms.items(), key=lambda term: [a.order for a in term[0]]):
        term = np.array([c], np.int64) if c != 1 or not atoms else None
        for atom in atoms:
            value = atom.lower(op)
            term = value if term is None else op.Mul(value, term)
        total = term if total is None else op.Add(total, term)
    return total


def lowered_ratio(op: Op, x: Ratio, dtype: np.dtype) -> Array:
    """The graph value of a ratio: a floating scalar."""
    like = np.zeros((), dtype)
    n, d = (op.CastLike(op.Reshape(lowered(op, k), ()), like) for k in (x.n, x.d))
    return op.Div(op.Mul(n, np.asarray(x.c, dtype)), d)


# -- text


def relation_to_zero(x: SymInt, relation: str, truth: bool, reader: str) -> Condition:
    """The condition that `x relation 0` is this `truth`."""
    terms = x.terms.items()
    left, right = (polynomial_text({atoms: sign * c for atoms, c in terms if sign * c > 0})
                   for sign in (1, -1))  # fmt: skip
    signs = {("==", True): ("==", "=="), ("==", False): ("!=", "!="),
             ("<", True): ("<", ">"), ("<", False): (">=", "<=")}  # fmt: skip
    sign, turned = signs[relation, truth]
    if left.isdecimal():
        left, sign, right = right, turned, left
    return Condition("relation", f"{left} {sign} {right}", reader, sign, x)


def polynomial_text(terms: Polynomial) -> str:
    """A polynomial as readable text."""
    parts = []
    order = sorted(terms, key=lambda atoms: (not atoms, [a.order for a in atoms]))
    for atoms, c in ((atoms, terms[atoms]) for atoms in order):
        names = "·".join(atom.name for atom in atoms)
        parts.append(names if names and c == 1 else f"{c}·{names}" if names else str(c))
    return " + ".join(parts) or "0"


def broadcast_sizes(shapes: Iterable[tuple[Number, ...]]) -> tuple[Number, ...]:
    """The shape that all shapes broadcast to."""
    shapes = list(shapes)
    rank = max(map(len, shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    return tuple(map(common_size, zip(*padded, strict=True)))


def common_size(sizes: tuple[Number, ...]) -> Number:
    """The size that all sizes broadcast to.

    A plain number other than 1 is the result, without a decision. Symbolic sizes that are not
    provably equal are decided to be equal, or to be 1, as at the point.
    """
    plain = {n for n in sizes if isinstance(n, int)} - {1}
    if plain:
        found, *others = plain
        if others or any(at(n) not in (1, found) for n in sizes):
            raise ValueError(f"sizes {', '.join(map(str, sizes))} do not broadcast")
        return found
    known: Number = 1
    for n in sizes:
        if same(n, 1) or same(n, known):
            continue
        if same(known, 1):
            known = n
        elif n != known:
            if known == 1:
                known = n
            elif n != 1:
                raise ValueError(f"sizes {known} and {n} do not broadcast")
    return known
