"""Reductions: sums and means over samples, as options and as the last steps of a model.

A loss is a sum S over samples, or a mean S / D. D is the number of entries, Σ w over the labels
that are not ignored, or what else the model divides by, such as the sum of a mask. A mean over
batches weighs by D: the mean over all data is Σ_b D_b (S_b / D_b) / Σ_b D_b.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal

import numpy as np

from ...jacobians import shape_of, size
from ...jacobians.arrays import host
from ...jacobians.errors import InputError, warn
from ...ops import Step
from ..linear.derivatives.record import reach_forward
from ..model.flow.steps import reads
from ..model.primal.evaluate import evaluate, shape_at
from ..model.primal.model import Model

Reduction = Literal["sum", "mean"]

MOVES = frozenset({"Identity", "Reshape", "Squeeze", "Unsqueeze", "Cast", "Neg", "Flatten"})
"""Operators that preserve sums and means up to sign."""
ADDED, SCALED = frozenset({"Add", "Sub", "Sum"}), {"Mul": -1, "Div": 1}
TAKEN = {"ReduceSum": "sum", "ReduceMean": "mean", "ReduceSumSquare": "sum", "ReduceL1": "sum"}
LOSSES = frozenset({"SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"})

Term = tuple[str, tuple[tuple[str, int], ...]]
"""The output of a step over samples; divisors of the batch, with 1, and multipliers, with -1."""


class Tail:
    """The last steps of a model before `of`: the sums and means that add up to it, as `terms`.

    They are empty where the steps show something else; `varying` is then a factor that depends on
    the tensors `by` which the loss is differentiated. What does not depend on `data` is constant.
    """

    def __init__(
        self, model: Model, of: str, by: Collection[str], data: Collection[str],
        engine: str | None = None,
    ) -> None:  # fmt: skip
        self.model, self.of, self.by, self.engine = model, of, by, engine
        self.made = {step.outputs[0]: step for step in model.steps if not step.domain}
        self.given, self.varying = set(data), ""
        for step in model.steps:
            if not self.given.isdisjoint(reads(step)):
                self.given.update(filter(None, step.outputs))
        self.moving = self.given & reach_forward(model.steps, by)
        self.terms = self._terms()
        self.kinds = {
            "mean" if factors else own_reduction(self.made[name]) for name, factors in self.terms
        }

    def _terms(self) -> list[Term]:
        """Back from `of` to the innermost steps over samples; empty if others are in between."""
        stack: list[tuple[Any, Term | None, Any]] = [(self.of, None, ())]
        found, seen = dict[Term, None](), set[Any]()
        while stack:
            here = name, term, factors = stack.pop()
            if here in seen or name not in self.moving:
                continue
            seen.add(here)
            step = self.made.get(name) if name not in self.by else None
            op, names = (step.op_type, step.inputs) if step else ("", ())
            inner = [x for x in names if x in self.moving]
            if op in SCALED and len(inner) == 1 and (op == "Mul" or names[0] == inner[0]):
                other = names[names[0] == inner[0]]
                factors += ((other, SCALED[op]),) * (other in self.given)
            elif step and op in LOSSES and len(inner) == 1 and own_reduction(step) != "none":
                term, inner = (name, factors), []
            elif op in TAKEN and self._takes_samples(names[0], name):
                term = name, factors
            elif op not in MOVES | TAKEN.keys() and (op not in ADDED or term):
                inner = []
            if inner:
                stack += [(x, term, factors) for x in inner]
            elif term:
                found[term] = None
            else:
                odd = op in SCALED.keys() | LOSSES and names[-1] in self.moving
                self.varying = str(names[-1]) if odd else ""
                return []
        return [*found]

    def _takes_samples(self, x: Any, y: Any) -> bool:
        """Whether a reduction of x to y is over the first axis, as far as the model declares it."""
        before, after = (self.model.spec(name).shape or () for name in (x, y))
        return not before or before[:1] != after[:1]

    def divisor(self, point: Mapping[str, Any], samples: int = 0) -> float:
        """D of all terms: the smallest one, where others divide by more entries of each sample too.

        With `samples`, D in samples, whose entries have the mean weight. D of a sum is its mean's.
        """
        found, uneven = list[float](), bool(samples)
        for name, factors in self.terms:
            D, entries = self._count(self.made[name], point)
            uneven = uneven or bool(factors) or entries != D
            if factors:
                D = D if own_reduction(self.made[name]) == "mean" else 1.0
            elif samples and entries % samples == 0:  # else the steps select samples
                D *= samples / max(entries, 1)
            for other, sign in factors:
                value = host(evaluate(self.model, point, [other], engine=self.engine)[other])
                if value.size != 1:
                    raise self._apart(f"is scaled by {other!r} of shape {list(value.shape)}")
                D *= value.item() ** sign
            found.append(D)
        if self.varying:
            raise self._apart(f"is scaled by {self.varying!r}, which varies with {min(self.by)!r}")
        if len(self.kinds) > 1 or (uneven and not np.allclose(found, found[0], rtol=1e-5, atol=0)):
            raise self._apart(f"adds parts with D = {', '.join(f'{D:.6g}' for D in found)}")
        return min(found)

    def _apart(self, why: str) -> InputError:
        return InputError(f"{self.of!r} is not a sum or a mean S / D over samples, for it {why}: "
                          f"name each sum or mean by of= on its own")  # fmt: skip

    def _count(self, step: Step, point: Mapping[str, Any]) -> tuple[float, int]:
        """Σ w over the entries that a step takes together, and their number."""
        if step.op_type in TAKEN:
            ends = str(step.inputs[0]), str(step.outputs[0])
            before, after = (size(shape_at(self.model, point, x, self.engine)) for x in ends)
            return float(before // max(after, 1)), before // max(after, 1)
        names = [*filter(None, step.inputs[1:])]
        known = evaluate(self.model, point, names, engine=self.engine)
        if "ignore_index" not in step.attrs and len(names) == 1:  # also for labels not known yet
            entries = size(shape_of(known[names[0]]))
            return float(entries), entries
        labels, *weights = (host(known[name]) for name in names)
        ignored = step.attrs.get("ignore_index")
        kept = labels if ignored is None else labels[labels != ignored]
        return float(weights[0][kept].sum(dtype=float) if weights else kept.size), labels.size


def own_reduction(step: Step) -> str:
    """What a step that reduces does by itself: `"sum"`, `"mean"` or `"none"`."""
    return TAKEN.get(step.op_type) or str(step.attrs.get("reduction", "mean"))


def warn_of_other(reduction: str | None, model: Model, of: str, by: Collection[str]) -> None:
    """Warn where the model's last steps show another reduction than the one that is stated."""
    kinds = Tail(model, of, by, {*model.inputs, *by}).kinds
    if reduction and len(kinds) == 1 and (found := kinds.pop()) != reduction:
        warn(f"reduction={reduction!r} says how the model reduces over samples, but {of!r} ends in "
             f"a {found}: unless that is over other axes, say {found!r}")  # fmt: skip


def reduction_factor(wanted: str, tail: Tail, point: Mapping[str, Any]) -> float:
    """The factor from the model's reduction over samples, as its last steps show it."""
    if not tail.terms and not tail.varying:
        raise InputError(
            f"the model does not end in a sum or a mean over samples that make {tail.of!r}: leave "
            f"out reduction= and scale the operator; over batches, take `streamed` with size="
        )
    if tail.kinds == {wanted}:
        return 1.0
    divisor = tail.divisor(point)
    return weight_in_mean(divisor) if wanted == "mean" else divisor


def weight_in_mean(terms: float) -> float:
    """1 / N, the weight of each of N terms in a mean; raises `InputError` for no terms."""
    if not terms:
        raise InputError("a batch has no samples, and so no mean: leave it out, or take "
                         "reduction='sum'")  # fmt: skip
    return 1 / terms
