"""The workloads by name; a suffix after a slash names a variant."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from .dense import branching, inputs, mlp, narrowing, svds
from .images import deep, lenet, resnet
from .reaction import reaction
from .sequences import classifier, generative, loop, lstm, transformer
from .workload import Workload

__all__ = ["GROWTH", "HIDDEN", "SCALED", "WORKLOADS", "Workload", "find"]


def steps(made: Callable[[], Workload], *more: str) -> Workload:
    """A workload whose products are steps at changing weights, as in an optimiser's loop."""
    return replace(made(), products=("grad", "grad+ggn×10", "grad+hvp×10", "adam", *more))


def curvature(made: Callable[[], Workload]) -> Workload:
    """A workload whose products are matrices of curvature, made anew at changing weights."""
    return replace(made(), products=("factors", "ekfac", "diagonal"))


pooled = partial(transformer, pooled=True)
trained = partial(pooled, labelled=True)

WORKLOADS: dict[str, Callable[[], Workload]] = {
    "mlp": mlp,
    "mlp/float64": partial(mlp, "float64"),
    "mlp/small": partial(mlp, batch=32, widths=(20, 16, 5), products=("jvp", "vjp")),
    "resnet": resnet,
    "lenet": lenet,
    "transformer": transformer,
    "transformer/pooled": pooled,
    "input": inputs,
    "input/float64": partial(inputs, "float64"),
    "reaction": reaction,
    "lstm": lstm,
    "loop": loop,
    "steps/mlp": partial(steps, mlp, "kfac"),
    "steps/lenet": partial(steps, lenet),
    "steps/resnet": partial(steps, resnet),
    "steps/transformer": partial(steps, trained),
    "steps/lstm": partial(steps, lambda: classifier(lstm(), pooled=True)),
    "steps/loop": partial(steps, lambda: classifier(loop(turns=300))),
    "steps/if": partial(steps, branching),
    "steps/reaction": partial(reaction, products=("f+jvp×10",)),
    "curvature/mlp": partial(curvature, partial(mlp, batch=512)),
    "curvature/lenet": partial(curvature, partial(lenet, batch=512)),
    "large/gpt": generative,
    "large/resnet": deep,
    "chain/narrow": partial(narrowing, (4096, 16, 2048, 8, 1024, 32)),
    "chain/wide": partial(narrowing, (64, 1024, 16, 2048, 512, 1024)),
    "svds": svds,
}

grown = partial(mlp, products=("jvp", "vjp"))
GROWTH: dict[str, Callable[[], Workload]] = {
    **{f"growth/batch={n}": partial(grown, batch=n) for n in (16, 64, 256, 1024)},
    **{f"growth/width={n}": partial(grown, widths=(n, n, n, 10)) for n in (64, 256, 1024)},
    **{f"growth/depth={n}": partial(grown, widths=(256,) * n + (10,)) for n in (2, 4, 8, 16)},
    "growth/columns": partial(mlp, products=("jvp×1", "jvp×4", "jvp×16", "jvp×64")),
    **{f"growth/grid={n}": partial(reaction, n, ("jvp",)) for n in (64, 256, 1024)},
}
"""Workloads for the growth of time with one size, the others as in the MLP or the grid."""

SCALED: dict[str, Callable[[], Workload]] = {
    **{f"{name}×{n}": partial(made, batch=n * batch)
       for name, made, batch, sizes in (
           ("mlp", mlp, 256, (10, 100)), ("lenet", lenet, 64, (10, 100)),
           ("resnet", resnet, 16, (10,)), ("transformer/pooled", pooled, 4, (10, 100)),
           ("large/resnet", deep, 2, (10,)),
       ) for n in sizes},
    "large/gpt×8": partial(generative, tokens=1024),
    **{f"steps/{name}×{n}": partial(steps, partial(made, batch=n * batch))
       for name, made, batch in (("mlp", mlp, 256), ("lenet", lenet, 64), ("resnet", resnet, 16),
                                 ("transformer", trained, 4))
       for n in (10, 100)},
    **{f"curvature/{name}×10": partial(curvature, partial(made, batch=5120))
       for name, made in (("mlp", mlp), ("lenet", lenet))},
}  # fmt: skip
"""Workloads of 10 and 100 times as many samples, or of 8 times as many tokens, for a GPU."""

HIDDEN: dict[str, Callable[[], Workload]] = {
    "tiny": partial(mlp, "float64", batch=8, widths=(20, 16, 5)),
    "tiny/steps": partial(steps, partial(mlp, "float64", batch=8, widths=(20, 16, 5)), "kfac"),
    "tiny/curvature": partial(curvature, partial(mlp, "float64", batch=8, widths=(20, 16, 5))),
    "tiny/if": partial(steps, partial(branching, "float64", batch=8, widths=(20, 16, 16, 5))),
    "tiny/reaction": partial(reaction, 8, ("jvp",)),
    "tiny/newton": partial(reaction, 8, ("f+jvp×10",)),
    "tiny/gpt": partial(generative, "float64", depth=2, width=8, heads=2, tokens=4, words=7),
    "tiny/deep": partial(deep, "float64", batch=1, size=32, depths=(1, 1)),
    "tiny/lenet": partial(lenet, "float64", batch=1),
    "tiny/resnet": partial(resnet, "float64", batch=2, stages=((4, 1), (8, 2))),
    "tiny/lstm": partial(lstm, "float64", length=3, batch=2, width=5),
    "tiny/loop": partial(loop, "float64", turns=60, batch=2, width=5),
}
"""For the test of the harness."""

SMALL = {"small/deep": lambda: replace(mlp(batch=8, widths=(16,) * 400 + (10,)), wrt=("x",))}
"""Many nodes and few numbers, for the table of defaults."""


def find(name: str) -> Workload:
    """The workload of that name."""
    return (WORKLOADS | GROWTH | SCALED | HIDDEN | SMALL)[name]()
