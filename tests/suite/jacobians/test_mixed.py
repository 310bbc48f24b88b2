"""Mixed products of Kronecker products, also with reshapes and permutations between them."""

from itertools import permutations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from onnxjac.jacobians import Eye, Kron, Permutation, Product, Reshape
from onnxjac.jacobians.arrays import fits
from onnxjac.jacobians.products import commuted, factors_of
from onnxjac.jacobians.symint import Symbols

from .examples import Draw

N = Draw(0).normal
CLOSE = {"rtol": 1e-11, "atol": 1e-11}


def shape_pairs(batch, count):
    """Some other shapes of the tensors that a Kronecker product of this batch gives."""
    return (count * 4, 6), (*batch, 1, 4, 6), (count, 4, 6), (*batch, 2, 2, 6), (*batch, 4, 2, 3)


@pytest.mark.parametrize("stack", [(), (1,), (3,), (2, 3), (2, 1)])
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)], ids=str)
def test_layouts_commute_with_kronecker_products(batch, stack):
    """Wherever a matrix still acts on one of the last two axes."""
    if not fits(stack, batch):
        return
    met, A, B = 0, N(*stack, 4, 5), N(*stack, 6, 7)
    for left, right in ((A, Eye(6)), (Eye(4), B), (N(4, 5), B)):
        K = Kron(left, right, batch)
        count = int(np.prod(batch))
        layouts = [Permutation(p, K.out_shape, float) for p in permutations(range(len(batch) + 2))]
        layouts += [Reshape(s, K.out_shape, float) for s in shape_pairs(batch, count)]
        for layout in layouts:
            found = commuted(layout, K)
            if found:
                met += 1
                J = Product((layout, K))
                assert type(found[0]) is Kron
                assert_allclose(Product(found).toarray(), J.toarray(), **CLOSE)
            last = (len(batch), len(batch) + 1)
            assert found or not (isinstance(layout, Permutation) and layout.perm[-2:] == last)
    assert met >= 6


@pytest.mark.parametrize("name", ["transpose", "flat", "batch", "split", "heads"])
def test_products_merge_across_layouts(name):
    """K L H is one Kronecker product and a layout, however the product is bracketed."""
    K, L, H = {
        "transpose": lambda: (Kron(N(4, 3), Eye(5), ()), Permutation((1, 0), (5, 3), float),
                              Kron(Eye(5), N(3, 2), ())),
        "flat": lambda: (Kron(Eye(6), N(4, 3), ()), Reshape((6, 3), (2, 3, 3), float),
                         Kron(Eye(3), N(3, 5), (2,))),
        "batch": lambda: (Kron(N(3, 2, 4, 4), Eye(5), (3, 2)),
                          Permutation((1, 0, 2, 3), (2, 3, 4, 5), float),
                          Kron(N(3, 4, 4), Eye(5), (2, 3))),
        "split": lambda: (Kron(Eye(3), N(4, 3), (2,)), Reshape((2, 3, 3), (6, 3), float),
                          Kron(Eye(6), N(3, 5), ())),
        "heads": lambda: (Kron(N(5, 4), Eye(2), (3,)), Permutation((2, 0, 1), (4, 2, 3), float),
                          Kron(Eye(2), N(3, 3), (4,))),
    }[name]()  # fmt: skip
    dense = K.toarray() @ L.toarray() @ H.toarray()
    for J in ((K @ L) @ H, K @ (L @ H)):
        assert_allclose(J.toarray(), dense, **CLOSE)
        assert sum(isinstance(f, Kron) for f in factors_of(J)) == (2 if name == "heads" else 1)


def test_a_product_takes_the_cheaper_order():
    """A X Bᵀ with the factor first that makes X smaller."""
    wide = Kron(N(100, 2), N(3, 100), ())
    assert wide.flops == 2 * (2 * 100 * 3 + 100 * 2 * 3)
    assert wide.T.flops == 2 * (2 * 100 * 3 + 2 * 3 * 100)
    for K in (wide, wide.T):
        v = N(K.shape[1])
        assert_allclose(K @ v, np.kron(K.left, K.right) @ v, **CLOSE)


def test_sizes_that_are_equal_here_alone_do_not_commute():
    n = Symbols().atom("n", 6, lambda op: None)
    K = Kron(Eye(n), np.ones((6, 4)), ())
    assert commuted(Reshape((3, n, 6), (3 * n, 6), float), Kron(Eye(3 * n), K.right, ()))
    assert commuted(Reshape((6, n), K.out_shape, float), K) is None
