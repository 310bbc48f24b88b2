"""`onnxjac export`: a derivative as a file."""

from __future__ import annotations

from argparse import Namespace

from ...jacobians.text import joined
from ..export import MODES, export
from ..primal.guards import GUARDS
from ..support.save import save
from .command import Command
from .options import ENDS, MODEL, POINT, output
from .output import Output
from .point import at_point


def run(args: Namespace, out: Output) -> bool:
    """A JVP, VJP, ... as a model."""
    at = at_point(args)
    made = export(at.model, args.mode, at.point, of=args.of, wrt=args.wrt, engine=args.engine)
    save(made, args.output)
    inputs, outputs = ([value.name for value in ends] for ends in
                       (made.graph.input, made.graph.output))  # fmt: skip
    nodes = len(made.graph.node)
    ends = f"({joined(inputs, ', ')}) ↦ ({joined(outputs, ', ')})"
    held = next((entry.value for entry in made.metadata_props if entry.key == GUARDS), "")
    out.wrote(args.output, f"{ends}, {nodes} nodes", nodes=nodes, inputs=inputs, outputs=outputs,
              guards=held.splitlines())  # fmt: skip
    if args.guards:
        out.tell(f"right where\n{held}" if held else "right at every point")
    return True


WRITTEN = {
    "file": "the file that was written",
    "nodes": "how many nodes the written model has",
    "inputs": "the names of its inputs",
    "outputs": "the names of its outputs",
    "guards": "the conditions on sizes and integers under which the model is right",
}

EXPORT = Command(
    "export",
    "write a derivative of a model as an ONNX model",
    run,
    {**MODEL, **ENDS, **POINT, **output("OUT.onnx"),
     "--mode": {"choices": list(MODES), "default": "vjp", "help": "which derivative (vjp)"},
     "--guards": {"action": "store_true",
                  "help": "list the conditions on sizes and integers for a right result"}},
    ("model.onnx -o model_vjp.onnx", "model.onnx --mode vjp --wrt fc1.weight -o model_vjp.onnx",
     "model.onnx --mode jacobian --of logits -o model_jacobian.onnx"),
    WRITTEN,
)  # fmt: skip
