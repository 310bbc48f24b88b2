"""Short versions of the measurements of `python -m endurance`."""

import pytest

from endurance.apart import apart
from endurance.measures import applied
from endurance.models import long_model

KB, MB = 2**10, 2**20


@pytest.mark.parametrize("kind", ["lazy", "numpy", "onnxruntime"])
def test_products_leave_nothing_behind(kind):
    left = apart("products", kind, 300)
    assert left["traced"] < 32 * KB
    assert left["resident"] < 4 * MB


def test_points_leave_nothing_behind():
    left = apart("points", "relinearize", 100)
    assert left["traced"] < 150 * KB
    assert left["resident"] < 6 * MB


def test_time_is_linear_in_nodes():
    """Eight times the nodes take at most 24 times as long; quadratic time would be 64 times."""
    small, large = apart("linearizing", [150, 1200], 3).values()
    for few, many in zip(small, large, strict=True):
        assert many < 24 * few


def test_sixty_stacked_diamonds_apply_each_operator_once():
    """2⁶⁰ paths; each operator is applied once in a product."""
    found = applied(60)
    assert found["edges"] == 60 * 4
    assert found["calls"] == 60 * 3
    assert found["eliminated"] < 60
    assert found["error"] < 1e-12


def test_a_model_is_as_long_as_is_said():
    assert len(long_model(37).graph.node) == 37
