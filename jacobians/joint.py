"""Joint: one program between several tensors, of which every block is a part.

A loop or a branch gives the derivatives of all its outputs in one run. A part alone is an operator
like any other; parts that meet on a sweep share the run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from .arrays import Array, Op, Shape, common, dtype_of, lead
from .base import Jacobian
from .cached import cached_property
from .errors import InputError

Ends = Mapping[int, tuple[Shape, np.dtype]]
"""Slot -> the shape and dtype of its tensor."""


class Joint(ABC):
    """J = ∂(outputs)/∂(inputs), tensors by their slots."""

    def __init__(self, ins: Ends, outs: Ends) -> None:
        self.ins, self.outs = ins, outs

    @abstractmethod
    def run(self, op: Op, tangents: Mapping[int, Array], wanted: tuple[int, ...]) -> dict[int, Any]:
        """The wanted outputs by slot; tangents that are absent are zero, and so are results.

        Leading axes are right-hand sides, the same for all tangents.
        """

    @abstractmethod
    def transposed(self) -> Joint:
        """The transpose, whose inputs are the outputs of this one."""

    @cached_property
    def T(self) -> Joint:
        """The transpose: one object."""
        made: Joint = self.__dict__.setdefault("T", self.transposed())
        made.__dict__["T"] = self
        return made

    def arrays(self) -> Iterator[Array]:
        """The data it holds on to."""
        yield from ()

    @property
    def flops(self) -> int:
        """Multiplications and additions of one run, roughly."""
        return 0

    def __repr__(self) -> str:
        return type(self).__name__.lower()

    def part(self, o: int, i: int) -> Part:
        """The block of one output and one input."""
        return Part(self, o, i)


class Part(Jacobian):
    """The block of a joint program between one input and one output."""

    def __init__(self, joint: Joint, o: int, i: int) -> None:
        if o not in joint.outs or i not in joint.ins:
            raise InputError(f"Part: {joint!r} has no block of output {o} and input {i}")
        (out_shape, out_dtype), (in_shape, in_dtype) = joint.outs[o], joint.ins[i]
        super().__init__(out_shape, in_shape, common(out_dtype, in_dtype))
        self.joint, self.o, self.i = joint, o, i

    def _apply(self, op: Op, v: Array) -> Array:
        found = self.joint.run(op, {self.i: v}, (self.o,))
        if self.o in found:
            return found[self.o]
        return op.Expand(np.zeros((), dtype_of(v)), (*lead(v, self.in_shape), *self.out_shape))

    def _transpose(self) -> Part:
        return Part(self.joint.T, self.i, self.o)

    @cached_property
    def matrix(self) -> np.ndarray:
        """All entries."""
        return self.toarray()

    def arrays(self) -> Iterator[Array]:
        return self.joint.arrays()

    @property
    def flops(self) -> int:
        return self.joint.flops

    def __repr__(self) -> str:
        return f"{self.joint!r}[{self.o}, {self.i}]"
