"""Parser: all commands, and what may be said after them."""

from __future__ import annotations

import argparse
import sys
from typing import Any, NoReturn

from .check import CHECK
from .command import STATUS, Command
from .completion import PrintCompletion
from .export import EXPORT
from .jacobian import JACOBIAN
from .lower import LOWER
from .options import TALK
from .prove import PROVE
from .report import REPORT
from .spectrum import SPECTRUM
from .sweep import SWEEP
from .tags import TAGS

COMMANDS = (REPORT, CHECK, JACOBIAN, SPECTRUM, EXPORT, LOWER, PROVE, TAGS, SWEEP)

STYLE: dict[str, Any] = {
    "formatter_class": argparse.RawDescriptionHelpFormatter,
    "allow_abbrev": False,
}


class Parser(argparse.ArgumentParser):
    """Argparse, with an error of one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message} (try {self.prog} --help)\n")

    def _print_message(self, message: str, file: Any = None) -> None:
        """As in argparse, which is silent about what cannot be written."""
        (file or sys.stderr).write(message)


def parser(version: str) -> Parser:
    """What may be said."""
    about = "The derivative of an ONNX model, as an operator."
    top = Parser("onnxjac", description=about, epilog=epilog(), **STYLE)
    top.add_argument("--version", action="version", version=f"onnxjac {version}")
    top.add_argument("--print-completion", action=PrintCompletion)
    commands = top.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        add(commands, command)
    return top


def add(commands: Any, command: Command) -> None:
    """A command, with its options and those that all have."""
    about = f"{command.about[0].upper()}{command.about[1:]}."
    made = commands.add_parser(
        command.name, help=command.about, description=about, epilog=command.epilog, **STYLE
    )
    made.set_defaults(command=command)
    for flags, options in {**command.options, **TALK}.items():
        made.add_argument(*flags.split(), **options)


def epilog() -> str:
    """An example of each command, and the exit status."""
    examples = "\n".join(f"  onnxjac {c.name} {c.examples[0]}" for c in COMMANDS)
    return f"examples, more of them in the help of each command:\n{examples}\n\n{STATUS}"
