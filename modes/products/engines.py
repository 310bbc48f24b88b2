"""Engines: who executes a recorded product, by name."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Protocol

import numpy as np

from ...jacobians.errors import InputError, closest
from .record import Recording


class Program(Protocol):
    """v ↦ J v; the result belongs to the caller. Safe to call from several threads."""

    def __call__(self, v: np.ndarray) -> np.ndarray: ...


MODULES = {"onnxruntime": "onnxruntime", "numpy": "numpy", "numba": "numba"}
"""engine -> the folder or module here that has `compile(recording) -> Program`."""

EXTRAS = {"onnxruntime": "runtime", "numba": "numba"}
"""engine -> the extra that brings what it needs."""


def default_engine() -> str:
    """The engine where none is named: ONNX Runtime where it is installed."""
    return "onnxruntime" if importlib.util.find_spec("onnxruntime") else "numpy"


def compiler(engine: str) -> Callable[[Recording], Program]:
    """What makes programs of an engine; raises `InputError` for one that is not there."""
    if engine not in MODULES:
        known = ", ".join(map(repr, MODULES))
        raise InputError(f"engine={engine!r} is not one of {known}.{closest(engine, MODULES)}")
    if engine in EXTRAS and importlib.util.find_spec(engine) is None:
        raise InputError(
            f"engine={engine!r} needs {engine}: `pip install onnxjac[{EXTRAS[engine]}]`."
        )
    made: Callable[[Recording], Program] = importlib.import_module(
        f".{MODULES[engine]}", __package__
    ).compile
    return made
