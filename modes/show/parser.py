"""Parser: the command line with all commands, and completion for shells."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any, NoReturn

from .commands import COMMANDS, STATUS, TALK

STYLE: dict[str, Any] = {
    "formatter_class": argparse.RawDescriptionHelpFormatter,
    "allow_abbrev": False,
}

FILES = frozenset({"model", "input", "output", "html"})
"""Arguments that are paths of files."""


class Parser(argparse.ArgumentParser):
    """An argument parser with one-line errors."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message} (try {self.prog} --help)\n")

    def _print_message(self, message: str, file: Any = None) -> None:
        """As in argparse, but write errors are raised, not ignored."""
        (file or sys.stderr).write(message)


def parser(version: str) -> Parser:
    """The parser of the command line."""
    examples = "\n".join(f"  onnxjac {c.name} {c.examples[0]}" for c in COMMANDS)
    epilog = f"examples, more of them in the help of each command:\n{examples}\n\n{STATUS}"
    about = "The derivative of an ONNX model, as an operator."
    top = Parser("onnxjac", description=about, epilog=epilog, **STYLE)
    top.add_argument("--version", action="version", version=f"onnxjac {version}")
    top.add_argument("--print-completion", action=PrintCompletion)
    made = top.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        about = command.about[:1].lower() + command.about[1:-1]
        one = made.add_parser(
            command.name, help=about, description=command.about, epilog=command.epilog, **STYLE
        )
        for flags, options in {**command.options, **TALK}.items():
            one.add_argument(*flags.split(), **options)
        one.set_defaults(command=command, parser=one, flags=tuple(one._option_string_actions))
    return top


class PrintCompletion(argparse.Action):
    """`--print-completion bash`: shtab's completion script, on stdout."""

    def __init__(self, option_strings: list[str], dest: str) -> None:
        about = "print a script that completes for this shell: `eval` it, or keep it in a file"
        shells = ("bash", "zsh", "tcsh")
        super().__init__(option_strings, argparse.SUPPRESS, choices=shells, help=about)

    def __call__(self, parser: Any, namespace: Any, values: Any, option: Any = None) -> None:
        try:
            import shtab
        except ImportError:
            parser.exit(1, "onnxjac: error: completion needs shtab: "
                           "`pip install 'onnxjac[completion]'`\n")  # fmt: skip
        for action in actions(parser):
            if action.dest in FILES:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
        print(shtab.complete(parser, values))
        parser.exit()


def actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """The arguments of all commands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from actions(command)
