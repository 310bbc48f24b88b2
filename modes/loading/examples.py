"""Examples: what a Python function is called with, so that it can be traced."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...jacobians.errors import LoadError, closest
from ...jacobians.foreign import is_foreign

Batch = bool | Iterable[str]
"""Whose first axis is of any size: every argument, none, or those that are named."""


def arguments_of(function: Callable[..., Any], examples: Any) -> inspect.BoundArguments:
    """Example inputs by the names that the function gives them.

    >>> dict(arguments_of(lambda x, *, scale=1: x, {"x": 3}).arguments)
    {'x': 3}
    """
    if examples is None:
        raise LoadError("a module or function needs example_inputs=(x, ...) to be traced with")
    signature = inspect.signature(function)
    args, named = ((), dict(examples)) if isinstance(examples, Mapping) else (several(examples), {})
    try:
        return signature.bind(*args, **named)
    except TypeError as error:
        raise LoadError(f"example_inputs do not fit {signature}: {error}.") from error


def several(examples: Any) -> tuple[Any, ...]:
    """A tuple or list of arguments, or one array alone."""
    return tuple(examples) if isinstance(examples, tuple | list) else (examples,)


def batched(arguments: Mapping[str, Any], batch: Batch) -> frozenset[str]:
    """The names of the arguments whose first axis is of any size."""
    if isinstance(batch, bool):
        return frozenset(arguments if batch else ())
    names = frozenset([batch] if isinstance(batch, str) else batch)
    for name in names - arguments.keys():
        raise LoadError(f"dynamic_batch names no argument {name!r}.{closest(name, arguments)}")
    return names


def is_array(value: Any) -> bool:
    """Whether a leaf of the examples becomes an input; numbers, text and None are constants."""
    return is_foreign(value) or type(value).__module__ == "numpy"


def mapped(change: Callable[[Any], Any], value: Any) -> Any:
    """A nest of tuples, lists and dicts with every leaf changed.

    >>> mapped(str, (1, [2, {"a": 3}]))
    ('1', ['2', {'a': '3'}])
    """
    if isinstance(value, tuple | list):
        return type(value)(mapped(change, part) for part in value)
    if isinstance(value, dict):
        return {key: mapped(change, part) for key, part in value.items()}
    return change(value)
