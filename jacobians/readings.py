"""Readings: what a call of the vocabulary does, found by the type of an array.

A rule is written once, in calls of ONNX's operators, and read over NumPy arrays, graph values,
symbols, tensors. A `Library` is a reading that computes with the arrays of a library. One line
registers a library, by the type of its arrays or by the type's name: nothing is imported for a
library that a program does not use.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial, singledispatch
from typing import Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike

from .vocabulary import Array, Op, Shape


class Reading(ABC):
    """One method per ONNX operator, all of them by `call`."""

    convolves_samples: bool = False
    """Whether correlations are written as convolutions: PyTorch has its fastest kernels there."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not name[0].isupper():
            raise AttributeError(name)
        return partial(self.call, name)

    recurs: bool = False
    """Whether a slope is wanted as a function of the output where it is one, in a single form."""

    over: Any = None
    """The reading that it computes by, where it only changes what each operator gives."""

    @abstractmethod
    def call(self, op_type: str, *inputs: Any, **attrs: Any) -> Any:
        """The result of an operator: a tuple if several."""

    def cast(self, x: Array, dtype: DTypeLike) -> Array:
        """An array in another dtype of NumPy, where it is."""
        return self.CastLike(x, np.zeros((), dtype))

    def flow(
        self, op_type: str, attrs: Mapping[str, Any], inputs: Sequence[Any],
        run: Callable[[Any, Sequence[Any]], list[Any]],
    ) -> Sequence[Any] | None:  # fmt: skip
        """The outputs of an If, Loop or Scan, by a loop or branch of the library's own, where `run`
        gives the outputs of a subgraph; None where it is to be run turn by turn.
        """
        return None

    def scanned(
        self, turn: Callable[..., Any], state: Sequence[Array], series: Sequence[Array],
        backward: bool,
    ) -> Any:  # fmt: skip
        """The final state and the rows of a loop, likewise; None where it is run turn by turn."""
        return None


def host(value: Array) -> Any:
    """The numbers of a value as a NumPy array, also of a tensor on a GPU."""
    return library_of(value).host(value)


@dataclass(frozen=True)
class Place:
    """Where arrays go: `take` makes them arrays there, which `op` computes with.

    `random` makes a generator of a seed, with methods as NumPy's, `module` has the functions of the
    arrays, and `device` is the library's. `hold` is `take` for arrays that nobody writes to, such
    as the weights of a model, which are there once.
    """

    name: str
    take: Callable[[Any], Array] = field(compare=False)
    op: Any = None
    random: Callable[[int], Any] = field(default=np.random.default_rng, compare=False)
    module: Any = field(default=np, compare=False)
    device: Any = field(default=None, compare=False)
    hold: Callable[[Any], Array] = field(default=host, compare=False)

    @property
    def compiles(self) -> bool:
        """Whether whole functions are compiled there: see `Library.compiles`."""
        return self.op is not None and bool(self.op.compiles)


HOST = Place("NumPy", host)
"""Main memory, as NumPy arrays."""


class Library(Reading):
    """The reading of an array library: beside the operators, what its arrays are and where.

    `module` has functions by NumPy's names, `special` by the names of `scipy.special`. An engine of
    the name `engine` runs models over the arrays.
    """

    module: Any
    special: Any
    engine: ClassVar[str] = ""
    keeps: ClassVar[bool] = True
    """Whether products with its arrays are arrays of the same library, on the same device."""

    compiles: ClassVar[bool] = False
    """Whether its engine compiles whole functions, so that operators one by one are slow."""

    writes: ClassVar[bool] = True
    """Whether its arrays can be written to, by `y[...] = x` and by functions with `out=`."""

    @abstractmethod
    def dtype(self, x: Array) -> np.dtype:
        """The dtype of an array, as NumPy's."""

    @abstractmethod
    def host(self, x: Array) -> np.ndarray:
        """The numbers of an array as a NumPy array."""

    @abstractmethod
    def place(self, x: Array) -> Place:
        """Where an array is."""

    @abstractmethod
    def place_on(self, device: Any) -> Place:
        """A device as a place, or its name; "" is the library's own choice."""

    def knows(self, x: Array) -> bool:
        """Whether the numbers of an array are known: not while the library traces a function."""
        return True

    def at_once(self, x: Array) -> AbstractContextManager[Any]:
        """A scope in which numbers computed from x are known if the numbers of x are, in full
        precision.
        """
        return nullcontext()

    def is_finite(self, x: Array) -> bool:
        """Whether no entry is infinite or NaN, as far as the numbers are known."""
        return bool(self.module.isfinite(x).all())

    def are_finite(self, arrays: Sequence[Array]) -> bool:
        """Whether the sum of all entries is finite, in one question to a device."""
        return self.is_finite(sum(x.sum() for x in arrays))

    def overflows(self, rounded: Array, x: Array) -> bool:
        """Whether a finite entry of x is infinite when rounded, as far as the numbers are known."""
        return bool((self.module.isinf(rounded) & self.module.isfinite(x)).any())

    def detached(self, x: Array) -> Array:
        """The array without what may track it for a gradient."""
        return x

    @abstractmethod
    def full(self, x: Array, shape: Shape, value: float) -> Array:
        """A new array like x of another shape, filled with a value."""

    @abstractmethod
    def copy(self, x: Array) -> Array:
        """A copy of an array, which does not share its memory."""

    @abstractmethod
    def by_numbers(
        self, name: str, function: Callable[..., Any], *inputs: Any, **attrs: Any
    ) -> Any:
        """The result of a function of NumPy arrays, with a `name` for it, where the inputs are."""

    @abstractmethod
    def run(
        self, op_type: str, inputs: Sequence[Any], attrs: Mapping[str, Any], *,
        domain: str = "", version: int = 21, outputs: int = 1,
    ) -> tuple[Any, ...]:  # fmt: skip
        """The outputs of one node of a model."""

    @abstractmethod
    def product(self, J: Any, v: Array, columns: Shape) -> Array:
        """J v for flat arrays, (*columns, n) to (*columns, m), as an array of the caller's."""

    @abstractmethod
    def inverse(self, a: Array) -> Array:
        """A⁻¹ of each matrix; not finite where one is singular."""

    @abstractmethod
    def exponential(self, a: Array) -> Array:
        """exp A of each matrix."""

    @abstractmethod
    def solve_lower(self, R: Array, B: Array) -> Array:
        """R⁻ᵀ B for an upper triangular R."""


KINDS: list[tuple[type | str, Callable[[], Library]]] = []
"""The registered types of arrays, or their names, and what gives the reading."""

ENGINES: dict[str, Callable[[], Library]] = {}
"""The name of an engine -> the library whose arrays it computes with."""

KNOWN: dict[type, Library] = {}
"""The type of an array met so far -> its library."""

NOTHING = np.empty(0)


def register_library(kind: type | str, load: Callable[[], Library], engine: str = "") -> None:
    """Let `load` give the reading of arrays of a kind: a type, or its name, as `"jax.Array"`.

    A name is looked up among the modules that a program has imported, and `load` is called when the
    first such array is met, or the `engine` of this name is asked for. What is registered later is
    asked first.
    """
    KINDS.insert(0, (kind, load))
    ENGINES.update({engine: load} if engine else {})
    KNOWN.clear()


def library_of(x: Array) -> Library:
    """The library that computes with an array; NumPy's for numbers, lists and anything else."""
    return KNOWN.get(type(x)) or _found(x)


def module_of(x: Array) -> Any:
    """The functions for an array by NumPy's names: NumPy, or the module of its library."""
    return library_of(x).module


def is_kept(x: object) -> bool:
    """Whether products with this array stay in its library, and are not turned into NumPy's."""
    return library_of(x).keeps


def library_of_engine(engine: str | None) -> Library | None:
    """The library whose arrays an engine computes with; None for one that takes NumPy's."""
    load = ENGINES.get((engine or "").partition(":")[0])
    return None if load is None else load()


def place_of_engine(engine: str | None) -> Place | None:
    """Where an engine computes, `"torch:cuda"` on a GPU; None for one that takes NumPy's arrays."""
    library = library_of_engine(engine)
    return None if library is None else library.place_on(str(engine).partition(":")[2])


def runs_on(engine: str | None, x: object) -> bool:
    """Whether an engine computes with an array as it is, and not with a copy of NumPy's."""
    library = library_of(x)
    return library.keeps and engine is not None and library.engine == engine.partition(":")[0]


def _found(x: Array) -> Library:
    kinds = ((_type(kind), load) for kind, load in KINDS)
    load = next((load for kind, load in kinds if kind and isinstance(x, kind)), None)
    found = KNOWN[type(x)] = library_of(NOTHING) if load is None else load()
    return found


def _type(kind: type | str) -> type | None:
    """A type, by its name too; None as long as its module is not imported."""
    if not isinstance(kind, str):
        return kind
    module, _, name = kind.rpartition(".")
    return getattr(sys.modules.get(module), name, None)


@singledispatch
def reading(array: Array) -> Op:
    """The vocabulary that computes with `array`; each reading registers its own array type."""
    library = library_of(array)
    if not (library.keeps or isinstance(array, np.ndarray | np.generic)):
        kind = type(array).__name__
        raise TypeError(f"no reading of the vocabulary is registered for {kind}")
    return library


def reading_of(*arrays: Array) -> Op:
    """The vocabulary for several `arrays`: NumPy arrays are constants in every other reading, and
    what a reading computes by is constant in it.
    """
    foreign = [a for a in arrays if not isinstance(a, np.ndarray | np.generic)]
    found = [reading(a) for a in foreign or arrays[:1]]
    return next((op for op in found if getattr(op, "over", None)), found[0])
