"""Train the small network of the notebooks on the handwritten digits that scikit-learn ships.

    pip install torch onnxscript scikit-learn; python notebooks/models/train_digits.py

writes `digits.onnx`, 8 × 8 images in [0, 1] to 10 logits for any number of images, and
`digits_samples.npz`, one held-out image of every digit, 0 to 9, under the name of the input.
"""

from collections import OrderedDict
from pathlib import Path

import numpy as np
import onnx
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

HERE = Path(__file__).parent
EPOCHS = 40


def data():
    """Images (N, 1, 8, 8) in [0, 1] and labels: a training part and a held-out quarter."""
    digits = load_digits()
    images = (digits.images[:, None] / 16).astype(np.float32)
    parts = train_test_split(images, digits.target, test_size=0.25, random_state=0)
    return [torch.tensor(part) for part in parts]


def network():
    """Two convolutions, a pooling and two dense layers: 38,000 weights."""
    layers = {
        "conv1": nn.Conv2d(1, 16, 3, padding=1),
        "relu1": nn.ReLU(),
        "conv2": nn.Conv2d(16, 32, 3, padding=1),
        "relu2": nn.ReLU(),
        "pool": nn.MaxPool2d(2),
        "flatten": nn.Flatten(),
        "fc1": nn.Linear(512, 64),
        "tanh": nn.Tanh(),
        "fc2": nn.Linear(64, 10),
    }
    return nn.Sequential(OrderedDict(layers))


def train(model, images, labels):
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-2)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(images)).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()


def export(model, path):
    """The exporter's graph, without metadata that names the machine."""
    example = torch.zeros(2, 1, 8, 8)
    names = {"input_names": ["image"], "output_names": ["logits"]}
    batch = ({0: torch.export.Dim("batch")},)
    proto = torch.onnx.export(
        model.eval(), (example,), **names, dynamic_shapes=batch, opset_version=21, dynamo=True
    ).model_proto
    graph = proto.graph
    tensors = (*graph.input, *graph.output, *graph.value_info, *graph.initializer)
    for part in (proto, graph, *graph.node, *tensors):
        part.ClearField("metadata_props")
        part.ClearField("doc_string")
    onnx.save(proto, path)


def main():
    torch.set_num_threads(1)  # sums in one order, hence the same file each time
    torch.manual_seed(0)
    train_images, images, train_labels, labels = data()
    model = network()
    train(model, train_images, train_labels)
    with torch.no_grad():
        right = model(images).argmax(dim=1) == labels
    print(f"held-out accuracy: {right.float().mean():.2%} of {len(labels)} images")
    export(model, HERE / "digits.onnx")
    first = [int((labels == digit).nonzero()[0]) for digit in range(10)]
    np.savez_compressed(HERE / "digits_samples.npz", image=images[first].numpy())


if __name__ == "__main__":
    main()
