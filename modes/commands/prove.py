"""`onnxjac prove`: the proof of one operator."""

from __future__ import annotations

from argparse import Namespace

from ..verify import prove
from .command import Command
from .output import Output


def run(args: Namespace, out: Output) -> bool:
    """The proof as a page of Markdown; not well where it fails."""
    domain, _, op_type = args.name.rpartition("::")
    proof = prove(op_type, domain)
    cases = [{"case": str(r.case), "source": r.source, "outcome": r.outcome, "proved": bool(r)}
             for r in proof.results]  # fmt: skip
    text = proof.markdown()
    out.tell(text, operator=proof.title, outcome=proof.outcome, cases=cases, markdown=text)
    return bool(proof)


PROVE = Command(
    "prove",
    "prove by SymPy that the derivative of an operator is right",
    run,
    {"name": {"metavar": "OPERATOR", "help": "Tanh, or ai.onnx.ml::Scaler"}},
    ("Tanh", "ai.onnx.ml::Scaler", "Softmax --json"),
    {
        "operator": "its name, with the domain where that is not ONNX's own",
        "outcome": "the worst of all cases: exact, 30 digits, refuted; or zero, estimator",
        "cases": "a list of objects: case, source of the definition, outcome, proved",
        "markdown": "the proof as a page",
    },
)
