"""The command line: `onnxjac report`, `check`, `jacobian`, ...; see `modes/show/commands.py`."""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

from . import __version__
from .jacobians.errors import OnnxJacError, OnnxJacWarning, closest
from .jacobians.progress import progress
from .modes.show.commands import parser
from .modes.show.output import Output, complain


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    for name in ("stdin", "stdout", "stderr"):  # in the order of their numbers, if closed (`>&-`)
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r+"))  # noqa: SIM115
    try:
        with ending():
            try:
                return run(argv)
            finally:
                sys.stdout.flush()  # report write errors here, not at interpreter exit
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):  # `| head` has seen enough
            complain(f"error: cannot write: {error.strerror or error}")
        return 1


@contextmanager
def ending() -> Iterator[None]:
    """SIGTERM ends the command like Ctrl-C, so that incomplete files are removed."""

    def end(*_: object) -> NoReturn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise SystemExit(128 + signal.SIGTERM)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def run(argv: Sequence[str] | None) -> int:
    """Parse the arguments and run the requested command."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # ∂ and ⊗ on terminals that cannot print them
    args, rest = parser(__version__).parse_known_args(argv)
    if rest:  # said by the command's own parser, whose help has its options
        hint = f".{closest(rest[0], args.flags)}" if rest[0].startswith("-") else ""
        args.parser.error(f"unrecognized arguments: {' '.join(rest)}{hint}")
    out = Output(args.command.name, as_json=args.json, quiet=args.quiet)
    with warnings.catch_warnings(), progress(False if args.quiet else None):
        warnings.simplefilter("default", OnnxJacWarning)
        warnings.showwarning = lambda message, *_, **__: out.warn(message)
        return guarded(args, out)


def guarded(args: Namespace, out: Output) -> int:
    """Run the command; an error prints one line instead of a traceback."""
    try:
        return out.end(args.command.run(args, out))
    except (OnnxJacError, MemoryError) as error:
        return out.refused(error, [flag[2:] for flag in args.command.options if flag[:2] == "--"])
    except KeyboardInterrupt:
        complain("interrupted")
        return 130


if __name__ == "__main__":
    sys.exit(main())
