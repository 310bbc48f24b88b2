"""Engines: who executes a recorded product, by name."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Protocol

import numpy as np

from ...jacobians.errors import InputError, closest
from ...ops.graphs import build
from ..model import Model
from ..primal.engines.onnxruntime import EngineError, installed
from ..primal.evaluate import evaluate
from ..support.optional import optional
from .light import light
from .record import Recording


class Program(Protocol):
    """v ↦ J v; the result belongs to the caller. Safe to call from several threads."""

    def __call__(self, v: np.ndarray) -> np.ndarray: ...


MODULES = {"onnxruntime": "onnxruntime", "numpy": "numpy", "numba": "numba"}
"""engine -> the folder or module here that has `compile(recording) -> Program`."""

EXTRAS = {"onnxruntime": "runtime", "numba": "numba"}
"""engine -> the extra that brings what it needs."""


def compile_by(engine: str | None, recording: Recording) -> tuple[Program, str]:
    """A program and the engine that runs it: the one asked for, or the sooner one that can.

    That is ONNX Runtime where it is installed and has the kernels, unless its call would take
    longer than the product.
    """
    if engine is not None:
        make = compiler(engine)
        runs = engine.startswith("onnxruntime") or not recording.has_bodies
        return make(recording) if runs else interpreted(recording), engine
    if installed() and not light(recording):
        try:
            return compiler("onnxruntime")(recording), "onnxruntime"
        except EngineError:  # a kernel that it does not have, for this dtype
            recording = recording.again()
    make = interpreted if recording.has_bodies else compiler("numpy")
    return make(recording), "numpy"


def interpreted(recording: Recording) -> Program:
    """A product with loops in it, node by node, each turn anew."""
    y = {"y": recording.y}
    product = Model(build(recording.recorder, [recording.v], y, "product"))
    return lambda v: evaluate(product, {"v": v}, ("y",), engine="numpy")["y"]


def compiler(engine: str) -> Callable[[Recording], Program]:
    """What makes programs of an engine; raises `InputError` for one that is not there.

    An execution provider of ONNX Runtime stands after a colon:
    `"onnxruntime:CUDAExecutionProvider"`.
    """
    name, _, provider = engine.partition(":")
    if name not in MODULES or (provider and name != "onnxruntime"):
        known = ", ".join(map(repr, MODULES))
        raise InputError(f"engine={engine!r} is not one of {known}.{closest(engine, MODULES)}")
    if name in EXTRAS:
        optional(name, EXTRAS[name])
    made: Callable[..., Program] = importlib.import_module(
        f".{MODULES[name]}", __package__
    ).compile
    return partial(made, provider=provider) if provider else made
