"""Small models with a loss, from ONNX text or from the networks of other tests."""

from pathlib import Path

import numpy as np
import onnx
import onnx.parser

import onnxjac as oj
from onnxjac.modes.curvature.batch_sums import GradientMaker
from onnxjac.modes.curvature.gradients import Target

MODELS = Path(__file__).parents[2] / "models"
HEAD = '<ir_version: 10, opset_import: ["" : 21]>'

LOSSES = {
    "categorical": "(int64[n] y) { loss = SoftmaxCrossEntropyLoss<reduction = 'R'>(logits, y) }",
    "bernoulli": """(double[n, c] y) {
        p = Sigmoid(logits)
        one = Constant<value = double {1}>()
        q = Sub(one, p)
        lp = Log(p)
        lq = Log(q)
        no = Sub(one, y)
        yes_part = Mul(y, lp)
        no_part = Mul(no, lq)
        likelihood = Add(yes_part, no_part)
        cost = Neg(likelihood)
        loss = ReduceX(cost)
    }""",
    "gaussian": """(double[n, c] y) {
        d = Sub(logits, y)
        s = Mul(d, d)
        loss = ReduceX<keepdims = 0>(s)
    }""",
}


def parsed(text):
    """A model from ONNX text, in double precision."""
    return oj.load(onnx.parser.parse_model(f"{HEAD} {text}"), dtype="float64")


def regression(likelihood, reduction="mean"):
    """logits = x Wᵀ and a loss of them."""
    targets, body = LOSSES[likelihood].split("{", 1)
    body = body.replace("ReduceX", {"mean": "ReduceMean", "sum": "ReduceSum"}[reduction])
    body = body.replace("'R'", f'"{reduction}"').replace("<keepdims = 0>", "")
    return parsed(f"""g (double[n, k] x, double[c, k] W, {targets.strip()[1:]}
    => (double[n, c] logits, double loss) {{ T = Transpose(W) logits = MatMul(x, T) {body}""")


def network(name, likelihood="categorical", reduction="mean"):
    """A network of tests/models with a loss, and its point."""
    rng = np.random.default_rng(0)
    onnx_model = onnx.load(MODELS / f"{name}.onnx")
    x = np.load(MODELS / f"{name}.npz")["x"].astype(float)
    labels = rng.integers(0, 10, len(x))
    y = {
        "categorical": labels,
        "bernoulli": np.eye(10)[labels],
        "gaussian": rng.random((len(x), 10)),
    }
    targets, body = LOSSES[likelihood].replace("double", "float").split("{", 1)
    body = body.replace("ReduceX", {"mean": "ReduceMean", "sum": "ReduceSum"}[reduction])
    body = body.replace("'R'", f'"{reduction}"')
    text = f"{HEAD} l (float[n, 10] logits, {targets.strip()[1:]} => (float loss) {{ {body}"
    onnx_model.ir_version = 10
    whole = onnx.compose.merge_models(
        onnx_model, onnx.parser.parse_model(text), io_map=[("logits", "logits")],
        outputs=["loss"],
    )  # fmt: skip
    return oj.load(whole, dtype="float64"), {"x": x, "y": y[likelihood]}


def gradients(model, point, **options):
    """The gradients of one batch; the options are the fields of `Target`."""
    make = GradientMaker(model, Target(**options), {}, several=False)
    return make.gradients(make(point))
