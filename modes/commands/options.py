"""Options: those that several commands have, said once."""

from __future__ import annotations

import argparse
import re

from .command import Options

Shaped = tuple[str, tuple[int, ...]]


def named_shape(argument: str) -> Shaped:
    """`x=1,3,64` → ("x", (1, 3, 64)); `x=` is a scalar.

    >>> named_shape("image=1,3,64,64")
    ('image', (1, 3, 64, 64))
    """
    found = re.fullmatch(r"(.+)=((?:\d+(?:,\d+)*)?)", argument)
    if found is None:
        raise argparse.ArgumentTypeError(f"{argument!r} is not like x=1,3,64,64")
    return found[1], tuple(int(size) for size in found[2].split(",") if size)


def natural(argument: str) -> int:
    """A number like 0, 1, 2, ..."""
    if not argument.isdecimal():
        raise argparse.ArgumentTypeError(f"{argument!r} is not a number like 0, 1, 2, ...")
    return int(argument)


def positive(argument: str) -> int:
    """A number like 1, 2, 3, ..."""
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

TALK: Options = {
    "--json": {"action": "store_true", "help": "one JSON object on stdout, and nothing else"},
    "--quiet": {"action": "store_true", "help": "no warnings, no progress, no list of files"},
}


def output(metavar: str, what: str = "the file to write", *, required: bool = True) -> Options:
    """`-o FILE`."""
    return {"-o --output": {"metavar": metavar, "help": what, "required": required}}
