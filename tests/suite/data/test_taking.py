"""Functions of a point that accept data instead: reductions, shared values and sampling."""

import inspect

import numpy as np
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj
from data.regressions import DATA, UNEVEN, W, X, jacobian, softmax_hessian, softmax_regression
from onnxjac.jacobians.errors import InputError
from onnxjac.modes.curvature.fisher import empirical_fisher, fisher
from onnxjac.modes.curvature.gauss_newton import gauss_newton
from onnxjac.modes.data.adapter import DataOptions, takes_data

SHARED = {"W": W}
TIGHT = {"rtol": 1e-12, "atol": 1e-12}


@pytest.mark.parametrize(
    ("function", "options"),
    [
        (oj.hessian, {"of": "loss"}),
        (gauss_newton, {"of": "loss", "at": "logits"}),
        (fisher, {"at": "logits"}),
    ],
)
@pytest.mark.parametrize(("reduction", "scale"), [("mean", 1 / 23), ("sum", 1.0)])
def test_curvature_of_softmax_regression(function, options, reduction, scale):
    """All give the closed form, with one batch and with many."""
    model, over = softmax_regression(reduction), takes_data()(function)
    whole = over(model, DATA, wrt="W", shared=SHARED, reduction=reduction, **options)
    cut = over(model, UNEVEN, wrt="W", shared=SHARED, reduction=reduction, **options)
    rows = over(
        model, DATA, wrt="W", shared=SHARED, reduction=reduction, batch_size=7, keep=99, **options
    )
    for C in (whole, cut, rows):
        assert_allclose(C.toarray(), scale * softmax_hessian(X), **TIGHT)


@pytest.mark.parametrize(("reduction", "scale"), [("mean", 1 / 23), ("sum", 1.0)])
def test_the_empirical_fisher_keeps_its_scale(reduction, scale):
    model, over = softmax_regression(reduction), takes_data()(empirical_fisher)
    options = {"of": "loss", "at": "logits", "wrt": "W", "shared": SHARED, "reduction": reduction}
    whole, cut = over(model, DATA, **options), over(model, UNEVEN, **options)
    logits = X @ W
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    r = p - np.eye(3)[DATA["y"]]
    g = np.einsum("ni,nc->nic", X, r).reshape(23, 12)
    assert_allclose(whole.toarray(), scale * g.T @ g, **TIGHT)
    assert_allclose(cut.toarray(), scale * g.T @ g, **TIGHT)


def test_linearisations_are_stacked():
    over = takes_data("stack")(oj.linearize)
    J = over(softmax_regression(), UNEVEN, of="logits", wrt="W", shared=SHARED)
    assert_allclose(J.toarray(), jacobian(X), **TIGHT)


def test_the_model_and_the_data_are_taken_by_name():
    J = oj.linearize(model=softmax_regression(), inputs=UNEVEN, of="logits", wrt="W", shared=SHARED)
    assert_allclose(J.toarray(), jacobian(X), **TIGHT)


def test_gram_matrices_on_both_sides():
    """Jᵀ J is a sum over batches; J Jᵀ, the tangent kernel, couples all of them."""
    options = {"of": "logits", "wrt": "W", "shared": SHARED}
    G = oj.gram(softmax_regression(), UNEVEN, **options)
    J = oj.linearize(softmax_regression(), UNEVEN, **options)
    assert G.T is G
    assert_allclose(G.toarray(), jacobian(X).T @ jacobian(X), **TIGHT)
    assert_allclose((J @ J.T).toarray(), jacobian(X) @ jacobian(X).T, **TIGHT)


def test_the_reduction_has_to_be_stated():
    with pytest.raises(InputError, match="hessian over several batches needs reduction="):
        takes_data()(oj.hessian)(softmax_regression(), UNEVEN, of="loss", wrt="W", shared=SHARED)


def test_samples_are_drawn_anew_for_every_batch_and_the_same_in_every_order():
    model, over = softmax_regression(), takes_data()(fisher)
    options = {"at": "logits", "wrt": "W", "shared": SHARED, "reduction": "sum", "samples": 2}
    twice = [UNEVEN[0], {"x": UNEVEN[0]["x"] + 0.0, "y": (UNEVEN[0]["y"] + 1) % 3}]
    one, other = (over(model, [batch], seed=1, **options).toarray() for batch in twice)
    both = over(model, twice[::-1], seed=1, **options).toarray()
    assert not np.allclose(one, other)
    assert_allclose(both, one + other, **TIGHT)
    assert not np.allclose(both, over(model, twice, seed=2, **options).toarray())


@pytest.mark.parametrize("name", ["linearize", "hessian", "gauss_newton", "fisher", "gram"])
def test_help_explains_what_data_adds(name):
    text = inspect.getdoc(getattr(oj, name))
    assert all(option in text for option in DataOptions.__annotations__)
