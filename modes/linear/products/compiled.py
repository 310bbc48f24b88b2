"""Compiled: the product with an operator as a program: recorded as ONNX nodes, run by an engine.

Rules and operators consist of calls of the vocabulary; with graph values as arguments, one
product becomes a graph. Equal nodes are recorded once, and values that do not depend on v are
computed now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir

from ....jacobians import Array, Jacobian, Op, Shape, common, dtype_of, lead, reading
from ....jacobians.arrays import wide
from ....jacobians.placing import HOST, Place, placed
from ....jacobians.readings import is_kept, library_of, library_of_engine
from ....jacobians.threads import Latest, Lock
from ....ops import numbers
from ....ops.graphs import Recorder
from ....ops.graphs.build import Graph, V, every, reachable
from ....ops.graphs.shapes import READING
from ...model.programs.program import choice_text, compile_by, compiler

Way = Callable[[Any], Any]
"""v ↦ J v; the result belongs to the caller."""

CACHED_PROGRAMS = 4
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
        self._programs: Latest[tuple[Shape, str], Way] = Latest(CACHED_PROGRAMS)
        self._lock = Lock()
        self._ran, self._why = engine or "the engine that suits them", ""

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

    def _flat_product(self, v: Array, columns: Shape) -> Array:
        """Fast path: a program may take only a few microseconds."""
        is_own, is_wide = self._takes(v), self.dtype.itemsize >= 4
        runs = is_wide and (is_own or isinstance(v, np.ndarray))
        if not runs or dtype_of(v) != self.dtype or 0 in v.shape:
            return super()._flat_product(v, columns)
        device = library_of(v).place(v).device if is_own else ""
        program = self._programs.get((columns, device)) or self.program(columns, device)
        v = v if is_own else np.ascontiguousarray(v)
        if v.shape != (shape := (*columns, *self.in_shape)):
            v = v.reshape(shape)
        y = program(v)
        return y if y.shape == (shape := (*columns, self.shape[0])) else y.reshape(shape)

    def _takes(self, v: Array) -> bool:
        """Whether an array is of the library of the engine."""
        return self.library is not None and library_of(v) is self.library

    def program(self, columns: Shape, device: Any = "") -> Way:
        """The program for right-hand sides of this leading shape; of PyTorch, for a device."""
        key = columns, device
        with self._lock:
            if key not in self._programs:
                self._programs[key] = self._made(columns, device)
            return self._programs[key]

    def _made(self, columns: Shape, device: Any) -> Way:
        library = self.library
        how = library is not None and library.convolves_samples
        recording = record_product(self.operator, columns, convolves_samples=how)
        if recording.meets_nothing:
            self._ran, self._why = "plain calls", "a tensor on the way has no elements"
            return partial(plain, self.operator)
        engine = f"{library.engine}:{device}" if library and device else self.engine
        program, self._ran = compile_by(engine, recording)
        self._why = "asked for" if self.engine else choice_text(recording, self._ran)
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


# -- recordings: a product as a list of ONNX nodes -------------------------------------------------

OPSET = 21
"""The opset of recorded products and of the vocabulary."""

HELD_ONCE_BYTES = 2**20
"""Bytes from which a matrix and its transpose are not both held."""


def record_product(
    operator: Jacobian, columns: Shape = (), *, convolves_samples: bool = False
) -> Graph:  # fmt: skip
    """The product of `operator` with `columns` right-hand sides at once; halves in float32."""
    held = operator if operator.place is None else placed(operator, HOST)
    op = ResidualRecorder(convolves_samples=convolves_samples)
    v, y = product_values(op, held, columns)
    return Graph(type(op), op.opset_imports, reachable(op, [y])[0], {V: v}, {"y": y})


def product_values(
    op: ResidualRecorder, operator: Jacobian, columns: Shape
) -> tuple[ir.Value, ir.Value]:
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
        self, opset_imports: Mapping[str, int] | None = None, *, convolves_samples: bool = False
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

    def call(self, op_type: str, *inputs: Any, outputs: int = 1, **attrs: Any) -> Any:
        if op_type == "CastLike":
            inputs = inputs[0], np.zeros((), wide(dtype_of(inputs[1])))
        elif "Cast" not in op_type:
            inputs = promoted(self, inputs)
        return super().call(op_type, *inputs, outputs=outputs, **attrs)

    def value(self, array: Array | None) -> ir.Value | None:
        """The graph value of an array; large matrices and their transposes are held once."""
        if not isinstance(array, np.ndarray) or array.ndim < 2 or array.nbytes < HELD_ONCE_BYTES:
            return super().value(array)
        stored, (*lead, i, j) = array.swapaxes(-1, -2), range(array.ndim)
        if array.flags.c_contiguous or not stored.flags.c_contiguous:
            return super().value(array)
        turned: ir.Value = super().call("Transpose", super().value(stored), perm=(*lead, j, i))
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
