"""The NumPy program computes what the operator does, and keeps what `check_operator` promises."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from check_operator import check_operator
from onnxjac.modes.products.compiled import Compiled

from ..jacobians.convolutions import GEOMETRIES, PAIRS, convolution
from ..jacobians.examples import EXAMPLES, Draw

every_example = pytest.mark.parametrize("name", EXAMPLES)
every_geometry = pytest.mark.parametrize("name", GEOMETRIES)
every_pair = pytest.mark.parametrize("pair", PAIRS, ids=" to ".join)


@every_example
def test_operator(name):
    J, dense = EXAMPLES[name][1](Draw(1))
    check_operator(Compiled(J, "numpy"), dense)


@every_geometry
@every_pair
def test_convolution(name, pair):
    J, dense = convolution(Draw(3), *pair, GEOMETRIES[name])
    check_operator(Compiled(J, "numpy"), dense)


@every_example
def test_single_precision_stays_single(name):
    J, dense = EXAMPLES[name][1](Draw(4, np.float32))
    for K, matrix in ((J, dense), (J.T, dense.T)):
        V = Draw(6, np.float32).normal(K.shape[1], 2)
        product = Compiled(K, "numpy") @ V
        assert product.dtype == np.float32
        assert_allclose(product, matrix @ V, rtol=1e-4, atol=1e-5)
