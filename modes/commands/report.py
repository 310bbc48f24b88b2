"""`onnxjac report`: what a model and its Jacobian are, section by section."""

from __future__ import annotations

from argparse import Namespace

from ...jacobians.progress import counting
from ..reporting import facts
from ..reporting import report as text
from ..reporting.spectrum import largest
from ..reporting.timings import timed
from ..support.save import save_text
from .command import Command
from .options import ENDS, MODEL, POINT
from .output import Output
from .page import Findings, page
from .point import at_point, jacobian_at

MOST = 5
"""Singular values."""


def run(args: Namespace, out: Output) -> bool:
    """Each section as soon as it is known; the page, if asked for, at the end."""
    at = at_point(args)
    out.tell(text.of_model(at.model, args.model, at.point, at.given),
             **facts.of_model(at.model, args.model, at.point, at.given))  # fmt: skip
    J = jacobian_at(at, args)
    found = J.explain()
    out.tell(text.of_jacobian(J, found), jacobian=facts.of_jacobian(J), explanation=found.to_dict())
    outcome = J.check(seed=args.seed)
    out.tell(text.of_check(outcome), check=facts.of_check(outcome))
    with counting("singular values", "products") as tick:
        values = largest(J, MOST, seed=args.seed, tick=tick)
    out.tell(text.of_spectrum(values), spectrum=facts.of_spectrum(values))
    times = timed(J, args.seed)
    out.tell(text.of_timings(times), times=facts.of_times(times))
    if args.html:
        made = page(Findings(at, args.model, J, found, outcome, values, times), args.seed)
        save_text(made, args.html)
        out.wrote(args.html, "written", pictures=made.count("<img "))
    return outcome.passed


REPORT = Command(
    "report",
    "the Jacobian of a model at a point: structure, check, singular values, timings",
    run,
    {**MODEL, **ENDS, **POINT,
     "--html": {"metavar": "FILE.html",
                "help": "the same as a page of its own, with pictures if matplotlib is there"}},
    ("model.onnx", "model.onnx --shape image=1,3,64,64 --seed 7",
     "model.onnx --input point.npz --wrt fc1.weight fc1.bias --of logits",
     "model.onnx --dtype float64 --engine numpy --html report.html",
     "model.onnx --json > report.json"),
    {**facts.KEYS,
     "file": "with --html the page that was written",
     "pictures": "with --html how many pictures are in it"},
)  # fmt: skip
