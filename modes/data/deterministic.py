"""Deterministic: whether two products of one vector agree, and why they do not."""

from __future__ import annotations

from hashlib import sha256
from itertools import zip_longest

import numpy as np

from .batches import Batch, Batches
from .stream import Stream
from .streamed import OverBatches


def difference(C: OverBatches, *, seed: int = 0) -> str | None:
    """What to say where ‖C v − C v‖ > √ε ‖C v‖ for two products of one random v.

    Both are computed from the data. The order of batches may change where they are added.
    """
    v = np.random.default_rng(seed).standard_normal(C.shape[1])
    fresh = C.over(Stream(C.stream.make, C.stream.batches))
    first, second = fresh @ v, fresh @ v
    distance, scale = (float(np.linalg.norm(y)) for y in (first - second, first))
    if distance <= float(np.sqrt(np.finfo(C.dtype).eps)) * scale:
        return None
    return (
        f"two products of one vector differ by {distance / max(scale, 1e-300):.1e}, relative: "
        f"{cause(C.stream.batches)}; solvers and estimators expect one matrix"
    )


def cause(batches: Batches) -> str:
    """What differs between two passes.

    >>> from onnxjac.modes.data.batches import Listed
    >>> cause(Listed(({"x": np.zeros(2)},)))
    'the batches are the same in two passes, so that their operators are random (dropout?)'
    """
    same = "the batches are the same in two passes, so that their operators are random (dropout?)"
    return changed(batches) or same


def changed(batches: Batches) -> str | None:
    """Which batch is the first that is another one in a second pass; None where none is."""
    pairs = zip_longest(map(digest, batches), map(digest, batches))
    for b, (first, second) in enumerate(pairs):
        if first != second:
            return f"batch {b} is another one in the second pass (shuffled, or random data?)"
    return None


def digest(batch: Batch) -> str:
    """A fingerprint of the contents of a batch."""
    found = sha256()
    for name, value in sorted(batch.items()):
        array = np.ascontiguousarray(value)
        found.update(f"{name} {array.dtype} {array.shape} ".encode())
        found.update(array.tobytes())
    return found.hexdigest()
