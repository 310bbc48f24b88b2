"""Elementwise operators: on both sides of every kink, and with every kind of broadcasting."""

import numpy as np

from .table import at, case, inside, ints, numbers, positive

SIDES = numbers(1.25, -0.75)

case("Neg Abs Exp Erf Sin Cos Tan Sinh Cosh Tanh Asinh Atan", SIDES)
case("Sigmoid Softplus Softsign Mish Gelu Relu LeakyRelu Elu Celu Selu", SIDES)
case("Reciprocal", SIDES)
case("Sqrt Log", positive(2), positive=(0,))
case("Asin Acos Atanh", inside(2))
case("Acosh", numbers(1.5, 3.25))
case("Gelu", SIDES, approximate="tanh")
case("Swish", SIDES)
case("Swish", SIDES, alpha=1.5)
case("LeakyRelu Elu Celu", SIDES, alpha=0.25)
case("Selu", SIDES, alpha=1.5, gamma=0.75)
case("ThresholdedRelu", numbers(0.5, 1.5))
case("ThresholdedRelu", numbers(0.5, -0.5), alpha=-0.25)
case("HardSigmoid", numbers(-4, 0.5, 4))
case("HardSigmoid", numbers(-4, 0.5, 4), alpha=0.5, beta=0.25)
case("HardSwish", numbers(-4, 0.5, 4))
case("Shrink", numbers(-2, 0.25, 2), bias=0.5, lambd=1.0)
case("Tanh Neg", at())
case("PRelu", at(2, 2), at(2, seed=1))
case("PRelu", at(2, 3, 1), at(3, 1, seed=1))

for a, b in (((2,), (2,)), ((2, 1), (3,)), ((2,), ()), ((), (2, 2)), ((2, 2), (1, 2))):
    case("Add Sub Mul Sum Mean Max Min", a, b)
    case("Div", a, positive(*b, seed=1))
    case("Mod", a, positive(*b, seed=1), fmod=1)
    case("Pow", positive(*a), b, positive=(0,))
case("Sum Mean Max Min", (2, 1), (3,), ())
case("Sum Mean Max Min", (2,))
case("Pow", at(3), ints(2, 3, 1))
case("Where", np.array([True, False]), (2,), (2,))
case("Where", np.array([[True], [False]]), (2,), ())
case("Clip", numbers(-3, 0.5, 3), np.array(-1.0), np.array(1.0))
case("Clip", numbers(-3, 3), np.array(0.25), None)
case("Clip", numbers(-3, 3), None, np.array(0.25))
case("Clip", numbers(-3, 3))
case("Identity", (2, 2))
case("Cast", (2,), to=1)
case("CastLike", (2,), np.zeros((), np.float64), wrt=(0,))
case("Dropout", (2, 2))
