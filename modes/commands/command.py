"""Command: what a command of the shell says of itself, and what it does."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .output import COMMON, Output

Options = Mapping[str, Mapping[str, Any]]
"""Flags, or the name of a positional argument -> what argparse takes."""

STATUS = """\
exit status: 0 all is well; 1 a check, a proof or a case failed, or the model, the input or the
file was refused, or nothing can be written; 2 usage; 130 interrupted; 143 ended by SIGTERM"""


@dataclass(frozen=True)
class Command:
    """A command: its name, a line about it, its options, the examples that its help shows.

    `run` does it, tells an `Output` all that it finds, and is true where all is well; `keys` are
    those of the object that `--json` prints, besides the common ones, each with its meaning.
    """

    name: str
    about: str
    run: Callable[[Namespace, Output], bool]
    options: Options
    examples: tuple[str, ...]
    keys: Mapping[str, str]

    @property
    def epilog(self) -> str:
        """Examples, the keys of the JSON, the exit status."""
        examples = "\n".join(f"  onnxjac {self.name} {example}" for example in self.examples)
        keys = "\n".join(f"  {key:<15} {text}" for key, text in {**COMMON, **self.keys}.items())
        head = "keys of the object that --json prints"
        return f"examples:\n{examples}\n\n{head}:\n{keys}\n\n{STATUS}"
