"""Linear, logistic and softmax regression: curvature against textbook formulas."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import expit, softmax

import onnxjac as oj
from onnxjac.modes.curvature.fisher import empirical_fisher, fisher
from onnxjac.modes.curvature.gauss_newton import gauss_newton
from onnxjac.modes.curvature.kfac import ekfac, kfac

from .models import regression

RNG = np.random.default_rng(1)
X, W = RNG.standard_normal((6, 4)), RNG.standard_normal((3, 4))
LABELS = RNG.integers(0, 3, 6)
EXACT = {"rtol": 1e-12, "atol": 1e-12}


def point(likelihood):
    y = {"categorical": LABELS, "bernoulli": np.eye(3)[LABELS], "gaussian": RNG.random((6, 3))}
    return {"x": X, "W": W, "y": y[likelihood]}


def covariance(likelihood, z):
    """The covariance C of one sample."""
    p = softmax(z)
    return {
        "categorical": np.diag(p) - np.outer(p, p),
        "bernoulli": np.diag(expit(z) * (1 - expit(z))),
        "gaussian": np.eye(3),
    }[likelihood]


def expected(likelihood):
    """Σₙ C(zₙ) ⊗ xₙ xₙᵀ for W of shape (outputs, inputs)."""
    return sum(np.kron(covariance(likelihood, W @ x), np.outer(x, x)) for x in X)


def loss_factor(likelihood, reduction):
    """The Hessian of the loss ÷ Σ C, where a mean is taken over all entries of `cost`."""
    entries = 6 if likelihood == "categorical" else 18
    return (2 if likelihood == "gaussian" else 1) / (entries if reduction == "mean" else 1)


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("likelihood", ["categorical", "bernoulli", "gaussian"])
class TestRegression:
    """Models linear in W: Hessian, Gauss-Newton matrix and Fisher coincide."""

    def test_the_fisher_is_the_textbook_formula(self, likelihood, reduction):
        F = fisher(regression(likelihood, reduction), point(likelihood), at="logits", wrt="W",
                   likelihood=likelihood, reduction=reduction)  # fmt: skip
        scale = 1 / 6 if reduction == "mean" else 1
        assert_allclose(F.toarray(), expected(likelihood) * scale, **EXACT)
        assert F.T is F

    def test_hessian_and_gauss_newton(self, likelihood, reduction):
        model, at = regression(likelihood, reduction), point(likelihood)
        truth = expected(likelihood) * loss_factor(likelihood, reduction)
        H = oj.hessian(model, at, of="loss", wrt="W")
        G = gauss_newton(model, at, of="loss", at="logits", wrt="W")
        assert_allclose(H.toarray(), truth, **EXACT)
        assert_allclose(G.toarray(), truth, **EXACT)

    def test_the_empirical_fisher_sums_outer_products_of_gradients(self, likelihood, reduction):
        model, at = regression(likelihood, reduction), point(likelihood)
        z = X @ W.T
        mean = {"categorical": softmax(z, axis=1), "bernoulli": expit(z), "gaussian": z}
        y = np.eye(3)[LABELS] if likelihood == "categorical" else at["y"]
        r = (mean[likelihood] - y) * loss_factor(likelihood, reduction)
        r = r * 6 if reduction == "mean" else r
        g = np.einsum("no,ni->noi", r, X).reshape(6, -1)
        F = empirical_fisher(model, at, of="loss", at="logits", wrt="W", reduction=reduction)
        assert_allclose(F.toarray(), g.T @ g / (6 if reduction == "mean" else 1), **EXACT)

    def test_the_error_of_a_sampled_fisher_shrinks_as_expected(self, likelihood, reduction):
        """The error shrinks as expected; the same seed gives the same operator."""
        model, at = regression(likelihood, reduction), point(likelihood)

        def drawn(samples, seed=0):
            return fisher(model, at, at="logits", wrt="W", likelihood=likelihood, samples=samples,
                          seed=seed, reduction=reduction).toarray()  # fmt: skip

        truth = expected(likelihood) / (6 if reduction == "mean" else 1)
        errors = [np.linalg.norm(drawn(k) - truth) / np.linalg.norm(truth) for k in (100, 10_000)]
        assert errors[1] < 0.05
        assert errors[1] < errors[0] / 3
        assert np.array_equal(drawn(5), drawn(5))
        assert not np.array_equal(drawn(5), drawn(5, seed=1))

    def test_kfac_factors_are_the_textbook_ones_exact_for_one_sample(self, likelihood, reduction):
        """A = mean of x xᵀ, B = sum or mean of C; F itself for one sample."""
        model, at = regression(likelihood, reduction), point(likelihood)
        options = {"at": "logits", "wrt": "W", "likelihood": likelihood, "reduction": reduction}
        (f,) = kfac(model, at, **options).factors["W"]
        scale = 1 / 6 if reduction == "mean" else 1
        B = sum(covariance(likelihood, W @ x) for x in X) * scale
        assert_allclose(f.left[0], X.T @ X / 6, **EXACT)
        assert_allclose(f.right[0], B, **EXACT)
        one = {"x": X[:1], "W": W, "y": at["y"][:1]}
        K, F = kfac(model, one, **options), fisher(model, one, **options)
        assert_allclose(K.toarray(), F.toarray(), **EXACT)


@pytest.mark.parametrize("make", [kfac, ekfac])
def test_a_matrix_that_is_singular_up_to_rounding_has_no_inverse(make):
    """The covariance of a softmax is: the same number may be added to all logits."""
    K = make(regression("categorical"), point("categorical"), at="logits", wrt="W")
    with pytest.raises(oj.InputError, match="singular"):
        K.inverse()


def test_losses_by_sample_need_no_tensor_between():
    """With a sample axis, the rows of ∂of/∂W are the gradients."""
    model = regression("gaussian")
    at = point("gaussian")
    F = empirical_fisher(model, at, of="s", wrt="W", reduction="sum")
    J = oj.linearize(model, at, of="s", wrt="W").toarray().reshape(6, 3, -1).sum(axis=1)
    assert_allclose(F.toarray(), J.T @ J, **EXACT)


@pytest.mark.parametrize(
    "options", [{"likelihood": "poisson"}, {"reduction": "median"}], ids=["likelihood", "reduction"]
)
def test_an_unknown_word_is_refused(options):
    with pytest.raises(oj.InputError, match="is not one of"):
        fisher(regression("categorical"), point("categorical"), at="logits", wrt="W", **options)


@pytest.mark.parametrize("found", ["sum", "mean"])
def test_a_reduction_that_is_not_the_models_is_reported(found):
    model, at = regression("categorical", found), point("categorical")
    other = {"sum": "mean", "mean": "sum"}[found]
    batch, W = {name: array for name, array in at.items() if name != "W"}, {"W": at["W"]}
    for make in (lambda **how: oj.hessian(model, [batch] * 2, of="loss", wrt="W", shared=W, **how),
                 lambda **how: empirical_fisher(model, at, of="loss", at="logits", **how),
                 lambda **how: kfac(model, at, of="loss", at="logits", wrt="W",
                                    fisher_type="empirical", **how)):  # fmt: skip
        with pytest.warns(oj.OnnxJacWarning, match=f"'loss' ends in a {found}"):
            make(reduction=other)
        with warnings.catch_warnings():
            warnings.simplefilter("error", oj.OnnxJacWarning)
            make(reduction=found)
