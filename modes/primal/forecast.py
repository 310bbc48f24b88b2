"""Forecast: the bytes of all tensors of a run at some inputs, before an engine begins it.

Step by step, as `sizes` tells; numbers that decide sizes are computed on the way. Where a size
depends on other numbers than these, only the run itself can tell, so that it has to be one that is
checked at every step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from ...ops.node import Step
from ...ops.numbers import numbers
from ..flow.contents import Contents
from ..flow.control import CONTROL
from ..flow.steps import last_uses, needed
from .engines.errors import EngineError
from .engines.fatal import is_fatal
from .engines.misread import is_misread
from .frames import product_bytes
from .sizes import GROWING, SMALL, bytes_of, check_operands, dtype_in, inferred, shape_in, type_of

RANDOM = ("Random", "Bernoulli", "Multinomial", "Dropout")


def foreseen(model: Contents, inputs: Mapping[str, Any], names: Iterable[str]) -> bool:
    """Whether all sizes are known and within the limits; `LimitError` where one is not within.

    Raises `EngineError` where ONNX Runtime is not to be asked.
    """
    wanted = tuple(names)
    key = wanted, signature(inputs)
    forecasts = model.forecasts
    if key not in forecasts:
        forecasts[key] = Forecast(model, inputs).of(wanted)
        if len(forecasts) > 16:
            forecasts.popitem(last=False)
    return forecasts[key]


def signature(inputs: Mapping[str, Any]) -> tuple[Any, ...]:
    """Shapes and types of the inputs, and the numbers of those that may decide a size."""
    return tuple(
        (name, x.shape, x.dtype, x.tobytes() if decides(x) else b"")
        if isinstance(x, np.ndarray) else (name, id(x))
        for name, x in sorted(inputs.items())
    )  # fmt: skip


def decides(array: np.ndarray) -> bool:
    """Whether the numbers of an array may be shapes, counts or axes."""
    return array.dtype.kind in "iub" and array.size <= SMALL


class Forecast:
    """The types of the tensors met so far, and the numbers of the small ones that are known."""

    def __init__(self, model: Contents, inputs: Mapping[str, Any]) -> None:
        self.model, self.given = model, inputs.keys()
        arrays = {n: x for n, x in {**model.constants, **inputs}.items() if hasattr(x, "dtype")}
        self.types = {name: type_of(array) for name, array in arrays.items()}
        fixed = {n: a for n, a in model.constants.items() if n not in inputs and a.size <= SMALL}
        self.known = {**fixed, **{n: x for n, x in arrays.items() if n in inputs and decides(x)}}

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
