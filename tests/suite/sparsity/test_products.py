"""Entries that are products of tensors, some of which the model computes as well."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from onnx import TensorProto, helper

import onnxjac as oj

from .models import model
from .test_relinearize import linearized, method, point

CUBE = [("Mul", ["u", "u"], ["s"]), ("Mul", ["s", "u"], ["f"])]
FIFTH = [("Mul", ["u", "u"], ["s"]), ("Mul", ["s", "u"], ["c"]), ("Mul", ["c", "s"], ["f"])]
TURNED = [("Mul", ["u", "w"], ["a"]), ("Mul", ["w", "a"], ["b"]), ("Mul", ["a", "u"], ["c"]),
          ("Mul", ["b", "c"], ["f"])]  # fmt: skip
POWERS = {"cube": (CUBE, 3), "fifth": (FIFTH, 5), "both orders": (TURNED, 3)}


def power(nodes, dtype=TensorProto.DOUBLE, shape=(3, 4)):
    w = np.ones(shape, helper.tensor_dtype_to_np_dtype(dtype))
    return linearized(model(nodes, {"w": w}, shape, dtype=dtype))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("name", POWERS)
def test_powers_by_multiplications_have_their_slopes_at_any_point(name, transposed):
    """d uᵏ = k uᵏ⁻¹, with uᵏ computed by multiplications; also at u = 0 and u = 1."""
    nodes, k = POWERS[name]
    J = power(nodes)
    J = J.T if transposed else J
    out = J.tosparse()
    for u in (np.zeros((3, 4)), np.ones((3, 4)), point(J.route.model, 3)["u"]):
        K = J.relinearize({"u": u})
        expected = np.diag((k * u ** (k - 1)).ravel())
        assert_allclose(K.tosparse().toarray(), expected, rtol=1e-13, atol=1e-13)
        assert_array_equal(K.tosparse(out=out).data, K.tosparse().data)


def test_a_sum_with_a_product_leaves_the_point_alone():
    """The Jacobian of u - u³ is diag(1 - 3 u²); the point's copy of u is not touched."""
    nodes = [("Mul", ["u", "u"], ["s"]), ("Mul", ["s", "u"], ["c"]), ("Sub", ["u", "c"], ["f"])]
    J = power(nodes)
    for seed in (1, 2):
        K = J.relinearize(point(J.route.model, seed))
        u = K.point["u"].copy()
        assert_allclose(K.tosparse().toarray(), np.diag((1 - 3 * u**2).ravel()), rtol=1e-13)
        assert_array_equal(K.point["u"], u)


def test_two_outputs_share_a_product():
    """∂f/∂u = diag(1 - 3 u²) and ∂g/∂u = diag(3 u²) share u²."""
    nodes = [*CUBE, ("Sub", ["u", "f"], ["g"])]
    J = network(nodes, u=[5], f=[5], g=[5])
    check(J, *(point(J.route.model, seed) for seed in (1, 2)))


def test_halves_are_multiplied_again():
    """Products that the model rounds to float16 are recomputed in float32."""
    J = power(CUBE, TensorProto.FLOAT16)
    assert_allclose(J.tosparse().toarray(), J.toarray(), rtol=2e-3)


def network(nodes, **shapes):
    """J of `f` at a point, all tensors in double precision."""
    ends = [helper.make_tensor_value_info(n, TensorProto.DOUBLE, s) for n, s in shapes.items()]
    inputs, outputs = ([e for e in ends if (e.name in "fg") == out] for out in (False, True))
    made = [helper.make_node(*node[:3], **dict(node[3:])) for node in nodes]
    graph = helper.make_graph(made, "network", inputs, outputs)
    opsets = [helper.make_opsetid("", 21)]
    return linearized(helper.make_model(graph, opset_imports=opsets, ir_version=10))


def check(J, *points):
    for K in map(J.relinearize, points):
        assert_allclose(K.tosparse().toarray(), K.toarray(), rtol=1e-13, atol=1e-13)


@pytest.mark.filterwarnings("ignore:.*zero blocks")
def test_a_product_that_no_operator_of_a_block_holds():
    """∂g/∂z = u ∘ u, but u² belongs to another output: other points of the block would lack it."""
    named = (("u", "u", "s"), ("s", "u", "f"), ("u", "z", "t"), ("t", "u", "g"))
    J = network([("Mul", [a, b], [c]) for a, b, c in named], u=[3], z=[3], f=[3], g=[3])
    for seed in (1, 2, 3):
        K = J.relinearize(point(J.route.model, seed))["g", "z"]
        assert method(K) is method(J["g", "z"])
        assert_allclose(K.tosparse().toarray(), np.diag(np.square(K.point["u"])), rtol=1e-13)


def test_entries_of_different_places_are_no_entry_of_the_product():
    """f = u² ∘ z + (z ∘ u)ᵀ ∘ u: ∂f/∂z holds u², and u[i, j] u[j, i], which differs from it."""
    nodes = [("Mul", ["u", "u"], ["s"]), ("Mul", ["s", "z"], ["c"]), ("Mul", ["z", "u"], ["a"]),
             ("Transpose", ["a"], ["b"]), ("Mul", ["b", "u"], ["d"]), ("Add", ["c", "d"], ["f"])]
    J = network(nodes, u=[3, 3], z=[3, 3], f=[3, 3])["f", "z"]
    check(J, J.point, point(J.route.model, 1))


def test_a_row_times_a_column_is_no_product_of_entries():
    """All three products are held, with different shapes."""
    nodes = [("Mul", ["x", "x"], ["a"]), ("Mul", ["y", "y"], ["b"]), ("Mul", ["x", "y"], ["c"]),
             ("Mul", ["c", "c"], ["d"]), ("Sum", ["a", "b", "d"], ["f"])]  # fmt: skip
    J = network(nodes, x=[1, 3], y=[3, 1], f=[3, 3])
    check(J, J.point, point(J.route.model, 1))


def test_inputs_that_are_one_array_at_one_point():
    """At x = y, x ∘ y may stand for x ∘ x; where they differ it must not."""
    nodes = [("Mul", ["x", "y"], ["a"]), ("Mul", ["x", "x"], ["b"]), ("Mul", ["a", "b"], ["f"])]
    same, other = np.arange(1.0, 4.0), np.full(3, 0.5)
    same.flags.writeable = False  # otherwise each input is copied
    both, apart = {"x": same, "y": same}, {"x": same, "y": other}
    J = network(nodes, x=[3], y=[3], f=[3])
    check(oj.linearize(J.route.model, both), both, apart, both, apart)


def test_two_jacobians_share_a_pattern_and_an_out():
    J = power(CUBE)
    K = oj.linearize(J.route.model, point(J.route.model, 5))
    out = J.tosparse()
    assert method(K) is method(J)
    for L in (K, J, J.relinearize(K.point), K.relinearize(J.point)):
        assert_array_equal(L.tosparse(out=out).data, L.tosparse().data)
        assert_allclose(out.toarray(), L.toarray(), rtol=1e-13, atol=1e-13)
