"""The tables of the modules, which all users share, are the same after use as before it."""

from collections.abc import MutableMapping, MutableSequence, MutableSet
from importlib import import_module

import mpmath
import numpy as np
import pytest

from concurrency.test_state import everything
from concurrency.workers import KINDS, jacobian, products
from house import modules
from onnxjac.jacobians import Diagonal
from onnxjac.ops.symbols.exact import DIGITS, MP
from onnxjac.ops.symbols.number import Number

KEPT = {
    "onnxjac.modes.locks.LOCKS": "open again in a forked process",
    "onnxjac.modes.primal.engines.sessions.SESSIONS": "made again in a forked process",
}
"""What lists objects of all users without showing one to another."""


@pytest.fixture(scope="module")
def tables():
    """Name -> value, of all that can be added to and is held by a module."""
    found = {}
    for name in (n for n in modules() if not n.endswith("__main__")):
        for key, value in vars(import_module(name)).items():
            changeable = isinstance(value, MutableMapping | MutableSequence | MutableSet)
            if changeable and not key.startswith("__"):
                found.setdefault(id(value), (f"{name}.{key}", value))
    return dict(found.values())


def entries(table):
    """What is in a table, flat."""
    return [x for pair in table.items() for x in pair] if hasattr(table, "items") else list(table)


def changed(tables, before):
    """The names of the tables that hold something else now."""
    return {
        name
        for name, old in before.items()
        if list(map(id, entries(tables[name]))) != list(map(id, old))
    }


def test_tables_of_modules_are_left_as_they_are(tables):
    before = {name: entries(table) for name, table in tables.items()}
    everything()
    for kind in KINDS.values():
        products(kind(jacobian()))
    assert changed(tables, before) <= KEPT.keys()


def test_what_is_added_to_a_table_is_seen(tables):
    name = "onnxjac.ops.registry.DECLARATIONS"
    before = {name: entries(tables[name])}
    tables[name]["Nothing"] = None
    try:
        assert changed(tables, before) == {name}
    finally:
        del tables[name]["Nothing"]


def test_digits_of_the_process_stay_as_they_are():
    """The precision of mpmath is one for all threads; ours is of a context of our own."""
    before, seen = mpmath.mp.dps, []
    x = Number(MP.mpf(2), MP.mpf(2), {})
    root = x.made(lambda e: e, lambda at: seen.append(mpmath.mp.dps) or MP.sqrt(at))
    assert seen == [before]
    assert abs(root.at**2 - 2) < MP.mpf(10) ** (2 - DIGITS)


def test_a_transpose_is_one_object_for_all_threads(monkeypatch):
    """Another thread has built it meanwhile: its one is kept."""
    J, first = Diagonal(np.ones(2)), Diagonal(np.ones(2))

    def overtaken(self):
        vars(self)["T"] = first
        return Diagonal(self.d)

    monkeypatch.setattr(Diagonal, "_transpose", overtaken)
    assert J.T is first
    assert J.T is first
