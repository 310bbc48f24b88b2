"""Sparse Jacobians of models: at one point, at the next, and with a million unknowns."""

import gc
import time
import weakref

import numpy as np
import pytest
from numpy.testing import assert_allclose
from onnx import TensorProto, helper, numpy_helper

import onnxjac as oj
from onnxjac.modes.sparse import pattern, plan_sparse, sparse
from onnxjac.modes.sparse.choice import Accumulated
from onnxjac.modes.sparse.coloring import Coloring

from .models import (
    finite_elements,
    largest_neighbour,
    model,
    stencil_by_convolution,
    stencil_by_slices,
)

BUILDERS = {"slices": stencil_by_slices, "convolution": stencil_by_convolution,
            "finite elements": finite_elements}  # fmt: skip

every_model = pytest.mark.parametrize("name", BUILDERS)


def linearized(proto, seed=0):
    loaded = oj.load(proto)
    return oj.linearize(loaded, point(loaded, seed))


def point(loaded, seed):
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(spec.shape).astype(spec.dtype)
            for name, spec in loaded.inputs.items()}  # fmt: skip


def method(J):
    return plan_sparse(J, 2**31, symmetric=False).method


@every_model
def test_the_next_points_use_the_first_ones_plan(name):
    J = linearized(BUILDERS[name](6))
    assert_allclose(sparse(J).toarray(), J.toarray(), rtol=1e-12, atol=1e-12)
    found = method(J)
    for seed in range(1, 4):
        K = J.relinearize(point(J.route.model, seed))
        assert_allclose(sparse(K).toarray(), K.toarray(), rtol=1e-12, atol=1e-12)
        assert method(K) is found
        assert_allclose(sparse(K.T).toarray(), K.toarray().T, rtol=1e-12, atol=1e-12)


@every_model
def test_pattern_holds_at_random_points_and_is_exact(name):
    J = linearized(BUILDERS[name](5))
    seen = np.zeros(J.shape, bool)
    for seed in range(20):
        seen |= J.relinearize(point(J.route.model, seed)).toarray() != 0
    assert np.array_equal(pattern(J).toarray(), seen)


def test_a_zero_of_the_point_is_kept():
    J = linearized(stencil_by_slices(4))
    middle = J.relinearize({"u": np.full((4, 4), -1.5)})  # -4 + 1 - 2 u = 0
    assert np.count_nonzero(middle.toarray().diagonal()) == 0
    assert sparse(middle).nnz == sparse(J).nnz


def test_where_entries_stand_may_depend_on_the_point():
    J = linearized(largest_neighbour(8))
    for u in (np.arange(8.0), -np.arange(8.0)):
        K = J.relinearize({"u": u.reshape(1, 1, 8)})
        assert_allclose(sparse(K).toarray(), K.toarray())


def test_two_inputs_that_were_one_array():
    ends = [helper.make_tensor_value_info(n, TensorProto.DOUBLE, [3]) for n in "abf"]
    graph = helper.make_graph([helper.make_node("Mul", ["a", "b"], ["f"])], "g", ends[:2], ends[2:])
    loaded = oj.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]))
    same, other = np.ones(3), np.arange(3.0)
    J = oj.linearize(loaded, {"a": same, "b": same})
    assert_allclose(sparse(J).toarray(), J.toarray())
    K = J.relinearize({"a": same, "b": other})
    assert_allclose(sparse(K).toarray(), K.toarray())


def test_weights_count_as_constant_until_they_change():
    J = linearized(stencil_by_convolution(4))
    kernel = np.ones((1, 1, 3, 3))
    assert sparse(J).nnz == 64
    K = J.relinearize({"u": J.point["u"], "kernel": kernel})
    assert_allclose(sparse(K).toarray(), K.toarray(), rtol=1e-12)


def test_a_network_is_colored_and_the_coloring_reused():
    rng = np.random.default_rng(0)
    constants = {"w": rng.standard_normal((300, 300)), "x": rng.standard_normal((300, 300))}
    nodes = [("MatMul", ["u", "w"], ["h"]), ("Tanh", ["h"], ["t"]), ("MatMul", ["t", "x"], ["f"])]
    J = linearized(model(nodes, constants, (4, 300)))
    found = method(J)
    assert isinstance(found, Coloring)
    K = J.relinearize(point(J.route.model, 1))
    assert method(K) is found
    assert sparse(K).nnz == 4 * 300**2
    assert_allclose(sparse(K).toarray(), K.toarray(), rtol=1e-10, atol=1e-10)


def energy(n):
    """E = Σ (u[i + 1] - u[i])⁴ + Σ u²"""
    constants = {"one": [1], "nil": [0], "end": [n], "last": [n - 1]}
    nodes = [("Slice", ["u", "one", "end"], ["a"]), ("Slice", ["u", "nil", "last"], ["b"]),
             ("Sub", ["a", "b"], ["d"]), ("Mul", ["d", "d"], ["d2"]), ("Mul", ["d2", "d2"], ["d4"]),
             ("Mul", ["u", "u"], ["u2"]), ("ReduceSum", ["d4"], ["p"], ("keepdims", 0)),
             ("ReduceSum", ["u2"], ["q"], ("keepdims", 0)), ("Add", ["p", "q"], ["f"])]  # fmt: skip
    made = [helper.make_node(*node[:3], **dict(node[3:])) for node in nodes]
    ends = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, shape)
            for name, shape in (("u", [n]), ("f", []))]  # fmt: skip
    held = [numpy_helper.from_array(np.array(a), name) for name, a in constants.items()]
    graph = helper.make_graph(made, "energy", ends[:1], ends[1:], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


def test_a_sparse_hessian_has_the_pattern_and_entries_of_the_dense_one():
    H = oj.hessian(oj.load(energy(9)), {"u": np.random.default_rng(0).standard_normal(9)})
    A = sparse(H)
    assert_allclose(A.toarray(), H.toarray(), rtol=1e-12, atol=1e-12)
    assert A.nnz == 9 + 2 * 8
    assert np.array_equal(pattern(H).toarray(), A.toarray() != 0)


def test_plans_go_with_their_model():
    J = linearized(stencil_by_slices(3))
    sparse(J)
    (found,) = map(weakref.ref, J.route.known.values())
    del J
    gc.collect()
    assert found() is None


@pytest.mark.parametrize(("name", "n", "bound"), [
    pytest.param("slices", 1000, 20, marks=pytest.mark.sampled(0)), ("convolution", 1000, 20),
    pytest.param("finite elements", 400, 20, marks=pytest.mark.sampled(0)),
])  # fmt: skip
def test_a_million_unknowns_in_seconds(name, n, bound):
    """CPU seconds within five times the usual; products agree."""
    J = linearized(BUILDERS[name](n))
    start = time.process_time()
    sparse(J)
    K = J.relinearize(point(J.route.model, 1))
    A = sparse(K)
    assert time.process_time() - start < bound
    assert isinstance(method(K), Accumulated)
    v = np.random.default_rng(2).standard_normal(J.shape[1])
    assert_allclose(A @ v, K @ v, rtol=1e-9, atol=1e-9)
