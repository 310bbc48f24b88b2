"""Engines: which one executes a recorded product.

Small products run node by node in NumPy. Measured on one core, a session takes 16 µs per call and
0.7 µs per kernel, a NumPy program 5 µs and 1.8 µs. Convolutions of any size run in a session, and
so do large matrix products, for which a session has its own threads.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

import numpy as np
import onnx_ir as ir

from ....jacobians import dtype_of, reading, shape_of, size
from ....jacobians.arrays import is_tensor
from ....jacobians.errors import not_allowed
from ....ops.graphs import build
from ....ops.numbers.layout import FREE
from ...model.optional import optional
from ...model.primal.engines.onnxruntime import EngineError, installed
from ...model.primal.evaluate import evaluate
from ...model.primal.model import Model
from .record import Recording

ENGINES = ("onnxruntime", "numpy", "torch")
"""Modules here with a function `compile(recording) -> Program`."""

EXTRAS = {"onnxruntime": "runtime", "torch": "torch"}
"""engine -> the extra that installs its dependencies."""

FEW = 8
"""The most kernels that are faster called one by one than in a session."""

SMALL = 2**22
"""The number of multiplications that take about as long as a call."""

WINDOWS = frozenset({"Conv", "ConvTranspose"})


class Program(Protocol):
    """v ↦ J v, or (v, residuals) ↦ J v at any point; the result belongs to the caller.
    Thread-safe.
    """

    def __call__(self, v: np.ndarray, residuals: Mapping[int, np.ndarray] = ...) -> np.ndarray: ...


def compile_by(engine: str | None, recording: Recording) -> tuple[Program, str]:
    """A program and the name of its engine: the requested engine, or the faster one available.

    The faster one is ONNX Runtime if that is installed and has the kernels, unless the overhead of
    its call exceeds the product.
    """
    if engine is not None:
        make = compiler(engine)
        runs = engine.startswith("onnxruntime") or not recording.has_bodies
        return make(recording) if runs else interpreted(recording), engine
    if installed() and not light(recording) and not is_inexact(recording):
        try:
            return compiler("onnxruntime")(recording), "onnxruntime"
        except EngineError:  # it lacks a kernel for this dtype
            recording = recording.again()
    make = interpreted if recording.has_bodies else compiler("numpy")
    return make(recording), "numpy"


def interpreted(recording: Recording) -> Program:
    """A product with subgraphs, such as loops, interpreted node by node at every call."""
    y = {"y": recording.y}
    model = Model(build(recording.recorder, [recording.v], y, "product"))

    def run(v: np.ndarray) -> np.ndarray:
        return evaluate(model, {"v": v}, ("y",), engine="numpy")["y"]

    def product(v: Any, residuals: Mapping[int, np.ndarray] | None = None) -> Any:
        return reading(v).by_numbers("loop", run, v) if is_tensor(v) else run(v)

    return product


def compiler(engine: str) -> Callable[[Recording], Program]:
    """The `compile` function of an engine; raises `InputError` for an unknown one.

    An execution provider of ONNX Runtime follows after a colon,
    `"onnxruntime:CUDAExecutionProvider"`, and so does a device of PyTorch, `"torch:cuda"`.
    """
    name, _, provider = engine.partition(":")
    if name not in ENGINES or (provider and name not in ("onnxruntime", "torch")):
        raise not_allowed("engine", engine, ENGINES)
    if name in EXTRAS:
        optional(name, EXTRAS[name])
    made: Callable[..., Program] = importlib.import_module(f".{name}", __package__).compile
    return partial(made, provider=provider) if provider else made


def light(recording: Recording) -> bool:
    """Whether a NumPy program is faster than a session."""
    kernels = kernels_of(recording)
    few = len(kernels) <= FEW and not any(node.op_type in WINDOWS for node in kernels)
    return few and not recording.has_bodies and sum(map(multiplications, kernels)) <= SMALL


def is_inexact(recording: Recording) -> bool:
    """Whether ONNX Runtime would lose digits: its DFT of doubles is right to some 1e-8, except for
    lengths that are powers of two.
    """
    return any(node.op_type in ("DFT", "STFT") and dtype_of(node.outputs[0]).itemsize == 8
               for node in recording.nodes)  # fmt: skip


def kernels_of(recording: Recording) -> list[ir.Node]:
    """The nodes that compute or rearrange entries."""
    return [node for node in recording.nodes if node.op_type not in FREE]


def size_text(recording: Recording) -> str:
    """The amount of work in words, and whether it repays a session's call."""
    kernels, few = kernels_of(recording), light(recording)
    why = "less than a session's call takes" if few else "repays a session's call"
    count = sum(map(multiplications, kernels))
    return f"{len(kernels)} kernels, {count:,} multiplications: {why}"


def multiplications(node: ir.Node) -> int:
    """Multiplications: rows · columns · inner length for a matrix product, else one per entry.

    A convolution takes a kernel for each entry of y, a transposed one for each entry of x.
    """
    entries = size(shape_of(node.outputs[0]))
    first = node.inputs[0]
    if node.op_type in WINDOWS:
        x, w = (shape_of(given) for given in node.inputs[:2] if given is not None)
        return (entries if node.op_type == "Conv" else size(x)) * size(w[1:])
    if node.op_type == "Einsum":  # sums over labels of its operands only
        return max(entries, *(size(shape_of(x)) for x in node.inputs if x is not None))
    if node.op_type not in ("MatMul", "Gemm") or first is None:
        return entries
    inner = shape_of(first)[-1]
    return entries * inner
