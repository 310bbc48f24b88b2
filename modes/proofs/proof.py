"""Proof: that the rule of an operator is its derivative, as something to read."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from ...jacobians.cached import cached_property
from ...jacobians.errors import UnsupportedOp, closest
from ...jacobians.progress import counted
from ...ops import find
from ...ops.registry import Declaration
from ...ops.rules.estimators import DOMAIN
from .case import Case
from .cases import CASES
from .check import Check, Verdict
from .coverage import schemas
from .example import Example, examples
from .identity import DIGITS, EXACT, REFUTED
from .kinks import kinks_of
from .page import page
from .scripts import Script, script_of
from .write import document, equations


@dataclass(frozen=True)
class Proved:
    """One case: where its definition comes from, what was found, and where that holds."""

    case: Case
    source: str
    first: tuple[Verdict, ...]
    second: tuple[Verdict, ...]
    conditions: tuple[Any, ...]

    @property
    def outcome(self) -> str:
        """The worst of the first derivative's verdicts."""
        return worst(self.first)

    def __bool__(self) -> bool:
        return all(self.first) and all(self.second)


def worst(verdicts: tuple[Verdict, ...]) -> str:
    """Refuted before numerical before exact."""
    return max((v.outcome for v in verdicts), key=(EXACT, DIGITS, REFUTED).index, default=EXACT)


def proved(case: Case, *, second: bool = True) -> Proved:
    """The verdicts of a case, of the second derivative too where that is small enough."""
    check = Check(case)
    first = tuple(check.first())
    again = tuple(check.second()) if second and case.second else ()
    return Proved(case, check.definition.source, first, again, check.op.conditions)


@dataclass(frozen=True)
class Stated:
    """Why there is nothing to be proved: a word, and a sentence."""

    outcome: str
    sentence: str


def stated(declared: Declaration | None) -> Stated | None:
    """Of derivatives that are zero, and of estimators, which are none.

    >>> stated(find("Round", DOMAIN)).sentence
    'This is not the derivative, by intent, but a straight-through estimator: as if y = x.'
    """
    if declared is None or (declared.zero is None and declared.domain != DOMAIN):
        return None
    if declared.zero is not None:
        return Stated("zero", f"The derivative is zero: {declared.zero}.")
    said = inspect.cleandoc(declared.rule.__doc__ or "")
    what = "This is not the derivative, by intent, but a straight-through estimator"
    return Stated("estimator", f"{what}: {said[:1].lower()}{said[1:]}")


class Proof:
    """All that is known of the derivative of an operator; computed when it is asked for.

    >>> proof = prove("Tanh")
    >>> bool(proof), proof.outcome
    (True, 'exact')
    """

    def __init__(
        self, op_type: str, domain: str, cases: tuple[Case, ...], stated: Stated | None = None
    ) -> None:
        self.op_type, self.domain, self.cases, self.stated = op_type, domain, cases, stated

    @cached_property
    def results(self) -> tuple[Proved, ...]:
        """Every case with its verdicts."""
        return tuple(proved(case) for case in counted(self.cases, "proof", "cases"))

    @property
    def outcome(self) -> str:
        """The worst of all cases: exact, 30 digits or refuted; else the word that is stated."""
        if self.stated:
            return self.stated.outcome
        return worst(tuple(v for r in self.results for v in (*r.first, *r.second)))

    def __bool__(self) -> bool:
        return self.stated is not None or all(self.results)

    @cached_property
    def shown(self) -> Check:
        """The case whose matrix is written out: a small one with more than one entry."""
        sized = sorted(self.cases, key=lambda c: abs(entries(c) - 3))
        return Check(sized[0])

    @cached_property
    def examples(self) -> tuple[Example, ...]:
        """Numbers: the operator's products against differences, at two points or more."""
        return examples(self.cases)

    @cached_property
    def script(self) -> Script | None:
        """The same by PyTorch, as a script that runs as it is printed."""
        return script_of(self.op_type, self.domain, self.cases)

    @property
    def kinks(self) -> tuple[str, ...]:
        """What is declared where there is no derivative."""
        return kinks_of(self.op_type)

    @property
    def title(self) -> str:
        return f"{self.domain}::{self.op_type}" if self.domain else self.op_type

    def markdown(self) -> str:
        """The whole proof in Markdown."""
        return document(self)

    def _repr_html_(self) -> str:
        return page(self)

    def _repr_markdown_(self) -> str:
        return self.markdown()

    def _repr_latex_(self) -> str:
        return equations(self)

    def __str__(self) -> str:
        return self.markdown()

    def __repr__(self) -> str:
        return f"Proof({self.title}: {self.outcome}, {len(self.cases)} cases)"


def entries(case: Case) -> int:
    """How many entries the floating inputs have."""
    return sum(case.point[name].size for name in case.floating(case.wrt))


def prove(op_type: str, domain: str = "") -> Proof:
    """The proof that onnxjac's derivative of an operator is the derivative of its definition.

    The rule and the definition are read over SymPy expressions; SymPy differentiates the
    definition entry by entry, and the entries must be identically equal.
    """
    if sentence := stated(find(op_type, domain)):
        return Proof(op_type, domain, (), sentence)
    cases = CASES.get((op_type, domain))
    if cases is None:
        known = [name for name, held in CASES if held == domain]
        what = "has no closed form to be proved" if (op_type, domain) in schemas() else "is unknown"
        raise UnsupportedOp(f"{domain or 'ai.onnx'}::{op_type} {what}.{closest(op_type, known)}")
    return Proof(op_type, domain, tuple(cases))
