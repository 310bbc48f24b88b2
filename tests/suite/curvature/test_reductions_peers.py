"""Losses of PyTorch, exported: Hessians over uneven batches equal the Hessian of all samples."""

import pytest

import onnxjac as oj

from .test_reductions import DATA, SHARE, W, batches, close

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.peers


def functional(name, **options):
    return lambda z, *target: getattr(torch.nn.functional, name)(z, *target, **options)


def masked(z, y, m):
    return (torch.nn.functional.cross_entropy(z, y, reduction="none") * m).sum() / m.sum()


def smoothed(z, y):
    log_p = torch.log_softmax(z, 1)
    hard = torch.nn.functional.nll_loss(log_p, y)
    return 0.9 * hard - 0.1 * log_p.mean(1).mean()


FILES = [
    ("class weights", "y", lambda: functional("cross_entropy", weight=torch.tensor(SHARE))),
    ("both", "y", lambda: functional("cross_entropy", weight=torch.tensor(SHARE), ignore_index=1)),
    ("sum", "y", lambda: functional("cross_entropy", ignore_index=1, reduction="sum")),
    ("smoothed", "y", lambda: smoothed), ("masked", "ym", lambda: masked),
    ("squares", "t", lambda: functional("mse_loss")),
    ("squares, weights", "tu", lambda: lambda z, t, u: functional("mse_loss", weight=u)(z, t)),
    ("divergence", "t", lambda: lambda z, t: functional("kl_div", reduction="batchmean")(
        torch.log_softmax(z, 1), t)),
    ("selected", "tm", lambda: lambda z, t, m: ((z - t) ** 2).mean(1)[m > 0].mean()),
]  # fmt: skip


@pytest.mark.sampled(0.25)
@pytest.mark.filterwarnings("ignore")  # of the exporters
@pytest.mark.parametrize("dynamo", [False, True], ids=["traced", "exported"])
@pytest.mark.parametrize(("name", "targets", "loss"), FILES, ids=lambda x: x)
def test_files_of_pytorch(name, targets, loss, dynamo, tmp_path):
    """In batches, what torch.func finds for all samples."""
    module, call, file = torch.nn.Module(), loss(), str(tmp_path / "m.onnx")
    module.W = torch.nn.Parameter(torch.tensor(W))
    module.forward = lambda x, *target: call(x @ module.W, *target)
    data = {"x": DATA["x"], **{k: DATA[k] for k in targets}}
    at = tuple(map(torch.tensor, data.values()))
    n = torch.export.Dim("n", min=1)
    sizes = {"dynamic_shapes": {"x": {0: n}, "target": tuple({0: n} for _ in targets)}} if dynamo \
        else {"dynamic_axes": {k: {0: "n"} for k in data}}  # fmt: skip
    torch.onnx.export(module, at, file, dynamo=dynamo, input_names=list(data), verbose=False,
                      **sizes)  # fmt: skip
    model = oj.load(file)
    (of,), (wrt,) = model.outputs, [k for k, s in model.initializers.items() if s.shape == (4, 3)]
    kind = "sum" if name == "sum" else "mean"
    H = torch.func.hessian(lambda V: call(at[0] @ V, *at[1:]))(torch.tensor(W))
    found = oj.hessian(model, batches(data), of=of, wrt=wrt, reduction=kind)
    close(found, H.reshape(12, 12).numpy(), 1e-6)  # exporters write constants with 32 bits
