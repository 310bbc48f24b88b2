"""Optional: imports of libraries that an extra installs."""

from __future__ import annotations

import importlib
from typing import Any

from ...jacobians.errors import InputError


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
