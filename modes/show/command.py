"""Command: the description of a shell command, and the options that several commands share."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .output import COMMON, Output

Options = Mapping[str, Mapping[str, Any]]
"""Flags, or the name of a positional argument -> the keywords of `add_argument`."""

STATUS = """\
exit status: 0 all is well; 1 a check, a proof or a case failed, or the model, the input or the
file was refused, or nothing can be written; 2 usage; 130 interrupted; 143 ended by SIGTERM"""


@dataclass(frozen=True)
class Command:
    """A command: its name, a one-line description, its options, and the examples in its help.

    `run` executes it, reports its findings to an `Output`, and returns whether all is well. `keys`
    are the keys of its JSON object besides the common ones, each with its meaning.
    """

    name: str
    about: str
    run: Callable[[argparse.Namespace, Output], bool]
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


def named_shape(argument: str) -> tuple[str, tuple[int, ...]]:
    """`x=1,3,64` → ("x", (1, 3, 64)); `x=` is a scalar.

    >>> named_shape("image=1,3,64,64")
    ('image', (1, 3, 64, 64))
    """
    found = re.fullmatch(r"(.+)=((?:\d+(?:,\d+)*)?)", argument)
    if found is None:
        raise argparse.ArgumentTypeError(f"{argument!r} is not like x=1,3,64,64")
    return found[1], tuple(int(size) for size in found[2].split(",") if size)


def natural(argument: str) -> int:
    """An integer 0, 1, 2, ..."""
    if not argument.isdecimal():
        raise argparse.ArgumentTypeError(f"{argument!r} is not a number like 0, 1, 2, ...")
    return int(argument)


def positive(argument: str) -> int:
    """An integer 1, 2, 3, ..."""
    if not argument.isdecimal() or not int(argument):
        raise argparse.ArgumentTypeError(f"{argument!r} is not a number like 1, 2, 3, ...")
    return int(argument)


MODEL: Options = {"model": {"metavar": "MODEL.onnx", "help": "the model"}}

POINT: Options = {
    "--input": {
        "metavar": "FILE.npz",
        "help": "arrays by the names of inputs; inputs that are not in it are drawn at random",
    },
    "--shape": {
        "type": named_shape, "action": "append", "default": [], "metavar": "NAME=1,3,64,64",
        "help": "the shape of an input; sizes that the model leaves open are 1",
    },
    "--seed": {"type": natural, "default": 0, "metavar": "N", "help": "of all that is random (0)"},
    "--dtype": {"choices": ["float64"], "help": "raise the whole model to double precision"},
    "--engine": {"choices": ["onnxruntime", "numpy"], "help": "what runs the model"},
}  # fmt: skip

ENDS: Options = {
    "--wrt": {
        "nargs": "+", "action": "extend", "metavar": "NAME",
        "help": "by what to differentiate: inputs, weights, intermediates (all floating inputs)",
    },
    "--of": {
        "nargs": "+", "action": "extend", "metavar": "NAME",
        "help": "what to differentiate (all floating outputs)",
    },
}  # fmt: skip

AT_POINT: Options = {**MODEL, **ENDS, **POINT}

TALK: Options = {
    "--json": {"action": "store_true", "help": "one JSON object on stdout, and nothing else"},
    "--quiet": {"action": "store_true", "help": "no warnings, no progress, no list of files"},
}


def output(metavar: str, what: str = "the file to write", *, required: bool = True) -> Options:
    """`-o FILE`."""
    return {"-o --output": {"metavar": metavar, "help": what, "required": required}}
