"""Inputs that lie on eight devices, a part of the batch on each: the same results, one sum each.

In a process of its own, since the number of devices is fixed when JAX starts.
"""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("jax")
pytestmark = pytest.mark.peers

SUMS = {"G v", "H v", "J.T u", "gradient", "K v", "K⁻¹ v"}
"""Results that are sums over the batch."""

SCRIPT = '''
import json, re
import jax, numpy as np, onnx.parser, onnxjac as oj
from jax import shard_map
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

jax.config.update("jax_enable_x64", True)
model = oj.load(onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
    g (double[n,2] x, double[2,3] W, double[3,1] V) => (double l, double[n,1] y)
    { h = MatMul(x, W) a = Tanh(h) y = MatMul(a, V)
      s = Mul(y, y) l = ReduceMean<keepdims=0>(s) }"""))
draw, N = np.random.default_rng(0).standard_normal, 64
x, W, V, v, u = draw((N, 2)), draw((2, 3)), draw((3, 1)), draw(9), draw(N)
near, there = {"x": draw((N, 2)), "W": W, "V": V}, {"x": x, "W": W, "V": V}
mesh = Mesh(np.array(jax.devices()), ("batch",))
parts = NamedSharding(mesh, P("batch"))
xs, us = jax.device_put(x, parts), jax.device_put(u, parts)
names = {"wrt": ["W", "V"]}
kinds = {
    "J v": (oj.linearize, {"of": "y"}), "G v": (oj.gauss_newton, {"of": "l", "at": "y"}),
    "H v": (oj.hessian, {"of": "l"}),
}
found = {}

def compare(name, f, wanted, *inputs):
    """The error, and how often the devices talk to each other, by the compiled text."""
    made = jax.jit(f).lower(*inputs).compile()
    got, text = made(*inputs), made.as_text()
    words = "all-reduce", "all-gather", "all-to-all"
    talks = [len(re.findall(rf"\\b{word}(?:-start)?\\(", text)) for word in words]
    summed = re.findall(r"\\ball-reduce(?:-start)?\\(([^)]*)\\)", text)
    arrays = sum(operands.count("%") for operands in summed)
    found[name] = float(np.abs(np.asarray(got) - wanted).max()), *talks, arrays

for name, (make, given) in kinds.items():
    J = make(model, near, **given, **names, engine="jax")
    wanted = make(model, there, **given, **names) @ v
    compare(name, lambda x, v, J=J: J.relinearize({**near, "x": x}) @ v, wanted, xs, v)
J = oj.linearize(model, near, of="y", **names, engine="jax")
plain = oj.linearize(model, there, of="y", **names)
compare("J.T u", lambda x, u: J.relinearize({**near, "x": x}).T @ u, plain.T @ u, xs, us)
f = oj.to_jax(model, of="l", **names)
compare("gradient", lambda x, W: jax.grad(lambda W: f(W, V, x=x))(W),
        oj.grad(model, there, of="l", wrt="W")["W"], xs, W)
small = oj.linearize(model, {**near, "x": x[:N // 8]}, of="y", **names, engine="jax")
inside = shard_map(lambda x, v: small.relinearize({**near, "x": x}) @ v, mesh=mesh,
                   in_specs=(P("batch"), P()), out_specs=P("batch"))
compare("shard_map", inside, plain @ v, xs, v)
factored = {"at": "y", "likelihood": "bernoulli", **names}
K, E, L = (oj.kfac(model, point, **factored, engine=engine)
           for point, engine in ((near, "jax"), ({**there, "x": xs}, "jax"), (there, None)))
compare("K v", lambda x, v: K.relinearize({**near, "x": x}) @ v, L @ v, xs, v)
compare("K⁻¹ v", lambda x, v: K.relinearize({**near, "x": x}).inverse(0.1) @ v,
        L.inverse(0.1) @ v, xs, v)
found["K v, factors made eagerly"] = [float(np.abs(np.asarray(E @ v) - L @ v).max())]
print(json.dumps([found, 2 * len(K.blocks)]))
'''


def test_results_and_how_often_the_devices_talk():
    """One all-reduce where a sum runs over the batch, and none of the data is gathered. The sum of
    K-FAC is of all its factors.
    """
    devices = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    made = subprocess.run([sys.executable, "-c", SCRIPT], env={**os.environ, **devices},
                          capture_output=True, text=True)  # fmt: skip
    assert made.returncode == 0, made.stderr
    found, factors = json.loads(made.stdout.splitlines()[-1])
    assert max(error for error, *_ in found.values()) < 1e-12
    talks = {name: counts[:3] for name, (_, *counts) in found.items() if counts}
    assert talks == {name: [int(name in SUMS), 0, 0] for name in talks}
    assert talks.keys() > SUMS
    assert [found[name][-1] for name in ("K v", "K⁻¹ v")] == [factors, factors]
