"""Structures: one array, or a list, tuple or dict of arrays of any library, as one flat vector."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...jacobians import size
from ...jacobians.arrays import as_array, is_foreign, like
from ...jacobians.errors import InputError
from ...jacobians.readings import is_kept, library_of
from ...jacobians.threads import cached_property


@dataclass(frozen=True)
class Structure:
    """Named arrays ↔ one vector of float64, in which a complex number is two real ones.

    `build` makes the structure of its arrays; a single array has the name "".
    """

    names: tuple[str, ...]
    arrays: tuple[Any, ...]
    build: Callable[[list[Any]], Any]

    @cached_property
    def dtypes(self) -> tuple[np.dtype, ...]:
        """The dtypes; raises `InputError` unless all numbers are floating."""
        found = tuple(numbers_in_array(array).dtype for array in self.arrays)
        for name, dtype in zip(self.names, found, strict=True):
            if dtype.kind not in "fc" and "float" not in dtype.name:
                raise InputError(f"{name or 'an array'} of {dtype} has no derivative: give "
                                 "floating numbers")  # fmt: skip
        return found

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many real numbers are in each array."""
        pairs = zip(self.arrays, self.dtypes, strict=True)
        return tuple(size(tuple(np.shape(a))) * (1 + (d.kind == "c")) for a, d in pairs)

    @cached_property
    def parts(self) -> np.ndarray:
        """The index of the array that each entry of the vector belongs to."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    def vector(self) -> np.ndarray:
        """The entries of these arrays."""
        return self.flat(self.build(list(self.arrays)), "it")

    def flat(self, value: Any, what: str) -> np.ndarray:
        """The entries of a value of this structure; raises `InputError` for another one."""
        found = structure_of(value, what)
        if found.text != self.text:
            raise InputError(f"{what} gives {found.text} instead of {self.text}")
        wide = (np.complex128 if dtype.kind == "c" else np.float64 for dtype in self.dtypes)
        parts = (numbers_in_array(array).astype(dtype).reshape(-1).view(np.float64)
                 for array, dtype in zip(found.arrays, wide, strict=True))  # fmt: skip
        return np.concatenate([np.empty(0), *parts])

    def structured(self, vector: np.ndarray) -> Any:
        """A fresh value of this structure, of the same dtypes and libraries, with these entries."""
        parts = np.split(vector, np.cumsum(self.sizes)[:-1])
        held = zip(self.arrays, self.dtypes, parts, strict=True)
        return self.build([array_like(*part) for part in held])

    @property
    def text(self) -> str:
        """The names and shapes of the arrays.

        >>> structure_of({"W": np.ones((2, 3)), "b": np.ones(3)}, "x").text
        'W [2, 3], b [3]'
        """
        pairs = zip(self.names, self.arrays, strict=True)
        return ", ".join(f"{name} {list(np.shape(a))}".strip() for name, a in pairs)


def structure_of(value: Any, what: str) -> Structure:
    """The structure of a value; raises `InputError` where it holds something that is no array."""
    if isinstance(value, Mapping):
        keys = tuple(value)
        named = Structure(tuple(map(str, keys)), tuple(value.values()),
                          lambda arrays: dict(zip(keys, arrays, strict=True)))  # fmt: skip
    elif isinstance(value, tuple | list) and any(map(is_array_of_any, value)):
        names, kind = tuple(f"[{k}]" for k in range(len(value))), type(value)
        named = Structure(names, tuple(value), list if kind is list else tuple)
    else:
        listed = isinstance(value, tuple | list | int | float | complex)
        array = np.asarray(value) * 1.0 if listed else value
        named = Structure(("",), (array,), lambda arrays: arrays[0])
    for name, array in zip(named.names, named.arrays, strict=True):
        if not is_array_of_any(array):
            raise InputError(f"{what} gives {name} {type(array).__name__}, which is no array")
    return named


def is_array_of_any(value: Any) -> bool:
    """Whether a value is an array of NumPy, or of another library."""
    return isinstance(value, np.ndarray | np.generic) or is_kept(value) or is_foreign(value)


def numbers_in_array(array: Any) -> np.ndarray:
    """The numbers of an array of any library."""
    return as_array(array)


def array_like(array: Any, dtype: np.dtype, entries: np.ndarray) -> Any:
    """A fresh array of the library of `array`, with these entries."""
    pairs = entries.view(np.complex128) if dtype.kind == "c" else entries
    made = pairs.reshape(np.shape(array)).astype(dtype)
    if is_kept(array):
        return like(made, library_of(array).detached(array))
    return array.__array_namespace__().asarray(made) if is_foreign(array) else made
