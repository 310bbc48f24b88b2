"""Curvature against torch.func and curvlinops, in double precision, on the same networks."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj
from onnxjac.modes.curvature.fisher import empirical_fisher, fisher
from onnxjac.modes.curvature.gauss_newton import gauss_newton
from onnxjac.modes.curvature.kfac import ekfac, kfac
from onnxjac.modes.curvature.over_data import ntk

from .models import network

pytestmark = pytest.mark.peers

WEIGHTS = {
    "mlp": ["0.weight", "0.bias", "2.weight", "4.bias", "6.weight", "6.bias"],
    "cnn": ["0.weight", "0.bias", "4.conv1.weight", "5.conv1.weight", "5.shortcut.0.weight",
            "9.weight", "9.bias"],
    "encoder": ["layers.0.linear1.weight", "layers.0.linear1.bias", "layers.1.linear2.weight",
                "layers.1.linear2.bias", "head.weight", "head.bias"],
}  # fmt: skip
LOSSES = {"categorical": "CrossEntropyLoss", "bernoulli": "BCEWithLogitsLoss",
          "gaussian": "MSELoss"}  # fmt: skip
CASES = [(name, "categorical", reduction) for name in WEIGHTS for reduction in ("mean", "sum")]
CASES += [("mlp", likelihood, "sum") for likelihood in ("bernoulli", "gaussian")]


class Both:
    """A network with a loss, here and in PyTorch."""

    def __init__(self, name, likelihood, reduction):
        torch = pytest.importorskip("torch")
        self.curvlinops = pytest.importorskip("curvlinops")
        from models.export import build

        self.name, self.likelihood, self.reduction = name, likelihood, reduction
        self.wrt, self.torch = WEIGHTS[name], torch
        self.model, self.point = network(name, likelihood, reduction)
        torch.backends.mha.set_fastpath_enabled(False)
        self.network = build(name)
        self.loss = getattr(torch.nn, LOSSES[likelihood])(reduction=reduction)
        weights = dict(self.network.named_parameters())
        for key, weight in weights.items():
            weight.requires_grad_(key in self.wrt)
        self.params = [weights[key] for key in self.wrt]
        self.data = [(torch.tensor(self.point["x"]), torch.tensor(self.point["y"]))]
        size = sum(w.numel() for w in self.params)
        self.V = np.random.default_rng(0).standard_normal((size, 3))

    def peer(self, kind, **options):
        """An operator of curvlinops."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return getattr(self.curvlinops, kind)(
                self.network, self.loss, self.params, self.data, check_deterministic=False,
                **options,
            )  # fmt: skip

    def product(self, kind, **options):
        """The product of curvlinops' operator with V."""
        from torch.nn.attention import SDPBackend, sdpa_kernel

        with warnings.catch_warnings(), sdpa_kernel(SDPBackend.MATH):
            warnings.simplefilter("ignore")
            return (self.peer(kind, **options) @ self.torch.tensor(self.V)).detach().numpy()

    def inverse_product(self, damping, **options):
        """The product of the inverse of the peer's K-FAC with V."""
        K = self.peer("KFACLinearOperator", fisher_type="type-2", kfac_approx="expand")
        inverse = self.curvlinops.KFACInverseLinearOperator(K, damping, cache=False, **options)
        return (inverse @ self.torch.tensor(self.V)).detach().numpy()

    @property
    def scale(self):
        """The loss Hessian ÷ C: 2 for ‖z − y‖², else 1."""
        return 2 if self.likelihood == "gaussian" else 1

    @property
    def named(self):
        return {"of": "loss", "at": "logits", "wrt": self.wrt}

    @property
    def options(self):
        """The arguments of K-FAC and Fisher."""
        return {"at": "logits", "wrt": self.wrt, "likelihood": self.likelihood,
                "reduction": self.reduction}  # fmt: skip


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def both(request):
    return Both(*request.param)


def assert_equal(found, expected):
    assert np.linalg.norm(found - expected) <= 1e-9 * np.linalg.norm(expected)


def test_products_with_the_hessian_agree_with_curvlinops(both):
    H = oj.hessian(both.model, both.point, of="loss", wrt=both.wrt)
    assert_equal(H @ both.V, both.product("HessianLinearOperator"))


def test_products_with_the_gauss_newton_matrix_agree_with_curvlinops(both):
    G = gauss_newton(both.model, both.point, **both.named)
    assert_equal(G @ both.V, both.product("GGNLinearOperator"))


def test_products_with_the_fisher_agree_with_curvlinops(both):
    """The Fisher is the Gauss-Newton matrix, or half of it for ‖z − y‖²."""
    F = fisher(both.model, both.point, **both.options)
    assert_equal(both.scale * (F @ both.V), both.product("GGNLinearOperator"))


def test_products_with_the_empirical_fisher_agree_with_curvlinops(both):
    F = empirical_fisher(both.model, both.point, **both.named, reduction=both.reduction)
    assert_equal(F @ both.V, both.product("EFLinearOperator"))


@pytest.mark.parametrize("approximation", ["expand", "reduce"])
@pytest.mark.parametrize("fisher_type", ["type-2", "empirical"])
def test_every_kfac_factor_agrees_with_curvlinops(both, approximation, fisher_type):
    """Every factor of every layer; B of the peer's ‖z − y‖² is twice the Gaussian B."""
    of = "loss" if fisher_type == "empirical" else None
    K = kfac(both.model, both.point, approximation=approximation, fisher_type=fisher_type, of=of,
             **both.options)  # fmt: skip
    peer = both.peer("KFACLinearOperator", kfac_approx=approximation, fisher_type=fisher_type)
    peer.compute_kronecker_factors()
    scale = both.scale if fisher_type == "type-2" else 1
    for name in both.wrt:
        ((f,), layer) = K.factors[name], name.rpartition(".")[0]
        assert_equal(scale * f.right[0], peer._gradient_covariances[layer].numpy())
        if name.endswith("weight"):
            assert_equal(f.left[0], peer._input_covariances[layer].numpy())


def test_kfac_product_and_exact_inverse(both):
    """(s K + δ I)⁻¹ = (K + δ/s I)⁻¹ / s, with s = 2 for ‖z − y‖²."""
    options = {"fisher_type": "type-2", "kfac_approx": "expand"}
    K, scale = kfac(both.model, both.point, **both.options), both.scale
    assert_equal(scale * (K @ both.V), both.product("KFACLinearOperator", **options))
    expected = both.inverse_product(0.01, use_exact_damping=True)
    assert_equal(K.inverse(0.01 / scale) @ both.V / scale, expected)


def test_heuristic_damping_of_weights(both):
    """Weights only: the peer damps a bias with the π of its weight, we with its own π."""
    expected = both.inverse_product(0.01, use_heuristic_damping=True, min_damping=0.0)
    K, start = kfac(both.model, both.point, **both.options), 0
    found = K.inverse(0.01 / both.scale, heuristic=True) @ both.V / both.scale
    for name, weight in zip(both.wrt, both.params, strict=True):
        place = slice(start, start + weight.numel())
        start = place.stop
        if name.endswith("weight"):
            assert_equal(found[place], expected[place])


def test_products_with_ekfac_agree_with_curvlinops(both):
    E = ekfac(both.model, both.point, **both.options)
    assert_equal(
        both.scale * (E @ both.V), both.product("EKFACLinearOperator", fisher_type="type-2")
    )


def test_tangent_kernel_equals_torch_func():
    """J by vmap and jacrev, for two layers of the MLP."""
    both = Both("mlp", "categorical", "mean")
    from torch.func import functional_call, jacrev

    names = ["2.weight", "6.bias"]
    weights = {k: w.detach() for k, w in both.network.named_parameters() if k in names}
    blocks = jacrev(lambda w: functional_call(both.network, w, (both.data[0][0],)))(weights)
    J = np.concatenate([blocks[n].reshape(40, -1).detach().numpy() for n in names], axis=1)
    K = ntk(both.model, both.point, of="logits", wrt=names)
    assert_allclose(K.toarray(), J @ J.T, atol=1e-9)


def test_hessian_equals_torch_func():
    both = Both("mlp", "categorical", "mean")
    from torch.func import functional_call, hessian

    x, y = both.data[0]
    w = {"6.weight": both.params[4].detach()}
    H = hessian(lambda w: both.loss(functional_call(both.network, w, (x,)), y))(w)
    expected = H["6.weight"]["6.weight"].reshape(320, 320).detach().numpy()
    found = oj.hessian(both.model, both.point, of="loss", wrt="6.weight").toarray()
    assert_allclose(found, expected, atol=1e-9)
