"""The repr of composed operators, and the texts of hints and progress bars."""

import io

import numpy as np
import pytest

from onnxjac.jacobians import progress
from onnxjac.jacobians.dag import Block
from onnxjac.jacobians.elementwise import Diagonal
from onnxjac.jacobians.errors import closest
from onnxjac.jacobians.matrices import Dense
from onnxjac.jacobians.text import joined


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda d, a: Block([[d, None], [None, d]]), "[[diag(2), 0], [0, diag(2)]]"),
        (lambda d, a: d @ (a + d), "diag(2) · (dense(2×2) + diag(2))"),
        (lambda d, a: (a + d) @ (a + d).T, "(dense(2×2) + diag(2)) · (dense(2×2) + diag(2))"),
    ],
    ids=["an absent block", "a sum as a factor", "sums as factors"],
)
def test_the_text_of_a_composed_operator_is_its_formula(make, text):
    diagonal, dense = Diagonal(np.array([2.0, 3.0])), Dense(np.array([[1.0, 2.0], [3.0, 5.0]]))
    assert str(make(diagonal, dense)) == text


def test_a_last_part_that_is_too_long_is_cut():
    assert len(joined(["a" * 10, "b" * 90], " + ", width=60)) <= 60


def test_the_rows_of_a_block_share_the_width():
    d = Diagonal(np.arange(2.0, 4.0))
    text = str(Block([[d] * 9 for _ in range(3)]))
    assert text.count("[diag(2), ") == 3
    assert text.count(" more ") == 3


def test_the_seconds_of_a_bar_are_those_since_the_start(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(progress.time, "monotonic", lambda: 1007.0)
    progress.Bar(progress.Counter("reading", "rows", 10, stream, 0.0, start=1000.0))
    assert stream.getvalue().endswith(", 7 s")


def test_a_hint_names_up_to_three():
    names = [f"fc1.{part}" for part in ("weight", "offset", "running_mean", "running_var")]
    expected = " Did you mean 'fc1.weight' or 'fc1.offset' or 'fc1.running_mean'?"
    assert closest("fc1", names) == expected
