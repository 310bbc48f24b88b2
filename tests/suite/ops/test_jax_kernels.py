"""The kernels over arrays of JAX, compiled by XLA; for all else, see `test_libraries.py`."""

from functools import partial

import numpy as np
import pytest

from onnxjac.jacobians.errors import UnsupportedOp
from onnxjac.ops.numbers import numbers

from .libraries import CASES, case, same

jax = pytest.importorskip("jax")
from onnxjac.ops.jax import arrays  # noqa: E402
from onnxjac.ops.jax.table import DTYPES, to_jax_array  # noqa: E402

pytestmark = pytest.mark.peers

UNSIZED = {"ConstantOfShape", "Range", "Unique"}
"""Operators whose inputs decide the shape of the result."""


def is_refused(name, inputs, expected):
    """Whether XLA cannot run a case: it has no such shape, or no kernel here has such a dtype."""
    return name in UNSIZED or {y.dtype for y in (*inputs, *expected) if y is not None} - DTYPES


@pytest.mark.sampled(0.3)
@pytest.mark.parametrize(("node", "feeds"), CASES)
def test_compiled_case_of_onnx(node, feeds):
    """The same by XLA, or refused by name. All are arguments but integers after the first input:
    shapes, axes, indices.
    """
    inputs, attrs, expected = case(node, feeds)
    name, whole = node.op_type, [x is not None and x.dtype.kind in "iub" for x in inputs]
    held_back = whole if name != "Resize" else [bool(k) for k in range(len(inputs))]  # scales
    free = [k for k, x in enumerate(inputs)
            if isinstance(to_jax_array(x), jax.Array) and not (k and held_back[k])]  # fmt: skip

    def f(*given):
        held = dict(zip(free, given, strict=True))
        operands = [held.get(k, x) for k, x in enumerate(inputs)]
        return arrays.run(name, operands, attrs, outputs=len(node.output))

    with jax.enable_x64(True):
        if free and is_refused(name, inputs, expected):
            with pytest.raises(UnsupportedOp, match=f"{name} .*while JAX traces"):
                jax.jit(f)(*(inputs[k] for k in free))
            return
        found = jax.jit(f)(*(inputs[k] for k in free))
    for y, wanted in zip(found, expected, strict=True):
        same(y, wanted, 1e-12)


INDICES = {
    "Gather": ((5, 4), (3, 2), None, {"axis": 1}),
    "GatherElements": ((5, 4), (5, 4), None, {"axis": 1}),
    "GatherND": ((5, 4), (3, 1), None, {}),
    "ScatterElements": ((5, 4), (5, 2), (5, 2), {"axis": 1, "reduction": "add"}),
    "ScatterND": ((5, 4), (3, 1), (3, 4), {"reduction": "mul"}),
    "OneHot": ((5,), None, (2,), {}),
    "ReverseSequence": ((5, 4), None, None, {}),
}


@pytest.mark.parametrize("name", INDICES)
def test_computed_indices_are_arguments_of_a_compiled_kernel(name):
    """Indices as arguments of a compiled function, from the start and from the end."""
    shape, places, updates, attrs = INDICES[name]
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(shape), rng.integers(-4, 4, places or 1)]
    inputs += [] if updates is None else [rng.standard_normal(updates)]
    if name == "OneHot":
        inputs[:2] = rng.integers(-3, 3, shape), 3
    if name == "ReverseSequence":
        inputs[1] = np.array([3, 1, 5, 0])
    free = [k for k, x in enumerate(inputs) if isinstance(x, np.ndarray)]

    def f(*given):
        held = dict(zip(free, given, strict=True))
        return getattr(arrays, name)(*(held.get(k, x) for k, x in enumerate(inputs)), **attrs)

    with jax.enable_x64(True):
        found = jax.jit(f)(*(inputs[k] for k in free))
    same(found, getattr(numbers, name)(*map(np.asarray, inputs), **attrs), 1e-12)


def test_known_indices_outside_are_refused():
    x = to_jax_array(np.ones((2, 3)))
    with pytest.raises(IndexError, match="outside an axis of length 3"):
        arrays.Gather(x, np.array([3]), axis=1)


def test_random_numbers_are_drawn_by_a_seed_or_on_the_host():
    x, ratio, training = np.ones((3, 4)), np.float64(0.5), np.array(True)
    drop = partial(arrays.Dropout, ratio=ratio, training_mode=training, seed=3)
    same(jax.jit(drop)(np.float32(x)), numbers.Dropout(np.float32(x), ratio, training, seed=3), 0)
    assert arrays.Dropout(to_jax_array(x), ratio, training).shape == x.shape
    with pytest.raises(UnsupportedOp, match="Dropout would run on the host"):
        jax.jit(lambda x: arrays.Dropout(x, ratio, training))(x)


def test_sizes_that_are_traced_are_refused_by_name():
    with pytest.raises(UnsupportedOp, match="Reshape decides by numbers"):
        jax.jit(arrays.Reshape)(np.ones((2, 3)), np.array([3, 2]))


def test_types_of_64_bits_leave_the_process_as_it_is():
    with jax.enable_x64(False):
        assert arrays.Exp(to_jax_array(np.ones(3))).dtype == np.float64
        assert jax.numpy.ones(3).dtype == np.float32
