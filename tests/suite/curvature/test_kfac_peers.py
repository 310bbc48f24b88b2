"""K-FAC and E-KFAC against curvlinops: weights joint with biases, sampled labels, batches."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import softmax

from onnxjac.modes.curvature.fisher import LIKELIHOODS
from onnxjac.modes.curvature.kfac import ekfac, kfac

from .test_peers import Both, assert_equal

pytestmark = pytest.mark.peers

CASES = [("mlp", "gaussian", "sum"), ("cnn", "categorical", "mean"),
         ("encoder", "categorical", "sum")]  # fmt: skip
JOINT = {"separate_weight_and_bias": False}
DAMPING = 0.01


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def both(request):
    return Both(*request.param)


@pytest.mark.parametrize(
    ("approximation", "fisher_type"),
    [("expand", "empirical"), ("reduce", "type-2"), ("expand", "forward-only")],
)
def test_joint_factors_and_products_agree_with_curvlinops(both, approximation, fisher_type):
    """Every factor; B of the peer's loss ‖z − y‖² is twice the Gaussian B."""
    of = "loss" if fisher_type == "empirical" else None
    K = kfac(both.model, both.point, approximation=approximation, fisher_type=fisher_type, of=of,
             joint=True, **both.options)  # fmt: skip
    options = {"kfac_approx": approximation, "fisher_type": fisher_type, **JOINT}
    peer, scale = both.peer("KFACLinearOperator", **options), 1
    if fisher_type == "type-2":
        scale = both.scale
    peer.compute_kronecker_factors()
    for f in K.blocks:
        (layer,) = {name.rpartition(".")[0] for name in f.parts}
        assert_equal(scale * f.right[0], peer._gradient_covariances[layer].numpy())
        if layer in peer._input_covariances:
            assert_equal(f.left[0], peer._input_covariances[layer].numpy())
    product = (peer @ both.torch.tensor(both.V)).detach().numpy()
    assert_equal(scale * (K @ both.V), product)


@pytest.mark.parametrize("heuristic", [False, True])
def test_inverse_trace_and_determinant(both, heuristic):
    K, scale = kfac(both.model, both.point, joint=True, **both.options), both.scale
    peer = both.peer("KFACLinearOperator", fisher_type="type-2", **JOINT)
    assert_equal(scale * (K @ both.V), (peer @ both.torch.tensor(both.V)).detach().numpy())
    how = {"use_heuristic_damping": True, "min_damping": 0.0} if heuristic else {
        "use_exact_damping": True}  # fmt: skip
    inverse = both.curvlinops.KFACInverseLinearOperator(peer, DAMPING, cache=False, **how)
    expected = (inverse @ both.torch.tensor(both.V)).detach().numpy()
    found = K.inverse(DAMPING / scale, heuristic=heuristic)
    assert_equal(found @ both.V / scale, expected)
    assert_allclose(scale * K.trace(), float(peer.trace), rtol=1e-9)
    norm = np.sqrt(np.sum(K.eigenvalues() ** 2))
    assert_allclose(scale * norm, float(peer.frobenius_norm), rtol=1e-9)


def test_the_determinant_of_kfac_is_curvlinops():
    """For a bias, since its B is regular with a Gaussian likelihood."""
    both = Both("mlp", "gaussian", "sum")
    both.wrt, both.params = ["6.bias"], both.params[-1:]
    K = kfac(both.model, both.point, **both.options)
    peer = both.peer("KFACLinearOperator", fisher_type="type-2")
    shift = len(both.params[0]) * np.log(both.scale)
    assert_allclose(K.logdet() + shift, float(peer.logdet), rtol=1e-9)
    assert_allclose(K.det() * np.exp(shift), float(peer.det), rtol=1e-9)


def test_joint_ekfac_and_its_inverse_agree_with_curvlinops(both):
    E, scale = ekfac(both.model, both.point, joint=True, **both.options), both.scale
    options = {"fisher_type": "type-2", **JOINT}
    peer = both.peer("EKFACLinearOperator", **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        product = (peer @ both.torch.tensor(both.V)).detach().numpy()
    assert_equal(scale * (E @ both.V), product)
    inverse = both.curvlinops.KFACInverseLinearOperator(
        peer, DAMPING, cache=False, use_exact_damping=True
    )
    expected = (inverse @ both.torch.tensor(both.V)).detach().numpy()
    assert_equal(E.inverse(DAMPING / scale) @ both.V / scale, expected)


@pytest.mark.parametrize(("make", "joint"), [(kfac, True), (ekfac, False)])
def test_kfac_of_the_same_drawn_labels_agrees_with_curvlinops(both, joint, make):
    """The peer uses the labels sampled by our operator."""
    draws = 3
    K = make(both.model, both.point, joint=joint, fisher_type="mc", samples=draws, seed=7,
             **both.options)  # fmt: skip
    kind = "KFACLinearOperator" if make is kfac else "EKFACLinearOperator"
    peer = both.peer(kind, fisher_type="mc", mc_samples=draws, separate_weight_and_bias=not joint)
    drawn = []

    def draw_label(z):
        if not drawn:
            family = LIKELIHOODS[both.likelihood]
            residuals = family.residuals(z.detach().numpy(), -1, draws, 7)
            mean = z.detach().numpy()
            mean = softmax(mean, -1) if both.likelihood == "categorical" else mean
            drawn.extend(mean + residuals if both.likelihood != "gaussian"
                         else mean + residuals / np.sqrt(2))  # fmt: skip
        y = both.torch.tensor(drawn.pop(0))
        return y.argmax(-1) if both.likelihood == "categorical" else y

    peer.draw_label = draw_label
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        product = (peer @ both.torch.tensor(both.V)).detach().numpy()
    assert_equal(both.scale * (K @ both.V), product)


@pytest.mark.parametrize("make", [kfac, ekfac])
def test_kfac_of_two_batches_agrees_with_curvlinops(both, make):
    """Two batches of different samples, combined by mean or sum."""
    x = both.point["x"][::-1] * 0.7
    second = {"x": np.ascontiguousarray(x), "y": both.point["y"]}
    K = make(both.model, [both.point, second], joint=True, **both.options)
    tensors = both.torch.tensor(second["x"]), both.torch.tensor(second["y"])
    before, both.data = both.data, [*both.data, tensors]
    kind = "KFACLinearOperator" if make is kfac else "EKFACLinearOperator"
    product = both.product(kind, fisher_type="type-2", **JOINT)
    both.data = before
    assert_equal(both.scale * (K @ both.V), product)
