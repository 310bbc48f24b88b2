"""Mutants: the positions of cosmic-ray's operators in a file, and a sample of them."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from difflib import SequenceMatcher
from functools import cache
from itertools import islice
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator
from cosmic_ray.operators.provider import OperatorProvider

from .report import FOLDERS

ROOT = Path(__file__).resolve().parents[2]
PARTNERS = ("Add_Sub", "Sub_Add", "Mul_Div", "Mul_Add", "Div_Mul", "FloorDiv_Mul", "Mod_Mul",
    "Pow_Mul", "BitAnd_BitOr")  # fmt: skip
IDENTITY = ("_Is", "_IsNot")  # `==` as `is`: depends on what CPython interns
CHECKERS = ROOT / "modes" / "verify"  # planted faults judge them: tests/suite/verify
NEEDS_ARGUMENTS = ("VariableReplacer", "VariableInserter")


@dataclass(frozen=True)
class Mutant:
    """One change: occurrence number `occurrence` of `operator` in `path`, at `line`."""

    path: str
    operator: str
    occurrence: int
    line: int
    last: int

    def source(self) -> str:
        """The whole mutated file."""
        text = (ROOT / self.path).read_text()
        return mutate_code(text, operators()[self.operator], self.occurrence)

    def change(self) -> tuple[str, str]:
        """The changed lines before and after, each joined to one line."""
        before = (ROOT / self.path).read_text().splitlines()
        after = self.source().splitlines()
        edits = SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
        kinds = [edit for edit in edits if edit[0] != "equal"]
        (_, i, _, k, _), (_, _, j, _, m) = kinds[0], kinds[-1]
        return joined(before[i:j]), joined(after[k:m])

    def key(self) -> str:
        """The key in files of results."""
        return " ".join(map(str, asdict(self).values()))


def joined(lines: list[str]) -> str:
    """Lines as one."""
    return " ".join(" ".join(lines).split())


@cache
def operators() -> dict[str, Operator]:
    """Cosmic-ray's operators, except those whose mutants cannot run."""
    provider = OperatorProvider()
    return {name: provider[name]() for name in provider if runnable(name)}


def runnable(name: str) -> bool:
    """Only usual replacements of arithmetic: `shape << 1` is a TypeError that proves nothing."""
    kind, _, partner = name.partition("_")
    if kind == "ReplaceBinaryOperator":
        return partner in PARTNERS
    return not name.endswith(IDENTITY) and name not in NEEDS_ARGUMENTS


def mutants(path: Path) -> Iterator[Mutant]:
    """Every mutant of a file."""
    nodes = list(ast_nodes(get_ast(path.read_text())))
    name = str(path.relative_to(ROOT))
    for kind, operator in operators().items():
        places = ((node, place) for node in nodes for place in operator.mutation_positions(node))
        for occurrence, (node, (start, stop)) in enumerate(places):
            if not annotation(node):
                yield Mutant(name, kind, occurrence, start[0], stop[0])


def is_another(mutant: Mutant) -> bool:
    """Whether the mutant is a valid program, and differs from the original."""
    try:
        tree = ast.parse(mutant.source())
    except SyntaxError:
        return False
    return ast.dump(tree) != ast.dump(ast.parse((ROOT / mutant.path).read_text()))


def annotation(node) -> bool:
    """Whether the node is part of an annotation, where `|` is not arithmetic."""
    while node.parent is not None:
        child, node = node, node.parent
        if node.type == "annassign" and child is node.children[1]:
            return True
        if node.type in ("param", "funcdef") and child is node.annotation:
            return True
    return False


def sample(count: int, seed: int, scope: str) -> list[Mutant]:
    """About `count` mutants, from each file in proportion, and at most one per position."""
    draw = random.Random(seed)
    files = sorted(path for folder in FOLDERS[scope] for path in (ROOT / folder).rglob("*.py")
                   if path.parent != CHECKERS)  # fmt: skip
    places = {path: by_place(path, draw) for path in files}
    total = sum(map(len, places.values()))
    shares = {path: round(count * len(found) / total) for path, found in places.items()}
    runs = {path: filter(is_another, found) for path, found in places.items()}
    taken = [m for path, found in runs.items() for m in islice(found, max(1, shares[path]))]
    draw.shuffle(taken)
    return taken


def by_place(path: Path, draw: random.Random) -> list[Mutant]:
    """One mutant for every position of a file, in random order."""
    places: dict[tuple[int, str], list[Mutant]] = {}
    for mutant in mutants(path):
        places.setdefault((mutant.line, mutant.operator.partition("_")[0]), []).append(mutant)
    chosen = [draw.choice(found) for found in places.values()]
    draw.shuffle(chosen)
    return chosen
