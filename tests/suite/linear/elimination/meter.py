"""Meter: the numbers reading, with the memory traffic of each call counted."""

from functools import partial

import numpy as np

from onnxjac.ops import numbers


class Meter:
    """`passes` are the tensors of at least `full` entries read or written, `nbytes` all bytes."""

    def __init__(self, full):
        self.full, self.passes, self.nbytes, self.calls = full, 0, 0, []

    def __getattr__(self, name):
        if not name[0].isupper():
            raise AttributeError(name)
        return partial(self.call, name)

    def call(self, name, *inputs, **attrs):
        """A counted call of the vocabulary; a call that returns a view costs nothing."""
        result = getattr(numbers, name)(*inputs, **attrs)
        arrays = [x for x in inputs if isinstance(x, np.ndarray) and x.dtype.kind == "f"]
        if not any(np.may_share_memory(result, x) for x in arrays):
            self.calls.append(name)
            for array in (*arrays, result):
                stored = entries(array)
                self.passes += stored >= self.full
                self.nbytes += stored * array.itemsize
        return result


def entries(array):
    """The number of entries in memory: broadcast entries count once."""
    return int(np.prod([n for n, s in zip(array.shape, array.strides, strict=True) if s]))


def metered(operator, full):
    """The memory traffic of one product."""
    meter = Meter(full)
    operator._apply(meter, np.random.default_rng(0).standard_normal(operator.in_shape))
    return meter
