"""A J compiled for numba refreshes its sparse matrix in fused loops: the same results."""

import sys
from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose
from onnx import helper

import onnxjac as oj
from onnxjac.jacobians.errors import InputError
from onnxjac.modes.sparse import stages

from .models import finite_elements, model, stencil_by_convolution, stencil_by_slices
from .test_products import CUBE, FIFTH, TURNED, network, power
from .test_relinearize import linearized, method, point

pytest.importorskip("numba")

def gray_scott():
    """Two reacting fields: u v², elementwise."""
    nodes = [("Mul", ["v", "v"], ["s"]), ("Mul", ["u", "s"], ["r"]), ("Sub", ["u", "r"], ["f"]),
             ("Add", ["v", "r"], ["g"])]  # fmt: skip
    return network(nodes, u=[9], v=[9], f=[9], g=[9])


def many_terms():
    """f = u ∘ A u²: products of entries at any distance from each other."""
    nodes = [("Mul", ["u", "u"], ["s"]), ("MatMul", ["A", "s"], ["t"]), ("Mul", ["t", "u"], ["f"])]
    return linearized(model(nodes, {"A": np.ones((12, 12))}, (12, 12)))


def neighbours():
    """f = (1 + P) (u + P u)³ on a ring: sums of terms of equal length at other positions."""
    nodes = [("Gather", ["u", "next"], ["p"]), ("Add", ["u", "p"], ["v"]),
             ("Mul", ["v", "v"], ["s"]), ("Mul", ["s", "v"], ["c"]),
             ("Gather", ["c", "next"], ["q"]), ("Add", ["c", "q"], ["f"])]  # fmt: skip
    return linearized(model(nodes, {"next": np.roll(np.arange(9), 1)}, (9,)))


MAKERS = {
    "slices": lambda: linearized(stencil_by_slices(12)),
    "convolution": lambda: linearized(stencil_by_convolution(12)),
    "elements": lambda: linearized(finite_elements(7)),
    "cube": lambda: power(CUBE),
    "fifth": lambda: power(FIFTH),
    "both orders": lambda: power(TURNED),
    "single precision": lambda: power(CUBE, 1),
    "two fields": gray_scott,
    "many terms": many_terms,
    "neighbours": neighbours,
}


def check(J):
    """At three points, into one matrix and into new ones."""
    compiled = J.compile("numba")
    out = compiled.tosparse()
    rtol = 1e-6 if J.dtype == np.float32 else 1e-13
    for seed in (1, 2, 3):
        where = point(J.route.model, seed)
        expected = J.relinearize(where).toarray()  # not by the program, whose buffers are reused
        K = compiled.relinearize(where)
        assert_allclose(K.tosparse(out=out).toarray(), expected, rtol=rtol, atol=rtol)
        assert_allclose(K.tosparse().toarray(), expected, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("name", MAKERS)
def test_the_same_numbers(name, transposed):
    J = MAKERS[name]()
    check(J.T if transposed else J)


def test_sums_of_more_terms_than_are_added_one_by_one(monkeypatch):
    monkeypatch.setattr(stages, "ROUNDS", 1)
    J = linearized(finite_elements(6))
    check(J)
    assert "for p in range" in method(J).fused.source


def loops(J):
    return method(J).fused.source.count("prange")


def test_stages_that_read_each_other_entry_by_entry_are_one_loop():
    """1 - 3 u² is written to its destination, without temporaries."""
    nodes = [*CUBE[:1], ("Mul", ["s", "u"], ["c"]), ("Sub", ["u", "c"], ["f"])]
    J = power(nodes)
    assert loops(J) == 1
    assert "x[" not in method(J).fused.source


def test_what_another_loop_reads_is_written_down():
    source = method(linearized(finite_elements(7))).fused.source
    assert source.count("prange") > 1
    assert "x[" in source


def test_only_what_is_compiled_for_numba_is_fused(monkeypatch):
    J = power(CUBE)
    monkeypatch.setitem(sys.modules, "numba", None)
    J.relinearize(point(J.route.model, 1)).tosparse()
    J.compile("numpy").relinearize(point(J.route.model, 2)).tosparse()
    with pytest.raises(InputError, match=r"onnxjac\[numba\]"):
        J.compile("numba").relinearize(point(J.route.model, 3)).tosparse()


def test_many_stages_are_not_compiled():
    """u⁸⁰ by 79 multiplications, each of them a stage."""
    names = ["u", *(f"p{k}" for k in range(78)), "f"]
    J = power([("Mul", [a, "u"], [b]) for a, b in pairwise(names)])
    assert len(method(J).program.stages) > 64
    assert method(J).fused == method(J)._in_turn
    check(J)


def test_a_hessian_is_fused_as_well():
    """The Hessian of Σ u³: 6 diag(u)."""
    ends = [helper.make_tensor_value_info(*end) for end in (("u", 11, [6]), ("f", 11, []))]
    nodes = [helper.make_node("Mul", ["u", "u"], ["s"]), helper.make_node("Mul", ["s", "u"], ["c"]),
             helper.make_node("ReduceSum", ["c"], ["f"], keepdims=0)]  # fmt: skip
    graph = helper.make_graph(nodes, "cubes", ends[:1], ends[1:])
    opsets = [helper.make_opsetid("", 21)]
    loaded = oj.load(helper.make_model(graph, opset_imports=opsets, ir_version=10))
    points = np.random.default_rng(0).standard_normal((4, 6))
    H = oj.hessian(loaded, {"u": points[0]}).compile("numba")
    for u in points:
        H = H.relinearize({"u": u})
        assert_allclose(H.tosparse().toarray(), np.diag(6 * u), rtol=1e-12)
