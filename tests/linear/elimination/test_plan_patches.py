"""Patches: convolutions of kernels as matrix products, right for every geometry."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from onnxjac.jacobians import Convolution, Dag, Diagonal, Edge, Geometry, Kron
from onnxjac.jacobians.products import factors_of
from onnxjac.modes.linear.elimination.patches import Gathering, gathered, hollow, unfolded
from onnxjac.modes.linear.elimination.plan import plan

FLOAT = np.dtype(float)

GEOMETRIES = [
    Geometry((2, 3, 5), (4, 3, 2), (2, 4, 4), (1,), (1,), (0, 0), 1),
    Geometry((3, 2, 6, 5), (5, 2, 3, 2), (3, 5, 3, 3), (2, 2), (1, 1), (1, 0, 0, 1), 1),
    Geometry((2, 1, 7, 7), (3, 1, 3, 3), (2, 3, 3, 5), (1, 1), (2, 2), (0, 1, 0, 1), 1),
]


def kernel_map(g, held="x"):
    """∂conv/∂kernel with a random signal held, or ∂convᵀ/∂kernel with a random cotangent held."""
    shape, target = (g.x, "u") if held == "x" else (g.u, "x")
    return Convolution(np.random.default_rng(0).standard_normal(shape), "w", target, g)


@pytest.mark.parametrize("g", GEOMETRIES)
@pytest.mark.parametrize("held", ["x", "u"])
@pytest.mark.parametrize("transposed", [False, True])
def test_the_same_matrix(g, held, transposed):
    operator = kernel_map(g, held).T if transposed else kernel_map(g, held)
    operator = operator @ Diagonal(np.arange(1.0, operator.shape[1] + 1).reshape(operator.in_shape))
    found = unfolded(operator, gathered)
    assert not any(isinstance(f, Convolution) for f in factors_of(found))
    assert_allclose(found.toarray(), operator.toarray(), rtol=1e-12, atol=1e-12)
    assert_allclose(found.T.toarray(), operator.T.toarray(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("g", GEOMETRIES)
@pytest.mark.parametrize("held", ["x", "u"])
def test_the_estimate_is_of_the_same_size(g, held):
    operator = kernel_map(g, held)
    assert unfolded(operator, hollow).nbytes == unfolded(operator, gathered).nbytes


def test_a_wide_output_has_its_patches_gathered():
    """No vertex is narrow, so that the kernel keeps its own edge."""
    g = Geometry((4, 8, 16, 16), (8, 8, 3, 3), (4, 8, 16, 16), (1, 1), (1, 1), (1, 1, 1, 1), 1)
    dag = Dag((g.w, g.u), [Edge(0, 1, kernel_map(g))], (0,), (1,), FLOAT)
    found = plan(dag, products=100, memory=2**26)
    (step,), (edge,) = found.steps, found.dag.edges
    assert "patches" in str(step)
    assert any(isinstance(factor, Kron) for factor in factors_of(edge.operator))
    assert step.nbytes == 4 * 256 * 72 * 8
    assert not plan(dag, products=100, memory=step.nbytes - 1).steps


def test_an_operator_and_its_transpose_share_their_patches():
    g = GEOMETRIES[0]
    gather, operator = Gathering(), kernel_map(g)
    assert gather(operator) is gather(operator.T)
    assert gather(operator) is not gather(kernel_map(g, "u"))
