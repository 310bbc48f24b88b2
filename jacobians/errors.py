"""The errors of onnxjac: every message names what was found and says what to do next."""

from __future__ import annotations

import difflib
import importlib
import sys
import warnings
from collections.abc import Iterable
from typing import Any


class OnnxJacError(Exception):
    """The base class of the errors that onnxjac raises."""


class LoadError(OnnxJacError):
    """The model cannot be read, checked or converted to the working opset."""


class InputError(OnnxJacError, ValueError):
    """An argument does not fit: a name, a shape, a dtype, a missing value."""


class UnknownTensor(InputError):
    """A name that the model does not have."""


class UnsupportedOp(OnnxJacError, NotImplementedError):
    """An operator without kernel, rule or function body."""


class LimitError(MemoryError, OnnxJacError):  # in this order, its __new__ supports pickling
    """More memory would be needed than the stated limit allows."""


class NotConverged(OnnxJacError, ArithmeticError):
    """An iteration ended before it reached its tolerance."""


class OnnxJacWarning(UserWarning):
    """The result is valid, but it may not be what was meant."""


def warn(message: str) -> None:
    """One warning, attributed to the line outside the package that led to it."""
    own, level, frame = (__name__.partition(".")[0], "functools"), 2, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in own:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, OnnxJacWarning, stacklevel=level)


def closest(name: str, candidates: Iterable[str]) -> str:
    """A hint for a misspelt name, or the first few names there are.

    >>> closest("wieght", ["weight", "bias"])
    " Did you mean 'weight'?"
    >>> closest("fc1", ["image", "fc1.weight", "fc1.bias"])
    " Did you mean 'fc1.weight' or 'fc1.bias'?"
    >>> closest("x", ["weight", "X"])
    " Did you mean 'X'?"
    """
    known = list(candidates)
    near = [k for k in known if k.casefold() == name.casefold()]
    near = near or difflib.get_close_matches(name, known, n=3)
    near = near or [k for k in known if name and name in k][:3]
    if near:
        return f" Did you mean {' or '.join(map(repr, near))}?"
    shown = ", ".join(map(repr, known[:8])) + (", ..." if len(known) > 8 else "")
    return f" There are: {shown or 'none'}."


def not_allowed(argument: str, value: object, allowed: Iterable[Any]) -> InputError:
    """The error for an argument that is none of the allowed values.

    >>> not_allowed("mode", "jpv", ["jvp", "export"])
    InputError("mode='jpv' is not one of 'jvp', 'export'. Did you mean 'jvp'?")
    """
    known = list(allowed)
    near = difflib.get_close_matches(str(value), [x for x in known if isinstance(x, str)], n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return InputError(f"{argument}={value!r} is not one of {', '.join(map(repr, known))}.{hint}")


def first_line(error: BaseException) -> str:
    r"""The first line of the original cause of an error, or the type of the cause.

    >>> first_line(ValueError("bad node\n\n==> Context: node 3"))
    'bad node'
    """
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__


def optional(module: str, extra: str) -> Any:
    """A module of another library, or an `InputError` that says what to install.

    >>> optional("surely_not_there", "torch")
    Traceback (most recent call last):
    onnxjac.jacobians.errors.InputError: this needs surely_not_there: `pip install 'onnxjac[torch]'`
    """
    name = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise InputError(f"this needs {name}: `pip install 'onnxjac[{extra}]'`") from error
    except (ImportError, AttributeError) as error:  # installed, but a library that it needs is not
        reason = " ".join(str(error).split())
        raise InputError(
            f"{name} cannot be imported ({reason}): `pip install -U 'onnxjac[{extra}]'`"
        ) from error
