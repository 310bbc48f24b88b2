"""Optional: libraries that an extra brings."""

from __future__ import annotations

import importlib
from typing import Any

from ..jacobians.errors import InputError


def optional(module: str, extra: str) -> Any:
    """A module of another library, or an `InputError` that says what to install.

    >>> optional("surely_not_there", "torch")
    Traceback (most recent call last):
    onnxjac.jacobians.errors.InputError: this needs surely_not_there: `pip install 'onnxjac[torch]'`
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        name = module.partition(".")[0]
        raise InputError(f"this needs {name}: `pip install 'onnxjac[{extra}]'`") from error
