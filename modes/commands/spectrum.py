"""`onnxjac spectrum`: singular values of a Jacobian, eigenvalues of a Hessian."""

from __future__ import annotations

from argparse import Namespace

from ...jacobians import Jacobian
from ...jacobians.errors import InputError
from ...jacobians.progress import counting
from ..hessian import hessian
from ..naming.names import names_of
from ..reporting import facts
from ..reporting.report import of_spectrum
from ..reporting.spectrum import largest
from .command import Command
from .options import ENDS, MODEL, POINT, positive
from .output import Output
from .point import At, at_point, jacobian_at


def run(args: Namespace, out: Output) -> bool:
    """The largest ones, from products alone; not well where the iteration fails."""
    at = at_point(args)
    A = hessian_at(at, args) if args.hessian else jacobian_at(at, args)
    what = "eigenvalues" if args.hessian else "singular values"
    with counting(what, "products") as tick:
        found = largest(A, args.k, eigenvalues=args.hessian, seed=args.seed, tick=tick)
    out.tell(f"{A}\n{of_spectrum(found, what)}", operator=str(A), of=what,
             **facts.of_spectrum(found))  # fmt: skip
    return not found.why


def hessian_at(at: At, args: Namespace) -> Jacobian:
    """H of the one scalar of `--of`."""
    of = names_of(at.model, args.of, at.model.outputs, "of")
    if len(of) != 1:
        raise InputError(f"a Hessian is of one scalar, not of {list(of)}: name it with --of")
    return hessian(at.model, at.point, of=of[0], wrt=args.wrt, engine=args.engine)


SPECTRUM = Command(
    "spectrum",
    "the largest singular values of a Jacobian, or eigenvalues of a Hessian",
    run,
    {**MODEL, **ENDS, **POINT,
     "--k": {"type": positive, "default": 10, "metavar": "N", "help": "how many (10)"},
     "--hessian": {"action": "store_true",
                   "help": "eigenvalues of the second derivative of --of, a scalar"}},
    ("model.onnx", "model.onnx --k 3 --wrt fc1.weight --of logits --json",
     "model_with_loss.onnx --hessian --of loss --wrt fc1.weight"),
    {"operator": "the operator, as a line of mathematics",
     "of": "singular values or eigenvalues",
     **facts.SPECTRUM},
)  # fmt: skip
