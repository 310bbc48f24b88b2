"""The model and the data whose product docs/results/distributed.md measures."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import onnx.parser
from onnx import numpy_helper

import onnxjac as oj
from onnxjac.modes.curvature.gauss_newton import gauss_newton

WIDTHS = (256, 1024, 1024, 10)
WEIGHTS = ["W0", "W1", "W2"]
BATCHES, BATCH = 8, 256


def network(batches: int = BATCHES) -> tuple[oj.Model, list[dict[str, np.ndarray]]]:
    """A perceptron with a softmax cross-entropy, and batches of random data."""
    rng = np.random.default_rng(0)
    lines = [f"h{k + 1} = MatMul(a{k}, W{k}) a{k + 1} = Tanh(h{k + 1})" for k in range(2)]
    text = f"""<ir_version: 10, opset_import: ["" : 21]>
        g (double[n, {WIDTHS[0]}] a0, int64[n] y)
            => (double loss, double[n, {WIDTHS[-1]}] logits) {{
            {" ".join(lines)} logits = MatMul(a2, W2)
            loss = SoftmaxCrossEntropyLoss(logits, y)
        }}"""
    proto = onnx.parser.parse_model(text)
    for k, shape in enumerate(pairwise(WIDTHS)):
        weights = rng.standard_normal(shape) / np.sqrt(shape[0])
        proto.graph.initializer.append(numpy_helper.from_array(weights, f"W{k}"))
    data = [
        {"a0": rng.standard_normal((BATCH, WIDTHS[0])), "y": rng.integers(0, WIDTHS[-1], BATCH)}
        for _ in range(batches)
    ]
    return oj.load(proto), data


@dataclass(frozen=True)
class Make:
    """The Gauss-Newton matrix of a batch."""

    model: oj.Model

    def __call__(self, batch: dict[str, Any]) -> Any:
        return gauss_newton(self.model, batch, of="loss", at="logits", wrt=WEIGHTS)

    def kfac(self, data: Any, client: Any = None) -> Any:
        """The Kronecker factors of all batches."""
        return oj.kfac(self.model, data, at="logits", wrt=WEIGHTS, client=client)
