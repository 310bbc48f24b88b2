"""Two processes that JAX joins, each with a part of the batch: the same results as one process."""

import json
import os
import socket
import subprocess
import sys

import pytest

pytest.importorskip("jax")
pytestmark = pytest.mark.peers

PROCESSES = 2
SECONDS = 300
"""How long a process may take, its import of JAX included."""

SCRIPT = f'''
import json, sys
import jax, numpy as np, onnx.parser, onnxjac as oj
from jax.experimental.multihost_utils import process_allgather
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

port, mine = sys.argv[1], int(sys.argv[2])
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"localhost:{{port}}", {PROCESSES}, mine, initialization_timeout=120)

model = oj.load(onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
    g (double[n,2] x, double[2,3] W, double[3,1] V) => (double l, double[n,1] y)
    {{ h = MatMul(x, W) a = Tanh(h) y = MatMul(a, V)
      s = Mul(y, y) l = ReduceMean<keepdims=0>(s) }}"""))
draw, N = np.random.default_rng(0).standard_normal, 32
x, W, V, v = draw((N, 2)), draw((2, 3)), draw((3, 1)), draw(9)
near, there = {{"x": draw((N, 2)), "W": W, "V": V}}, {{"x": x, "W": W, "V": V}}
parts = NamedSharding(Mesh(np.array(jax.devices()), ("batch",)), P("batch"))
rows = np.split(x, {PROCESSES})[mine]
xs = jax.make_array_from_process_local_data(parts, rows)
names, found = {{"wrt": ["W", "V"]}}, {{}}

def compare(name, f, wanted, v):
    got = process_allgather(jax.jit(f)(xs, v), tiled=True)
    found[name] = float(np.abs(got - wanted).max())

J = oj.linearize(model, near, of="y", **names, engine="jax")
compare("J v", lambda x, v: J.relinearize({{**near, "x": x}}) @ v,
        oj.linearize(model, there, of="y", **names) @ v, v)
G = oj.gauss_newton(model, near, of="l", at="y", **names, engine="jax")
compare("G v", lambda x, v: G.relinearize({{**near, "x": x}}) @ v,
        oj.gauss_newton(model, there, of="l", at="y", **names) @ v, v)
f = oj.to_jax(model, of="l", wrt="W")
compare("gradient", lambda x, W: jax.grad(lambda W: f(W, V=V, x=x))(W),
        oj.grad(model, there, of="l", wrt="W")["W"], W)
K = oj.kfac(model, near, at="y", likelihood="gaussian", **names, engine="jax")
compare("K v", lambda x, v: K.relinearize({{**near, "x": x}}) @ v,
        oj.kfac(model, there, at="y", likelihood="gaussian", **names) @ v, v)
print(json.dumps([jax.process_count(), len(xs.addressable_shards), xs.shape[0], found]))
'''


def free_port() -> int:
    """A port of this machine that nobody listens to."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]


def test_both_get_the_results_of_one():
    port, devices = str(free_port()), 2
    environment = {**os.environ, "JAX_PLATFORMS": "cpu",
                   "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}  # fmt: skip
    started = [
        subprocess.Popen([sys.executable, "-c", SCRIPT, port, str(k)], env=environment, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for k in range(PROCESSES)
    ]  # fmt: skip
    try:
        ended = [process.communicate(timeout=SECONDS) for process in started]
    finally:
        for process in started:
            process.kill()
    for process, (text, error) in zip(started, ended, strict=True):
        assert process.returncode == 0, error
        count, shards, rows, found = json.loads(text.splitlines()[-1])
        assert (count, shards, rows) == (PROCESSES, devices, 32)
        assert found.keys() == {"J v", "G v", "gradient", "K v"}
        assert max(found.values()) < 1e-12
