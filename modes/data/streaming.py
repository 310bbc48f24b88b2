"""Streaming: one operator over all batches of some data, in this process."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from itertools import zip_longest
from typing import Any

import numpy as np

from ...jacobians import Jacobian
from ...jacobians.errors import not_allowed, warn
from ..linear.symmetric import Symmetric
from .batches import Batch, Batches, batches_of, is_data, samples
from .stream import Make, OverBatches, Stacked, Stream, Streamed

REDUCTIONS = ("sum", "mean", "stack")

Size = Callable[[Batch], int]

Weights = tuple[float, ...] | None


def streamed(
    make: Make,
    data: Any,
    *,
    reduction: str,
    batch_size: int | None = None,
    keep: int = 0,
    size: Size = samples,
    check: bool = True,
) -> Jacobian:
    """C = Σ_b w_b C_b with C_b = make(batch b), or [C_1; C_2; …]: an operator over all batches.

    | `reduction` | C | correct if |
    |---|---|---|
    | `"sum"` | Σ_b C_b | C_b is a sum over the samples of the batch |
    | `"mean"` | Σ_b (n_b / N) C_b, N = Σ_b n_b | C_b is a mean over the n_b samples of the batch |
    | `"stack"` | [C_1; C_2; …] | C_b has rows of its own: ∂outputs/∂weights |

    So `reduction` states how `make` reduces, and the result reduces all data in the same way.

    `data` is one batch (a dict, which gives make(batch) itself), a list of batches, a function that
    returns an iterator over them (such as a generator function), an iterable that can be read again
    (such as a data loader), or, split into blocks of `batch_size` rows, a dict of arrays, which may
    be memory-mapped, or the path of an `.npz` file written by `numpy.savez`.

    Every product is a pass over the data in which at most one batch is linearised at a time;
    operators within `keep` bytes are kept for the next product. `size(batch)` is the number of
    samples in a batch, by default the length of the first axis. With `check`, two products are
    compared, and an `OnnxJacWarning` says if they differ, and why.

    Shapes: C has the shape of the C_b, or with `"stack"` the sum of their rows by their common
    columns; an array of the data is (N, ...). Raises `InputError` for data that cannot be read
    again or has no common number of samples, for an unknown `reduction`, and where the shapes of
    two C_b differ; errors of `make` are passed on.
    """
    if not is_data(data, batch_size):
        return make(data)
    batches = batches_of(data, batch_size)
    weights = weights_of(batches, reduction, size)
    C = composed(Stream(make, batches, keep), reduction, weights)
    if check and (message := difference(C)):
        warn(message)
    return named(C, C.outline.domain if isinstance(C, Streamed) else None)


def composed(stream: Stream, reduction: str, weights: Weights) -> OverBatches:
    """The operator over all batches, without names."""
    return Stacked(stream) if reduction == "stack" else Streamed(stream, weights)


def weights_of(batches: Batches, reduction: str, size: Size) -> Weights:
    """n_b / N for every batch, or None for unit weights."""
    if reduction not in REDUCTIONS:
        raise not_allowed("reduction", reduction, REDUCTIONS)
    if reduction != "mean":
        return None
    sizes = [size(batch) for batch in batches]
    return tuple(n / sum(sizes) for n in sizes)


def named(C: Jacobian, domain: tuple[Any, ...] | None) -> Jacobian:
    """The operator with the names of its tensors, if it is symmetric and has names."""
    return Symmetric(C, domain) if domain is not None and C.T is C else C


def difference(C: OverBatches, *, seed: int = 0) -> str | None:
    """A message where ‖C v − C v‖ > √ε ‖C v‖ for two products of one random v, else None.

    Both products read the data. The order of batches may change if they are summed.
    """
    v = np.random.default_rng(seed).standard_normal(C.shape[1])
    fresh = C.with_stream(Stream(C.stream.make, C.stream.batches))
    first, second = fresh @ v, fresh @ v
    distance, scale = (float(np.linalg.norm(y)) for y in (first - second, first))
    if distance <= float(np.sqrt(np.finfo(C.dtype).eps)) * scale:
        return None
    why = changed(C.stream.batches) or (
        "the batches are the same in two passes, so that their operators are random (dropout?)"
    )
    return (
        f"two products of one vector differ by {distance / max(scale, 1e-300):.1e}, relative: "
        f"{why}; solvers and estimators expect one matrix"
    )


def changed(batches: Batches) -> str | None:
    """The first batch that differs in a second pass, as a message; None where all are equal."""
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
