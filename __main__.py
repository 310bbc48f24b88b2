"""The command line: `onnxjac report`, `export`, `lower`, `sweep`, `prove`, `tags`."""

from __future__ import annotations

import argparse
import os
import re
import sys
import warnings
import zipfile
import zlib
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from . import __version__
from .jacobians.errors import InputError, OnnxJacError, OnnxJacWarning
from .modes.export import MODES, export
from .modes.linearize import linearize
from .modes.load import load
from .modes.model import Model
from .modes.primal.inputs import check_inputs
from .modes.proofs import command as proofs
from .modes.reporting import report as text
from .modes.reporting.draw import draw_inputs
from .modes.reporting.progress import counting
from .modes.reporting.spectrum import largest
from .modes.save import save
from .modes.sweep import command as sweeping
from .modes.training.lowering import lower_gradients

EXAMPLES = """\
examples:
  onnxjac report model.onnx
  onnxjac report model.onnx --shape image=1,3,64,64 --seed 7
  onnxjac report model.onnx --input point.npz --wrt fc1.weight fc1.bias --of logits
  onnxjac report model.onnx --dtype float64 --engine numpy
  onnxjac export model.onnx --mode vjp --wrt fc1.weight -o model_vjp.onnx
  onnxjac lower with_gradients.onnx -o plain.onnx
  onnxjac prove Tanh
  onnxjac tags --op Clip --format csv
  onnxjac sweep --op Softmax Resize

exit status: 0 all is well; 1 the check failed, or the model or the input was refused; 2 usage
"""


class Parser(argparse.ArgumentParser):
    """Argparse, with an error of one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message} (try {self.prog} --help)\n")


def named_shape(argument: str) -> tuple[str, tuple[int, ...]]:
    """`x=1,3,64` → ("x", (1, 3, 64)); `x=` is a scalar.

    >>> named_shape("image=1,3,64,64")
    ('image', (1, 3, 64, 64))
    """
    found = re.fullmatch(r"(.+)=((?:\d+(?:,\d+)*)?)", argument)
    if found is None:
        raise argparse.ArgumentTypeError(f"{argument!r} is not like x=1,3,64,64")
    return found[1], tuple(int(size) for size in found[2].split(",") if size)


def seed(argument: str) -> int:
    """A number that a random generator takes."""
    if not argument.isdecimal():
        raise argparse.ArgumentTypeError(f"{argument!r} is not a number like 0, 1, 2, ...")
    return int(argument)


ARGUMENTS: dict[str, dict[str, Any]] = {
    "model": {"metavar": "MODEL.onnx"},
    "--wrt": {
        "nargs": "+", "action": "extend", "metavar": "NAME",
        "help": "by what to differentiate: inputs, weights, intermediates (all floating inputs)",
    },
    "--of": {
        "nargs": "+", "action": "extend", "metavar": "NAME",
        "help": "what to differentiate (all floating outputs)",
    },
    "--input": {
        "metavar": "FILE.npz",
        "help": "arrays by the names of inputs; inputs that are not in it are drawn at random",
    },
    "--seed": {"type": seed, "default": 0, "help": "of all that is random (0)"},
    "--shape": {
        "type": named_shape, "action": "append", "default": [], "metavar": "NAME=1,3,64,64",
        "help": "the shape of an input; sizes that the model leaves open are 1",
    },
    "--dtype": {"choices": ["float64"], "help": "raise the whole model to double precision"},
    "--engine": {"choices": ["onnxruntime", "numpy"], "help": "what runs the model"},
}  # fmt: skip


def parser() -> Parser:
    """What may be said."""
    style: dict[str, Any] = {
        "formatter_class": argparse.RawDescriptionHelpFormatter,
        "epilog": EXAMPLES,
        "allow_abbrev": False,
    }
    top = Parser("onnxjac", description="The derivative of an ONNX model, as an operator.", **style)
    top.add_argument("--version", action="version", version=f"onnxjac {__version__}")
    commands = top.add_subparsers(metavar="COMMAND", required=True)
    for name, (run, about, arguments) in COMMANDS.items():
        command = commands.add_parser(
            name, help=about, description=f"{about.capitalize()}.", **style
        )
        command.set_defaults(run=run)
        for flags, options in arguments.items():
            command.add_argument(*flags.split(), **options)
    return top


def model_at_point(args: argparse.Namespace) -> tuple[Model, dict[str, Any], dict[str, Any]]:
    """The model, the point, and the part of the point that was given."""
    model = load(args.model, dtype=args.dtype)
    given = arrays(args.input) if args.input else {}
    point = check_inputs(model, draw_inputs(model, given, dict(args.shape), seed=args.seed))
    return model, point, given


def report(args: argparse.Namespace) -> int:
    """`onnxjac report`: section by section, each as soon as it is known."""
    model, point, given = model_at_point(args)
    say(text.of_model(model, args.model, point, given))
    J = linearize(model, point, of=args.of, wrt=args.wrt, engine=args.engine)
    say(text.of_jacobian(J))
    outcome = J.check(seed=args.seed)
    say(text.of_check(outcome))
    with counting("singular values", "products", sys.stderr) as tick:
        found = largest(J, 5, seed=args.seed, tick=tick)
    say(text.of_spectrum(found))
    say(text.of_timings(J, args.seed))
    return 0 if outcome else 1


def export_derivative(args: argparse.Namespace) -> int:
    """`onnxjac export`: a derivative as a file."""
    model, point, _ = model_at_point(args)
    made = export(model, args.mode, point, of=args.of, wrt=args.wrt, engine=args.engine)
    save(made, args.output)
    say(f"{args.output}: {len(made.graph.node)} nodes")
    return 0


def lower(args: argparse.Namespace) -> int:
    """`onnxjac lower`: a model without Gradient nodes as a file."""
    made = lower_gradients(args.model)
    save(made, args.output)
    say(f"{args.output}: {len(made.graph.node)} nodes")
    return 0


OUTPUT: dict[str, dict[str, Any]] = {
    "-o --output": {"required": True, "metavar": "OUT.onnx", "help": "the file to write"},
}

COMMANDS: dict[str, tuple[Any, str, dict[str, dict[str, Any]]]] = {
    "report": (
        report,
        "the Jacobian of a model at a point: structure, check, singular values, timings",
        ARGUMENTS,
    ),
    "export": (
        export_derivative,
        "write a derivative of a model as an ONNX model",
        {
            **ARGUMENTS,
            **OUTPUT,
            "--mode": {"choices": list(MODES), "default": "vjp", "help": "(vjp)"},
        },
    ),
    "lower": (
        lower,
        "replace the Gradient and optimiser nodes of a model by plain ones",
        {"model": ARGUMENTS["model"], **OUTPUT},
    ),
    "sweep": (
        sweeping.run,
        "differentiate and check every case that ONNX ships for its operators",
        sweeping.ARGUMENTS,
    ),
    **proofs.COMMANDS,
}


def arrays(path: str) -> dict[str, np.ndarray]:
    """The arrays of an npz file by name."""
    try:
        with open(path, "rb") as file:
            if zipfile.is_zipfile(file):
                file.seek(0)
                return dict(np.load(file))
    except OSError as error:
        raise InputError(f"cannot read {path!r}: {error.strerror or error}") from error
    except (EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{path!r} holds what is not a plain array: {error}") from error
    raise InputError(f"{path!r} is not an npz file: np.savez writes them")


def say(section: str) -> None:
    """A section, at once."""
    print(section, flush=True)


def complain(message: object) -> None:
    """One line on stderr."""
    print("onnxjac:", " ".join(str(message).split()), file=sys.stderr)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # ∂ and ⊗, on a terminal that has no such letters
    args = parser().parse_args(argv)
    with warnings.catch_warnings():
        warnings.simplefilter("default", OnnxJacWarning)
        warnings.showwarning = lambda message, *_, **__: complain(f"warning: {message}")
        return guarded(args)


def guarded(args: argparse.Namespace) -> int:
    """What was refused ends in one line, not in a traceback."""
    try:
        return args.run(args)
    except (OnnxJacError, MemoryError) as error:
        complain(f"error: {error or 'out of memory'}")
        return 1
    except KeyboardInterrupt:
        complain("interrupted")
        return 130
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


if __name__ == "__main__":
    sys.exit(main())
