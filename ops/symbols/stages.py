"""Stages: a definition in index notation as nested sums, differentiated by SymPy sum by sum."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import sympy as sp

from ...jacobians.errors import InputError
from ..formulas import OUTPUT, Mean, Total, derive, expression_tree, parse, stable
from ..trees import REST, SHARE, Access, Index, Labels, Piece, Stage, Tree

SOFTMAX = sp.Symbol(SHARE, real=True)

HEAD = re.compile(r"\s*\w+\s*(?:\[([^\]]*)\])?\s*=(?!=)")


def parted(definition: Any) -> tuple[Labels, str]:
    """The indices of y, and the expression.

    >>> parted("y[i, k] = sum(a[i,j]*b[j,k], j)"), parted("g*x")
    ((('i', 'k'), 'sum(a[i,j]*b[j,k], j)'), ((), 'g*x'))
    """
    text = definition if isinstance(definition, str) else line_of(definition)
    head = HEAD.match(text)
    labels = re.findall(r"\w+", (head and head[1]) or "")
    return tuple(labels), text[head.end() if head else 0 :].strip()


def line_of(definition: Any) -> str:
    """The definition as a line with a left side.

    >>> line_of("sum(x[i], i)"), line_of("y[*r] = x[*r]**2")
    ('y = sum(x[i], i)', 'y[*r] = x[*r]**2')
    """
    if isinstance(definition, sp.Eq):
        return f"{definition.lhs} = {definition.rhs}"
    text = definition if isinstance(definition, str) else str(definition)
    return text.strip() if HEAD.match(text) else f"y = {text}"


def has_indices(text: str) -> bool:
    """Whether an expression has indices or sums."""
    return parse(text).has(sp.Indexed, Total)


def names_in_text(text: str) -> set[str]:
    """The inputs and attributes of an expression."""
    expr = parse(text)
    bases = {str(x.base) for x in expr.atoms(sp.Indexed)}
    symbols = {s for s in expr.atoms(sp.Symbol) if s.is_real}
    scalars, over = ({s.name for s in symbols if s.is_integer is kind} for kind in (None, True))
    if both := (scalars | bases) & over | scalars & bases:
        raise InputError(f"{text!r}: {', '.join(sorted(both))} is an index or has indices, and is "
                         "used as a number")  # fmt: skip
    return bases | scalars


def stage_of(text: str, out: Labels, variables: Labels) -> Stage:
    """The outermost stage of a definition."""
    return stages_of((("y", out, text),), variables)["y"]


@cache
def stages_of(
    lines: tuple[tuple[str, Labels, str], ...], variables: Labels,
    absent: tuple[tuple[str, float], ...] = (), repeats: bool = False,
) -> dict[str, Stage]:  # fmt: skip
    """The stage of every line, (name, indices, text), in which later lines may use earlier names.

    Inputs that are `absent` are these numbers. An index of y alone is an error unless it `repeats`
    entries.
    """
    made, builder = dict[str, Stage](), Builder(variables, dict(absent))
    for name, out, text in lines:
        stage = made[name] = builder.line(name, out, parse(text))
        met = {label for atom in stage.atoms.values() for label in atom.labels}
        if loose := (met - {*out} if repeats else {*out} ^ met) - {*stage.summed, REST}:
            raise InputError(f"{text!r}: {', '.join(sorted(loose))} is to be an index of {name} "
                             "and of some input, or summed over")  # fmt: skip
    return made


class Builder:
    """The stages of one definition; equal parts share a name."""

    def __init__(self, variables: Labels, absent: Mapping[str, float] | None = None) -> None:
        self.out, self.variables, self.absent = Labels(), variables, absent or {}
        self.known: dict[sp.Expr, tuple[sp.Symbol, Access | Stage]] = {}
        self.lines: dict[str, Stage] = {}
        self.sums: dict[Stage, Total] = {}

    def line(self, name: str, out: Labels, expr: sp.Expr) -> Stage:
        """The stage of a line name[out] = expr."""
        self.out, expr = out, self.filled(expr)
        made = self.stage(expr, out)
        made = replace(made, atoms=self.shared(expr, made), direct=self.joint(made))
        self.lines[name] = made
        if made.summed and isinstance(expr, Total):
            self.sums[made] = expr
        return made

    def joint(self, outer: Stage) -> Stage | None:
        """∂Y/∂x for Y = f(s) with s = Σ g(x), by x and Y; None for any other stage."""
        (name, inner), *others = outer.atoms.items() if outer.atoms else (("", None),)
        if others or outer.summed or not isinstance(inner, Stage) or not inner.summed:
            return None
        ((x, entry), *more) = inner.atoms.items()
        term = parse(outer.text)
        d = self.at_zero_norms(self.slope(term, name, OUTPUT), term, name, inner)
        if more or inner.logs or isinstance(entry, Stage) or d.has(sp.Symbol(name, real=True)):
            return None
        slope = stable(d * self.slope(parse(inner.text), x, None))
        if d.is_Piecewise:
            slope = sp.piecewise_fold(slope)
        coefficient, rest = slope.as_coeff_Mul()
        trees = expression_tree(coefficient), expression_tree(rest)
        return replace(inner, labels=outer.labels, slopes={x: trees})

    def filled(self, expr: sp.Expr) -> sp.Expr:
        """The expression with numbers in place of absent inputs."""
        if base_of(expr) in self.absent:
            number = self.absent[base_of(expr)]
            return sp.Rational(str(number)) if abs(number) < sp.oo else sp.oo * int(sp.sign(number))
        if isinstance(expr, sp.Indexed) or not expr.args:
            return expr
        return expr.func(*map(self.filled, expr.args))

    def shared(self, expr: sp.Expr, made: Stage) -> dict[str, Access | Stage]:
        """The atoms of a line; a softmax in their slopes that is the line itself is known."""
        found = dict(made.atoms)
        for name, atom in made.atoms.items():
            if not isinstance(atom, Stage) or not atom.logs:
                continue
            new = tuple(label for label in self.out if label not in atom.labels)
            total = self.sums[atom]
            if len(new) == len(atom.summed):
                moved = {sp.Symbol(s, integer=True): sp.Symbol(n, integer=True)
                         for s, n in zip(atom.summed, new, strict=True)}  # fmt: skip
                if expr == total.term.xreplace(moved) / total:
                    names = dict(zip(new, atom.summed, strict=True))
                    shares = tuple(names.get(label, label) for label in self.out)
                    found[name] = replace(atom, shares=shares)
        return found

    def stage(
        self, expr: sp.Expr, labels: Labels, over: Total | None = None, logs: bool = False
    ) -> Stage:  # fmt: skip
        """y[labels] = Σ expr, its mean, or log Σ exp expr."""
        if isinstance(expr, Total) and not over and not self.is_logs(expr):
            return self.stage(expr.term, labels, expr)
        term, atoms = stable(self.lifted(expr)), {}
        used = term.free_symbols
        for symbol, atom in self.known.values():
            if symbol in used:
                atoms[symbol.name] = atom
        found = addends(term)
        level = None if over else OUTPUT
        slopes, summed, choices = {}, over.over if over else (), set[str]()
        for name in atoms:
            d = self.slope(term, name, level, found)
            if over and {*atoms[name].labels}.isdisjoint(summed) and self.cancels(d, atoms, over):
                d = sp.S.Zero
            if not over:
                d = self.at_zero_norms(d, term, name, atoms[name])
            if d.is_Piecewise and is_choice(d):
                choices.add(name)
            if d != 0:
                slopes[name] = self.split(d * SOFTMAX if logs else d, atoms, labels, summed)
        factors = (expression_tree(term),) if logs or not over else self.split(term, atoms, labels)
        means = isinstance(over, Mean)
        return Stage(labels, summed, atoms, factors, slopes, logs, str(term), means,
                     choices=frozenset(choices))  # fmt: skip

    def slope(
        self, term: sp.Expr, name: str, level: sp.Symbol | None,
        found: Mapping[sp.Symbol, list[sp.Expr]] | None = None,
    ) -> sp.Expr:  # fmt: skip
        """∂term/∂name: of a product of different names, the others."""
        x = sp.Symbol(name, real=True)
        (alone, *others) = (found or addends(term))[x]
        factors = () if others else sp.Mul.make_args(alone)
        if x in factors and not any(f.has(x) for f in factors if f != x):
            return sp.Mul(*(f for f in factors if f != x))
        return derive(term, name, level)

    def is_logs(self, total: Total) -> bool:
        """Whether a sum is that of exponentials, which is taken as exp log Σ exp."""
        return not isinstance(total, Mean) and isinstance(total.term, sp.exp)

    def cancels(self, d: sp.Expr, atoms: Mapping[str, Access | Stage], over: Total) -> bool:
        """Whether Σ d = 0, because d is a multiple of a difference from the mean."""
        for name, atom in atoms.items():
            total = self.sums.get(atom) if isinstance(atom, Stage) and atom.means else None
            if total is None or total.over != over.over or total.term not in self.known:
                continue
            mean, entry = sp.Symbol(name, real=True), self.known[total.term][0]
            others = d.free_symbols - {mean, entry}
            fixed = all({*atoms[s.name].labels}.isdisjoint(over.over)
                        for s in others if s.name in atoms)  # fmt: skip
            linear = sp.expand(d.diff(entry, 2)) == 0
            if fixed and linear and sp.expand(d.xreplace({entry: mean})) == 0:
                return True
        return False

    def at_zero_norms(
        self, d: sp.Expr, term: sp.Expr, name: str, atom: Access | Stage
    ) -> sp.Expr:  # fmt: skip
        """A slope that divides by the root of a sum of powers |x|ᵖ: 0 where the root is 0."""
        if not isinstance(atom, Stage) or atom not in self.sums:
            return d
        divides = any(p.exp.is_negative and p.base.has(OUTPUT) for p in d.atoms(sp.Pow))
        alone = term.subs(sp.Symbol(name, real=True), 0) == 0 and parse(atom.text).is_nonnegative
        if not divides or not alone:
            return d
        return sp.Piecewise((0, sp.Eq(OUTPUT, 0)), (d, True))

    def split(
        self, expr: sp.Expr, atoms: Any, labels: Labels, summed: Labels = ()
    ) -> tuple[Tree, ...]:
        """The factors of a product, multiplied where they have the same labels."""
        groups: dict[frozenset[str], list[sp.Expr]] = {}
        for factor in sp.Mul.make_args(expr):
            names = {s.name for s in factor.free_symbols}
            on = {n for a in names & atoms.keys() for n in atoms[a].labels}
            on |= {*labels} if {OUTPUT.name, SHARE} & names else set()
            on |= {*summed} if SHARE in names else set()
            groups.setdefault(frozenset(on), []).append(factor)
        constant = groups.pop(frozenset(), [])
        if constant and groups and any(f.free_symbols for f in constant):
            next(iter(groups.values())).extend(constant)
            constant = []
        made = [expression_tree(sp.Mul(*factors)) for factors in groups.values()]
        return (*([expression_tree(sp.Mul(*constant))] if constant or not made else []), *made)

    def lifted(self, expr: sp.Expr) -> sp.Expr:
        """The expression with names in place of inputs and inner sums; Σ exp as exp log Σ exp."""
        if isinstance(expr, Total):
            logs = self.is_logs(expr)
            inner = expr.term.exp if logs else expr.term
            key = sp.log(expr) if logs else expr
            if key not in self.known:
                over = expr.over
                found = [n for n in free(inner) if n not in over]
                labels = tuple(sorted(found, key=lambda n: (*self.out, n).index(n)))
                made = self.stage(inner, labels, expr, logs)
                self.sums[made] = expr
                self.name(key, made)
            symbol = self.known[key][0]
            return sp.exp(symbol) if logs else symbol
        if base_of(expr) in self.lines:
            line = self.lines[base_of(expr)]
            if tuple(map(str, getattr(expr, "indices", ()))) != line.labels:
                raise InputError(f"{expr}: a name of a line has the indices of its line, "
                                 f"{', '.join(line.labels)}")  # fmt: skip
            return self.name(expr, line)
        if isinstance(expr, sp.Indexed):
            return self.name(expr, self.access(expr))
        if expr.is_Symbol and expr.name in self.variables:
            return self.name(expr, Access(expr.name, (), ()))
        return expr.func(*map(self.lifted, expr.args)) if expr.args else expr

    def name(self, expr: sp.Expr, atom: Access | Stage) -> sp.Symbol:
        """The symbol of a part: the one it has already, or a new one for this atom."""
        if expr not in self.known:
            base = atom.name if isinstance(atom, Access) else "s"
            self.known[expr] = sp.Symbol(f"{base}{len(self.known) or ''}", real=True), atom
        return self.known[expr][0]

    def access(self, expr: sp.Indexed) -> Access:
        return Access(str(expr.base), tuple(map(self.index, expr.indices)), tuple(free(expr)))

    def index(self, expr: sp.Expr) -> Index:
        """A label, an affine expression or entries of an input."""
        if isinstance(expr, sp.Indexed):
            return self.access(expr)
        if expr.is_Symbol:
            return str(expr.name)
        symbols = sorted(expr.free_symbols, key=str)
        factors = {s.name: expr.coeff(s) for s in symbols}
        factors[""] = expr.subs(dict.fromkeys(symbols, 0))
        whole = sum(c * (sp.Symbol(n, integer=True) if n else 1) for n, c in factors.items())
        if sp.expand(expr - whole) != 0 or not all(c.is_Integer for c in factors.values()):
            raise InputError(f"the index {expr} is not like 2*i + k + 1")
        return {n: int(c) for n, c in factors.items()}


def addends(term: sp.Expr) -> dict[sp.Symbol, list[sp.Expr]]:
    """The addends of a sum that have a symbol in them."""
    found = dict[sp.Symbol, list[sp.Expr]]()
    for part in sp.Add.make_args(term):
        for symbol in part.free_symbols:
            found.setdefault(symbol, []).append(part)
    return found


def is_choice(slope: sp.Expr) -> bool:
    """Whether a slope is 1 or 0 by cases, or by cases of cases."""
    if slope.is_Piecewise:
        return all(is_choice(value) for value, _ in slope.args)
    return slope in (sp.S.Zero, sp.S.One)


def base_of(expr: sp.Basic) -> str:
    """The name of x[i] or x; empty for anything else."""
    if isinstance(expr, sp.Indexed):
        return str(expr.base)
    return str(expr.name) if expr.is_Symbol and not expr.is_integer else ""


def free(expr: sp.Expr) -> list[str]:
    """The indices in an expression that no inner sum runs over, in the order of its inputs."""
    inner = {n for s in expr.atoms(Total) for n in s.over}
    found = (s.name for x in sorted(expr.atoms(sp.Indexed), key=str) for i in x.indices
             for s in sorted(i.atoms(sp.Symbol), key=str) if s.is_integer)  # fmt: skip
    return [n for n in dict.fromkeys(found) if n not in inner]


# -- what is said of a definition ------------------------------------------------------------------


class General:
    """∂y[i]/∂x[i'] for all i and i': the entries of a Jacobian as one formula, with deltas.

    `indices` are those that an input has where it first occurs.
    """

    def __init__(
        self, lines: Mapping[str, Stage], output: str, indices: Mapping[str, Labels]
    ) -> None:  # fmt: skip
        self.indices = indices
        self.names = {id(stage): name for name, stage in lines.items()}
        self.output, self.top = output, lines[output]

    def entry(self, name: str) -> sp.Expr:
        """∂output/∂input, whose indices have primes."""
        return sp.factor_terms(self.slope(self.top, name))

    def slope(self, stage: Stage, name: str) -> sp.Expr:
        """∂stage/∂input, through every atom."""
        found, term = sp.S.Zero, parse(stage.text)
        level = None if stage.summed else OUTPUT
        for symbol, atom in stage.atoms.items():
            inner = self.slope(atom, name) if isinstance(atom, Stage) else self.access(atom, name)
            if inner != 0 and symbol in stage.slopes:
                d = derive(term, symbol, level, shortest=True)
                found += self.summed(stage, self.spelled(stage, d) * inner)
        return found

    def access(self, atom: Access, name: str) -> sp.Expr:
        if atom.name != name:
            return sp.S.Zero
        primes = (sp.Symbol(f"{i or k}'", integer=True) for k, i in enumerate(self.indices[name]))
        pairs = zip(map(index_of, atom.indices), primes, strict=True)
        return sp.Mul(*(sp.KroneckerDelta(i, j) for i, j in pairs)) if atom.indices else sp.S.One

    def summed(self, stage: Stage, term: sp.Expr) -> sp.Expr:
        """Σ term over the indices of a sum, of which a delta leaves one place."""
        if stage.logs:
            term *= self.share(stage)
        for label in stage.summed:
            s = sp.Symbol(label, integer=True)
            deltas = [d for d in term.atoms(sp.KroneckerDelta) if s in d.args]
            if not deltas:
                total = Mean if stage.means else Total
                term = total(term, s)
                continue
            place = next(i for i in deltas[0].args if i != s)
            term = term.subs(deltas[0], 1).subs(s, place)
            if stage.means:
                term /= sp.Function("len")(s)
        return term

    def share(self, stage: Stage) -> sp.Expr:
        """exp(term) / Σ exp(term), by the output where it is that."""
        if stage.shares:
            return sp.Indexed(self.output, *map(index_of, stage.shares))
        term = sp.exp(self.spelled(stage, parse(stage.text)))
        return term / Total(term, *map(index_of, stage.summed))

    def spelled(self, stage: Stage, expr: sp.Expr) -> sp.Expr:
        """An expression with tensors in place of the names of atoms."""
        atoms = {sp.Symbol(n, real=True): self.tensor(a) for n, a in stage.atoms.items()}
        if expr.has(OUTPUT):
            atoms[OUTPUT] = self.tensor(stage)
        return expr.xreplace(atoms)

    def tensor(self, atom: Access | Stage) -> sp.Expr:
        """x[i, j], the name of a line with its indices, or the sum in full."""
        if isinstance(atom, Access):
            return spell_tensor(atom.name, map(index_of, atom.indices))
        if id(atom) in self.names or atom is self.top:
            name = self.names.get(id(atom), self.output)
            return spell_tensor(name, map(index_of, atom.labels))
        term = self.spelled(atom, parse(atom.text))
        if not atom.summed:
            return term
        total = Mean if atom.means else Total
        whole = total(sp.exp(term) if atom.logs else term, *map(index_of, atom.summed))
        return sp.log(whole) if atom.logs else whole


def spell_tensor(name: str, places: Iterable[sp.Expr]) -> sp.Expr:
    """x[i, j], or x without indices."""
    found = tuple(places)
    return sp.Indexed(name, *found) if found else sp.Symbol(name, real=True)


def index_of(index: Index) -> sp.Expr:
    """An index as an expression."""
    if isinstance(index, Access):
        return spell_tensor(index.name, map(index_of, index.indices))
    if isinstance(index, Mapping):
        return sum(c * (sp.Symbol(n, integer=True) if n else 1) for n, c in index.items())
    return sp.Symbol(index, integer=True)


def slopes(pieces: Iterable[Piece]) -> dict[str, sp.Expr]:
    """∂Y/∂x for every name of every piece."""
    return {name: d for _, found in differentiate_pieces(pieces) for name, d in found.items()}


def differentiate_pieces(pieces: Iterable[Piece]) -> Iterator[tuple[sp.Expr, dict[str, sp.Expr]]]:
    """Every formula with its derivatives."""
    for piece in pieces:
        expr, level = parse(piece.text), OUTPUT if piece.known else None
        yield expr, {name: derive(expr, name, level) for name in piece.names}
