"""A gradient and training steps by onnxruntime-web in Node, which finds it by NODE_PATH."""

import json
import shutil
import subprocess

import numpy as np
import onnx
import onnx.parser
import pytest

import onnxjac as oj

pytestmark = pytest.mark.peers

SCRIPT = """
const ort = require("onnxruntime-web"), fs = require("fs");
const [file, given] = process.argv.slice(1);
const { feeds, next, steps } = JSON.parse(fs.readFileSync(given, "utf8"));
(async () => {
  const session = await ort.InferenceSession.create(fs.readFileSync(file));
  const at = {};
  for (const [name, [type, dims, numbers]] of Object.entries(feeds))
    at[name] = new ort.Tensor(type, type === "int64" ? numbers.map(BigInt) : numbers, dims);
  let made;
  for (let k = 0; k < steps; k++) {
    made = await session.run(at);
    for (const [name, output] of Object.entries(next)) at[name] = made[output];
  }
  const numbers = (y) => [y.dims, Array.from(y.data, Number)];
  const arrays = Object.entries(made).map(([name, y]) => [name, numbers(y)]);
  console.log(JSON.stringify(Object.fromEntries(arrays)));
})();
"""

FIT = """<ir_version: 10, opset_import: ["": 21]>
fit (float[batch, 4] x, float[batch, 2] t) => (float loss)
<float[4, 2] W = {0.1, 0.2, -0.3, 0.4, 0.5, -0.6, 0.7, 0.8}>
{ z = MatMul(x, W)  y = Tanh(z)  e = Sub(y, t)  s = Mul(e, e)  loss = ReduceMean<keepdims = 0>(s) }
"""


@pytest.fixture(scope="module")
def node():
    """The program, where it finds the package."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("no Node")
    if subprocess.run([node, "-e", 'require("onnxruntime-web")'], capture_output=True).returncode:
        pytest.skip("no onnxruntime-web in NODE_PATH")
    return node


def in_node(node, folder, proto, feeds, following=None, steps=1):
    """The outputs of the last of some runs, each of which goes on from what the one before made."""
    onnx.save(proto, folder / "f.onnx")
    arrays = {name: (str(x.dtype), x.shape, x.ravel().tolist()) for name, x in feeds.items()}
    given = {"feeds": arrays, "next": following or {}, "steps": steps}
    (folder / "given.json").write_text(json.dumps(given))
    run = [node, "-e", SCRIPT, "--", str(folder / "f.onnx"), str(folder / "given.json")]
    found = json.loads(subprocess.run(run, capture_output=True, check=True, text=True).stdout)
    return {name: np.reshape(y, shape) for name, (shape, y) in found.items()}


def batch():
    rng = np.random.default_rng(0)
    x, t = rng.standard_normal((5, 4)), rng.standard_normal((5, 2))
    return {"x": x.astype(np.float32), "t": t.astype(np.float32)}


def test_a_gradient(node, tmp_path):
    model = oj.load(onnx.parser.parse_model(FIT))
    found = in_node(node, tmp_path, oj.export(model, "grad", batch(), wrt="W"), batch())
    np.testing.assert_allclose(found["W_grad"], oj.grad(model, batch(), wrt="W")["W"], rtol=1e-4)


def test_training_steps(node, tmp_path):
    model, momentum = onnx.parser.parse_model(FIT), oj.Momentum(alpha=0.5)
    training = oj.training_model(model, "loss", optimizer=momentum, learning_rate=0.5)
    step, state = oj.export(training, "training_step"), oj.initial_state(training)
    (bound,) = (json.loads(e.value) for e in step.metadata_props
                if e.key == "onnxjac.update_binding")  # fmt: skip
    found = in_node(node, tmp_path, step, state | batch(), bound, steps=3)
    plain = oj.load(step)
    for _ in range(3):
        made = plain.run(state | batch())
        state = {name: made[new] for name, new in bound.items()}
    assert not np.allclose(state["W"], oj.initial_state(training)["W"], atol=0.1)
    for name, new in bound.items():
        np.testing.assert_allclose(found[new], state[name], rtol=1e-4)
