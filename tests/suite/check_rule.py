"""The checker of a rule: the Jacobian of one node against differences of the primal.

Raises AssertionError where a promise is broken. Everything is float64, with NumPy's engine.
"""

import warnings

import numpy as np
from numpy.testing import assert_allclose

from check_operator import TIGHT, check_dot_test
from models.one_node import one_node
from onnxjac.jacobians.errors import OnnxJacWarning
from onnxjac.modes.estimators.norms import frobenius_norm
from onnxjac.modes.estimators.trace import trace
from onnxjac.modes.linearize import linearize
from onnxjac.modes.model.loading.load import load
from onnxjac.modes.sparse import pattern
from sweep.slopes import STEPS, slope_error

SMALL = 10**5
"""The size up to which all entries of a matrix are compared."""


def check_rule(op_type, inputs, attrs=None, *, outputs=1, opset=21, dense=None, seed=0):
    """Check J of one operator at a point; an omitted input is None.

    At a kink, where differences do not apply, `dense` is the expected J.
    """
    feeds = {f"x{i}": np.asarray(x) for i, x in enumerate(inputs) if x is not None}
    model = load(one_node(op_type, inputs, attrs or {}, outputs, opset), dtype="float64")
    if dense is None:
        check_point(model, feeds, seed=seed)
    else:
        J = linearize(model, feeds, engine="numpy")
        check_products(J, seed)
        assert_allclose(J.toarray(), dense, **TIGHT)


def check_point(model, feeds, *, seed=0):
    """J of all floating outputs by all floating inputs: JVP against differences of the primal,
    VJP by the dot test, batched right-hand sides against single ones.
    """
    rng = np.random.default_rng(seed)
    feeds = {name: np.asarray(x).astype(model.inputs[name].dtype) for name, x in feeds.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OnnxJacWarning)  # about zero blocks
        J = linearize(model, feeds, engine="numpy")
    for spec in J.domain:
        check_jvp(model, J, feeds, {spec.name: np.asarray(rng.standard_normal(spec.shape))})
    check_products(J, seed)


def check_products(J, seed):
    """J and Jᵀ are adjoint, batched right-hand sides match single ones, (Jᵀ)ᵀ is J, and matrices
    match products.
    """
    rng = np.random.default_rng(seed)
    if J.shape[0] * J.shape[1] <= SMALL:
        check_entries(J, J @ np.eye(J.shape[1]))
    for K in (J, J.T):
        check_dot_test(K, rng)
        V = rng.standard_normal((K.shape[1], 2))
        assert_allclose(K @ V, np.stack([K @ v for v in V.T], axis=1), **TIGHT)
        assert_allclose(K.T.T @ V, K @ V, **TIGHT)


def check_entries(J, dense):
    """The entries of J and its transpose are those of `dense`, however computed."""
    for K, expected in ((J, dense), (J.T, dense.T)):
        assert K.toarray().shape == K.tosparse().shape == expected.shape
        assert_allclose(K.toarray(), expected, **TIGHT)
        assert_allclose(K.tosparse().toarray(), expected, **TIGHT)
        assert_allclose(K.diagonal(), np.diagonal(expected), **TIGHT)
        assert not np.any(expected[~pattern(K).toarray()])
        norm = frobenius_norm(K, exact=True).value
        assert_allclose(norm, np.linalg.norm(expected), rtol=1e-9, atol=1e-12)
    if len(dense) == len(dense.T):
        assert_allclose(J.trace(), np.trace(dense), rtol=1e-11, atol=1e-11)
        assert_allclose(trace(J, method="exact").value, np.trace(dense), rtol=1e-11, atol=1e-11)


def check_jvp(model, J, feeds, direction):
    """J v is the slope of the primal along v, to 1e-6 with at least one of the step sizes."""

    def run(point):
        return model.run(point, engine="numpy")

    error = slope_error(run, feeds, direction, J.apply(direction), STEPS, 1e-6)
    assert error <= 1e-6, f"J v is not the slope along {list(direction)}: off by {error}"
