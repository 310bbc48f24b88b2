"""An operator of every public kind, for one small classifier."""

import numpy as np

import onnxjac as oj
from curvature.models import parsed

MODEL = parsed(
    """g (double[n, 4] x, int64[n] y, double[5, 4] fc1, double[3, 5] fc2)
    => (double[n, 3] logits, double loss) {
        T = Transpose(fc1) z = MatMul(x, T) h = Tanh(z)
        U = Transpose(fc2) logits = MatMul(h, U)
        loss = SoftmaxCrossEntropyLoss<reduction = 'mean'>(logits, y)
    }""".replace("'", '"')
)
RNG = np.random.default_rng(0)
WEIGHTS = {"fc1": RNG.standard_normal((5, 4)), "fc2": RNG.standard_normal((3, 5))}
POINT = {"x": RNG.standard_normal((6, 4)), "y": RNG.integers(0, 3, 6), **WEIGHTS}
BATCHES = [{"x": POINT["x"][k : k + 3], "y": POINT["y"][k : k + 3]} for k in (0, 3)]
WRT = tuple(WEIGHTS)


def linearization():
    return oj.linearize(MODEL, POINT, of="logits", wrt=["x", *WRT])


def hessian():
    return oj.hessian(MODEL, POINT, of="loss", wrt=WRT)


def gauss_newton():
    return oj.gauss_newton(MODEL, POINT, of="loss", at="logits", wrt=WRT)


def streamed():
    options = {"of": "loss", "at": "logits", "wrt": WRT, "reduction": "mean", "shared": WEIGHTS}
    return oj.gauss_newton(MODEL, BATCHES, **options)


def kfac(**options):
    return oj.kfac(MODEL, POINT, at="logits", wrt=WRT, **options)


KINDS = {
    "linearization": linearization,
    "transpose": lambda: linearization().T,
    "block": lambda: linearization()["logits", "fc1"],
    "rows and columns": lambda: linearization()[:5, 3:7],
    "planned": lambda: linearization().plan(),
    "compiled by numpy": lambda: linearization().compile("numpy"),
    "compiled by onnxruntime": lambda: linearization().compile("onnxruntime"),
    "checkpointed": lambda: oj.linearize(MODEL, POINT, of="logits", wrt=WRT, checkpoint=True),
    "hessian": hessian,
    "blocks of a hessian": lambda: oj.hessian(
        MODEL, POINT, of="loss", wrt=WRT, blocks="diagonal"
    ),
    "gauss_newton": gauss_newton,
    "fisher": lambda: oj.fisher(MODEL, POINT, at="logits", wrt=WRT),
    "sampled fisher": lambda: oj.fisher(MODEL, POINT, at="logits", wrt=WRT, samples=2),
    "empirical_fisher": lambda: oj.empirical_fisher(
        MODEL, POINT, of="loss", at="logits", wrt=WRT
    ),
    "kfac": kfac,
    "ekfac": lambda: oj.ekfac(MODEL, POINT, at="logits", wrt=WRT),
    "shampoo": lambda: oj.shampoo(MODEL, POINT, of="loss", at="logits", wrt=WRT),
    "inverse of kfac": lambda: kfac().inverse(damping=0.1),
    "ntk": lambda: oj.ntk(MODEL, POINT, of="logits", wrt=WRT),
    "gram": lambda: oj.gram(MODEL, POINT, of="logits", wrt=WRT),
    "streamed": streamed,
    "stacked": lambda: oj.linearize(MODEL, BATCHES, of="logits", wrt=WRT, shared=WEIGHTS),
    "inverse": lambda: oj.inverse(damped(), rtol=1e-12),
    "sum": lambda: hessian() + gauss_newton(),
    "product": lambda: linearization() @ linearization().T,
    "scaled": lambda: -2.0 * hessian(),
}
"""name -> function that makes an operator; the model has 35 weights."""


def damped():
    """G + I."""
    G = gauss_newton()
    return G + oj.identity_like(G)
