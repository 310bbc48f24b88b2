"""`onnxjac check`: whether a Jacobian is right."""

from __future__ import annotations

from argparse import Namespace

from ..reporting import facts
from .command import Command
from .options import ENDS, MODEL, POINT
from .output import Output
from .point import at_point, jacobian_at


def run(args: Namespace, out: Output) -> bool:
    """Every test of `J.check()`."""
    J = jacobian_at(at_point(args), args)
    outcome = J.check(seed=args.seed)
    out.tell(f"{J}\n{outcome}", jacobian=facts.of_jacobian(J), check=facts.of_check(outcome))
    return outcome.passed


CHECK = Command(
    "check",
    "try a Jacobian on random vectors: adjoint, columns, central differences",
    run,
    {**MODEL, **ENDS, **POINT},
    ("model.onnx", "model.onnx --dtype float64 --seed 7",
     "model.onnx --input point.npz --wrt fc1.weight --of logits --json"),
    {"jacobian": facts.JACOBIAN, "check": facts.CHECK},
)  # fmt: skip
