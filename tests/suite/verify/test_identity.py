"""How an expression is decided to be zero: by algebra, else by numbers."""

import pytest
import sympy as sp

from onnxjac.modes.verify.check import is_zero_polynomial, unsigned

x, y = sp.symbols("x y", real=True)


def test_a_sign_is_decided_at_the_point():
    expr = sp.Abs(x) + sp.sign(x) + sp.DiracDelta(x)
    assert unsigned(expr, {x: sp.Integer(-2)}) == -x - 1


SIGMOID = 1 / (1 + sp.exp(-x * y - y / 2))
POWER = (x**2 + 1) ** sp.Rational(-3, 4)


@pytest.mark.parametrize(
    ("expr", "same"),
    [
        (sp.diff(SIGMOID, x), y * SIGMOID * (1 - SIGMOID)),
        (sp.tanh(x * SIGMOID), sp.tanh(x / (1 + sp.exp(-y * (2 * x + 1) / 2)))),
        (sp.exp(x / 2 + y) * sp.exp(x / 2 + y), 1 / sp.exp(-x - 2 * y)),
        (sp.diff(POWER, x), -sp.Rational(3, 2) * x * POWER / (x**2 + 1)),
    ],
)
def test_a_polynomial_in_denominators(expr, same):
    assert is_zero_polynomial(expr - same)
    assert not is_zero_polynomial(expr - same * (1 + x / 1000))
