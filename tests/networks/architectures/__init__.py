"""The sixteen architectures by name, each with its class and a point."""

import torch

from .science import Flow, GraphConvolution, Pinn, Step
from .sequences import Attentive, Mamba, Tagger
from .transformers import GPT2, T5, Bert, Llama, ViT
from .vision import MobileNet, ResNet, UNet, Yolo


def words(*shape):
    """Random tokens."""
    return torch.randint(12, shape)


NETWORKS = {
    "resnet": (ResNet, lambda: {"image": torch.randn(2, 3, 8, 8)}),
    "mobilenet": (MobileNet, lambda: {"image": torch.randn(2, 3, 8, 8)}),
    "unet": (UNet, lambda: {"image": torch.randn(1, 1, 8, 8)}),
    "yolo": (Yolo, lambda: {"image": torch.randn(1, 3, 8, 8)}),
    "vit": (ViT, lambda: {"image": torch.randn(2, 3, 8, 8)}),
    "bert": (
        Bert,
        lambda: {
            "ids": words(2, 6),
            "types": torch.tensor([[0, 0, 0, 1, 1, 1]] * 2),
            "mask": torch.tensor([[1] * 6, [1] * 4 + [0] * 2]),
        },
    ),
    "gpt2": (GPT2, lambda: {"ids": words(2, 6)}),
    "t5": (T5, lambda: {"ids": words(2, 6), "targets": words(2, 4)}),
    "llama": (Llama, lambda: {"ids": words(2, 6)}),
    "mamba": (Mamba, lambda: {"x": torch.randn(2, 5, 8)}),
    "tagger": (Tagger, lambda: {"ids": words(2, 5)}),
    "attentive": (Attentive, lambda: {"x": torch.randn(2, 5, 8)}),
    "graph": (
        GraphConvolution,
        lambda: {"x": torch.randn(5, 6), "edges": torch.randint(5, (2, 9))},
    ),
    "ode": (Step, lambda: {"x": torch.randn(3, 4), "steps": torch.tensor(6)}),
    "pinn": (Pinn, lambda: {"points": torch.randn(6, 2)}),
    "flow": (Flow, lambda: {"x": torch.randn(3, 4)}),
}


@torch.no_grad()
def seeded(name):
    """The network in single precision, with constant initial values perturbed, and a point."""
    make, point = NETWORKS[name]
    torch.manual_seed(sorted(NETWORKS).index(name))
    network = make().eval()
    for tensor in network.parameters():
        if tensor.ndim == 1:
            tensor.add_(0.2 * torch.randn_like(tensor))
    for key, tensor in network.named_buffers():
        if key.endswith("running_var"):
            tensor.uniform_(0.5, 1.5)
        if key.endswith("running_mean"):
            tensor.normal_(0, 0.2)
    return network, point()
