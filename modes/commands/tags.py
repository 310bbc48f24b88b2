"""`onnxjac tags`: ONNX's tags of differentiability against what is proved."""

from __future__ import annotations

from argparse import Namespace

from ..verify import tags
from .command import Command
from .output import Output


def run(args: Namespace, out: Output) -> bool:
    """The ports of one operator, or of all."""
    found = tags(args.op)
    text = found.csv() if args.format == "csv" else found.markdown()
    out.tell(text, tags=found.records())
    return True


TAGS = Command(
    "tags",
    "compare ONNX's tags of differentiability with what is proved",
    run,
    {
        "--op": {"metavar": "NAME", "help": "one operator (all of them)"},
        "--format": {"choices": ["md", "csv"], "default": "md", "help": "of the table (md)"},
    },
    ("--op Clip", "--format csv > tags.csv", "--op Softmax --json"),
    {"tags": "a list with an object for each port: operator, port, ONNX's tag, verdict, evidence"},
)
