"""Inputs: the public boundary, where the values and names from the caller are checked, once."""

from __future__ import annotations

import zipfile
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from numbers import Real
from os import PathLike, fspath
from typing import Any

import numpy as np
from onnx import TensorProto

from ....jacobians import Jacobian, Shape, dtype_of, prod_text, reading, reading_of, shape_of, size
from ....jacobians.arrays import as_array, is_foreign, native, on_host, snapshot, untraced, wide
from ....jacobians.errors import InputError, OnnxJacError, UnknownTensor, closest, warn
from ....jacobians.readings import is_kept, library_of, runs_on
from ....jacobians.text import clipped, joined
from ....ops.node import Step
from ..flow.conditions import GUARDS, check_relations
from ..flow.contents import Contents, TensorSpec
from ..flow.steps import reads, steps_needed
from .evaluate import evaluate, missing_inputs

Names = str | Iterable[str] | None

WIDTHS = frozenset({"float16", "bfloat16", "float32", "float64"})


def check_inputs(
    model: Contents, inputs: Mapping[str, Any], *, keep: bool = True, engine: str | None = None
) -> dict[str, Any]:
    """The point as arrays of the declared types, or an `InputError` that says what does not fit.

    Every graph input must be given. Initializers may be given too, to replace them for this
    evaluation, and intermediates, which are then not computed. Arrays, of any library, must have
    the declared dtype, except that floating-point widths are cast into each other. Python numbers
    and lists take the declared dtype if no value changes its kind. The caller's arrays are never
    written to, and later writes by the caller have no effect: arrays that are not read-only are
    copied, unless `keep` is false. Tensors of PyTorch stay tensors if PyTorch is the `engine`. A
    symbol that stands for different sizes is an error, unless the model runs at them: then the
    model loses the symbol, with a warning.
    """
    inputs = as_point(model, inputs)
    taken = {name: _tensor if runs_on(engine, value) else _as_array
             for name, value in inputs.items()}  # fmt: skip
    arrays = {name: take(_spec(model, name), inputs[name], keep) for name, take in taken.items()}
    missing = [s for name, s in model.inputs.items() if name not in arrays and s.dtype is not None]
    if missing:
        raise missing_inputs(missing)
    given = {name: _spec(model, name) for name in arrays if name not in model.intermediates}
    conflicts = _check_shapes(given, arrays)
    if conflicts:
        _ignore(model, conflicts, arrays)
    if GUARDS in model.ir.metadata_props:
        check_relations(model, arrays)
    return arrays


def as_point(model: Contents, inputs: Any) -> Mapping[str, Any]:
    """The inputs by name: one array of a model with one input, a list of arrays in their order, or
    the path of an npz file.
    """
    if isinstance(inputs, Mapping):
        return inputs
    if isinstance(inputs, str | PathLike):
        return arrays_in(inputs)
    names = [name for name, spec in model.inputs.items() if spec.dtype is not None]
    several = isinstance(inputs, list | tuple) and any(map(is_array, inputs))
    if several and len(inputs) == len(names):
        return dict(zip(names, inputs, strict=True))
    if not several and len(names) == 1 and (is_array(inputs) or isinstance(inputs, list | Real)):
        return {names[0]: inputs}
    kind, name = type(inputs).__name__, next(iter(model.inputs), "x")
    found = f"{len(inputs)} arrays" if several else kind
    raise InputError(
        f"inputs must be a dict from name to array, not {found}, as in {{{name!r}: array}}: the "
        f"model has the inputs {joined(tuple(model.inputs.values()), ', ', width=80) or 'none'}"
    )


def is_array(value: Any) -> bool:
    """Whether a value is an array, of any library."""
    return hasattr(value, "dtype") or is_foreign(value)


def arrays_in(path: Any) -> dict[str, np.ndarray]:
    """The arrays of an npz file by name."""
    try:
        with open(path, "rb") as file:
            if zipfile.is_zipfile(file):
                file.seek(0)
                return dict(np.load(file))
    except OSError as error:
        raise InputError(f"cannot read {fspath(path)!r}: {error.strerror or error}") from error
    except (EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        reason = f"{fspath(path)!r} holds what is not a plain array: {error}"
        raise InputError(reason) from error
    raise InputError(f"{fspath(path)!r} is not an npz file: np.savez writes them")


def correct(model: Contents, values: Mapping[str, Any]) -> None:
    """Correct declared shapes that values contradict, with a warning."""
    for name, value in values.items():
        spec, shape = model.spec(name), getattr(value, "shape", None)
        if spec.shape is None or shape is None or spec.dtype is None:
            continue
        pairs = zip(spec.shape, shape, strict=False)
        if len(spec.shape) != len(shape) or any(isinstance(n, int) and n != m for n, m in pairs):
            warn(f"the file declares {spec}, but a run gives the shape {list(shape)}: the "
                 "declaration is corrected")  # fmt: skip
            model.redeclare(name, tuple(shape))


def hosted(point: Mapping[str, Any]) -> dict[str, Any]:
    """The point with NumPy copies in place of arrays of other libraries."""
    return {name: on_host(x) for name, x in point.items()}


def _spec(model: Contents, name: str) -> TensorSpec:
    try:
        return model.spec(name)
    except UnknownTensor:
        hint = closest(name, [*model.inputs, *model.initializers])
        raise UnknownTensor(f"the model has no input {name!r}.{hint}") from None


def _tensor(spec: TensorSpec, value: Any, keep: bool) -> Any:
    """An array of another library in the declared dtype, without its gradient."""
    library, dtype = library_of(value), dtype_of(value)
    value = library.detached(value)
    if spec.dtype is None or spec.dtype == dtype:  # None == dtype(float64), says NumPy
        return library.copy(value) if keep else value
    if not {str(dtype), str(spec.dtype)} <= WIDTHS:
        raise InputError(f"{_what(spec)} was given as {value.dtype}{list(value.shape)}: use .to.")
    rounded = library.cast(value, spec.dtype)
    if library.overflows(rounded, value):
        raise _too_large(spec)
    return rounded


def _as_array(spec: TensorSpec, value: Any, keep: bool) -> Any:
    if spec.dtype is None:  # a sequence, an optional or unknown: the engine will check it
        return list(map(_as_it_is, value)) if isinstance(value, list) else _as_it_is(value)
    if not hasattr(value, "dtype") and not is_foreign(value):
        return snapshot(_from_python(spec, value, spec.dtype))
    array = _read(spec, value)
    if spec.dtype == object and array.dtype.kind == "U":  # a tensor of strings
        array = array.astype(object)
    order = array.dtype.newbyteorder("=")
    if order == spec.dtype:
        own = snapshot(array) if keep else array
        return own if array.dtype == order else array.astype(order)
    if {str(order), str(spec.dtype)} <= WIDTHS:
        return _rounded(spec, array, spec.dtype)
    raise InputError(f"{_what(spec)} was given as {array.dtype}{list(array.shape)}: use "
                     f".astype({spec.dtype.name!r}).")  # fmt: skip


def _as_it_is(value: Any) -> Any:
    value = native(value)
    return snapshot(value) if isinstance(value, np.ndarray) else value


def _read(spec: TensorSpec, value: Any) -> np.ndarray:
    try:
        return as_array(value)
    except InputError as error:
        raise InputError(f"{_what(spec)} cannot be read: {error}") from error


def _rounded(spec: TensorSpec, array: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Numbers in another floating-point width; raises `InputError` if one overflows."""
    with np.errstate(over="ignore", under="ignore"):
        rounded = array.astype(dtype)
    if dtype.itemsize <= array.itemsize and np.any(np.isinf(rounded) & np.isfinite(array)):
        raise _too_large(spec)
    return rounded


def _too_large(spec: TensorSpec) -> InputError:
    return InputError(f"{_what(spec)} was given numbers that {spec.dtype} cannot hold: scale them.")


def _from_python(spec: TensorSpec, value: Any, dtype: np.dtype[Any]) -> np.ndarray:
    """Numbers take the declared type if their kind fits: bool in int in float."""
    try:
        array = as_array(value)
        if str(dtype) in WIDTHS and array.dtype.kind in "biuf":
            return _rounded(spec, array, dtype)
        if array.size == 0 or np.can_cast(array.dtype, dtype, "same_kind"):
            return as_array(value, dtype)
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(f"{_what(spec)} cannot be made of the given value: {error}") from error
    raise InputError(f"{_what(spec)} was given as Python data that NumPy reads as {array.dtype}.")


def _check_shapes(specs: Mapping[str, TensorSpec], arrays: Mapping[str, Any]) -> dict[str, str]:
    """Raises `InputError` where numbers do not match; symbol -> what its different sizes are.

    The shapes of intermediates are inferred, not declared.
    """
    sizes: dict[str, tuple[int, str]] = {}
    conflicts = {}
    for name, spec in specs.items():
        array = arrays[name]
        if spec.shape is None or not (isinstance(array, np.ndarray) or is_kept(array)):
            continue
        pairs = tuple(zip(spec.shape, array.shape, strict=False))
        if array.ndim != len(spec.shape) or any(isinstance(d, int) and d != n for d, n in pairs):
            raise InputError(f"{_misshaped(spec, array)}.")
        for dim, n in pairs:
            if isinstance(dim, str):
                known, owner = sizes.setdefault(dim, (n, name))
                if known != n:
                    conflicts[dim] = f"{_misshaped(spec, array)}, but {dim} is {known} in {owner!r}"
    return conflicts


def _ignore(model: Contents, conflicts: Mapping[str, str], arrays: Mapping[str, Any]) -> None:
    """Take these symbols from a model that runs at different sizes; else raises `InputError`."""
    why = next(iter(conflicts.values()))
    if GUARDS in model.ir.metadata_props:  # a derivative that was recorded under conditions
        raise InputError(f"{why}.")
    free = type(model)(model.ir.clone(), model.limits)
    free.forget(conflicts)
    try:
        evaluate(free, hosted(arrays), free.outputs)
    except OnnxJacError as error:
        raise InputError(f"{why}.") from error
    model.forget(conflicts)
    warn(f"{why}: the name is ignored, as the model runs at both sizes")


def _misshaped(spec: TensorSpec, array: Any) -> str:
    return f"{_what(spec)} was given with shape {list(array.shape)}"


def _what(spec: TensorSpec) -> str:
    return f"input {spec.name!r}, declared as {str(spec).removeprefix(spec.name + ' ')},"


# -- names: the tensors of `wrt` and `of`, and tangents and cotangents by name ---------------------


def names_of(
    model: Contents, names: Names, default: dict[str, TensorSpec], role: str
) -> tuple[str, ...]:
    """The named tensors, or all floating tensors of the default; checks that each is floating.

    The target of an appended loss, and what else it takes that the model does not, is among `wrt`
    only where it is named.
    """
    taken = model.ir.metadata_props.get(TAKEN, "").splitlines() if role == "wrt" else ()
    if names is None:
        floats = (name for name, spec in default.items() if may_float(spec))
        chosen = tuple(name for name in floats if name not in taken)
    else:
        chosen = distinct(names, role)
    if not chosen:
        vectors = (str(step.outputs[0]) for step in model.steps  # of tokens, looked up in a table
                   if step.op_type == "Gather" and step.inputs[1] not in model.initializers
                   and step.outputs[0] not in model.outputs)  # fmt: skip
        held = dict.fromkeys((*model.inputs, *vectors, *model.initializers, *model.intermediates))
        known = [repr(name) for name in held if may_float(model.spec(name))]
        sides = {"output": model.outputs, "initializer": model.initializers}
        side = next((name for name, of_side in sides.items() if default is of_side), "input")
        none = f"the model has no floating {side}{' before its loss' * bool(taken)}"
        none += f", but {', '.join(map(str, default.values()))}" if default else ""
        why = none if names is None else f"{role} is empty"
        if not known:
            raise InputError(f"{why}; no other tensor is floating either: nothing has a derivative")
        raise InputError(f"{why}: name at least one floating tensor by {role}=, such as "
                         f"{', '.join(known[:8])}")  # fmt: skip
    for name in chosen:
        if not may_float(spec := model.spec(name)):
            raise not_floating(role, name, spec.dtype)
    if role == "wrt":
        for text in {model.changed[name]: None for name in chosen if name in model.changed}:
            warn(text)
    return chosen


PARAMETERS = "onnxjac.parameters"
"""Key of the metadata with the names of the parameters of a module of PyTorch, one a line."""

OPTIONAL = "onnxjac.optional"
"""Key of the metadata with the names of the initializers that the file lists among its inputs."""


HEAD = "onnxjac.head"
"""Key of the metadata with the name of the tensor to which `with_loss` appended a loss."""

TAKEN = "onnxjac.taken"
"""Key of the metadata with the inputs that a loss brought along, such as its target, one a line."""


def heads_of(model: Contents) -> dict[str, TensorSpec]:
    """The tensors of which one stands before the loss: the outputs, unless a loss was appended."""
    head = model.ir.metadata_props.get(HEAD)
    return model.outputs if head is None else {head: model.spec(head)}


def optional_inputs(model: Contents) -> set[str]:
    """The initializers that are inputs too, which a caller may give other values."""
    named = model.ir.metadata_props.get(OPTIONAL, "").splitlines()
    return model.initializers.keys() & named


def weights_of(model: Contents) -> dict[str, TensorSpec]:
    """The initializers; in a file of PyTorch those that are parameters, not buffers or numbers."""
    named = frozenset(model.ir.metadata_props.get(PARAMETERS, "").splitlines())
    found = {name: spec for name, spec in model.initializers.items() if name in named}
    return found or model.initializers


def name_of(model: Contents, name: str | None, default: dict[str, TensorSpec], role: str) -> str:
    """The one named tensor, or the only floating tensor of the default."""
    found = names_of(model, name, default, role)
    if len(found) > 1:
        raise InputError(f"{role} is one tensor, not {', '.join(map(repr, found[:8]))}: name it "
                         f"with {role}=")  # fmt: skip
    return found[0]


def mentions_parts(names: Names) -> bool:
    """Whether one of some names may name a part of a tensor, such as `logits[0,3]`."""
    several = names if isinstance(names, Collection) and not isinstance(names, str) else (names,)
    return any(isinstance(name, str) and name.endswith("]") for name in several)


def distinct(names: str | Iterable[str], role: str) -> tuple[str, ...]:
    """The names, checked to be distinct: each tensor has one block of rows or columns."""
    several = isinstance(names, Iterable) and not isinstance(names, str)
    given: list[Any] = list(names) if several else [names]
    for name in given:
        if not isinstance(name, str):
            text = clipped(" ".join(repr(name).split()))
            raise InputError(f"{role} must name tensors of the model, not be {text}")
    if twice := [name for name, count in Counter(given).items() if count > 1]:
        raise InputError(f"{role} names {twice[0]!r} twice: name each tensor once")
    return tuple(given)


def may_float(spec: TensorSpec) -> bool:
    """Whether a tensor is floating, or not known to be anything else."""
    return spec.dtype is None or is_float(spec.dtype)


def not_floating(role: str, name: str, dtype: object) -> InputError:
    """The error for a tensor that has no derivatives."""
    return InputError(
        f"{role}={name!r} is a tensor of {dtype}: only floating tensors have derivatives; "
        f"leave it out, or name another"
    )


def is_float(dtype: np.dtype) -> bool:
    """Whether tangents exist: IEEE floats and bfloat16, not the types that only store numbers."""
    return (dtype.kind == "f" and dtype.itemsize > 1) or dtype.name == "bfloat16"


FLOATS = frozenset(
    {TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16}
)
"""ONNX's numbers of the types for which `is_float` is true."""


Specs = tuple[TensorSpec, ...]
"""Tensors in the order in which they are concatenated."""


def find_tensor(name: str, specs: tuple[TensorSpec, ...]) -> tuple[int, TensorSpec]:
    """The place and the spec of a named tensor on one side of J."""
    for place, spec in enumerate(specs):
        if spec.name == name:
            return place, spec
    known = [spec.name for spec in specs]
    raise UnknownTensor(f"{name!r} is not on this side of the Jacobian, which has the tensors that "
                        f"wrt= or of= named.{closest(name, known)}")  # fmt: skip


@lru_cache(maxsize=64)
def flat_shape(specs: tuple[TensorSpec, ...]) -> Shape:
    """The shape of some tensors, ravelled and concatenated."""
    return (sum(size(shape_of(spec)) for spec in specs),)


def check_named(tensors: Any) -> None:
    """Raises `InputError` unless tangents or cotangents are given by name."""
    if not isinstance(tensors, Mapping):
        kind = type(tensors).__name__
        raise InputError(f"give tensors by name, as a dict from name to array, not {kind}")


def fitting(spec: TensorSpec, tensor: Any, dtype: np.dtype) -> Any:
    """A tangent or cotangent as an array of the shape of its tensor, in its library."""
    try:
        array = tensor if is_kept(tensor) else as_array(tensor)
        kind = dtype_of(array)
        if kind.kind not in "biu" and not np.can_cast(kind, dtype, "same_kind"):
            raise TypeError(f"{kind} does not become {dtype}")
        array = reading(array).CastLike(array, np.zeros((), dtype))
    except (ValueError, TypeError) as error:
        raise InputError(f"the tensor for {spec.name!r} cannot be made of this: {error}") from error
    shape = shape_of(spec)
    if tuple(array.shape) != shape:
        raise InputError(
            f"the tensor for {spec.name!r} has shape {list(array.shape)}, not {list(shape)}"
        )
    return array


@untraced
def applied(
    J: Jacobian, tangents: Mapping[str, Any], domain: Specs, codomain: Specs
) -> dict[str, Any]:  # fmt: skip
    """J v for arrays of a library by name, as such; tangents that are left out are zero."""
    given: dict[int, Any] = {} if tangents else {0: np.zeros(shape_of(domain[0]), J.dtype)}
    for name, tangent in tangents.items():
        place, spec = find_tensor(name, domain)
        given[place] = fitting(spec, tangent, wide(J.dtype))
    op = reading_of(*given.values())
    kept = next(filter(is_kept, given.values()), next(iter(given.values())))
    zero = op.CastLike(0.0, kept)
    sizes = [size(shape_of(spec)) for spec in domain]
    parts = [op.Reshape(given[k], (n,)) if k in given else op.Expand(zero, (n,))
             for k, n in enumerate(sizes)]  # fmt: skip
    product = op.CastLike(J @ op.Concat(*parts, axis=0), np.zeros((), J.dtype))
    made = op.Split(product, tuple(size(shape_of(spec)) for spec in codomain), axis=0)
    return {s.name: op.Reshape(y, shape_of(s)) for s, y in zip(codomain, made, strict=True)}


def listed(specs: tuple[TensorSpec, ...], *, shapes: bool = False) -> str:
    """The names of some tensors in one line; of many tensors, only the first and last names.

    >>> listed((TensorSpec("x", (2, 3), None), TensorSpec("y", (), None)), shapes=True)
    'x 2×3, y 1'
    """

    def text(spec: TensorSpec) -> str:
        name = clipped(spec.name, 40)
        return f"{name} {prod_text(shape_of(spec))}" if shapes else name

    return joined(specs, ", ", text, 80)


# -- values that are not finite, with the node that began ------------------------------------------


def warn_nonfinite(
    model: Contents, values: Mapping[str, Any], inputs: Mapping[str, Any] | None = None
) -> None:
    """Warn once if a value is NaN or infinite, and name the node that made the first of them.

    The search goes back from a bad value through bad inputs. With `inputs`, intermediate values
    that were not kept are recomputed.
    """
    bad = find_nonfinite(values)
    if bad is None:
        return
    known = hosted({**model.constants, **(inputs or {}), **values})
    if inputs is not None:
        known.update(_all_before(model, hosted(inputs), bad))
    what = _culprit(model, known, bad)
    warn(f"{bad!r} is not finite at this point: {what}.")


def find_nonfinite(values: Mapping[str, Any]) -> str | None:
    """The first tensor with an entry that is NaN or infinite; None if there is none."""
    kept = [value for value in values.values() if is_kept(value)]
    settled = bool(kept) and library_of(kept[0]).are_finite(kept)
    left = {n: value for n, value in values.items() if not (settled and is_kept(value))}
    return next((name for name, value in left.items() if not finite(value)), None)


def finite(value: Any) -> bool:
    """Whether an array holds no NaN and no infinity; types without such values are finite."""
    kind, library = dtype_of(value).kind if hasattr(value, "dtype") else "O", library_of(value)
    return kind in "iubOSUT" or library.is_finite(value)


def _all_before(model: Contents, inputs: Mapping[str, Any], name: str) -> dict[str, Any]:
    indices, _ = steps_needed(model.steps, [name], inputs)
    names = [output for i in indices for output in model.steps[i].outputs if output]
    try:
        return evaluate(model, inputs, names)
    except OnnxJacError:  # too much at once; the message is then less exact
        return {}


def _culprit(model: Contents, known: Mapping[str, Any], bad: str) -> str:
    makers = {name: step for step in model.steps for name in step.outputs}
    while bad in makers:
        step = makers[bad]
        worse = (name for name in reads(step) if name in known and not finite(known[name]))
        earlier = next(worse, None)
        if earlier is None:
            return f"{step} makes it from {_inputs(step, known)}"
        bad = earlier
    return f"{bad!r} was given so"


def _inputs(step: Step, known: Mapping[str, Any]) -> str:
    """The inputs with the ranges of their numbers, which usually tell why."""
    parts = []
    for name in step.inputs:
        value = known.get(name) if name else None
        if isinstance(value, np.ndarray) and value.size and value.dtype.kind == "f":
            parts.append(f"{name} in [{value.min():.3g}, {value.max():.3g}]")
        elif name:
            parts.append(name)
    return ", ".join(parts) or "no inputs"
