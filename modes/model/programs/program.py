"""Program: a graph compiled by one engine, and the rule that picks the engine."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

import numpy as np

from ....jacobians.errors import not_allowed, optional
from ....ops.graphs.build import Graph
from .onnxruntime import EngineError, installed
from .work import is_cheaper_in_line, is_inexact, kernels_of, multiplications

ENGINES = {"onnxruntime": "runtime", "numpy": "", "torch": "torch", "jax": "jax"}
"""Modules here with a function `compile(graph) -> Program`, and the extra that installs it."""


class Program(Protocol):
    """v ↦ J v; the result belongs to the caller. Thread-safe.

    Where residuals are further inputs, `bind(residuals)`, arrays by name, is v ↦ J v.
    """

    def __call__(self, v: np.ndarray, /) -> np.ndarray: ...

    def bind(self, residuals: Mapping[str, np.ndarray]) -> Callable[[Any], Any]: ...


def engines_to_try(engine: str | None, graph: Graph) -> Iterator[str]:
    """The engines to try in turn: the requested one, or the faster ones that are installed.

    ONNX Runtime is the faster one unless the overhead of its call exceeds the product.
    """
    if engine is not None:
        yield engine
        return
    if installed() and not is_cheaper_in_line(graph) and not is_inexact(graph):
        yield "onnxruntime"
    yield "numpy"


def compile_by(engine: str | None, graph: Graph) -> tuple[Program, str]:
    """A program and the name of its engine, the first one that has the kernels."""
    *others, last = engines_to_try(engine, graph)
    for name in others:
        with suppress(EngineError):  # it lacks a kernel for this dtype
            return compiler(name)(graph), name
    return compiler(last)(graph), last


def choice_text(graph: Graph, ran: str) -> str:
    """Why this engine runs a graph that was compiled without a requested engine: by its work."""
    kernels = kernels_of(graph)
    counted = f"{len(kernels)} kernel{'s' * (len(kernels) != 1)}"
    work = f"{counted}, {sum(map(multiplications, kernels)):,} multiplications"
    if ran == "onnxruntime":
        return f"{work}: repays a session's call"
    if is_cheaper_in_line(graph):
        return f"{work}: less than a session's call takes"
    if is_inexact(graph):
        return f"{work}: ONNX Runtime's Fourier transform of doubles loses digits"
    return f"{work}: ONNX Runtime {'has no kernel for it' if installed() else 'is not installed'}"


def compiler(engine: str) -> Callable[[Graph], Program]:
    """The `compile` function of an engine; raises `InputError` for an unknown one.

    An execution provider of ONNX Runtime follows after a colon,
    `"onnxruntime:CUDAExecutionProvider"`, and so does a device of PyTorch, `"torch:cuda"`.
    """
    name, _, provider = engine.partition(":")
    if name not in ENGINES or (provider and name not in ("onnxruntime", "torch", "jax")):
        raise not_allowed("engine", engine, ENGINES)
    if extra := ENGINES[name]:
        optional(name, extra)
    made: Callable[..., Program] = importlib.import_module(f".{name}", __package__).compile
    return partial(made, provider=provider) if provider else made
