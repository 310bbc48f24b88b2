"""`onnxjac lower`: a model without Gradient nodes as a file."""

from __future__ import annotations

from argparse import Namespace

from ..support.save import save
from ..training.lowering import lower_gradients
from .command import Command
from .options import MODEL, output
from .output import Output


def run(args: Namespace, out: Output) -> bool:
    """The same model by plain operators."""
    made = lower_gradients(args.model)
    save(made, args.output)
    nodes = len(made.graph.node)
    out.wrote(args.output, f"{nodes} nodes", nodes=nodes)
    return True


LOWER = Command(
    "lower",
    "replace the Gradient and optimiser nodes of a model by plain ones",
    run,
    {**MODEL, **output("OUT.onnx")},
    ("with_gradients.onnx -o plain.onnx",),
    {"file": "the file that was written", "nodes": "how many nodes the written model has"},
)
