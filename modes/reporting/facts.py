"""Facts: what the report says, as plain data for machines; times in seconds, memory in bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from ..checking.check import Check
from ..linearization import Linearization
from ..model import Model, TensorSpec
from .report import numbers_in
from .spectrum import Spectrum
from .timings import Timings

JACOBIAN = "an object: text, shape, dtype, of, wrt (names), flops, bytes, dense_bytes"
CHECK = "a list with an object for each test: name, error, tolerance, note, passed"
SPECTRUM = {
    "values": "the values, by magnitude",
    "products": "the products with the operator or its transpose that they took",
    "why": "what went wrong where there are too few, else empty",
}

KEYS = {
    "model": "an object: file, opset, nodes, ops (how many of each), numbers (in initializers)",
    "inputs": "a list with an object for each input: name, shape, dtype",
    "outputs": "the same of outputs",
    "point": "a list with an object for each input: name, shape, dtype, given (else random)",
    "jacobian": JACOBIAN,
    "explanation": "what J.explain().to_dict() gives: blocks, stretches, choices, cuts, kinks",
    "check": CHECK,
    "spectrum": "an object: values (singular values), products, why",
    "times": "an object: run, forward and reverse, seconds of the model, of J v and of Jᵀ u",
}
"""Keys of the report -> what they mean."""


def of_model(
    model: Model, source: str, point: Mapping[str, Any], given: Iterable[str]
) -> dict[str, Any]:
    """The model, its ends, and the point at which it is taken."""
    ops = Counter(step.op_type for step in model.steps)
    given = set(given)
    return {
        "model": {"file": source, "opset": model.opset, "nodes": len(model.steps), "ops": ops,
                  "numbers": numbers_in(model)},
        "inputs": [of_spec(spec) for spec in model.inputs.values()],
        "outputs": [of_spec(spec) for spec in model.outputs.values()],
        "point": [
            {"name": name, "shape": value.shape, "dtype": str(value.dtype), "given": name in given}
            for name, value in point.items() if isinstance(value, np.ndarray)
        ],
    }  # fmt: skip


def of_spec(spec: TensorSpec) -> dict[str, Any]:
    """Name, shape and type of a tensor, null where the model does not say."""
    return {"name": spec.name, "shape": spec.shape, "dtype": spec.dtype}


def of_jacobian(J: Linearization) -> dict[str, Any]:
    """Shape, ends and amounts."""
    m, n = J.shape
    return {
        "text": str(J), "shape": J.shape, "dtype": str(J.dtype),
        "of": [spec.name for spec in J.codomain], "wrt": [spec.name for spec in J.domain],
        "flops": J.flops, "bytes": J.nbytes, "dense_bytes": m * n * J.dtype.itemsize,
    }  # fmt: skip


def of_check(outcome: Check) -> list[dict[str, Any]]:
    """Every test."""
    return [{**asdict(found), "passed": bool(found.passed)} for found in outcome.outcomes]


def of_spectrum(found: Spectrum) -> dict[str, Any]:
    """The values, and what they took."""
    return asdict(found)


def of_times(found: Timings) -> dict[str, float]:
    """Seconds."""
    return asdict(found)
