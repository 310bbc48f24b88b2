"""Files of PyTorch's exporters, with tokens: every command that a newcomer tries takes them."""

import pytest

from onnxjac.__main__ import main

torch = pytest.importorskip("torch")
ort = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

pytestmark = [
    pytest.mark.peers,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),
]


class Encoder(torch.nn.Module):
    """Words and positions, attention with a mask, a pooler: the inputs of BERT's files."""

    def __init__(self):
        super().__init__()
        self.words, self.places = torch.nn.Embedding(20, 8), torch.nn.Embedding(9, 8)
        self.queries, self.head = torch.nn.Linear(8, 8), torch.nn.Linear(8, 2)

    def forward(self, input_ids, attention_mask):
        h = self.words(input_ids) + self.places(torch.arange(input_ids.shape[1]))
        scores = self.queries(h) @ h.transpose(1, 2)
        scores = scores.masked_fill(attention_mask[:, None] == 0, -1e4)
        return self.head(torch.tanh((torch.softmax(scores, -1) @ h)[:, 0]))


@pytest.mark.parametrize("dynamo", [True, False])
def test_every_command_takes_an_encoder_and_its_twin(tmp_path, capsys, dynamo):
    file, twin, out = (str(tmp_path / name) for name in ("m.onnx", "twin.onnx", "out"))
    ids = torch.ones(1, 4, dtype=torch.long)
    torch.onnx.export(Encoder().eval(), (ids, ids), file, dynamo=dynamo, output_names=["logits"],
                      input_names=["input_ids", "attention_mask"])  # fmt: skip
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = twin
    ort.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    capsys.readouterr()
    for argv in (("report", file), ("check", file), ("view", file, "-o", out),
                 ("explain", file, "-o", out), ("compare", file, twin),
                 ("export", file, "--mode", "grad", "--loss", "cross_entropy", "-o", out)):
        assert main(argv) == 0, capsys.readouterr()
