"""Program: a graph compiled by one engine, and the rule that picks the engine.

Small products run node by node in NumPy. Measured on one core, a session takes 15 µs per call and
0.3 to 0.7 µs per kernel, a NumPy program 3 µs and 0.4 to 1.5 µs. Convolutions of any size run in a
session, and so do large matrix products, for which a session has its own threads.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

import numpy as np

from ....jacobians import dtype_of
from ....jacobians.errors import not_allowed, optional
from .graph import WINDOWS, Graph, kernels_of, multiplications
from .onnxruntime import EngineError, installed

ENGINES = {"onnxruntime": "runtime", "numpy": "", "torch": "torch"}
"""Modules here with a function `compile(graph) -> Program`, and the extra that installs it."""

FEW = 24
"""The most kernels that are faster called one by one than in a session."""

SMALL = 2**22
"""The number of multiplications that take about as long as a call."""


class Program(Protocol):
    """v ↦ J v; the result belongs to the caller. Thread-safe.

    Where residuals are further inputs, `bind(residuals)`, arrays by name, is v ↦ J v.
    """

    def __call__(self, v: np.ndarray, /) -> np.ndarray: ...

    def bind(self, residuals: Mapping[str, np.ndarray]) -> Callable[[Any], Any]: ...


def candidates(engine: str | None, graph: Graph) -> Iterator[str]:
    """The engines to try in turn: the requested one, or the faster ones that are installed.

    ONNX Runtime is the faster one unless the overhead of its call exceeds the product.
    """
    if engine is not None:
        yield engine
        return
    if installed() and not light(graph) and not is_inexact(graph):
        yield "onnxruntime"
    yield "numpy"


def compile_by(engine: str | None, graph: Graph) -> tuple[Program, str]:
    """A program and the name of its engine, the first one that has the kernels."""
    *others, last = candidates(engine, graph)
    for name in others:
        with suppress(EngineError):  # it lacks a kernel for this dtype
            return compiler(name)(graph), name
    return compiler(last)(graph), last


def compiler(engine: str) -> Callable[[Graph], Program]:
    """The `compile` function of an engine; raises `InputError` for an unknown one.

    An execution provider of ONNX Runtime follows after a colon,
    `"onnxruntime:CUDAExecutionProvider"`, and so does a device of PyTorch, `"torch:cuda"`.
    """
    name, _, provider = engine.partition(":")
    if name not in ENGINES or (provider and name not in ("onnxruntime", "torch")):
        raise not_allowed("engine", engine, ENGINES)
    if extra := ENGINES[name]:
        optional(name, extra)
    made: Callable[..., Program] = importlib.import_module(f".{name}", __package__).compile
    return partial(made, provider=provider) if provider else made


def light(graph: Graph) -> bool:
    """Whether a NumPy program is faster than a session."""
    kernels = kernels_of(graph)
    few = len(kernels) <= FEW and not any(node.op_type in WINDOWS for node in kernels)
    return few and not graph.has_bodies and sum(map(multiplications, kernels)) <= SMALL


def is_inexact(graph: Graph) -> bool:
    """Whether ONNX Runtime would lose digits: its DFT of doubles is right to some 1e-8, except for
    lengths that are powers of two.
    """
    return any(node.op_type in ("DFT", "STFT") and dtype_of(node.outputs[0]).itemsize == 8
               for node in graph.nodes)  # fmt: skip


def size_text(graph: Graph) -> str:
    """The amount of work in words, and whether it repays a session's call."""
    kernels, few = kernels_of(graph), light(graph)
    why = "less than a session's call takes" if few else "repays a session's call"
    count = sum(map(multiplications, kernels))
    return f"{len(kernels)} kernels, {count:,} multiplications: {why}"
