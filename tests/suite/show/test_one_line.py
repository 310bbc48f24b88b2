"""A plain repr is one line of mathematics, however large the thing."""

import numpy as np
import pytest

import onnxjac as oj
from onnxjac.jacobians import Block, Dense, Diagonal, Product, Sum
from show.examples import X, long, network

WIDE = 320
"""The maximum length of a sum of named operators."""

D, E = Diagonal(np.ones(3)), Dense(np.ones((3, 3)))
MANY = {
    "product": Product((D, E) * 2000),
    "sum": Sum((D, E) * 2000),
    "sum of products": Sum((Product((D, E) * 2000),) * 3000),
    "product of sums": Product((Sum((D, E) * 2000),) * 3000),
    "grid": Block([[D if i == j or j == 0 else None for j in range(40)] for i in range(40)]),
    "column": Block([[E]] * 500),
}


@pytest.mark.parametrize("name", MANY)
def test_many_parts_are_abbreviated(name):
    text = repr(MANY[name])
    assert len(text) <= 220
    assert "\n" not in text
    assert " more …" in text


def test_short_products_are_written_out():
    assert repr(Product((D, E, D))) == "diag(3) · dense(3×3) · diag(3)"
    assert repr(Block([[D, None], [E, D]])) == "[[diag(3), 0], [dense(3×3), diag(3)]]"


def test_the_ends_of_a_long_product_are_shown():
    text = repr(Product((E, *(D,) * 1000, E)))
    assert text.startswith("dense(3×3) · diag(3)")
    assert text.endswith("more … · dense(3×3)")


def test_models_and_jacobians_of_many_tensors():
    names = [f"a_rather_long_name_of_a_tensor_{k}" for k in range(200)]
    model = long(5)
    assert "\n" not in repr(model)
    assert repr(model).startswith("Model 'chain': (t0 float64[4]) ↦ (t5 float64[4]), opset 21")
    J = oj.linearize(network(), {"x": X}, wrt=["x", "W"])
    specs = tuple(J.domain[0]._replace(name=name) for name in names)
    H = oj.hessian(network(), {"x": X}, weights=np.ones((1, 3)))
    product = J @ J.T
    H.domain, J.domain = specs, specs
    for operator in (H, J, product):
        assert len(repr(operator)) <= WIDE
        assert "more …" in repr(operator)
