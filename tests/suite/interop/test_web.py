"""A gradient and training steps by onnxruntime-web, in Node, which finds it by NODE_PATH, and in
headless Chromium.
"""

import json
import shutil
import subprocess
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import onnx
import onnx.parser
import pytest

import onnxjac as oj

pytestmark = pytest.mark.peers

RUN = """
const run = async (ort, model, { feeds, next, steps }) => {
  const session = await ort.InferenceSession.create(model);
  const at = {};
  for (const [name, [type, dims, numbers]] of Object.entries(feeds))
    at[name] = new ort.Tensor(type, type === "int64" ? numbers.map(BigInt) : numbers, dims);
  let made;
  for (let k = 0; k < steps; k++) {
    made = await session.run(at);
    for (const [name, output] of Object.entries(next)) at[name] = made[output];
  }
  const numbers = (y) => [y.dims, Array.from(y.data, Number)];
  return Object.fromEntries(Object.entries(made).map(([name, y]) => [name, numbers(y)]));
};
"""

IN_NODE = RUN + """
const fs = require("fs"), [file, given] = process.argv.slice(1);
run(require("onnxruntime-web"), fs.readFileSync(file), JSON.parse(fs.readFileSync(given, "utf8")))
  .then(found => console.log(JSON.stringify(found)));
"""

PAGE = f"""<!doctype html><script src="ort/ort.wasm.min.js"></script><script>{RUN}
ort.env.wasm.numThreads = 1;
const read = async (name) => new Uint8Array(await (await fetch(name)).arrayBuffer());
const all = async () =>
  run(ort, await read("f.onnx"), JSON.parse(new TextDecoder().decode(await read("given.json"))));
</script>"""

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


@pytest.fixture(params=["node", "chromium"])
def program(request, node, tmp_path):
    """Runs `f.onnx` in a folder as `given.json` says."""
    if request.param == "node":
        run = [node, "-e", IN_NODE, "--", str(tmp_path / "f.onnx"), str(tmp_path / "given.json")]
        yield lambda: json.loads(subprocess.run(run, capture_output=True, check=True).stdout)
        return
    api = pytest.importorskip("playwright.sync_api")
    file = subprocess.run([node, "-p", 'require.resolve("onnxruntime-web")'], capture_output=True)
    (tmp_path / "ort").symlink_to(Path(file.stdout.decode().strip()).parent)
    (tmp_path / "page.html").write_text(PAGE)
    handler = partial(SimpleHTTPRequestHandler, directory=tmp_path)
    with api.sync_playwright() as running, ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        try:
            browser = running.chromium.launch(executable_path=shutil.which("chromium"),
                                              args=["--no-sandbox"])  # fmt: skip
        except api.Error as error:
            pytest.skip(f"no Chromium: {error}")
        Thread(target=server.serve_forever, daemon=True).start()
        tab = browser.new_page()
        tab.goto(f"http://127.0.0.1:{server.server_port}/page.html")
        yield lambda: tab.evaluate("all()")
        server.shutdown()
        browser.close()


def made_by(program, folder, proto, feeds, following=None, steps=1):
    """The outputs of the last of some runs, each of which goes on from what the one before made."""
    onnx.save(proto, folder / "f.onnx")
    arrays = {name: (str(x.dtype), x.shape, x.ravel().tolist()) for name, x in feeds.items()}
    given = {"feeds": arrays, "next": following or {}, "steps": steps}
    (folder / "given.json").write_text(json.dumps(given))
    return {name: np.reshape(y, shape) for name, (shape, y) in program().items()}


def batch():
    rng = np.random.default_rng(0)
    x, t = rng.standard_normal((5, 4)), rng.standard_normal((5, 2))
    return {"x": x.astype(np.float32), "t": t.astype(np.float32)}


def test_a_gradient_in_the_browser_agrees_with_python(program, tmp_path):
    model = oj.load(onnx.parser.parse_model(FIT))
    found = made_by(program, tmp_path, oj.export(model, "grad", batch(), wrt="W"), batch())
    np.testing.assert_allclose(found["W_grad"], oj.grad(model, batch(), wrt="W")["W"], rtol=1e-4)


def test_training_steps_in_the_browser_agree_with_python(program, tmp_path):
    model, momentum = onnx.parser.parse_model(FIT), oj.Momentum(alpha=0.5)
    training = oj.training_model(model, "loss", optimizer=momentum, learning_rate=0.5)
    step, state = oj.export(training, "training_step"), oj.initial_state(training)
    (bound,) = (json.loads(e.value) for e in step.metadata_props
                if e.key == "onnxjac.update_binding")  # fmt: skip
    found = made_by(program, tmp_path, step, state | batch(), bound, steps=3)
    plain = oj.load(step)
    for _ in range(3):
        made = plain.run(state | batch())
        state = {name: made[new] for name, new in bound.items()}
    assert not np.allclose(state["W"], oj.initial_state(training)["W"], atol=0.1)
    for name, new in bound.items():
        np.testing.assert_allclose(found[new], state[name], rtol=1e-4)
