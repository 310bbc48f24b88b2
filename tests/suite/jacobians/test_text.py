"""The repr of composed operators."""

import numpy as np
import pytest

from onnxjac.jacobians.dag import Block
from onnxjac.jacobians.elementwise import Diagonal
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
def test_text(make, text):
    diagonal, dense = Diagonal(np.array([2.0, 3.0])), Dense(np.array([[1.0, 2.0], [3.0, 5.0]]))
    assert str(make(diagonal, dense)) == text


def test_a_last_part_that_is_too_long_is_cut():
    assert len(joined(["a" * 10, "b" * 90], " + ", width=60)) <= 60
