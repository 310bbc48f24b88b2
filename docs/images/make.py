"""Draw two pictures: `python docs/images/make.py` writes `jacobian.png` and `bits.png` beside it.

`jacobian.png` is on the README: on the left, how every layer of the digits network depends on every
weight before it; on the right, which pixels of one image its answer depends on. `bits.png` is what
it costs to round each of its weights.
"""

import warnings
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import numpy as np
from matplotlib import pyplot as plt

import onnxjac as oj

HERE = Path(__file__).resolve().parent
MODELS = HERE.parents[1] / "notebooks" / "models"


def main() -> None:
    """Two pictures side by side."""
    model = oj.load(MODELS / "digits.onnx", dtype="float64")
    image = np.load(MODELS / "digits_samples.npz")["image"][9:10].astype(float)
    layers = ["conv2d", "conv2d_1", "linear", "logits"]
    weights = ["image", "conv1.weight", "conv2.weight", "fc1.weight", "fc2.weight"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", oj.OnnxJacWarning)  # no layer depends on a later weight
        J = oj.linearize(model, {"image": image}, of=layers, wrt=weights)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.4), layout="constrained")
    J.plot(ax=left)
    oj.plots.plot_sensitivity(J["logits", "image"], entry=(0, 9), ax=right)
    figure.savefig(HERE / "jacobian.png", dpi=120, metadata={"Software": None})
    z = model.run(images := np.load(MODELS / "digits_samples.npz")["image"].astype(float))["logits"]
    p = np.exp(z - z.max(1, keepdims=True))
    data = {"image": images, "target": p / p.sum(1, keepdims=True)}
    found = oj.sensitivities(oj.with_loss(model, "soft_cross_entropy"), data, per_channel=True)
    found.measured().plot().figure.savefig(HERE / "bits.png", dpi=120, metadata={"Software": None})


if __name__ == "__main__":
    main()
