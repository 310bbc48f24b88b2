"""What operators promise beside their numbers: they are whole, count their work, say what is
wrong.
"""

import io

import numpy as np
import pytest

from onnxjac.jacobians import Diagonal, Eye, Jacobian, Kron, progress
from onnxjac.jacobians.block import Block
from onnxjac.jacobians.dag import Dag
from onnxjac.jacobians.errors import InputError, closest
from onnxjac.jacobians.foreign import as_array
from onnxjac.jacobians.sums import Sum


@pytest.mark.parametrize("missing", ["_apply", "_transpose"])
def test_an_operator_says_what_it_does_and_what_its_transpose_is(missing):
    given = {name: lambda *_: None for name in {"_apply", "_transpose"} - {missing}}
    with pytest.raises(TypeError, match=missing):
        type("Half", (Jacobian,), given)((2,), (2,), float)


def test_a_sum_counts_its_additions():
    d = Diagonal(np.arange(1.0, 6.0))
    assert Sum((d, d, d)).flops == 3 * d.flops + 2 * 5


def test_a_factor_that_is_the_identity_costs_nothing():
    assert Kron(np.ones((3, 4)), Eye(5), batch=()).flops == 2 * 3 * 4 * 5
    assert Kron(Eye(3), np.ones((5, 2)), batch=()).flops == 2 * 3 * 2 * 5


def test_the_rows_of_a_block_share_the_width():
    d = Diagonal(np.arange(2.0, 4.0))
    text = str(Block([[d] * 9 for _ in range(3)]))
    assert text.count("[diag(2), ") == 3
    assert text.count(" more ") == 3


def test_a_graph_without_edges_costs_nothing():
    assert Dag(((2,), (3,)), (), (0,), (1,), np.dtype(float)).flops == 0


def test_a_number_in_an_array_is_no_vector():
    with pytest.raises(ValueError, match="expected 1-d or 2-d"):
        Diagonal(np.arange(1.0, 4.0)) @ np.array(2.0)


def test_the_seconds_of_a_bar_are_those_since_the_start(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(progress.time, "monotonic", lambda: 1007.0)
    progress.Bar(progress.Counter("reading", "rows", 10, stream, 0.0, start=1000.0))
    assert stream.getvalue().endswith(", 7 s")


def test_a_hint_names_up_to_three():
    names = [f"fc1.{part}" for part in ("weight", "offset", "running_mean", "running_var")]
    expected = " Did you mean 'fc1.weight' or 'fc1.offset' or 'fc1.running_mean'?"
    assert closest("fc1", names) == expected


class TracerError(Exception):
    """As JAX raises where a traced array is read."""


@pytest.mark.parametrize(
    ("error", "advice"), [(TracerError, "to_jax"), (ValueError, "bring it to the CPU")]
)
def test_why_an_array_cannot_be_read(error, advice):
    def unreadable(self, *_, **__):
        raise error("no numbers here")

    with pytest.raises(InputError, match=advice):
        as_array(type("Array", (), {"__array__": unreadable})())
