"""Symbols: each ONNX operator over SymPy expressions, at a point.

An entry of a tensor is an expression together with its number at a point. Arithmetic is exact;
branches, comparisons and sorts are decided by the numbers, and every decision is noted. The results
therefore hold where these decisions hold: in an open set around the point.

>>> op = SymbolReading()
>>> x = op.variables("x", [2, -1])
>>> op.Relu(x)
[x_0, 0]
>>> op.conditions
(x_0 > 0, x_1 < 0)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Number as Scalar
from typing import Any

import numpy as np
import onnx
import sympy as sp

from ...jacobians import Array, Op, Shape, reading
from ...jacobians.errors import UnsupportedOp
from ...jacobians.readings import Reading
from ..graphs.recorder import as_constant, type_variables
from ..node import AT, node_of
from ..numbers import numbers
from ..numbers.table import COUNTED, run_reference
from ..numbers.table import KERNELS as PLAIN
from ..registry import find, full_name
from . import classical, placing, pointwise  # noqa: F401  (each registers its kernels)
from .number import KERNELS, Kernel, Number, nearby_closed_form, value_of

__all__ = [
    "REFERRED",
    "Number",
    "SymbolReading",
    "Tensor",
    "each",
    "nearby_closed_form",
    "referred",
]


class SymbolReading(Reading):
    """One method per ONNX operator: a kernel of this package, or of the numbers reading.

    NumPy arrays are constants, with floats read as exact numbers; operators on integers alone are
    left to the numbers reading.
    """

    def __init__(self) -> None:
        self.notes: dict[sp.Expr, None] = {}

    @property
    def conditions(self) -> tuple[sp.Expr, ...]:
        """The decisions taken so far: the results hold where these conditions hold."""
        return tuple(self.notes)

    def call(self, op_type: str, *inputs: Any, **attrs: Any) -> Any:
        """The result of an operator: tensors of expressions, or arrays where none are involved."""
        if not any(map(has_expressions, inputs)):
            return getattr(numbers, op_type)(*inputs, **attrs)
        kernel = self.kernel(op_type)
        if kernel is None:
            raise UnsupportedOp(f"{op_type} has no reading in symbols")
        made = kernel(*map(self.operand, typed(op_type, inputs)), **attrs)
        return tuple(map(self.tensor, made)) if isinstance(made, tuple) else self.tensor(made)

    def kernel(self, op_type: str) -> Kernel | None:
        """The kernel of an operator over expressions."""
        found = KERNELS.get(op_type) or PLAIN.get(op_type)
        return referred(op_type) if found is None and op_type in REFERRED else found

    def run(
        self, op_type: str, inputs: Sequence[Any], attrs: Mapping[str, Any], *,
        domain: str = "", version: int = 21, outputs: int = 1,
    ) -> tuple[Any, ...]:  # fmt: skip
        """The outputs of one node of a model; constants stay constants."""
        if not any(isinstance(x, Tensor) for x in inputs):
            return numbers.run(
                op_type, inputs, attrs, domain=domain, version=version, outputs=outputs
            )
        declared, name = find(op_type, domain), full_name(op_type, domain)
        kernel = self.kernel(name)
        plain = kernel is None or ("::" in name and kernel is PLAIN.get(name))
        if plain and declared and declared.definition:
            node = node_of(op_type, inputs, attrs, domain, version, outputs)
            return declared.outputs(self, node)[:outputs]
        counted = {"outputs": outputs} if name in COUNTED else {}
        made = self.call(name, *inputs, **attrs, **counted)
        return made[:outputs] if isinstance(made, tuple) else (made,)

    def operand(self, x: Any) -> Any:
        """An input as a kernel takes it: floats become exact numbers."""
        if isinstance(x, Tensor):
            return x.entries
        floating = isinstance(x, np.ndarray | np.generic) and x.dtype.kind == "f"
        return each(self.number, np.asarray(x)) if floating else x

    def tensor(self, made: Any) -> Any:
        """A result: objects are expressions, anything else stays as it is."""
        array = np.asarray(made)
        return Tensor(each(self.number, array), self) if array.dtype == object else array

    def number(self, entry: Any) -> Number:
        """An entry as a symbolic number."""
        if isinstance(entry, Number):
            return entry
        expr = nearby_closed_form(entry.item() if isinstance(entry, np.generic) else entry)
        return Number(expr, value_of(expr), self.notes)

    def variables(self, name: str, at: Any, **assumptions: Any) -> Tensor:
        """A tensor of symbols name_ij, whose values at the point are given."""
        point = np.asarray(at)
        made = np.empty(point.shape, object)
        for place, value in np.ndenumerate(point):
            exact = value_of(nearby_closed_form(float(value)))
            made[place] = Number(symbol(name, place, **assumptions), exact, self.notes)
        return Tensor(made, self)

    def constant(self, array: Array) -> Tensor:
        """Numbers as a tensor of expressions."""
        return Tensor(each(self.number, np.asarray(array)), self)

    def at(self, x: Any, reader: str = "") -> Any:
        """The numbers of a tensor at the point; `reader` is the node that asks."""
        return x.values if isinstance(x, Tensor) else x


REFERRED = (
    "BatchNormalization", "CenterCropPad", "Col2Im", "Compress", "Concat", "Conv", "CumProd",
    "CumSum", "DepthToSpace", "DequantizeLinear", "Dropout", "Expand", "Flatten", "Gather",
    "GatherND", "Gemm", "GlobalAveragePool", "Identity", "InstanceNormalization", "Max",
    "MaxUnpool", "Min", "OneHot", "Range", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "Reshape", "ReverseSequence", "RoiAlign", "ScatterElements", "ScatterND", "Shape",
    "Slice", "SpaceToDepth", "Split", "Squeeze", "TensorScatter", "Tile", "TopK", "Transpose",
    "Trilu", "Unique", "Unsqueeze", "Where",
    "ai.onnx.ml::ArrayFeatureExtractor", "ai.onnx.ml::FeatureVectorizer", "ai.onnx.ml::Imputer",
    "ai.onnx.ml::Normalizer", "ai.onnx.ml::SVMRegressor", "ai.onnx.ml::Scaler",
)  # fmt: skip
"""Operators that ONNX's reference implementation computes on arrays of any objects."""

Scalar.register(Number)  # NumPy, and with it the reference implementation, takes it for a scalar


def referred(name: str) -> Kernel:
    """ONNX's reference implementation of an operator, in its newest version."""
    domain, _, op_type = name.rpartition("::")

    def apply(*inputs: Any, outputs: int = 1, **attrs: Any) -> Any:
        arrays = [np.asarray(x) if isinstance(x, tuple | int) else x for x in inputs]
        given = {name: x for name, x in attrs.items() if x not in (None, ())}
        version = onnx.defs.get_schema(op_type, domain=domain).since_version
        made = run_reference(
            op_type, arrays, given, domain=domain, version=version, outputs=outputs
        )
        return made[0] if outputs == 1 else made

    return apply


KERNELS["Scatter"] = referred("ScatterElements")  # which has its old name


def typed(op_type: str, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The inputs; Python numbers are arrays of the dtype of their type variable, as recorded."""
    if "::" in op_type or all(x is None or hasattr(x, "dtype") for x in inputs):
        return inputs
    kinds = type_variables(op_type, onnx.defs.onnx_opset_version(), len(inputs))
    dtypes = {v: x.dtype for v, x in zip(kinds, inputs, strict=True) if hasattr(x, "dtype")}
    return tuple(x if x is None or hasattr(x, "dtype") else as_constant(x, dtypes.get(v))
                 for v, x in zip(kinds, inputs, strict=True))  # fmt: skip


def has_expressions(x: Any) -> bool:
    """Whether an operand is a tensor of expressions, or an array of floats."""
    floats = isinstance(x, np.ndarray | np.generic) and x.dtype.kind == "f"
    return isinstance(x, Tensor) or floats


class Tensor:
    """A tensor of expressions, which rules and operators see as a float64 array."""

    dtype = np.dtype(np.float64)
    const_value = None

    def __init__(self, entries: np.ndarray, op: Op) -> None:
        self.entries, self.op = entries, op

    @property
    def shape(self) -> Shape:
        return self.entries.shape

    @property
    def meta(self) -> dict[str, np.ndarray]:
        """The numbers at the point, where `Node.number` looks for them."""
        return {AT: self.values}

    @property
    def exprs(self) -> np.ndarray:
        """The expressions alone, as an object array."""
        return each(lambda number: number.expr, self.entries)

    @property
    def values(self) -> np.ndarray:
        """The numbers at the point, in double precision."""
        return self.entries.astype(np.float64)

    def __repr__(self) -> str:
        return str(self.entries.tolist())


def each(function: Any, entries: np.ndarray) -> np.ndarray:
    """An object array of the function's results."""
    made = np.empty(entries.shape, object)
    for place, entry in np.ndenumerate(entries):
        made[place] = function(entry)
    return made


def symbol(name: str, place: tuple[int, ...], **assumptions: Any) -> sp.Symbol:
    """The entry of a tensor at a place.

    >>> symbol("x", (1, 2)), symbol("x", ())
    (x_12, x)
    """
    index = ("," if any(k > 9 for k in place) else "").join(map(str, place))
    return sp.Symbol(f"{name}_{index}" if place else name, real=True, **assumptions)


@reading.register(Tensor)
def _reading(tensor: Tensor) -> Op:
    return tensor.op
