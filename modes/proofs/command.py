"""The commands `onnxjac prove` and `onnxjac tags`."""

from __future__ import annotations

import argparse
from typing import Any

from . import prove, tags


def run_prove(args: argparse.Namespace) -> int:
    """The proof of one operator; status 1 where it fails."""
    domain, _, op_type = args.name.rpartition("::")
    proof = prove(op_type, domain)
    print(proof.markdown())
    return 0 if proof else 1


def run_tags(args: argparse.Namespace) -> int:
    """ONNX's tags of differentiability against what is proved."""
    found = tags(args.op)
    print({"md": found.markdown, "json": found.json, "csv": found.csv}[args.format]())
    return 0


COMMANDS: dict[str, tuple[Any, str, dict[str, dict[str, Any]]]] = {
    "prove": (
        run_prove,
        "prove by SymPy that the derivative of an operator is right",
        {"name": {"metavar": "OPERATOR", "help": "Tanh, or ai.onnx.ml::Scaler"}},
    ),
    "tags": (
        run_tags,
        "compare ONNX's tags of differentiability with what is proved",
        {
            "--op": {"metavar": "NAME", "help": "one operator (all of them)"},
            "--format": {"choices": ["md", "json", "csv"], "default": "md", "help": "(md)"},
        },
    ),
}
