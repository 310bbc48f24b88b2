"""Calls: functions called one after the other on numbered values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

Function = Callable[..., Any]


class Call(NamedTuple):
    """outputs ← function(*inputs), by number; the `done` values are not needed afterwards."""

    function: Function
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    done: tuple[int, ...]


def run(calls: Iterable[Call], held: list[Any]) -> None:
    """Call them all, with the values in `held`."""
    for function, inputs, outputs, done in calls:
        made = function(*[held[n] for n in inputs])
        if len(outputs) == 1 and not isinstance(made, tuple):
            held[outputs[0]] = made
        else:
            for n, y in zip(outputs, made, strict=False):
                held[n] = y
        for n in done:
            held[n] = None
