"""Operators decomposed into primitives: elimination takes passes away, all of them where entries do
not mix.
"""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from onnxjac.jacobians import Kron, size
from onnxjac.jacobians.products import factors_of
from onnxjac.modes.linear.elimination.cost import seconds
from onnxjac.modes.linear.elimination.plan import eliminated, elimination_of
from onnxjac.modes.show.explain import eliminating

from .meter import metered
from .written import WRITTEN, linearized

every = pytest.mark.parametrize("name", WRITTEN)
ENTRYWISE = "Gelu", "tanh Gelu", "SiLU", "BatchNormalization"
ALIKE = [name for name in WRITTEN if name != "SiLU"]  # ONNX 23 has no operator for these


def both(name):
    """The DAG of the decomposition, the DAG of ONNX's own operator, and the size of x."""
    shapes, written, fused = WRITTEN[name]
    return linearized(shapes, written).dag, linearized(shapes, fused).dag, size(shapes["x"])


@every
def test_no_more_passes_and_bytes_than_written(name):
    written, _, full = both(name)
    before, after = metered(written, full), metered(eliminated(written), full)
    assert after.passes <= before.passes
    assert after.nbytes <= before.nbytes
    assert metered(eliminated(written).T, full).passes <= metered(written.T, full).passes


@pytest.mark.parametrize("name", ENTRYWISE)
def test_no_more_passes_and_bytes_than_by_hand(name):
    written, fused, full = both(name)
    by_hand = metered(fused, full)
    for dag in (eliminated(written), eliminated(fused)):
        found = metered(dag, full)
        assert found.passes <= by_hand.passes
        assert found.nbytes <= by_hand.nbytes
        assert metered(dag.T, full).passes <= metered(fused.T, full).passes


@pytest.mark.parametrize("name", ALIKE)
def test_written_and_fused_operators_are_the_same_matrix(name):
    written, fused, _ = both(name)
    rng = np.random.default_rng(1)
    V, U = rng.standard_normal((written.shape[1], 3)), rng.standard_normal((written.shape[0], 3))
    for dag in (eliminated(written), eliminated(fused)):
        assert_allclose(dag @ V, fused @ V, rtol=1e-6, atol=1e-6)
        assert_allclose(dag @ V, written @ V, rtol=1e-6, atol=1e-6)
        assert_allclose(dag.T @ U, written.T @ U, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ENTRYWISE)
def test_elementwise_chains_become_one_diagonal(name):
    written, _, full = both(name)
    (edge,) = eliminated(written).edges
    assert repr(edge.operator).startswith("diag")
    assert metered(eliminated(written), full).calls == ["Mul"]


def test_attention_keeps_its_structure():
    written, _, _ = both("attention")
    matrices = [kron_shapes(dag) for dag in (written, eliminated(written))]
    assert matrices[0] == matrices[1]
    assert len(matrices[0]) == 7


def kron_shapes(dag):
    """The matrix products of a DAG, by their shapes."""
    factors = (factor for e in dag.edges for factor in factors_of(e.operator))
    return sorted((k.out_shape, k.in_shape) for k in factors if isinstance(k, Kron))


def test_elimination_reports_its_stretch():
    written, _, _ = both("LayerNormalization")
    done = elimination_of(written)
    assert seconds(done.after) < seconds(written) / 1.5
    ((ends, inside),) = done.inside.items()
    assert ends == (done.after.sources[0], done.after.sinks[0])
    assert len(inside) == 8
    assert eliminating(written).startswith("10 → 2 tensors")
