"""Every way to compute a product agrees: plain, planned, compiled, after many products."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj
from onnxjac.modes.linear.elimination.plan import plan
from onnxjac.modes.model.programs import program
from onnxjac.modes.model.programs.onnxruntime import EngineError
from onnxjac.ops.numbers import numbers

from .random_models import Model

pytestmark = pytest.mark.filterwarnings("ignore::onnxjac.OnnxJacWarning")
TOLERANCE = {"float64": 1e-9, "float32": 3e-4}


def drawn(seed, dtype):
    """J between tensors of a random model, and its matrix by sweeps over the original DAG."""
    model = Model(seed, dtype)
    of, wrt = model.ends()
    J = oj.linearize(oj.load(model.proto()), model.point, of=of, wrt=wrt)
    return J, J.dag._apply(numbers, np.eye(J.shape[1], dtype=dtype)).T


def assert_agrees(J, matrix, way):
    """J v, J V, Jᵀ u and Jᵀ U are products with the matrix."""
    tolerance, rng = TOLERANCE[matrix.dtype.name], np.random.default_rng(0)
    scale = max(abs(matrix).max(initial=0), 1e-6)
    for K, expected in ((J, matrix), (J.T, matrix.T)):
        single = rng.uniform(-1, 1, K.shape[1]).astype(matrix.dtype)
        for v in (single, np.eye(K.shape[1], dtype=matrix.dtype)):
            try:
                product = K @ v
            except EngineError:  # a kernel that ONNX Runtime does not have in this precision
                continue
            assert_allclose(product, expected @ v, rtol=0, atol=tolerance * scale * 10, err_msg=way)


@pytest.mark.sampled(0.4)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("seed", range(40))
def test_products_of_random_models(seed, dtype):
    J, matrix = drawn(seed, dtype)
    assert_agrees(J, matrix, "plain")
    for products in (10, 1000, 10**5):
        assert_agrees(J.plan(products=products), matrix, f"planned for {products}")
    assert_agrees(J.compile("numpy", products=10**5), matrix, "planned and compiled")
    found = [None, *(name for name in program.ENGINES if is_there(name))]
    for engine in found if seed % 8 == 0 else (None, "numpy"):
        assert_agrees(J.compile(engine), matrix, f"compiled for {engine}")
    J @ np.zeros((J.shape[1], 2500), dtype)
    assert_agrees(J, matrix, "after many products")


def is_there(engine):
    """Whether an engine is installed."""
    try:
        program.compiler(engine)
    except oj.OnnxJacError:
        return False
    return True


def test_random_models_are_planned():
    """Plans add direct edges to most of the DAGs compared above."""
    dags = [drawn(seed, "float64")[0].dag for seed in range(20)]
    assert sum(plan(dag, products=10**5) is not dag for dag in dags) > 10
