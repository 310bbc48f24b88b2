"""Forecast: the bytes of all tensors of a run at some inputs, before an engine begins it, and
whether ONNX Runtime is known to compute something else than ONNX specifies.

Step by step, as `sizes` tells; numbers that decide sizes are computed on the way. Where a size
depends on other numbers than these, only the run itself can tell, so that it has to be one that is
checked at every step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto

from ...jacobians.errors import LimitError
from ...ops.node import Step
from ...ops.numbers import numbers
from ..flow.contents import Contents
from ..flow.control import CONTROL
from ..flow.steps import last_uses, needed
from .engines.fatal import is_fatal
from .engines.sessions import EngineError
from .sizes import (
    GROWING,
    POOLS,
    SMALL,
    bytes_of,
    check_operands,
    dtype_in,
    inferred,
    product_bytes,
    shape_in,
    type_of,
)

RANDOM = ("Random", "Bernoulli", "Multinomial", "Dropout")


def foreseen(model: Contents, inputs: Mapping[str, Any], names: Iterable[str]) -> bool:
    """Whether all sizes are known and within the limits; `LimitError` where one is not within.

    Where the shapes of the inputs tell all sizes, as for labels and counters among the inputs, it
    is the same for all their numbers. Raises `EngineError` where ONNX Runtime is not to be asked.
    """
    wanted = tuple(names)
    return any(known(model, inputs, wanted, numbers) for numbers in (False, True))


def known(
    model: Contents, inputs: Mapping[str, Any], wanted: tuple[str, ...], numbers: bool
) -> bool:
    """The forecast with the numbers of the inputs, or by their shapes alone: then whether all sizes
    are told and within the limits.
    """
    key, forecasts = (wanted, numbers, signature(inputs, numbers)), model.forecasts
    if key not in forecasts:
        forecast = Forecast(model, inputs, numbers)
        try:
            forecasts[key] = forecast.of(wanted) and (numbers or forecast.told)
        except (LimitError, EngineError):
            if numbers:
                raise
            forecasts[key] = False
    found = forecasts[key]
    if len(forecasts) > 16:
        forecasts.popitem(last=False)
    return found


def signature(inputs: Mapping[str, Any], numbers: bool) -> tuple[Any, ...]:
    """Shapes and types of the inputs, and the numbers of those that may decide a size."""
    return tuple(
        (name, x.shape, x.dtype, x.tobytes() if numbers and decides(x) else b"")
        if isinstance(x, np.ndarray) else (name, id(x))
        for name, x in sorted(inputs.items())
    )  # fmt: skip


def decides(array: np.ndarray) -> bool:
    """Whether the numbers of an array may be shapes, counts or axes."""
    return array.dtype.kind in "iub" and array.size <= SMALL


class Forecast:
    """The types of the tensors met so far, and the numbers of the small ones that are known.

    All sizes are `told` where each followed from what is known.
    """

    def __init__(self, model: Contents, inputs: Mapping[str, Any], numbers: bool) -> None:
        self.model, self.given = model, inputs.keys()
        arrays = {n: x for n, x in {**model.constants, **inputs}.items() if hasattr(x, "dtype")}
        self.types = {name: type_of(array) for name, array in arrays.items()}
        fixed = {n: a for n, a in model.constants.items() if n not in inputs and a.size <= SMALL}
        given = {n: x for n, x in arrays.items() if numbers and n in inputs and decides(x)}
        self.known, self.told = {**fixed, **given}, True

    def of(self, wanted: tuple[str, ...]) -> bool:
        """Step by step to the wanted tensors, each let go after its last use."""
        nodes, held, sure = list(self.model.ir.graph), 0, True
        indices = needed(self.model.steps, wanted, self.given)[0]
        steps = [self.model.steps[index] for index in indices]
        made: dict[str, int] = {}
        for index, step, finished in zip(indices, steps, last_uses(steps, wanted), strict=True):
            if step.op_type in CONTROL and not step.domain:
                sure = False
                continue
            operands = [self._stand_in(name) for name in step.inputs]
            check_operands(step, operands, self.model.limits)
            if is_fatal(step, operands):
                raise EngineError(f"ONNX Runtime ends the process at {step}. Try engine='numpy'.")
            if is_misread(step, operands):
                raise EngineError(f"ONNX Runtime departs from ONNX in {step}. Try engine='numpy'.")
            if step.op_type == "Einsum":
                self._check_einsum(step, operands)
            found = self._sizes(step, ir.serde.serialize_node(nodes[index]))
            self.told = self.told and None not in found.values()
            sure = sure and not (step.op_type in GROWING and None in found.values())
            made.update((name, size or 0) for name, size in found.items())
            held += sum(made[name] for name in found)
            self.model.limits.check("bytes", held, f"what is held at {step}")
            held -= sum(made.pop(name, 0) for name in finished)
            self._compute(step)
        return sure

    def _check_einsum(self, step: Step, operands: list[np.ndarray | None]) -> None:
        """ONNX Runtime multiplies from left to right, whatever the products grow to."""
        if product_bytes(step, operands, left_to_right=True) > self.model.limits.bytes:
            raise EngineError(
                f"ONNX Runtime multiplies the operands of {step} from left to right, which takes "
                "more memory than the limits allow. Try engine='numpy'."
            )

    def _sizes(self, step: Step, node: onnx.NodeProto) -> dict[str, int | None]:
        """The bytes of the outputs of a step by name, None where they are not known."""
        found = inferred(node, step.version, self.types, self.known)
        self.types.update((name, kind) for name, kind in found.items() if name not in self.given)
        return {name: bytes_of(self.types.get(name)) for name in step.outputs if name}

    def _stand_in(self, name: str | None) -> np.ndarray | None:
        """The numbers of a tensor if they are known, else zeros of its shape; None for no shape."""
        kind = self.types.get(name or "")
        shape = shape_in(kind)
        if name in self.known or kind is None or shape is None or min(shape, default=0) < 0:
            return self.known.get(name or "")
        try:
            return np.broadcast_to(np.zeros((), dtype_in(kind)), shape)
        except ValueError:  # an empty tensor whose other sizes are beyond what NumPy counts
            return None

    def _compute(self, step: Step) -> None:
        """The numbers of a step's outputs, where its inputs are known or it asks for none."""
        if step.op_type in ("Shape", "Size"):
            inputs = [self._stand_in(name) for name in step.inputs]
        else:
            inputs = [None if name is None else self.known.get(name) for name in step.inputs]
        missing = sum(name is not None for name in step.inputs) - sum(x is not None for x in inputs)
        if missing or step.op_type.startswith(RANDOM) or not self._is_small(step):
            return
        try:
            made = numbers.run(step.op_type, inputs, step.attrs, domain=step.domain,
                               version=step.version, outputs=len(step.outputs))  # fmt: skip
        except Exception:  # the engine will say what is wrong with it
            return
        pairs = zip(step.outputs, made, strict=False)
        self.known.update((n, y) for n, y in pairs if n and isinstance(y, np.ndarray))

    def _is_small(self, step: Step) -> bool:
        """Whether all outputs are small."""
        sizes = [shape_in(self.types.get(name)) for name in step.outputs if name]
        return all(s is not None and np.prod(s, dtype=float) <= SMALL for s in sizes)


def is_misread(step: Step, inputs: Sequence[Any]) -> bool:
    """Whether ONNX Runtime 1.31 is known to depart from ONNX at operands of these shapes.

    MaxUnpool places by the implied shape, not by the `output_shape` that it is given. Pools whose
    padding follows from the sizes forget their dilations, and cut off where a stride leaps. Resize
    forgets its region where it counts the results, and its scales where no size changes. The
    coefficients of windows, and all of Shrink, are in float32 for tensors of double as well. Losses
    take fewer labels than there are samples, or other weights than one for each class.
    """
    if step.domain:
        return False
    if step.op_type in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"):
        shape = np.shape(inputs[0])
        wanted = shape, (*shape[:1], *shape[2:]), shape[1:2]
        pairs = zip(inputs, wanted, strict=False) if shape else ()
        return any(x is not None and np.shape(x) != n for x, n in pairs)
    if step.op_type in ("HammingWindow", "BlackmanWindow"):
        return bool(step.attrs.get("output_datatype", 1) == TensorProto.DOUBLE)
    if step.op_type == "Shrink":
        return inputs[0] is None or bool(inputs[0].dtype == np.float64)
    if step.op_type == "MaxUnpool":
        return len(inputs) > 2 and inputs[2] is not None
    if step.op_type in POOLS:
        return str(step.attrs.get("auto_pad", "")).startswith("SAME") and leaps(step)
    return step.op_type == "Resize" and is_misread_resize(step, *inputs)


def leaps(step: Step) -> bool:
    """Whether the windows of a pool are dilated, or further apart than they are long."""
    sizes = step.attrs.get("strides", ()), step.attrs.get("kernel_shape", ())
    return any(n > 1 for n in step.attrs.get("dilations", ())) or any(map(int.__gt__, *sizes))


def is_misread_resize(step: Step, x: Any, roi: Any = None, scales: Any = None, *_: Any) -> bool:
    """Whether a region is cut out, or scales lead to the size that x has; those not known may."""
    if step.attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        return True
    if scales is None or not np.size(scales):
        return False
    if x is None:  # its size is not known before the run
        return bool(np.any(np.asarray(scales) != 1))
    axes, rank = step.attrs.get("axes", range(np.ndim(x))), np.ndim(x)
    if np.shape(scales) != (len(axes),) or not all(-rank <= axis < rank for axis in axes):
        return False  # whoever runs it says what is wrong
    lengths = np.array([np.shape(x)[axis] for axis in axes], np.float32)
    same = np.all(np.floor(lengths * scales) == lengths)
    return bool(same and np.any(scales != 1)) or not np.all(scales)
