"""Trial: one case computed in all ways, and the first disagreement."""

from __future__ import annotations

import os
import re
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

import onnxjac as oj
from onnxjac.modes.model.primal.evaluate import evaluate

from . import ways
from .contrib import spelled
from .make import Case, case
from .shrink import shrunk, text_of
from .ways import Compared, Subject, Way, finite

RELATIVE = 1e-8
"""The largest error allowed, relative to the largest entry, in float64."""

EXACT = {ways.tensors: 1e-12, ways.xla: 1e-12}
"""Ways of the same arithmetic, and the largest error allowed for them."""

SINGLE = {
    "Attention", "BlackmanWindow", "DFT", "FastGelu", "GroupNormalization", "HammingWindow",
    "Resize", "STFT", "Shrink", "Upsample",
}  # fmt: skip
"""Operators that ONNX Runtime computes partly in float32, even in float64 models."""

HALF = 2e-2
"""The largest error allowed in graphs with numbers of 16 bits."""

STEP = 1e-6
"""The step of central differences: the generator keeps values further from kinks."""


def silent() -> None:
    """Silence stderr: libraries complain of the invalid graphs that shrinking produces."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


@dataclass
class Verdict:
    """How a trial ended: agreed, refused (with why), or a finding."""

    kind: str
    text: str = ""
    compared: int = 0
    operators: tuple[str, ...] = ()
    judge: str = ""


def trial(seed: int, number: int, dear: int = 1, jax: bool = False) -> Verdict:
    """One trial, with some of the slower ways, or with XLA alone; a finding is shrunk."""
    made = case(seed, number)
    verdict = examined(made, seed, number, dear, jax)
    if verdict.kind == "finding":
        label = label_of(verdict)

        def still(smaller: Case) -> bool:
            other = examined(smaller, seed, number, dear, jax)
            return other.kind == "finding" and label_of(other) == label

        smallest = shrunk(made, still)
        last = examined(smallest, seed, number, dear, jax)
        verdict.text = f"{last.text or verdict.text}\n{text_of(smallest)}"
    return verdict


def label_of(verdict: Verdict) -> str:
    """The way that failed, and the type of its error if it raised one."""
    return re.split(r": off by|: shape|\.py:", verdict.text)[0]


def examined(made: Case, seed: int, number: int, dear: int, jax: bool = False) -> Verdict:
    """The verdict on a case, computed in all chosen ways up to the first disagreement."""
    rng = np.random.default_rng([seed, number, 1])
    verdict = Verdict("agreed", operators=tuple(made.operators))
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            subject = Subject(made, rng)
            plain = subject.plain
        except oj.OnnxJacError as error:
            return Verdict("refused", f"{type(error).__name__}: {error}", 0, verdict.operators)
        except Exception as error:
            return Verdict("finding", f"linearize: {said(error)}", 0, verdict.operators)
        if not finite(plain, *subject.J.primal.values()):
            return Verdict("refused", "not finite", 0, verdict.operators)
        single = SINGLE & set(made.operators) or "narrow" in made.traits
        for way in [ways.xla] if jax else chosen(rng, dear, made):
            relative = 1e-5 if single else EXACT.get(way, RELATIVE)
            relative = HALF if "half" in made.traits else relative
            subject.rng = np.random.default_rng([seed, number, 2])
            label = way.__name__
            try:
                for label, got, wanted in way(subject):
                    verdict.compared += 1
                    if wrong := disagreement(got, wanted, relative):
                        return Verdict("finding", f"{label}: {wrong}", 0, verdict.operators)
            except Exception as error:
                return Verdict("finding", f"{label} and then: {said(error)}", 0, verdict.operators)
            verdict.judge = verdict.judge or getattr(subject, "judge", "")
        verdict.text = subject.refusal
    return verdict


def chosen(rng: np.random.Generator, dear: int, made: Case) -> list[Way]:
    """All fast ways, and a random choice of the slower ones.

    Graphs of newer kinds are pickled and checkpointed as well.
    """
    picked = {ways.SAMPLED[k] for k in rng.permutation(len(ways.SAMPLED))[:dear]}
    if "newer" in made.traits:
        picked |= {ways.pickled, ways.checkpointed}
    found = [*ways.ALWAYS, *(way for way in ways.SAMPLED if way in picked)]
    if "drawn" in made.traits:
        found = [way for way in found if way in ways.QUIET]
    return [judged, *found]


def disagreement(got: object, wanted: object, relative: float = RELATIVE) -> str:
    """A description of the difference; empty if they agree."""
    got = np.asarray(got.toarray() if hasattr(got, "toarray") else got)
    wanted = np.asarray(wanted)
    if got.shape != wanted.shape:
        return f"shape {got.shape} instead of {wanted.shape}"
    if not np.isfinite(wanted).all():
        return ""
    scale = max(1.0, float(np.abs(wanted).max(initial=0)))
    error = float(np.abs(got - wanted).max(initial=0))
    return "" if error <= relative * scale else f"off by {error:.3g} of {scale:.3g}"


def judged(s: Subject) -> Iterator[Compared]:
    """J against an interpreter over torch, or against central differences."""
    try:
        from . import judge

        model = spelled(s.case.model)
        wanted = judge.jacobian(model, s.case.point, s.case.of, s.case.wrt)
    except Exception:  # no torch, or no kernel, or an invalid graph
        s.judge = "differences"
        yield from differences(s)
        return
    s.judge = "torch"
    known = judge.run(model, as_torch(s.case.point))
    for name, value in s.model.run(s.case.point).items():
        if value.dtype.kind == "f":
            yield Compared(f"value of {name}", value, known[name].detach().numpy())
    yield Compared("torch", s.plain, wanted)


def as_torch(point: ways.Point) -> dict[str, object]:
    import torch

    return {name: torch.from_numpy(np.array(value)) for name, value in point.items()}


def differences(s: Subject) -> Iterator[Compared]:
    """Columns of inputs by central differences in float64, run by the NumPy engine: of the model
    with the random numbers that J has.
    """
    if {"half", "narrow"} & s.case.traits:
        return
    column, tensors = 0, {**s.case.point}
    for spec in s.J.domain:
        size = int(np.prod(spec.shape))
        if spec.name in tensors:
            for k in s.rng.permutation(size)[:4]:
                ends = []
                for step in (STEP, -STEP):
                    moved = np.array(tensors[spec.name])
                    moved.flat[k] += step
                    at = {**tensors, spec.name: moved}
                    made = evaluate(s.J.route.model, at, s.case.of, engine="numpy")
                    ends.append(np.concatenate([made[name].ravel() for name in s.case.of]))
                slope = (ends[0] - ends[1]) / (2 * STEP)
                got = s.plain[:, column + k]
                off = np.abs(got - slope).max(initial=0)
                near = off < 1e-5 * max(1.0, float(np.abs(slope).max(initial=0)))
                yield Compared(f"differences ∂/∂{spec.name}[{k}]", got, got if near else slope)
        column += size


def said(error: BaseException) -> str:
    """The error, and the line that raised it."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {last.filename.rsplit('/', 1)[-1]}:{last.lineno}: {error}"
