"""Samples: a number behind every graph value, so that shapes and axes are known where rules ask."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from ...jacobians import shape_of
from ...jacobians.errors import InputError, OnnxJacError
from ...jacobians.symint import at
from ...ops import numbers
from ..flow.steps import python_of
from ..loading.messages import first_line
from ..model import Model, TensorSpec
from ..naming.names import is_float
from .walk import ancestors

Arrays = tuple[Any, ...]


class Samples:
    """value ↦ its number at the point of recording, computed when asked for unless it is held."""

    def __init__(self, opset_imports: Mapping[str, int]) -> None:
        self._opsets = dict(opset_imports)
        self._held: dict[ir.Value, np.ndarray] = {}

    def __setitem__(self, value: ir.Value, number: np.ndarray) -> None:
        self._held[value] = np.asarray(number)

    def __getitem__(self, value: ir.Value) -> np.ndarray:
        for node in ancestors([value], self._held):
            attrs = {name: python_of(attribute) for name, attribute in node.attributes.items()}
            if any(isinstance(value, ir.Graph) for value in attrs.values()):
                self._held.update((v, ones(v)) for v in node.outputs if v not in self._held)
                continue
            held = [None if v is None else self._leaf(v) for v in node.inputs]
            found = self._run(node.op_type, held, attrs, node.domain, len(node.outputs))
            self._held.update(zip(node.outputs, found, strict=False))
        return self._leaf(value)

    def _leaf(self, value: ir.Value) -> np.ndarray:
        """The number of a constant, or one that is held."""
        return self._held[value] if value.const_value is None else value.const_value.numpy()

    def step(self, step: Any, inputs: Iterable[ir.Value | None]) -> tuple[Any, ...]:
        """The outputs of a step of the model on the numbers of its inputs; None where left out."""
        held = [None if value is None else self[value] for value in inputs]
        count = len(step.outputs)
        try:
            found = self._run(step.op_type, held, step.attrs, step.domain, count)
        except OnnxJacError:
            raise
        except Exception as error:
            shapes = ", ".join("none" if x is None else f"{x.dtype}{list(x.shape)}" for x in held)
            raise OnnxJacError(f"{step} fails on {shapes}: {first_line(error)}") from error
        return (*found, *(None,) * (count - len(found)))

    def _run(self, op_type: str, inputs: list[Any], attrs: Any, domain: str, count: int) -> Arrays:
        """One operator on numbers; what is drawn need not be in the domain of a logarithm."""
        version = self._opsets.get(domain, 1)
        with np.errstate(all="ignore"):
            return numbers.run(
                op_type, inputs, attrs, domain=domain, version=version, outputs=count
            )


def ones(value: ir.Value) -> np.ndarray:
    """What stands for a value of which only the shape is known."""
    assert value.dtype is not None
    return np.ones(at(shape_of(value)), value.dtype.numpy())


def sample_inputs(model: Model, sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    """An array for every input of the model: positive floats, integers 0; open dimensions are
    what `sizes` says of their symbol, else 2.
    """
    rng = np.random.default_rng(0)
    return {name: sample(spec, sizes, rng) for name, spec in model.inputs.items()}


def sample(spec: TensorSpec, sizes: Mapping[str, int], rng: np.random.Generator) -> np.ndarray:
    """An array that fits the declaration of one input."""
    if spec.dtype is None or spec.shape is None:
        raise InputError(f"input {spec.name!r} is declared without type or shape: declare them")
    shape = tuple(d if isinstance(d, int) else sizes.get(d or "", 2) for d in spec.shape)
    if is_float(spec.dtype):
        return rng.uniform(0.5, 1.5, shape).astype(spec.dtype)
    return np.zeros(shape, spec.dtype)
