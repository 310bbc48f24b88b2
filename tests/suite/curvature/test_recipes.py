"""The recipes of docs/how-to/recipes.md, run as they stand, against peers on the same network."""

import doctest
import re
import warnings
from collections import OrderedDict

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.sparse import eye_array
from scipy.sparse.linalg import aslinearoperator, cg

import onnxjac as oj
from house import ROOT

pytestmark = pytest.mark.peers

PAGE = ROOT / "docs" / "how-to" / "recipes.md"


@pytest.fixture(scope="module")
def page():
    """heading -> the names on the page after its section."""
    names, found = {}, {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        for section in re.split(r"^#+ ", PAGE.read_text(encoding="utf-8"), flags=re.M)[1:]:
            for example in doctest.DocTestParser().get_examples(section):
                exec(example.source, names)
            found[section.partition("\n")[0]] = dict(names)
    return found


class Torch:
    """The network of the page in PyTorch, with a cross-entropy that is a mean or a sum."""

    def __init__(self, names, reduction="mean"):
        self.torch = torch = pytest.importorskip("torch")
        nn, model = torch.nn, names["model"]
        layers = {
            "conv1": nn.Conv2d(1, 16, 3, padding=1), "relu1": nn.ReLU(),
            "conv2": nn.Conv2d(16, 32, 3, padding=1), "relu2": nn.ReLU(),
            "pool": nn.MaxPool2d(2), "flatten": nn.Flatten(),
            "fc1": nn.Linear(512, 64), "tanh": nn.Tanh(), "fc2": nn.Linear(64, 10),
        }  # fmt: skip
        self.network = nn.Sequential(OrderedDict(layers)).double()
        self.place({name: model.constants[name] for name in names["weights"]})
        self.loss = nn.CrossEntropyLoss(reduction=reduction)
        self.data = self.batch(names["data"])

    def place(self, tensors):
        """Sets these weights."""
        arrays = {name: self.torch.tensor(np.array(array)) for name, array in tensors.items()}
        self.network.load_state_dict(arrays, strict=False)

    def batch(self, data):
        return self.torch.tensor(data["image"]), self.torch.tensor(data["digit"])

    def weights(self, names):
        """The named parameters, which alone require gradients."""
        found = dict(self.network.named_parameters())
        for name, weight in found.items():
            weight.requires_grad_(name in names)
        return [found[name] for name in names]

    def value_and_grad(self, names, batch):
        x, y = batch
        value = self.loss(self.network(x), y)
        slopes = self.torch.autograd.grad(value, self.weights(names))
        return value.item(), np.concatenate([slope.numpy().ravel() for slope in slopes])

    def operator(self, kind, names, batches, **options):
        """An operator of curvlinops."""
        curvlinops = pytest.importorskip("curvlinops")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return getattr(curvlinops, kind)(
                self.network, self.loss, self.weights(names), batches, check_deterministic=False,
                **options,
            )  # fmt: skip

    def kfac(self, names, batches, damping, heuristic, **options):
        """K-FAC of curvlinops, and its inverse."""
        K = self.operator("KFACLinearOperator", names, batches, fisher_type="type-2", **options)
        how = {"use_heuristic_damping": True, "min_damping": 0.0} if heuristic else {
            "use_exact_damping": True}  # fmt: skip
        curvlinops = pytest.importorskip("curvlinops")
        return K, curvlinops.KFACInverseLinearOperator(K, damping, cache=True, **how)

    def times(self, operator, v):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return (operator @ self.torch.tensor(v)).detach().numpy()


def per_sample(peer, weights):
    """The per-sample gradients of BackPACK, one in each row."""
    backpack = pytest.importorskip("backpack")
    network, loss = backpack.extend(peer.network), backpack.extend(peer.loss)
    parameters, (x, y) = peer.weights(weights), peer.data
    with warnings.catch_warnings(), backpack.backpack(backpack.extensions.BatchGrad()):
        warnings.simplefilter("ignore")
        loss(network(x), y).backward()
    return np.concatenate([w.grad_batch.reshape(len(x), -1).numpy() for w in parameters], axis=1)


def test_per_sample_gradients_and_jacobians(page):
    names = page["Per-sample gradients and Jacobians"]
    found = per_sample(Torch(names, "sum"), names["weights"])
    assert_allclose(names["gradients"], found, atol=1e-12)
    peer = Torch(names)
    torch, x = peer.torch, peer.data[0]
    head = {name: weight for name, weight in peer.network.named_parameters() if "fc2" in name}
    blocks = torch.func.jacrev(lambda w: torch.func.functional_call(peer.network, w, (x,)))(head)
    blocks = [blocks[name] for name in head]
    expected = torch.cat([block.reshape(len(x), 10, -1) for block in blocks], dim=-1)
    assert_allclose(names["jacobians"], expected.detach().numpy(), atol=1e-12)


def test_the_recipe_of_influence_functions_agrees_with_peers(page):
    """The solve against curvlinops, the gradients against BackPACK."""
    names = page["Influence functions"]
    weights, test = names["weights"], names["test"]
    gradients = per_sample(Torch(names, "sum"), weights)
    peer = Torch(names)
    _, slope = peer.value_and_grad(weights, peer.batch(test))
    G = peer.operator("GGNLinearOperator", weights, [peer.data])
    H = oj.gauss_newton(names["model"], names["data"], of="loss", at="logits", wrt=weights)
    solved = (H + 0.1 * oj.identity_like(H)).inverse(rtol=1e-6) @ slope
    residual = peer.times(G, solved) + 0.1 * solved - slope
    assert np.linalg.norm(residual) < 1e-5 * np.linalg.norm(slope)
    assert_allclose(names["influence"][0], -gradients @ solved, rtol=1e-4, atol=1e-6)
    cosines = gradients @ slope / np.linalg.norm(gradients, axis=1) / np.linalg.norm(slope)
    assert set(names["nearest"].samples[0]) == {*np.argsort(-cosines)[:3]}


def test_the_recipe_of_laplace_agrees_with_factors_of_curvlinops(page):
    """Evidence, samples and predictive covariance, by the factors of curvlinops."""
    names = page["Laplace approximation"]
    weights, theta, tau = names["weights"], names["theta"], names["tau"]
    peer = Torch(names, "sum")
    K, inverse = peer.kfac(weights, [peer.data], float(tau), heuristic=False)
    K.compute_kronecker_factors()
    logdet = 0.0
    for layer in ("conv1", "conv2", "fc1", "fc2"):
        b = np.linalg.eigvalsh(K._gradient_covariances[layer].numpy())
        a = np.linalg.eigvalsh(K._input_covariances[layer].numpy())
        logdet += np.log1p(np.outer(a, b) / tau).sum() + np.log1p(b / tau).sum()  # and the bias
    loss, _ = peer.value_and_grad(weights, peer.data)
    evidence = -loss - (tau * theta @ theta + logdet) / 2
    assert_allclose(names["log_evidence"](tau), evidence, rtol=1e-9)
    v = np.random.default_rng(1).standard_normal(len(theta))
    assert_allclose(names["root"] @ (names["root"] @ v), peer.times(inverse, v), atol=1e-9)
    J = names["Jt"].toarray()
    assert_allclose(names["covariance"], J @ peer.times(inverse, J.T), rtol=1e-9)


def test_laplace_of_the_last_layer(page):
    names = page["Laplace approximation"]
    peer, last = Torch(names, "sum"), names["last"]
    G = peer.operator("GGNLinearOperator", last, [peer.data])
    P = peer.times(G, np.eye(650)) + names["tau"] * np.eye(650)
    assert_allclose(names["L"] @ names["L"].T, P, atol=1e-9)
    J = names["Jt"].toarray()[:, -650:]
    assert_allclose(names["covariance_last"], J @ np.linalg.solve(P, J.T), rtol=1e-9)


def test_the_recipe_of_laplace_agrees_with_laplace_torch(page):
    """Evidence and predictive covariance of laplace-torch, where it can be imported."""
    laplace = pytest.importorskip("laplace")
    from laplace.curvature import CurvlinopsGGN
    from torch.utils.data import DataLoader, TensorDataset

    names = page["Laplace approximation"]
    peer, tau = Torch(names, "sum"), float(names["tau"])
    peer.weights(names["weights"])
    loader = DataLoader(TensorDataset(*peer.data), batch_size=100)
    x, _ = peer.batch(names["test"])
    for subset, structure, expected in (
        ("all", "kron", names["covariance"]),
        ("last_layer", "full", names["covariance_last"]),
    ):
        found = laplace.Laplace(
            peer.network, "classification", subset_of_weights=subset, prior_precision=tau,
            hessian_structure=structure, backend=CurvlinopsGGN,
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found.fit(loader)
            if structure == "kron":
                evidence = found.log_marginal_likelihood().item()
                assert_allclose(names["log_evidence"](tau), evidence, rtol=1e-6)
            _, covariance = found._glm_predictive_distribution(x)
        assert_allclose(covariance[0].detach().numpy(), expected, rtol=1e-6)


def test_the_recipe_of_hessian_free_training_takes_the_steps_of_peers(page):
    """The loop once more, with gradients of PyTorch and products of curvlinops."""
    names = page["Hessian-free training"]
    dense, peer = names["dense"], Torch(names)
    flatten, unflatten = names["p"].flatten, names["p"].unflatten
    x, damping, step = flatten(names["start"]), 1.0, None
    for batch in map(peer.batch, 3 * names["batches"]):
        peer.place(unflatten(x))
        f, g = peer.value_and_grad(dense, batch)
        G = peer.operator("GGNLinearOperator", dense, [batch]).to_scipy()
        A = aslinearoperator(G) + damping * aslinearoperator(eye_array(len(x)))
        step, _ = cg(A, -g, x0=step, rtol=0.1, maxiter=20)
        predicted, x = g @ step + step @ (G @ step) / 2, x + step
        peer.place(unflatten(x))
        gain = (peer.value_and_grad(dense, batch)[0] - f) / predicted
        damping *= 2 / 3 if gain > 0.75 else 3 / 2 if gain < 0.25 else 1
    assert_allclose(flatten(names["tensors"]), x, atol=1e-6)
    assert damping == names["damping"]


def test_the_recipe_of_training_with_kfac_takes_the_steps_of_curvlinops(page):
    """The loop once more, with K-FAC and products of curvlinops."""
    names = page["Training with K-FAC"]
    dense, peer = names["dense"], Torch(names)
    flatten, unflatten = names["p"].flatten, names["p"].unflatten
    x, batches = flatten(names["start"]), [peer.batch(b) for b in names["batches"]]
    for k, batch in enumerate(3 * batches):
        peer.place(unflatten(x))
        if k % len(batches) == 0:
            options = {"heuristic": True, "separate_weight_and_bias": False}
            _, M = peer.kfac(dense, batches, names["damping"], **options)
        _, g = peer.value_and_grad(dense, batch)
        G = peer.operator("GGNLinearOperator", dense, [batch])
        step = -peer.times(M, g)
        step *= -(g @ step) / (step @ peer.times(G, step) + names["damping"] * step @ step)
        x = x + step
    assert_allclose(flatten(names["tensors"]), x, atol=1e-6)
