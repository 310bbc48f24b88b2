"""Targets: upper bounds on our time ÷ the best peer's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

PEER, EXPERT, COMPILED = "peer", "expert", "compiled"
"""Whose time a target is about."""

PLAIN, CHOSEN, RUNTIME = "onnxjac", "onnxjac compiled", "onnxjac onnxruntime"
NUMPY, TORCH, XLA = "onnxjac numpy", "onnxjac torch", "onnxjac jax"
SLACK = 1.1
"""The factor by which float64 may be worse."""


class Target(NamedTuple):
    """our time ÷ the time of the best peer, the best expert, or ours compiled ≤ bound."""

    bound: float
    against: str = PEER


Targets = dict[tuple[str, str, str], list[Target]]


def bounds(work: str, products: dict[str, float], ours: str = RUNTIME) -> Targets:
    """The targets of one contender on one workload."""
    return {(work, product, ours): [Target(bound)] for product, bound in products.items()}


def default(work: str, products: Iterable[str]) -> Targets:
    """The targets of J as it is: no slower than the best peer, and about as fast as compiled."""
    both = [Target(1.0), Target(1.15, COMPILED)]
    return {(work, product, PLAIN): both for product in products}


STEPS = {"grad": 1.0, "grad+ggn×10": 1.0, "grad+hvp×10": 1.0, "adam": 1.2}
FOUR = ("jvp", "vjp", "ggn", "hvp")
MLP = dict(zip((*FOUR, "jvp×16"), (0.72, 0.85, 0.75, 0.95, 0.8), strict=True))
MLP_NUMPY = dict(zip((*FOUR, "jvp×16"), (0.80, 0.90, 0.85, 1.02, 0.8), strict=True))

BY_XLA: dict[tuple[str, ...], dict[str, float]] = {
    ("mlp", "lenet", "resnet"): dict.fromkeys(FOUR, 1.05),
    ("transformer", "lstm", "loop", "reaction", "steps/if"): dict.fromkeys(("jvp", "vjp"), 1.05),
    ("input", "transformer/pooled"): dict.fromkeys(("jvp", "vjp"), 0.5),
    tuple(f"steps/{name}" for name in ("mlp", "transformer", "lstm", "loop", "if", "lenet")):
        dict.fromkeys(STEPS, 1.05),
    ("steps/resnet",): {"grad": 1.05, "adam": 1.05},
    ("steps/reaction",): {"f+jvp×10": 1.2},
}  # fmt: skip
"""Workloads, and the targets of their products by XLA."""

TARGETS: dict[tuple[str, str, str], list[Target]] = {
    **bounds("mlp", MLP),
    **bounds("mlp", MLP_NUMPY, NUMPY),
    **bounds("mlp/float64", {product: SLACK * bound for product, bound in MLP.items()}),
    **bounds("mlp/float64", {product: SLACK * b for product, b in MLP_NUMPY.items()}, NUMPY),
    **default("mlp", MLP),
    **default("mlp/float64", MLP),
    **default("resnet", FOUR),
    **default("lenet", FOUR),
    **default("transformer", ("jvp", "vjp")),
    **default("transformer/pooled", ("jvp", "vjp")),
    **default("input", ("jvp", "vjp")),
    **bounds("resnet", {"jvp": 0.65, "vjp": 0.65, "ggn": 0.65, "hvp": 1.05}),
    **bounds("lenet", dict.fromkeys(FOUR, 0.95)),
    **bounds("transformer", {"jvp": 1.0, "vjp": 1.0}),
    **bounds("resnet", dict.fromkeys(FOUR, 1.5), NUMPY),
    **bounds("lenet", dict.fromkeys(FOUR, 1.5), NUMPY),
    **bounds("transformer", {"jvp": 1.5, "vjp": 1.5}, NUMPY),
    **bounds("mlp", dict.fromkeys(FOUR, 0.95), TORCH),
    **{("mlp/small", product, TORCH): [Target(1.5, EXPERT)] for product in ("jvp", "vjp")},
    **bounds("resnet", dict.fromkeys(FOUR, 0.95), TORCH),
    **bounds("lenet", dict.fromkeys(FOUR, 0.95), TORCH),
    **bounds("transformer", {"jvp": 0.95, "vjp": 0.95}, TORCH),
    **{
        target: bound
        for name in ("mlp", "lenet")
        for target, bound in bounds(
            f"steps/{name}", {"grad": 1.05, "grad+ggn×10": 0.95}, TORCH
        ).items()
    },
    **{
        target: bound
        for names, products in BY_XLA.items()
        for name in names
        for target, bound in bounds(name, products, XLA).items()
    },
    **bounds("reaction", {"jvp": 1.3, "sparse": 0.4}, NUMPY),
    **bounds("reaction", {"sparse": 0.4}, PLAIN),
    **{
        target: bound
        for name in ("mlp", "transformer", "lstm", "loop", "if")
        for target, bound in bounds(f"steps/{name}", STEPS, PLAIN).items()
    },
    **bounds("steps/mlp", {"kfac": 1.0}, PLAIN),
    **bounds("curvature/mlp", dict.fromkeys(("factors", "ekfac", "diagonal"), 1.0), PLAIN),
    **bounds("curvature/lenet", dict.fromkeys(("factors", "ekfac", "diagonal"), 1.0), PLAIN),
    **bounds("steps/lenet", {**STEPS, "grad": 1.3}, PLAIN),
    **bounds("steps/resnet", {**STEPS, "grad": 1.3}, PLAIN),
    **bounds("steps/reaction", {"f+jvp×10": 1.0}, PLAIN),
    **bounds("large/gpt", dict.fromkeys(("jvp", "vjp", "hvp"), 1.0), PLAIN),
    **{
        ("input", product, ours): [Target(0.08), Target(0.8, EXPERT)]
        for product in ("jvp", "vjp")
        for ours in (CHOSEN, NUMPY)
    },
}

SHARE = 0.7
"""The required part of the machine's limit."""
