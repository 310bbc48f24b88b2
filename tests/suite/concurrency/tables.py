"""The shared mutable state of the package: dictionaries, lists and sets of its modules."""

import gc
import threading
from collections.abc import MutableMapping, MutableSequence, MutableSet
from contextlib import suppress
from functools import cache
from importlib import import_module

from house import modules

CHANGEABLE = MutableMapping | MutableSequence | MutableSet
KEPT = {
    "onnxjac.jacobians.arrays.FOREIGN": "dtypes only",
    "onnxjac.jacobians.readings.KNOWN": "types met so far and their libraries only",
    "onnxjac.jacobians.threads.LOCKS": "open again in a forked process",
    "onnxjac.modes.model.programs.onnxruntime.SESSIONS": "made again in a forked process",
}
"""Tables that hold objects of all users without exposing them to one another."""


@cache
def tables():
    """Name -> value, each object under its first name."""
    found = {}
    for module in imported():
        for key, value in vars(module).items():
            if isinstance(value, CHANGEABLE) and not key.startswith("__"):
                found.setdefault(id(value), (f"{module.__name__}.{key}", value))
    return dict(found.values())


def imported():
    """The modules of the package whose libraries are installed."""
    for name in modules():
        with suppress(ModuleNotFoundError):
            if not name.endswith("__main__"):
                yield import_module(name)


def contents():
    """Name -> the objects in a table, without garbage and without tables that may change.

    Products that are prepared in the background, also by tests before this one, are awaited.
    """
    for thread in threading.enumerate():
        if thread.name.startswith("onnxjac:"):
            thread.join()
    gc.collect()
    return {name: ids(table) for name, table in tables().items() if name not in KEPT}


def ids(table):
    """The objects in a table, keys and values alike."""
    pairs = table.items() if isinstance(table, MutableMapping) else [(x,) for x in table]
    return [id(x) for pair in pairs for x in pair]
