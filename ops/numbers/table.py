"""The table of kernels: one NumPy function per ONNX operator.

A kernel takes the inputs as ONNX's schema orders them and the attributes as keywords with the
schema's defaults. For input tensors that hold shapes, axes or scalars, Python values are accepted.
Infinities and NaN are values here, as in every ONNX runtime, never warnings. Where a kernel needs
only what NumPy shares with other libraries, it takes their arrays, and their readings have it too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from operator import methodcaller
from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import onnx_ir

from ...jacobians import Shape, dtype_of
from ...jacobians.arrays import SINGLE, common
from ...jacobians.errors import InputError, UnsupportedOp
from ...jacobians.readings import is_kept, library_of, module_of
from ..node import remedy
from ..registry import find

Kernel = Callable[..., Any]

KERNELS: dict[str, Kernel] = {}
COUNTED: set[str] = set()
"""The operators whose kernel takes `outputs`, the number of requested outputs."""
WIDE: set[str] = set()
"""The operators whose kernel computes with halves in float32."""
FREE: set[str] = set()
"""The operators that neither compute nor rearrange entries."""
FOREIGN: set[str] = set()
"""The operators whose kernel is from elsewhere, and may be wrong."""
QUICK: dict[str, tuple[int, ...]] = {}
"""Operator -> its outputs that NumPy finds at least as soon as ONNX Runtime."""
TENSORS: set[str] = set()
"""The operators whose kernel takes arrays of other libraries too."""
HOSTED: set[str] = set()
"""The operators whose operands after the first stay on the host: shapes, axes."""
STATIC: dict[str, Kernel] = {}
"""Hosted operator -> (shape of the first operand, *other operands) ↦ a kernel of one operand."""


def kernel(
    name: str, *, counted: bool = False, wide: bool = False, tensors: bool = False,
    hosted: bool = False, view: bool = False, quick: tuple[int, ...] = (),
) -> Callable[[Kernel], Kernel]:  # fmt: skip
    """Declare a function of NumPy arrays as the values of an operator.

    `name` is `Op` or `domain::Op`.

    Inputs come by position, attributes as keywords; the result is an array or a tuple of several.
    With `tensors`, it takes arrays of other libraries too, such as tensors of PyTorch. If they are
    `hosted`, integers among the operands after the first are read by `as_ints`. A `counted` one
    takes the number of outputs as `outputs`, a `wide` one computes with halves in float32, and one
    that gives a `view` neither computes nor rearranges entries. `quick` are the outputs that it
    finds sooner than ONNX Runtime.
    Raises `InputError` if an operator of ONNX has a kernel.
    """

    def enter(function: Kernel) -> Kernel:
        if name in KERNELS and "::" not in name:
            raise InputError(f"{name} has a kernel already")
        home = getattr(function, "__module__", "").partition(".")[0]
        own = "::" not in name or home == __name__.partition(".")[0]
        function = widen_kernel(function, name) if wide else function
        called = function if own else check_kernel(function)
        KERNELS[name] = called if view else quiet(called)
        told = (COUNTED, counted), (WIDE, wide), (FREE, view), (TENSORS, tensors), (HOSTED, hosted)
        for names, has in (*told, (FOREIGN, not own)):
            if has:
                names.add(name)
        if view or quick:
            QUICK[name] = quick or (0,)
        return function

    return enter


def check_kernel(function: Kernel) -> Kernel:
    """A function from elsewhere, which cannot write to its inputs and has to return arrays."""

    def call(*inputs: Any, **attributes: Any) -> Any:
        made = function(*map(unwritten, inputs), **attributes)
        for y in made if isinstance(made, tuple) else (made,):
            if not (y is None or hasattr(y, "dtype")):
                raise TypeError(f"its kernel gives a {type(y).__name__}, not an array")
        return made

    return call


def unwritten(x: Any) -> Any:
    """A read-only view of an array, a copy of one of another library."""
    if is_kept(x):
        return library_of(x).copy(x)
    return np.broadcast_to(x, x.shape) if isinstance(x, np.ndarray) else x


def quiet(function: Kernel) -> Kernel:
    """The function without floating-point warnings, returning arrays, not NumPy scalars."""

    @np.errstate(all="ignore")
    def call(*inputs: Any, **attributes: Any) -> Any:
        result = function(*inputs, **attributes)
        if isinstance(result, np.generic):
            return np.asarray(result)
        return tuple(map(np.asarray, result)) if isinstance(result, tuple) else result

    return functools.update_wrapper(call, function)


def widen_kernel(function: Kernel, name: str = "") -> Kernel:
    """The function with float16 and bfloat16 computed in float32 and rounded once, at the end.

    Outputs have the dtype of the inputs that share their type in the schema of the named operator;
    halves mixed with wider floats among these follow NumPy's promotion.
    """
    strangers = of_other_types(name)

    @functools.wraps(function)
    def call(*inputs: Any, **attributes: Any) -> Any:
        if not (strangers or any(map(holds_halves, inputs))):
            return function(*inputs, **attributes)

        def rounded(y: Any, o: int = 0) -> Any:
            apart = strangers.get(o, ())
            own = [x for k, x in enumerate(inputs) if k not in apart and is_float_array(x)]
            return as_type(y, meeting(*own)) if own and is_float_array(y) else y

        results = function(*map(single, inputs), **attributes)
        if isinstance(results, tuple):
            return tuple(map(rounded, results, range(len(results))))
        return rounded(results)

    return call


def of_other_types(name: str) -> dict[int, frozenset[int]]:
    """Output of an operator -> floating inputs that may have another type, by ONNX's schema.

    >>> of_other_types("RMSNormalization"), of_other_types("ReduceSum")
    ({0: frozenset({0})}, {})
    """
    if not onnx.defs.has(name):
        return {}
    schema = onnx.defs.get_schema(name)
    floats = [(k, x.type_str) for k, x in enumerate(schema.inputs) if "tensor(float)" in x.types]
    others = (frozenset(k for k, kind in floats if kind != y.type_str) for y in schema.outputs)
    return {o: apart for o, apart in enumerate(others) if apart}


def meeting(*inputs: Any) -> Any:
    """The common floating dtype of the inputs: a half only if all floats have that dtype.

    >>> meeting(np.ones(2, "f2"), np.arange(3)), meeting(np.ones(2, "f2"), np.ones(2, "f4"))
    (dtype('float16'), dtype('float32'))
    """
    floats = [x for x in inputs if is_float_array(x)]
    return common(*map(dtype_of, floats))


def is_float_array(x: Any) -> bool:
    """Whether x is an array of floats."""
    return hasattr(x, "dtype") and dtype_of(x).kind in "fV"


def holds_halves(x: Any) -> bool:
    """Whether x is an array or a tensor of float16 or bfloat16."""
    return hasattr(x, "dtype") and x.dtype.itemsize == 2 and is_float_array(x)


def single(x: Any) -> Any:
    """Half precision as float32, anything else as it is."""
    return as_type(x, SINGLE) if holds_halves(x) else x


def as_type(x: Any, dtype: np.dtype) -> Any:
    """An array in another dtype; within a kernel, NumPy need not be told to be quiet."""
    if isinstance(x, np.ndarray) or not is_kept(x):  # or one symbol
        return x.astype(dtype, copy=False)
    return library_of(x).cast(x, dtype)


def single_precision(value: float) -> float:
    """The value of a float attribute: ONNX stores attributes in float32.

    >>> single_precision(0.01)
    0.009999999776482582
    """
    return float(np.float32(value))


def as_ints(value: Any) -> tuple[int, ...]:
    """A shape, axes or indices as Python ints.

    >>> as_ints(3), as_ints((1, -1)), as_ints(np.array([2, 5]))
    ((3,), (1, -1), (2, 5))
    """
    if type(value) is tuple:
        return value
    if isinstance(value, int):
        return (value,)
    return tuple((value if hasattr(value, "reshape") else np.asarray(value)).reshape(-1).tolist())


def settled(
    name: str, kernels: Mapping[str, Kernel], static: Mapping[str, Kernel], shapes: Sequence[Shape],
    known: Sequence[Any], attrs: Mapping[str, Any],
) -> Kernel:  # fmt: skip
    """The kernel of a hosted operator whose operands after the first are known: of the first one.

    `shapes` are the shapes of its first operand and of its result.
    """
    shape = shapes[1]
    if name in FREE:
        return ((lambda x: module_of(x).broadcast_to(x, shape)) if name == "Expand"
                else methodcaller("reshape", shape))  # fmt: skip
    held = tuple(
        as_ints(y) if hasattr(y, "dtype") and dtype_of(y).kind in "iu" else y for y in known
    )
    if name in static:
        return static[name](shapes[0], *held, **attrs)
    function = functools.partial(kernels[name], **attrs)
    return lambda x: function(x, *held)


def lowest(dtype: np.dtype) -> Any:
    """The lowest value of a dtype: the neutral element of the maximum."""
    if dtype.kind in "iu":
        return np.iinfo(dtype).min
    return False if dtype.kind == "b" else -np.inf


def highest(dtype: np.dtype) -> Any:
    """The highest value of a dtype: the neutral element of the minimum."""
    if dtype.kind in "iu":
        return np.iinfo(dtype).max
    return True if dtype.kind == "b" else np.inf


EMPTY = {"value_floats": onnx.AttributeProto.FLOATS, "value_strings": onnx.AttributeProto.STRINGS}
"""Types of empty lists in these attributes of Constant; all other empty lists hold integers."""


def run_reference(
    op_type: str, inputs: Sequence[Any], attributes: Mapping[str, Any], *,
    domain: str = "", version: int = 21, outputs: int = 1,
) -> tuple[Any, ...]:  # fmt: skip
    """The outputs of one node, computed by `onnx.reference`."""
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    node = onnx.helper.make_node(op_type, names, [f"y{i}" for i in range(outputs)], domain=domain)
    node.attribute.extend(proto(name, value) for name, value in attributes.items())
    feeds = {name: x for name, x in zip(names, inputs, strict=True) if name}
    return tuple(evaluator(node.SerializeToString(), version).run(None, feeds))


@functools.lru_cache(maxsize=512)
def evaluator(node: bytes, version: int) -> Any:
    """The evaluator of one node, given as bytes so that equal nodes share a cache entry."""
    from onnx.reference import ReferenceEvaluator  # of all operators, which few models need

    parsed = onnx.NodeProto.FromString(node)
    try:
        return ReferenceEvaluator(parsed, opsets={parsed.domain: version, "": version})
    except (NotImplementedError, RuntimeError) as error:
        name = f"{parsed.domain or 'ai.onnx'}::{parsed.op_type}"
        otherwise = (
            f"Define it with @onnxjac.defines({name!r}): its values and derivatives follow. Or try "
            "engine='onnxruntime', which may know its values. Its outputs can be given with the "
            "inputs, but are constants then, without derivatives."
        )
        declared = find(parsed.op_type, parsed.domain)
        why = f": {declared.refused}" if declared and declared.refused else ""
        raise UnsupportedOp(
            f"{name} at opset {version} has neither a kernel in onnxjac nor a reference "
            f"implementation in onnx{why}. {remedy(parsed.domain, otherwise)}"
        ) from error


def proto(name: str, value: Any) -> onnx.AttributeProto:
    """An attribute as ONNX stores it: arrays become tensors, graphs of onnx_ir become graphs."""
    if isinstance(value, np.ndarray | np.generic):
        value = onnx.numpy_helper.from_array(np.asarray(value))
    elif isinstance(value, onnx_ir.Graph):
        value = onnx_ir.to_proto(value)
    empty = isinstance(value, Sequence) and not value and not isinstance(value, str | bytes)
    kind = EMPTY.get(name, onnx.AttributeProto.INTS) if empty else None
    return onnx.helper.make_attribute(name, value, attr_type=kind)
