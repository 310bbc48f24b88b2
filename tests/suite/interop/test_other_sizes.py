"""Loops and transformers exported from PyTorch: derivatives at other sizes, against torch."""

import sys

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
    """A while loop whose trip count depends on the data."""

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
    """A scan over a sequence."""

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


class Deberta(torch.nn.Module):
    """One layer with relative positions."""

    def __init__(self):
        super().__init__()
        self.net = hub("DebertaV2", hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
                       intermediate_size=32, max_position_embeddings=32, relative_attention=True,
                       pos_att_type=["p2c", "c2p"], max_relative_positions=16,
                       position_biased_input=False)  # fmt: skip

    def forward(self, x, mask):
        return self.net(inputs_embeds=x, attention_mask=mask).last_hidden_state


class Mixtral(torch.nn.Module):
    """One layer of four experts, two of them for each token, multiplied in one batch."""

    def __init__(self):
        super().__init__()
        self.net = hub("Mixtral", hidden_size=16, intermediate_size=24, num_hidden_layers=1,
                       num_attention_heads=2, num_key_value_heads=1, num_local_experts=4,
                       num_experts_per_tok=2, max_position_embeddings=64,
                       experts_implementation="batched_mm")  # fmt: skip

    def forward(self, x):
        return self.net(inputs_embeds=x, use_cache=False).last_hidden_state


class Whisper(torch.nn.Module):
    """An encoder of sound and a decoder, one layer each."""

    def __init__(self):
        super().__init__()
        self.net = hub("Whisper", num_mel_bins=8, d_model=16, encoder_layers=1, decoder_layers=1,
                       encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=32,
                       decoder_ffn_dim=32, max_source_positions=12, max_target_positions=20,
                       pad_token_id=0, bos_token_id=1, eos_token_id=2,
                       decoder_start_token_id=3)  # fmt: skip

    def forward(self, x, h):
        net = self.net(input_features=x, decoder_inputs_embeds=h, use_cache=False)
        return net.last_hidden_state


def hub(name, **sizes):
    """A network of `transformers` with random weights."""
    library = pytest.importorskip("transformers")
    config = getattr(library, f"{name}Config")(vocab_size=50, **sizes)
    return getattr(library, f"{name}Model")(config)


TOKENS = {0: "b", 1: "t"}
SIZES = ((2, 6), (3, 9), (1, 4))
CASES = {
    Recurrent: ({"x": TOKENS}, [{"x": (2, 6, 4)}, {"x": (3, 9, 4)}, {"x": (1, 2, 4)}]),
    While: ({"x": {0: "b"}}, [{"x": (2, 4), "n": 3}, {"x": (5, 4), "n": 7}, {"x": (1, 4), "n": 0}]),
    Scan: ({"x": {0: "t"}}, [{"x": (n, 4), "h": (4,)} for n in (6, 9, 1)]),
    Deberta: ({"x": TOKENS, "mask": TOKENS},
              [{"x": (b, t, 16), "mask": torch.ones(b, t, dtype=torch.int64)} for b, t in SIZES]),
    Mixtral: ({"x": TOKENS}, [{"x": (b, t, 16)} for b, t in SIZES]),
    Whisper: ({"x": {0: "b"}, "h": TOKENS}, [{"x": (b, 8, 24), "h": (b, t, 16)} for b, t in SIZES]),
}  # fmt: skip
"""Module -> its free dimensions, and inputs as shapes or numbers, the first for export."""


def tensors(given):
    """Floating tensors of the given shapes; numbers and tensors as they are."""
    return {n: torch.randn(s) if isinstance(s, tuple) else torch.as_tensor(s)
            for n, s in given.items()}  # fmt: skip


@pytest.fixture(autouse=True)
def no_torchvision(monkeypatch):
    """Keep `transformers` from importing a torchvision built for another version of torch."""
    monkeypatch.setitem(sys.modules, "torchvision", None)


@pytest.mark.sampled(0.6)
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("kind", CASES)
def test_the_derivative_of_an_exported_network_keeps_every_free_dimension(kind):
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


class Tokens(torch.nn.Module):
    """Words at places of a table of 12, and attention under a mask, by TorchScript's idioms."""

    def __init__(self):
        super().__init__()
        self.words, self.places = torch.nn.Embedding(20, 8), torch.nn.Embedding(12, 8)
        self.register_buffer("order", torch.arange(12)[None])

    def forward(self, ids, mask):
        at = self.order[:, : ids.shape[1]].expand(ids.shape)
        x = self.words(ids) + self.places(at)
        seen = mask[:, None, :].expand(ids.shape[0], ids.shape[1], ids.shape[1])
        scores = (x @ x.transpose(-1, -2)).masked_fill(seen == 0, -1e4)
        return torch.softmax(scores, -1) @ x


@pytest.mark.filterwarnings("ignore")  # of the exporter
def test_the_derivative_of_a_file_by_torchscript_keeps_its_dynamic_axes(tmp_path):
    """Shapes go through ConstantOfShape, Equal and Where; the table of places is a bound."""
    torch.manual_seed(0)
    net, file = Tokens().eval(), str(tmp_path / "net.onnx")
    names = ["ids", "mask"]
    ones = torch.ones(2, 3, dtype=torch.int64)
    torch.onnx.export(net, (ones, ones), file, dynamo=False, input_names=names,
                      output_names=["y"], dynamic_axes=dict.fromkeys([*names, "y"], TOKENS))
    model = oj.load(file)
    wrt = next(s.outputs[0] for s in model.steps if "words" in s.name)
    with pytest.warns(oj.OnnxJacWarning, match="holds only where t <= 12 ") as said:
        made = oj.export(model, "vjp", {"ids": ones.numpy(), "mask": ones.numpy()}, wrt=wrt)
    assert not any("is fixed" in str(w.message) for w in said)
    assert [p.value for p in made.metadata_props] == ["t <= 12"]
    vjp = oj.load(made)
    for b, t in ((1, 1), (2, 3), (3, 12), (4, 1)):
        ids, mask = torch.randint(20, (b, t)), torch.randint(2, (b, t))
        mask[:, 0] = 1
        y = net(ids, mask)
        u = torch.randn_like(y)
        (wanted,) = torch.autograd.grad(y, net.words.weight, u)
        given = {"ids": ids.numpy(), "mask": mask.numpy(), "y_cotangent": u.numpy()}
        found = vjp.run(given)
        (slope,) = (x for name, x in found.items() if name != "y")
        table = np.zeros((20, 8))
        np.add.at(table, ids.numpy(), slope)
        np.testing.assert_allclose(table, wanted.numpy(), atol=1e-5)
    with pytest.raises(oj.InputError, match="recorded for points where t <= 12"):
        vjp.run({n: np.ones((1, 13, *x.shape[2:]), x.dtype) for n, x in given.items()})
