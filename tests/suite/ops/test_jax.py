"""The kernels over arrays of JAX against the NumPy kernels, over ONNX's own cases: called at once,
and compiled by XLA.
"""

from functools import partial

import numpy as np
import pytest
from onnx import helper

from onnxjac.jacobians.errors import UnsupportedOp
from onnxjac.ops.numbers import numbers

from .test_numbers import HALVES, UNARY, cases, python_value

jax = pytest.importorskip("jax")
from onnxjac.ops.jax import arrays  # noqa: E402
from onnxjac.ops.jax.table import DTYPES, KERNELS, to_jax_array  # noqa: E402

pytestmark = pytest.mark.peers

LIST = list(cases())

RANDOM = {"Bernoulli", "Dropout", "Multinomial"}


def double(x):
    """Floats in double precision."""
    return x.astype(np.float64) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x


def same(found, expected, tolerance):
    """The same dtype and shape, and the same values up to a tolerance."""
    found = np.asarray(found)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    if expected.dtype.kind in "fVc":
        kind = np.complex128 if expected.dtype.kind == "c" else np.float64
        found, expected = found.astype(kind), expected.astype(kind)
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    else:
        np.testing.assert_array_equal(found, expected)


def case(node, feeds):
    """Inputs in double precision, attributes, and the results of the numbers reading."""
    attrs = {a.name: python_value(helper.get_attribute_value(a)) for a in node.attribute}
    inputs = [double(feeds[name]) if name else None for name in node.input]
    if node.op_type in RANDOM or not all(x is None or isinstance(x, np.ndarray) for x in inputs):
        pytest.skip("random, or of sequences")
    return inputs, attrs, numbers.run(node.op_type, inputs, attrs, outputs=len(node.output))


@pytest.mark.sampled(0.25)
@pytest.mark.parametrize(("node", "feeds"), [pytest.param(*c.values[:2], id=c.id) for c in LIST])
def test_case_of_onnx(node, feeds):
    """As the numbers reading gives it, in double precision."""
    inputs, attrs, expected = case(node, feeds)
    moved = [None if x is None else to_jax_array(x) for x in inputs]
    found = arrays.run(node.op_type, moved, attrs, outputs=len(node.output))
    assert len(found) == len(expected)
    for y, wanted in zip(found, expected, strict=True):
        same(y, wanted, 1e-12)


UNSIZED = {"ConstantOfShape", "Range", "Unique"}
"""Operators whose inputs decide the shape of the result."""


def is_refused(name, inputs, expected):
    """Whether XLA cannot run a case: it has no such shape, or no kernel here has such a dtype."""
    return name in UNSIZED or {y.dtype for y in (*inputs, *expected) if y is not None} - DTYPES


@pytest.mark.sampled(0.3)
@pytest.mark.parametrize(("node", "feeds"), [pytest.param(*c.values[:2], id=c.id) for c in LIST])
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
def test_computed_indices(name):
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


@pytest.mark.parametrize("dtype", [np.float32, np.float64, *HALVES])
@pytest.mark.parametrize("name", sorted(UNARY & KERNELS.keys()))
def test_dtype_is_kept(name, dtype):
    x = np.random.default_rng(0).uniform(0.02, 0.98, (8, 16)).astype(dtype)
    tolerance = {2: 1e-2, 4: 1e-5, 8: 1e-12}[np.dtype(dtype).itemsize]
    same(getattr(arrays, name)(to_jax_array(x)), getattr(numbers, name)(x), tolerance)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
def test_convolutions_of_random_geometry(op, seed):
    """Margins of all kinds, strides, dilations and groups."""
    rng = np.random.default_rng(seed)
    rank, (n, c, m, group) = rng.integers(1, 4), rng.integers(1, 4, 4).tolist()
    kernel, strides, dilations = rng.integers(1, (6, 4, 3), (rank, 3)).T
    extent = dilations * (kernel - 1) + 1
    attrs = {"strides": strides, "dilations": dilations}
    if op == "Conv":
        begins, ends = rng.integers(0, 3, (2, rank))
        size = np.maximum(extent - begins - ends, 1) + rng.integers(0, 7, rank)
        w = rng.standard_normal((group * m, c, *kernel))
    else:
        attrs["output_padding"] = rng.integers(0, np.maximum(strides, dilations))
        size = rng.integers(1, 7, rank)
        reached = (size - 1) * strides + extent + attrs["output_padding"]
        begins, ends = rng.integers(0, (reached + 1) // 2, (2, rank))
        w = rng.standard_normal((group * c, m, *kernel))
    attrs = {name: tuple(map(int, x)) for name, x in attrs.items()}
    attrs |= {"group": group, "pads": (*map(int, begins), *map(int, ends))}
    inputs = rng.standard_normal((n, group * c, *size)), w, rng.standard_normal(group * m)
    expected = getattr(numbers, op)(*inputs, **attrs)
    same(getattr(arrays, op)(*map(to_jax_array, inputs), **attrs), expected, 1e-12)


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
