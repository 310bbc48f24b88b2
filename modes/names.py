"""Which tensors a derivative is between: `wrt` and `of`, checked."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ..jacobians.errors import InputError
from .model import Model, TensorSpec

Names = str | Iterable[str] | None


def names_of(model: Model, names: Names, default: dict[str, TensorSpec], role: str) -> tuple[str, ...]:
    """The named tensors, or every floating tensor of the default; each is checked to be there."""
    if names is None:
        chosen = tuple(n for n, spec in default.items() if spec.dtype is None or is_float(spec.dtype))
    else:
        chosen = tuple(dict.fromkeys([names] if isinstance(names, str) else names))
    if not chosen:
        raise InputError(f"{role} is empty: name at least one floating tensor of the model")
    for name in chosen:
        spec = model.spec(name)
        if spec.dtype is not None and not is_float(spec.dtype):
            raise InputError(
                f"{role}={name!r} is a tensor of {spec.dtype}: only floating tensors have derivatives"
            )
    return chosen


def is_float(dtype: np.dtype) -> bool:
    """Whether tangents exist: IEEE floats, and the narrow ones of ml_dtypes (kind V)."""
    return dtype.kind == "f" or (dtype.kind == "V" and "float" in dtype.name)
