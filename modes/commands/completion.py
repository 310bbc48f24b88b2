"""Completion: the script with which a shell completes commands, options and files."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

SHELLS = ("bash", "zsh", "tcsh")

FILES = frozenset({"model", "input", "output", "html"})
"""Arguments that are paths of files."""


class PrintCompletion(argparse.Action):
    """`--print-completion bash`: the script, on stdout, by shtab."""

    def __init__(self, option_strings: list[str], dest: str) -> None:
        about = "print a script that completes for this shell: `eval` it, or keep it in a file"
        super().__init__(option_strings, argparse.SUPPRESS, choices=SHELLS, help=about)

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
