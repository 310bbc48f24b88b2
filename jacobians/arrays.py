"""Arrays of any reading: the vocabulary that computes with them, their shapes and dtypes.

A rule or an operator never asks whether it holds NumPy arrays, graph values or SymPy
expressions. A rule calls the vocabulary that `reading` finds for its data.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from functools import wraps
from types import MappingProxyType
from typing import Any, cast

import numpy as np
from numpy.typing import DTypeLike

from .errors import InputError, UnsupportedOp
from .readings import host as host
from .readings import is_kept, library_of
from .readings import reading as reading
from .readings import reading_of as reading_of
from .symint import at
from .vocabulary import Array as Array
from .vocabulary import Op as Op
from .vocabulary import Shape as Shape

SINGLE, DOUBLE = np.dtype(np.float32), np.dtype(np.float64)


def shape_of(array: Array) -> Shape:
    """The shape of an `array` as ints, some of which may be symbolic for a graph value."""
    shape = array.shape
    if type(shape) is tuple:
        return shape
    known: Shape | None = getattr(shape, "numbers", None)
    if known is None:
        known = tuple(n.number if hasattr(n, "number") else int(n) for n in shape)
    return known


def dtype_of(array: Array) -> np.dtype:
    """The NumPy dtype of an `array`, also of a graph value or a tensor with a dtype of its own."""
    dtype = array.dtype
    if isinstance(dtype, np.dtype):
        return dtype
    if dtype not in FOREIGN:
        named = hasattr(dtype, "numpy")
        FOREIGN[dtype] = np.dtype(dtype.numpy()) if named else library_of(array).dtype(array)
    return FOREIGN[dtype]


FOREIGN: dict[Any, np.dtype] = {}
"""A dtype of ONNX or of an array library -> NumPy's."""


def on_host(value: Array) -> Array:
    """An array of a library as a NumPy array; anything else as it is."""
    return library_of(value).host(value) if is_kept(value) else value


def like(array: Array, x: Array) -> Array:
    """An array in the dtype of x and, if that is a tensor, as a tensor on its device."""
    return reading(x).CastLike(array, x)


def cast_to(x: Array, dtype: DTypeLike) -> Array:
    """An array in another dtype, where it is."""
    return reading(x).cast(x, dtype)


def total(a: Array, b: Array) -> Array:
    """a + b, where one of them may be a tensor."""
    return reading_of(a, b).Add(a, b)


def times(a: Array, b: Array) -> Array:
    """a b, where one of them may be a tensor."""
    return reading_of(a, b).Mul(a, b)


def is_complex(array: Array) -> bool:
    """Whether an array is of complex numbers."""
    return hasattr(array, "dtype") and dtype_of(array).kind == "c"


def is_recorded(array: Array) -> bool:
    """Whether this is a value of a graph, or of symbols: there are no numbers to look at."""
    return hasattr(array, "const_value")


def factor(array: Array) -> Array:
    """An array as an operator holds it: integers and booleans become float64.

    `numpy.linalg` does the same. A list becomes an array; a graph value is unchanged.

    >>> factor(np.array([1, 2])), factor([0.5])
    (array([1., 2.]), array([0.5]))
    """
    if not isinstance(array, np.ndarray):
        if hasattr(array, "shape") and hasattr(array, "dtype") and not np.isscalar(array):
            whole = is_kept(array) and dtype_of(array).kind in "biu"
            return cast_to(array, DOUBLE) if whole else array
        array = as_array(array)
    return array.astype(DOUBLE) if array.dtype.kind in "biu" else array


def floating_dtype(dtype: DTypeLike) -> np.dtype:
    """The dtype of an operator: float64 for integers and booleans, as in `factor`.

    >>> floating_dtype("int8"), floating_dtype("float32")
    (dtype('float64'), dtype('float32'))
    """
    given = np.dtype(dtype)
    if given.kind not in "biufcVO":
        raise InputError(f"an operator multiplies numbers, not {given}")
    return DOUBLE if given.kind in "biu" else given


def fits(small: Shape, large: Shape) -> bool:
    """Whether a tensor of one shape broadcasts to another.

    >>> fits((3, 1), (2, 3, 4)), fits((2,), (3,)), fits((2, 3), (3,))
    (True, False, False)
    """
    small, large = at(tuple(small)), at(tuple(large))
    if small == large:
        return True
    if len(small) > len(large):
        return False
    pairs = zip(small, large[len(large) - len(small) :], strict=True)
    return all(n in (1, m) for n, m in pairs)


def axis_of(axis: int, shape: Shape, kind: str) -> int:
    """An axis of a shape as a negative axis, counted from the end."""
    if not -len(shape) <= axis < len(shape):
        raise InputError(f"{kind}: there is no axis {axis} in shape {list(shape)}")
    return axis if axis < 0 else axis - len(shape)


def common(*dtypes: Any) -> np.dtype:
    """The common dtype of `dtypes`; float32 where NumPy has no promotion rule.

    >>> import ml_dtypes
    >>> common(np.float16, np.float64), common(np.float16, ml_dtypes.bfloat16)
    (dtype('float64'), dtype('float32'))
    """
    try:
        return np.result_type(*dtypes)
    except TypeError:
        return np.dtype(np.float32)


def wide(dtype: np.dtype) -> np.dtype:
    """The dtype for sums and products of numbers of a dtype: float32 for half precision.

    A sum of ones in float16 stops at 2048: 2048 + 1 = 2048.

    >>> wide(np.dtype("float16")), wide(np.dtype("float64"))
    (dtype('float32'), dtype('float64'))
    """
    return SINGLE if dtype.itemsize < 4 else dtype


def widened(array: Array) -> Array:
    """The array in at least single precision."""
    dtype = dtype_of(array)
    return array if dtype.itemsize >= 4 else cast_to(array, wide(dtype))


def rounded(array: np.ndarray, dtype: DTypeLike) -> np.ndarray:
    """The array in another dtype; overflow gives infinities, without a warning."""
    if array.dtype == dtype:
        return array
    if not isinstance(array, np.ndarray | np.generic):
        return cast_to(array, dtype)
    with np.errstate(over="ignore", under="ignore"):
        return array.astype(dtype)


def size(shape: Shape) -> int:
    """The number of elements of a tensor of this `shape`."""
    return math.prod(shape)


def zeros(shape: Shape, dtype: DTypeLike | None) -> np.ndarray:
    """Zeros of a `shape` and `dtype` that take no memory, read-only."""
    return np.broadcast_to(np.zeros((), dtype), shape)


def lead(array: Array, shape: Shape) -> Shape:
    """The leading axes K of an `array` of shape (*K, *`shape`)."""
    full = shape_of(array)
    return full[: len(full) - len(shape)]


def own_result(product: np.ndarray, v: np.ndarray) -> np.ndarray:
    """A product that the caller may write to: neither a view of v nor a broadcast array."""
    view = not product.flags.writeable or np.may_share_memory(product, v)
    return product.copy() if view else product


def owner(array: Array) -> Array:
    """The array whose memory this one views."""
    while isinstance(getattr(array, "base", None), np.ndarray):
        array = array.base
    return array


def buffer_of(array: Array) -> int:
    """The identity of the memory that an array views."""
    storage = getattr(array, "untyped_storage", None)  # of a tensor
    return storage().data_ptr() if storage else id(owner(array))


def memory_of(array: Array) -> int:
    """Bytes of the memory that an array views, all of it."""
    storage = getattr(array, "untyped_storage", None)  # of a tensor
    return int(storage().nbytes() if storage else owner(array).nbytes)


def distinct_bytes(arrays: Iterable[Any]) -> int:
    """Bytes of some arrays, with shared memory counted once."""
    return sum({buffer_of(a): a.nbytes for a in arrays if hasattr(a, "nbytes")}.values())


Named = Mapping[int, tuple[str, np.ndarray]]
"""The memory of an array -> its name, and the array."""

NAMED: ContextVar[Named] = ContextVar("NAMED", default=MappingProxyType({}))
"""The arrays that have names while operators are turned into text."""


def array_name(array: Array) -> str:
    """The name of an array, with ᵀ where the last two axes are exchanged; "" if it has none."""
    name, whole = NAMED.get().get(buffer_of(array), ("", None))
    if whole is None or array.size != whole.size:
        return ""
    mine, its = ((a.shape[-2:], a.strides[-2:]) for a in (array, whole))
    return name if mine == its else f"{name}ᵀ" if mine == (its[0][::-1], its[1][::-1]) else ""


def held_text(array: Array) -> str:
    """The name of an array, or its shape."""
    return array_name(array) or prod_text(shape_of(array))


def prod_text(shape: Shape) -> str:
    """A `shape` as readable text.

    >>> prod_text((3, 4)), prod_text(())
    ('3×4', '1')
    """
    return "×".join(map(str, shape)) or "1"


def is_foreign(value: object) -> bool:
    """Whether this is an array of another library."""
    if isinstance(value, np.ndarray | np.generic):
        return False
    return hasattr(value, "__array__") or hasattr(value, "__dlpack__")


def untraced(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which `torch.compile` calls and does not trace, nor what it calls.

    Traced, NumPy would be computed by PyTorch, and derivatives would be wrong. `_disable_dynamo`
    imports the compiler, which takes seconds, at its first call: it is called where a program has
    imported the compiler already.
    """

    @wraps(function)
    def call(*args: Any, **others: Any) -> Any:
        if "torch._dynamo" in sys.modules:
            return sys.modules["torch"]._disable_dynamo(function)(*args, **others)
        return function(*args, **others)

    return call


def as_array(value: Any, dtype: DTypeLike | None = None) -> np.ndarray:
    """A NumPy array of arrays of any library in main memory, lists of them, or scalars.

    Memory is shared where possible, and never written to. A PyTorch tensor may be on a GPU, or
    require a gradient, which is not tracked. Raises `InputError` for an array that is traced, or of
    another library on another device, and for anything that is not an array.

    >>> as_array([1, 2]), as_array(memoryview(b"ab"))
    (array([1, 2]), array([97, 98], dtype=uint8))
    """
    if isinstance(value, np.ndarray):
        if np.ma.is_masked(value):
            raise InputError("a masked array has entries without a value: give x.filled(...)")
        return np.asarray(value, dtype)
    try:
        return np.asarray(_read(value), dtype)
    except Exception as error:  # the array protocols of other libraries raise anything
        raise InputError(f"{_what(value)} cannot be read as an array: {_reason(error)}") from error


def snapshot(array: np.ndarray) -> np.ndarray:
    """A snapshot of the array: a read-only copy, unless the memory behind it is read-only already.

    >>> x = np.zeros(3)
    >>> once = snapshot(x)
    >>> once is x, snapshot(once) is once
    (False, True)
    """
    if is_read_only(array):
        return array
    copy = array.copy()
    copy.flags.writeable = False
    return copy


def is_read_only(memory: object) -> bool:
    """Whether the memory behind an array is read-only, not just the array that views it.

    >>> is_read_only(np.broadcast_to(np.zeros(3), (2, 3)))
    False
    """
    while isinstance(memory, np.ndarray):
        if memory.flags.writeable or memory.base is None:
            return not memory.flags.writeable
        memory = memory.base
    try:
        return memoryview(cast(Any, memory)).readonly
    except TypeError:  # no buffer protocol
        return False


def native(x: Array) -> Array:
    """An array of another library as a NumPy array; anything else unchanged."""
    return as_array(x) if is_foreign(x) else x


def _read(value: Any) -> Any:
    """A value that NumPy can read without needless copies."""
    if isinstance(value, list | tuple) and any(
        is_foreign(part) or isinstance(part, list | tuple) for part in value
    ):
        return [_read(part) for part in value]
    if hasattr(value, "detach"):  # PyTorch does not convert tensors that require a gradient
        value = value.detach()
        value = value.float() if str(value.dtype) == "torch.bfloat16" else value
        return value.numpy(force=is_kept(value) or str(value.device) == "cpu")  # also from a GPU
    if is_kept(value):
        return host(value)
    if not hasattr(value, "__array__") and hasattr(value, "__dlpack__"):
        return np.from_dlpack(value)
    return value


def _what(value: object) -> str:
    kind = f"{type(value).__module__.partition('.')[0]}.{type(value).__name__}"
    return f"a {kind} on {value.device}" if hasattr(value, "device") else f"a {kind}"


def _reason(error: BaseException) -> str:
    """The error of another library in one line, and what to do about it."""
    name, text = type(error).__name__, str(error).strip().partition("\n")[0]
    if isinstance(error, UnsupportedOp):
        return "it is traced by JAX; to_jax() gives a function that JAX can trace"
    if text.startswith("Batching rule not implemented"):  # vectorize=, is_grads_batched=
        return "PyTorch's old vmap holds it; take torch.func.vmap, jacrev, jacfwd or hessian"
    return f"{text.removesuffix('.') or name}; bring it to the CPU as a plain, dense array"
