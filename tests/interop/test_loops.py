"""Loops that PyTorch exports: their derivatives at other sizes and turns, against torch."""

import numpy as np
import pytest

import onnxjac as oj

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")
pytestmark = pytest.mark.peers


class Recurrent(torch.nn.Module):
    """An LSTM in both directions."""

    def __init__(self):
        super().__init__()
        self.net = torch.nn.LSTM(4, 5, batch_first=True, bidirectional=True)

    def forward(self, x):
        return self.net(x)[0]


class Weighted(torch.nn.Module):
    """One square matrix."""

    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.randn(4, 4) / 2)


class While(Weighted):
    """As many turns as the data say."""

    def forward(self, x, n):
        def goes_on(i, h):
            return i < n

        def turn(i, h):
            return i + 1, torch.tanh(h @ self.w)

        start = torch.zeros((), dtype=torch.int64), x
        return torch._higher_order_ops.while_loop(goes_on, turn, start)[1]

    def plainly(self, x, n):
        for _ in range(n):
            x = torch.tanh(x @ self.w)
        return x


class Scan(Weighted):
    """A row for every entry of a sequence."""

    def forward(self, x, h):
        def turn(h, x):
            h = torch.tanh(h @ self.w + x)
            return h, h.sin()

        return torch._higher_order_ops.scan(turn, h, x, dim=0)[1]

    def plainly(self, x, h):
        rows = []
        for row in x:
            h = torch.tanh(h @ self.w + row)
            rows.append(h.sin())
        return torch.stack(rows)


CASES = {
    Recurrent: ({"x": {0: "b", 1: "t"}}, [{"x": (2, 6, 4)}, {"x": (3, 9, 4)}, {"x": (1, 2, 4)}]),
    While: ({"x": {0: "b"}}, [{"x": (2, 4), "n": 3}, {"x": (5, 4), "n": 7}, {"x": (1, 4), "n": 0}]),
    Scan: ({"x": {0: "t"}}, [{"x": (n, 4), "h": (4,)} for n in (6, 9, 1)]),
}
"""Module -> its free dimensions, and inputs by shapes or numbers, the first one for export."""


def tensors(given):
    return {n: torch.tensor(s) if isinstance(s, int) else torch.randn(s) for n, s in given.items()}


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("kind", CASES)
def test_the_derivative_of_an_exported_loop_keeps_every_free_dimension(kind):
    torch.manual_seed(0)
    net, (free, cases) = kind().eval(), CASES[kind]
    first = tensors(cases[0])
    dims = {name: {k: torch.export.Dim(d) for k, d in free[name].items()} if name in free else None
            for name in first}  # fmt: skip
    made = torch.onnx.export(net, kwargs=first, dynamic_shapes=dims, dynamo=True, verbose=False)
    model = oj.load(made.model_proto)
    point = {name: x.numpy() for name, x in first.items()}
    vjp = oj.load(oj.export(model, "vjp", point, wrt="x"))
    (of,) = model.outputs
    for given in cases:
        at = tensors(given)
        at["x"].requires_grad_()
        y = getattr(net, "plainly", net)(**at)
        u = torch.randn_like(y)
        (wanted,) = torch.autograd.grad(y, at["x"], u)
        feeds = {name: x.detach().numpy() for name, x in at.items()}
        found = vjp.run({**feeds, f"{of}_cotangent": u.numpy()})
        np.testing.assert_allclose(found[of], y.detach().numpy(), atol=1e-6)
        np.testing.assert_allclose(found["x_cotangent"], wanted.numpy(), atol=1e-6)
