"""The command line: `onnxjac report`, `check`, `jacobian`, ...; see `modes/commands`."""

from __future__ import annotations

import os
import sys
import warnings
from argparse import Namespace
from collections.abc import Sequence

from . import __version__
from .jacobians.errors import OnnxJacError, OnnxJacWarning
from .jacobians.progress import progress
from .modes.commands.output import Output, complain
from .modes.commands.parser import parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # ∂ and ⊗, on a terminal that has no such letters
    args = parser(__version__).parse_args(argv)
    out = Output(args.command.name, as_json=args.json, quiet=args.quiet)
    with warnings.catch_warnings(), progress(False if args.quiet else None):
        warnings.simplefilter("default", OnnxJacWarning)
        warnings.showwarning = lambda message, *_, **__: out.warn(message)
        return guarded(args, out)


def guarded(args: Namespace, out: Output) -> int:
    """What was refused ends in one line, not in a traceback."""
    try:
        return out.end(args.command.run(args, out))
    except (OnnxJacError, MemoryError) as error:
        return out.refused(error)
    except KeyboardInterrupt:
        complain("interrupted")
        return 130
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


if __name__ == "__main__":
    sys.exit(main())
