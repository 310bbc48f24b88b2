"""State that threads share inside the library, and how it is protected."""

import mpmath
import numpy as np

from concurrency.tables import KEPT, contents, tables
from onnxjac.jacobians import Diagonal
from onnxjac.ops.registry import DECLARATIONS
from onnxjac.ops.symbols.number import DIGITS, MP, Number


def test_contents_shows_an_entry_added_to_a_table(monkeypatch):
    before = contents()
    monkeypatch.setitem(DECLARATIONS, "Nothing", None)
    after = contents()
    (changed,) = (name for name in before if before[name] != after[name])
    assert tables()[changed] is DECLARATIONS


def test_every_table_that_may_change_is_there():
    assert KEPT.keys() <= tables().keys()


def test_digits_of_the_process_stay_as_they_are():
    """mpmath has one global precision for all threads; we use a context of our own."""
    before, seen = mpmath.mp.dps, []
    x = Number(MP.mpf(2), MP.mpf(2), {})
    root = x.made(lambda e: e, lambda at: seen.append(mpmath.mp.dps) or MP.sqrt(at))
    assert seen == [before]
    assert abs(root.at**2 - 2) < MP.mpf(10) ** (2 - DIGITS)


def test_a_transpose_is_one_object_for_all_threads(monkeypatch):
    """If another thread has built it in the meantime, that one is kept."""
    J, first = Diagonal(np.ones(2)), Diagonal(np.ones(2))

    def overtaken(self):
        vars(self)["T"] = first
        return Diagonal(self.d)

    monkeypatch.setattr(Diagonal, "_transpose", overtaken)
    assert J.T is first
    assert J.T is first
