"""The script where JAX has four devices, or two processes: operators of sharded arrays."""

import re
import sys

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import onnxjac as oj
from data.regressions import LABELS, W, X, softmax_regression

FUNCTIONS = {
    "hessian": (oj.hessian, {"of": "loss"}),
    "gauss_newton": (oj.gauss_newton, {"of": "loss", "at": "logits"}),
    "fisher": (oj.fisher, {"at": "logits"}),
    "empirical_fisher": (oj.empirical_fisher, {"of": "loss", "at": "logits"}),
    "gram": (oj.gram, {"of": "logits"}),
}
FACTORS = {"kfac": oj.kfac, "ekfac": oj.ekfac, "shampoo": oj.shampoo}


def close(found, expected):
    assert np.abs(np.asarray(found) - expected).max() <= 1e-12 * np.abs(expected).max()


def collectives(operator, v):
    """What devices send one another in a product, by the compiled program."""
    text = jax.jit(lambda A, x: A @ x).lower(operator, v).compile().as_text()
    return re.findall(r"= \S+ (all-\w+|collective-\w+|reduce-scatter)\(", text)


def main():
    jax.config.update("jax_enable_x64", True)
    assert len(jax.devices()) == 4
    mesh = Mesh(np.array(jax.devices()), ("data",))
    whole = {"x": X[:20], "y": LABELS[:20]}
    split = NamedSharding(mesh, PartitionSpec("data"))
    data = {name: jax.device_put(a, split) for name, a in whole.items()}
    model, shared = softmax_regression(), {"W": W}
    v = np.random.default_rng(0).standard_normal(12)
    x = jax.device_put(v, NamedSharding(mesh, PartitionSpec()))
    for function, options in FUNCTIONS.values():
        C = function(model, data, wrt="W", shared=shared, comm="jax", **options)
        expected = function(model, {**whole, "W": W}, wrt="W", **options) @ v
        assert (C @ x).sharding.is_fully_replicated
        assert collectives(C, x) == ["all-reduce"]
        close(C @ x, expected)
        close(C @ v, expected)
    for function in FACTORS.values():
        options = {"at": "logits", "wrt": "W", "likelihood": "gaussian"}  # no factor is singular
        K = function(model, data, shared=shared, comm="jax", **options)
        close(K @ x, function(model, {**whole, "W": W}, **options) @ v)
    J = oj.linearize(model, data, of="logits", wrt="W", shared=shared, comm="jax")
    assert (J @ x).sharding.is_equivalent_to(NamedSharding(mesh, PartitionSpec("data")), 1)
    g = oj.grad(model, data, of="loss", wrt="W", shared=shared, comm="jax")
    close(g["W"], oj.grad(model, {**whole, "W": W}, of="loss", wrt="W")["W"])
    f = oj.value_and_grad(model, of="loss", wrt="W", engine="jax")
    close(f(data, shared=shared, comm="jax")[1]["W"], g["W"])
    for given in (whole, {name: jax.numpy.asarray(a) for name, a in whole.items()}):
        try:
            oj.gram(model, given, of="logits", wrt="W", shared=shared, comm="jax")
        except oj.InputError as error:
            print(str(error)[:55])


def process(rank, address):
    """One of two processes, each of which has half of the samples on two devices."""
    jax.config.update("jax_enable_x64", True)
    jax.distributed.initialize(address, 2, rank)
    split = NamedSharding(Mesh(np.array(jax.devices()), ("data",)), PartitionSpec("data"))
    whole, own = {"x": X[:20], "y": LABELS[:20]}, slice(10 * rank, 10 * rank + 10)
    data = {name: jax.make_array_from_process_local_data(split, a[own])
            for name, a in whole.items()}  # fmt: skip
    model, shared = softmax_regression(), {"W": W}
    v = np.random.default_rng(0).standard_normal(12)
    H = oj.hessian(model, data, of="loss", wrt="W", shared=shared, comm="jax", reduction="mean")
    close(H @ v, oj.hessian(model, {**whole, "W": W}, of="loss", wrt="W") @ v)
    options = {"at": "logits", "wrt": "W", "likelihood": "gaussian"}
    K = oj.kfac(model, data, shared=shared, comm="jax", shard=True, **options)
    close(K @ v, oj.kfac(model, {**whole, "W": W}, **options) @ v)
    g = oj.grad(model, data, of="loss", wrt="W", shared=shared, comm="jax", reduction="mean")
    close(g["W"], oj.grad(model, {**whole, "W": W}, of="loss", wrt="W")["W"])


if __name__ == "__main__":
    process(int(sys.argv[1]), sys.argv[2]) if sys.argv[1:] else main()
