"""Compiled: the product with an operator as a program: recorded as ONNX nodes, run by an engine.

Rules and operators consist of calls of the vocabulary; with graph values as arguments, one
product becomes a graph. Equal nodes are recorded once, and values that do not depend on v are
computed now.

Small products run node by node in NumPy. Measured on one core, a session takes 15 µs per call and
0.3 to 0.7 µs per kernel, a NumPy program 3 µs and 0.4 to 1.5 µs. Convolutions of any size run in a
session, and so do large matrix products, for which a session has its own threads.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np
import onnx_ir as ir

from ....jacobians import (
    Array,
    Jacobian,
    Op,
    Shape,
    common,
    dtype_of,
    lead,
    reading,
    shape_of,
    size,
)
from ....jacobians.arrays import wide
from ....jacobians.errors import not_allowed, optional
from ....jacobians.placing import HOST, Place, placed
from ....jacobians.readings import is_kept, library_of, library_of_engine
from ....jacobians.symint import same
from ....jacobians.threads import Latest, Lock, cached_property
from ....ops import numbers
from ....ops.graphs import Recorder, build
from ....ops.graphs.build import every, reachable, subgraphs
from ....ops.graphs.recorder import READING
from ....ops.numbers.table import FREE
from ...model.primal.engines.onnxruntime import EngineError, installed
from ...model.primal.evaluate import evaluate
from ...model.primal.model import Model

KEPT = 4
"""The number of programs kept per operator, each for one shape of columns."""


class Compiled(Jacobian):
    """y = J x, by a program that is compiled at the first product with a new number of columns.

    `engine` is `"onnxruntime"`, `"numpy"`, `"torch"`, or None for the fastest available one. The
    programs take arrays of NumPy, and of the `library` of the engine, if it has one. The transpose
    is compiled in the same way.
    """

    holds = ("operator",)

    def __init__(self, operator: Jacobian, engine: str | None = None) -> None:
        super().__init__(operator.out_shape, operator.in_shape, operator.dtype)
        self.operator, self.engine = operator, engine
        if engine is not None:
            compiler(engine)  # raises if it is not available
        self.library = library_of_engine(engine)
        self._programs: Latest[tuple[Shape, str], Program] = Latest(KEPT)
        self._lock = Lock()
        self._ran, self._why = engine or "the first engine that can", ""

    def __getstate__(self) -> dict[str, Any]:
        """The state without the programs, which are compiled again on demand."""
        return {"operator": self.operator, "engine": self.engine}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def _apply(self, op: Op, v: Array) -> Array:
        if self._takes(v):
            return self.program(lead(v, self.in_shape), library_of(v).place(v).device)(v)
        if op is not numbers or not isinstance(v, np.ndarray):
            return self.operator._apply(op, v)
        v = v.astype(wide(self.dtype), copy=False)
        return self.program(lead(v, self.in_shape))(v)

    def _flat_product(self, v: Any, columns: Shape) -> Any:
        """Fast path: a program may take only a few microseconds."""
        is_own, is_wide = self._takes(v), self.dtype.itemsize >= 4
        runs = is_wide and (is_own or isinstance(v, np.ndarray))
        if not runs or dtype_of(v) != self.dtype or 0 in v.shape:
            return super()._flat_product(v, columns)
        device = library_of(v).place(v).device if is_own else ""
        program = self._programs.get((columns, device)) or self.program(columns, device)
        v = v if device else np.ascontiguousarray(v)
        if v.shape != (shape := (*columns, *self.in_shape)):
            v = v.reshape(shape)
        y = program(v)
        return y if y.shape == (shape := (*columns, self.shape[0])) else y.reshape(shape)

    def _takes(self, v: Array) -> bool:
        """Whether an array is of the library of the engine."""
        return self.library is not None and library_of(v) is self.library

    def program(self, columns: Shape, device: Any = "") -> Program:
        """The program for right-hand sides of this leading shape; of PyTorch, for a device."""
        key = columns, device
        with self._lock:
            if key not in self._programs:
                self._programs[key] = self._made(columns, device)
            return self._programs[key]

    def _made(self, columns: Shape, device: Any) -> Program:
        how = bool(self.library and self.library.convolves_samples)
        recording = record(self.operator, columns, convolves_samples=how)
        if recording.meets_nothing:
            self._ran, self._why = "plain calls", "a tensor on the way has no elements"
            return partial(plain, self.operator)
        self._why = "asked for" if self.engine else size_text(recording)
        engine = f"torch:{device}" if device else self.engine
        program, self._ran = compile_by(engine, recording)
        if left := getattr(program, "on_host", ()):
            self._why += f"; without kernels for {', '.join(sorted(left))}, which NumPy computes"
        return program

    def _transpose(self) -> Jacobian:
        if self.operator.T is self.operator:
            return self
        return Compiled(self.operator.T, self.engine)

    def _diagonal(self) -> Array:
        return self.operator._diagonal()

    @property
    def choice(self) -> str:
        """The engine that runs the products, and why."""
        why = f" ({self._why})" if self._why else ", at the first product"
        return f"compiled: products by {self._ran}{why}"

    def __repr__(self) -> str:
        return f"{self.operator!r}, by {self._ran}"


@placed.register
def _(operator: Compiled, place: Place) -> Any:
    """The operator itself, if its engine takes arrays of the library of this place."""
    takes = operator.library is not None and place.op in (None, operator.library)
    return operator if takes else placed(operator.operator, place)


def plain(operator: Jacobian, v: Any) -> Any:
    """J v without an engine."""
    if is_kept(v):
        return operator._apply(reading(v), v)
    return np.array(operator._apply(numbers, v), wide(operator.dtype))


# -- engines: which one runs a recorded product ----------------------------------------------------

ENGINES = {"onnxruntime": "runtime", "numpy": "", "torch": "torch"}
"""Modules here with a function `compile(recording) -> Program`, and the extra that installs it."""

FEW = 24
"""The most kernels that are faster called one by one than in a session."""

SMALL = 2**22
"""The number of multiplications that take about as long as a call."""

WINDOWS = frozenset({"Conv", "ConvTranspose"})


class Program(Protocol):
    """v ↦ J v; the result belongs to the caller. Thread-safe."""

    def __call__(self, v: np.ndarray, /) -> np.ndarray: ...


class OpenProgram(Program, Protocol):
    """A program with residuals as inputs: `at(residuals)`, arrays by name, is v ↦ J v."""

    def at(self, residuals: Mapping[str, np.ndarray]) -> Program: ...


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
            recording = recording.again() if recording.again else recording
    made = interpreted(recording) if recording.has_bodies else compiler("numpy")(recording)
    return made, "numpy"


def interpreted(recording: Recording) -> Program:
    """A product with subgraphs, such as loops, interpreted node by node at every call."""
    y = {"y": recording.y}
    model = Model(build(recording.recorder, [recording.v], y, "product"))

    def run(v: np.ndarray) -> np.ndarray:
        return evaluate(model, {"v": v}, ("y",), engine="numpy")["y"]

    def product(v: Any) -> Any:
        return library_of(v).by_numbers("loop", run, v)

    return product


def compiler(engine: str) -> Callable[[Recording], OpenProgram]:
    """The `compile` function of an engine; raises `InputError` for an unknown one.

    An execution provider of ONNX Runtime follows after a colon,
    `"onnxruntime:CUDAExecutionProvider"`, and so does a device of PyTorch, `"torch:cuda"`.
    """
    name, _, provider = engine.partition(":")
    if name not in ENGINES or (provider and name not in ("onnxruntime", "torch")):
        raise not_allowed("engine", engine, ENGINES)
    if extra := ENGINES[name]:
        optional(name, extra)
    made: Callable[..., OpenProgram] = importlib.import_module(f".{name}", __package__).compile
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


# -- recordings: a product as a list of ONNX nodes -------------------------------------------------

OPSET = 21
"""The opset of recorded products and of the vocabulary."""

LARGE = 2**20
"""Bytes from which a matrix and its transpose are not both held."""


@dataclass(frozen=True)
class Recording:
    """v ↦ J v: the nodes in order, each value with its static shape and dtype.

    `v` is (*columns, *in_shape) and `y` is (*columns, *out_shape). Residuals are `constants`, by
    the identity of their value, or, for a product at any point, `residuals`: further inputs, by the
    names of their tensors at a point. `again` makes another recording, since an engine may modify
    the one that it is given.
    """

    nodes: tuple[ir.Node, ...]
    constants: Mapping[int, np.ndarray]
    v: ir.Value
    y: ir.Value
    recorder: Recorder
    again: Callable[[], Recording] | None = None
    residuals: Mapping[str, ir.Value] = field(default_factory=dict)

    @cached_property
    def present(self) -> frozenset[int]:
        """The identities of the nodes that are needed, also inside subgraphs."""
        return frozenset(map(id, every(self.nodes)))

    def array(self, value: ir.Value) -> np.ndarray | None:
        """The numbers of a constant; None where the value is computed."""
        return self.constants.get(id(value))

    @property
    def has_bodies(self) -> bool:
        """Whether a node has subgraphs."""
        return next(subgraphs(self.nodes), None) is not None

    @property
    def meets_nothing(self) -> bool:
        """Whether some tensor has no elements: engines fail at empty tensors in many ways."""
        met = (x for node in self.nodes for x in (*node.inputs, *node.outputs) if x is not None)
        return any(0 in shape_of(x) and dtype_of(x).kind not in "iu" for x in met)


def record(
    operator: Jacobian, columns: Shape = (), *, convolves_samples: bool = False
) -> Recording:  # fmt: skip
    """The product of `operator` with `columns` right-hand sides at once; halves in float32."""
    held = operator if operator.place is None else placed(operator, HOST)
    recorder = ResidualRecorder(convolves_samples=convolves_samples)
    v, y = recorded(recorder, held, columns)
    v.name = "v"
    nodes, used = reachable(recorder, [y])
    arrays = {id(x): x.const_value.numpy() for x in used if x.const_value is not None}
    again = partial(record, operator, columns, convolves_samples=convolves_samples)
    return Recording(tuple(nodes), arrays, v, y, recorder, again)


def recorded(op: ResidualRecorder, operator: Jacobian, columns: Shape) -> tuple[ir.Value, ir.Value]:
    """v and y = J v, recorded."""
    dtype = wide(operator.dtype)
    v = op.new((*columns, *operator.in_shape), dtype)
    y = op.value(op.CastLike(operator._apply(op, v), np.zeros((), dtype)))
    assert y is not None
    return v, y


class ResidualRecorder(Recorder):
    """A recorder that takes arrays as they are: views stay views, nothing is copied.

    Mixed dtypes are promoted, and nothing is rounded to halves, as in NumPy products.
    """

    is_model = False

    def __init__(
        self, *, convolves_samples: bool = False, opset_imports: Mapping[str, int] | None = None
    ) -> None:  # fmt: skip
        super().__init__(opset_imports or {"": OPSET})
        self.convolves_samples = convolves_samples

    @classmethod
    def beyond(
        cls, model: Recorder, inputs: Iterable[ir.Value], *, convolves_samples: bool
    ) -> ResidualRecorder:  # fmt: skip
        """A recorder that goes on after the nodes of a model."""
        made = cls(convolves_samples=convolves_samples)
        kept = {"symbols": None, "convolves_samples": convolves_samples}
        made.__dict__.update(vars(model) | kept)
        outputs = (y for node in every(made.nodes) for y in node.outputs)
        for value in (*inputs, *outputs, *made.constants.values()):
            value.meta[READING] = made
        return made

    def empty(self) -> ResidualRecorder:
        """A new recorder of the same operators."""
        how = self.convolves_samples
        return ResidualRecorder(convolves_samples=how, opset_imports=self.opset_imports)

    def call(self, op_type: str, *inputs: Any, outputs: int = 1, **attrs: Any) -> Any:
        if op_type == "CastLike":
            inputs = inputs[0], np.zeros((), wide(dtype_of(inputs[1])))
        elif "Cast" not in op_type:
            inputs = promoted(self, inputs)
        if op_type == "Transpose" and (shape := unturned(inputs[0], **attrs)):
            return self.Reshape(inputs[0], shape)
        return super().call(op_type, *inputs, outputs=outputs, **attrs)

    def value(self, array: Array | None) -> ir.Value | None:
        """The graph value of an array; a large matrix and its transpose are held once."""
        if not isinstance(array, np.ndarray) or array.ndim != 2 or array.nbytes < LARGE:
            return super().value(array)
        if array.flags.c_contiguous or not array.flags.f_contiguous:
            return super().value(array)
        turned: ir.Value = super().call("Transpose", super().value(array.T), perm=(1, 0))
        return turned

    def initializer(self, array: np.ndarray, name: str | None = None) -> ir.Value:
        value = super().like(array, name)
        value.const_value = ir.Tensor(array, name=name)
        self._arrays.append(array)
        return value


def promoted(op: Recorder, operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """Operands promoted to their common floating dtype, as in NumPy; ONNX does not promote."""
    floats = {dtype_of(x) for x in operands if is_floating(x)}
    if len(floats) < 2:
        return operands
    zero = np.zeros((), wide(common(*floats)))
    return tuple(op.CastLike(x, zero) if is_floating(x) else x for x in operands)


def is_floating(x: Any) -> bool:
    """Whether an operand is a tensor of floats, not an index or a shape."""
    return hasattr(x, "dtype") and dtype_of(x).kind in "fV"


def unturned(x: Any, perm: tuple[int, ...] | None = None) -> Shape | None:
    """The shape after a Transpose that moves axes of size 1 only, else None."""
    shape = shape_of(x)
    perm = tuple(reversed(range(len(shape)))) if perm is None else perm
    moved = [k for k in perm if not same(shape[k], 1)]
    return tuple(shape[k] for k in perm) if moved == sorted(moved) else None
