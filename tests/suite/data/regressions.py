"""Regression models whose curvature has a closed form, with their data."""

from itertools import pairwise

import numpy as np
import onnx.parser

import onnxjac as oj

HEAD = '<ir_version: 10, opset_import: ["" : 21]>'
RNG = np.random.default_rng(7)

X = RNG.standard_normal((23, 4))
LABELS = RNG.integers(0, 3, 23)
W = RNG.standard_normal((4, 3))
DATA = {"x": X, "y": LABELS}
CUTS = (0, 5, 6, 14, 23)
UNEVEN = [{"x": X[a:b], "y": LABELS[a:b]} for a, b in pairwise(CUTS)]


def softmax_regression(reduction="mean"):
    """logits = x W; the cross-entropy of their softmax, as a mean or sum over samples."""
    text = f"""g (double[n, 4] x, int64[n] y, double[4, 3] W)
        => (double loss, double[n, 3] logits) {{
        logits = MatMul(x, W)
        loss = SoftmaxCrossEntropyLoss<reduction = "{reduction}">(logits, y)
    }}"""
    return oj.load(onnx.parser.parse_model(f"{HEAD} {text}"))


def softmax_hessian(x, weights=W):
    """Σₙ xₙ xₙᵀ ⊗ (diag(pₙ) − pₙ pₙᵀ) for row-major W, by its closed form."""
    logits = x @ weights
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    C = np.einsum("nc,cd->ncd", p, np.eye(3)) - np.einsum("nc,nd->ncd", p, p)
    return np.einsum("ni,nj,ncd->icjd", x, x, C).reshape(12, 12)


def jacobian(x):
    """∂(x W)/∂W = x ⊗ I."""
    return np.kron(x, np.eye(3))


def noisy():
    """y = (x + noise) W: a different operator at every run."""
    text = """g (double[n, 4] x, double[4, 3] W) => (double[n, 3] y) {
        e = RandomNormalLike(x)
        z = Add(x, e)
        y = MatMul(z, W)
    }"""
    return oj.load(onnx.parser.parse_model(f"{HEAD} {text}"))
