"""`ai.onnx.ml`: every operator with real results, against differences and in ONNX Runtime."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import onnxjac as oj
from check_rule import check_point, check_products
from models.one_node import declared
from onnxjac.modes.model.loading.load import load
from onnxjac.modes.recording.derive import vjp_graph

pytestmark = pytest.mark.filterwarnings("ignore::onnxjac.OnnxJacWarning")
RNG = np.random.default_rng(5)
X = RNG.standard_normal((4, 3)).astype(np.float32)
GAP = np.where(np.arange(12).reshape(4, 3) % 5 == 0, np.nan, X).astype(np.float32)


def N(count):
    return RNG.standard_normal(count).tolist()


CASES = {
    "Scaler": ([X], {"offset": N(3), "scale": N(3)}),
    "Scaler by one number": ([X], {"offset": [0.1], "scale": [2.0]}),
    "Imputer": ([GAP], {"imputed_value_floats": [1.0, 2.0, 3.0], "replaced_value_float": np.nan}),
    "ArrayFeatureExtractor": ([X, np.array([2, 0, 2])], {}),
    "FeatureVectorizer": ([X, X[:, :2]], {"inputdimensions": [3, 2]}),
    "FeatureVectorizer cut and filled": ([X, X[:, :2]], {"inputdimensions": [2, 3]}),
    "Normalizer": ([abs(X)], {"norm": "MAX"}),
    "Normalizer L1": ([X], {"norm": "L1"}),
    "Normalizer L2": ([X], {"norm": "L2"}),
    "LinearRegressor": ([X], {"coefficients": N(6), "intercepts": N(2), "targets": 2}),
}
for transform in ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"):
    CASES[f"LinearClassifier {transform}"] = [X], {
        "coefficients": N(9), "intercepts": N(3), "classlabels_ints": [0, 1, 2],
        "post_transform": transform,
    }  # fmt: skip
CASES["LinearClassifier PROBIT"] = [X / 20], {
    "coefficients": RNG.uniform(0.1, 1, 9).tolist(), "intercepts": [0.4, 0.5, 0.6],
    "classlabels_ints": [0, 1, 2], "post_transform": "PROBIT",
}  # fmt: skip
for kernel in ("LINEAR", "RBF", "POLY", "SIGMOID"):
    held = {"kernel_type": kernel, "kernel_params": [0.3, 0.2, 3.0], "support_vectors": N(15)}
    CASES[f"SVMRegressor {kernel}"] = [X], {
        "coefficients": N(5), "n_supports": 5, "rho": [0.1], **held,
    }  # fmt: skip
    for transform in ("NONE", "LOGISTIC", "SOFTMAX"):
        CASES[f"SVMClassifier {kernel} {transform}"] = [X], {
            "coefficients": N(10), "vectors_per_class": [2, 1, 2], "rho": N(3),
            "classlabels_ints": [0, 1, 2], "post_transform": transform, **held,
        }  # fmt: skip
CASES["SVMClassifier of two"] = [X], {
    "coefficients": N(5), "vectors_per_class": [2, 3], "rho": [0.1], "classlabels_ints": [0, 1],
    **held,
}  # fmt: skip


@pytest.fixture(params=CASES)
def case(request):
    return one_node(request.param.split()[0], *CASES[request.param])


def one_node(op_type, inputs, attrs):
    """A model of one node and its inputs; the last output is the real one."""
    feeds = {f"x{i}": x for i, x in enumerate(inputs)}
    made = ["label", "y"] if op_type.endswith("Classifier") else ["y"]
    types = [TensorProto.INT64, TensorProto.FLOAT][-len(made) :]
    ports = [helper.make_tensor_value_info(n, t, None) for n, t in zip(made, types, strict=True)]
    node = helper.make_node(op_type, list(feeds), made, domain="ai.onnx.ml", **attrs)
    graph = helper.make_graph([node], op_type, [declared(k, x) for k, x in feeds.items()], ports)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10), feeds


def test_the_derivative_is_the_slope(case):
    proto, feeds = case
    check_point(load(proto, dtype="float64"), feeds)


def test_the_recorded_pullback_runs_in_onnxruntime(case):
    proto, feeds = case
    model = load(proto)
    J = oj.linearize(model, feeds, of="y", engine="onnxruntime")
    assert J.check()
    wrt = tuple(spec.name for spec in J.domain)
    recorded = vjp_graph(model, feeds, ("y",), wrt, None).model("vjp")
    u = RNG.standard_normal(J.primal["y"].shape).astype(np.float32)
    found = recorded.run({**feeds, "y_cotangent": u}, engine="onnxruntime")
    for name, expected in J.T.apply({"y": u}).items():
        np.testing.assert_allclose(found[f"{name}_cotangent"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("classes", [2, 3, 4])
def test_coupled_probabilities_have_the_slope_of_the_exact_minimum(classes):
    """Their derivative is that of the exact minimum, which runtimes only approximate."""
    pairs = classes * (classes - 1) // 2
    attrs = {
        "kernel_type": "RBF", "kernel_params": [0.3, 0.0, 0.0], "support_vectors": N(6 * classes),
        "coefficients": N(2 * classes * (classes - 1)), "vectors_per_class": [2] * classes,
        "rho": N(pairs), "classlabels_ints": list(range(classes)), "prob_a": [-2.0] * pairs,
        "prob_b": N(pairs),
    }  # fmt: skip
    proto, feeds = one_node("SVMClassifier", [X], attrs)
    J = oj.linearize(load(proto, dtype="float64"), feeds, of="y", engine="numpy")
    check_products(J, 0)
    v, h = RNG.standard_normal(X.shape), 1e-5
    slope = (coupled(X + h * v, attrs) - coupled(X - h * v, attrs)) / (2 * h)
    np.testing.assert_allclose(J.apply({"x0": v})["y"], slope, rtol=1e-4, atol=1e-6)


def coupled(x, attrs):
    """The probabilities as the solution of the linear system that the minimum satisfies."""
    counts, k = attrs["vectors_per_class"], len(attrs["vectors_per_class"])
    vectors = np.float32(attrs["support_vectors"]).astype(float).reshape(2 * k, -1)
    given = np.float32(attrs["coefficients"]).astype(float).reshape(k - 1, -1)
    gamma = float(np.float32(attrs["kernel_params"][0]))
    value = np.exp(-gamma * ((x[:, None] - vectors) ** 2).sum(-1))
    of = [slice(counts[0] * i, counts[0] * (i + 1)) for i in range(k)]
    pairs = [(i, j) for i in range(k) for j in range(i + 1, k)]
    found = []
    for row in value:
        r = np.zeros((k, k))
        for n, (i, j) in enumerate(pairs):
            rho, a, b = (float(np.float32(attrs[key][n])) for key in ("rho", "prob_a", "prob_b"))
            s = given[j - 1, of[i]] @ row[of[i]] + given[i, of[j]] @ row[of[j]] + rho
            r[i, j] = 1 / (1 + np.exp(a * s + b))
            r[j, i] = 1 - r[i, j]
        Q = np.diag((r**2).sum(0)) - r.T * r * (1 - np.eye(k))
        system = np.block([[Q, np.ones((k, 1))], [np.ones((1, k)), np.zeros((1, 1))]])
        found.append(np.linalg.solve(system, np.eye(k + 1)[-1])[:k])
    return np.array(found)
