"""The torch kernels against the NumPy kernels, over ONNX's own cases and hand-written ones."""

import numpy as np
import pytest
from onnx import helper

from onnxjac.ops.numbers import numbers

from .test_numbers import HALVES, UNARY, cases, python_value

torch = pytest.importorskip("torch")
from onnxjac.ops.torch import bound, tensors  # noqa: E402
from onnxjac.ops.torch.table import KERNELS as OVER_TENSORS  # noqa: E402
from onnxjac.ops.torch.table import host, tensor  # noqa: E402

pytestmark = pytest.mark.peers

RANDOM = {"Bernoulli", "Dropout", "Multinomial"}

LIST = list(cases())


def there(x, device):
    """An array as a tensor, if torch has its dtype; anything else as it is."""
    return tensor(x, device) if isinstance(x, np.ndarray) else x


def double(x):
    """Floats in double precision."""
    return x.astype(np.float64) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x


def same(found, expected, tolerance):
    """The same dtype and shape, and the same values up to a tolerance."""
    found = host(found)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    if expected.dtype.kind in "fVc":
        kind = np.complex128 if expected.dtype.kind == "c" else np.float64
        found, expected = found.astype(kind), expected.astype(kind)
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    else:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("node", "feeds"), [pytest.param(*c.values[:2], id=c.id) for c in LIST])
def test_case_of_onnx(node, feeds, device):
    """As the numbers reading gives it, in double precision."""
    attrs = {a.name: python_value(helper.get_attribute_value(a)) for a in node.attribute}
    inputs = [double(feeds[name]) if name else None for name in node.input]
    if node.op_type in RANDOM or not all(x is None or isinstance(x, np.ndarray) for x in inputs):
        pytest.skip("random, or of sequences")
    expected = numbers.run(node.op_type, inputs, attrs, outputs=len(node.output))
    moved = [there(x, device) for x in inputs]
    found = tensors.run(node.op_type, moved, attrs, outputs=len(node.output))
    assert len(found) == len(expected)
    for y, wanted in zip(found, expected, strict=True):
        same(y, wanted, 1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, *HALVES])
@pytest.mark.parametrize("name", sorted(UNARY & OVER_TENSORS.keys()))
def test_dtype_is_kept(name, dtype, device):
    x = np.random.default_rng(0).uniform(0.02, 0.98, (8, 16)).astype(dtype)
    tolerance = {2: 1e-2, 4: 1e-5, 8: 1e-12}[np.dtype(dtype).itemsize]
    same(getattr(tensors, name)(tensor(x, device)), getattr(numbers, name)(x), tolerance)


def test_a_convolution_without_windows(device):
    x, w = np.ones((1, 1, 2, 1)), np.ones((1, 1, 3, 2))
    same(tensors.Conv(tensor(x, device), tensor(w, device)), numbers.Conv(x, w), 0)


@pytest.mark.parametrize("seed", range(60))
def test_convolutions_of_random_geometry(seed, device):
    """Kernels smaller and larger than the result, which torch convolves in two ways."""
    rng = np.random.default_rng(seed)
    rank, (n, c, m, group) = rng.integers(1, 4), rng.integers(1, 4, 4).tolist()
    kernel, strides, dilations = rng.integers(1, (6, 4, 3), (rank, 3)).T
    pads = rng.integers(0, 3, 2 * rank)
    least = dilations * (kernel - 1) + 1 - pads[:rank] - pads[rank:]
    size = np.maximum(least, 1) + rng.integers(0, 7, rank)
    x = rng.standard_normal((n, group * c, *size))
    w, b = rng.standard_normal((group * m, c, *kernel)), rng.standard_normal(group * m)
    steps = {"strides": strides, "dilations": dilations, "pads": pads}
    attrs = {"group": group, **{name: tuple(map(int, given)) for name, given in steps.items()}}
    moved = (tensor(a, device) for a in (x, w, b))
    same(tensors.Conv(*moved, **attrs), numbers.Conv(x, w, b, **attrs), 1e-12)


@pytest.mark.parametrize("seed", range(60))
def test_transposed_convolutions_of_random_geometry(seed, device):
    """Margins of all kinds: torch has those that cut off as much at either end, and few entries
    after the last window.
    """
    rng = np.random.default_rng(seed)
    rank, (n, c, m, group) = rng.integers(1, 4), rng.integers(1, 4, 4).tolist()
    kernel, strides, dilations = rng.integers(1, (6, 4, 3), (rank, 3)).T
    extra = rng.integers(0, np.maximum(strides, dilations))
    size = rng.integers(1, 7, rank)
    reached = (size - 1) * strides + dilations * (kernel - 1) + 1 + extra
    begins = rng.integers(-1 if seed % 5 == 0 else 0, (reached + 1) // 2)
    ends = begins if seed % 2 else rng.integers(0, (reached + 1) // 2)
    x = rng.standard_normal((n, group * c, *size))
    w, b = rng.standard_normal((group * c, m, *kernel)), rng.standard_normal(group * m)
    steps = {"strides": strides, "dilations": dilations, "pads": (*begins, *ends),
             "output_padding": extra}  # fmt: skip
    attrs = {"group": group, **{name: tuple(map(int, given)) for name, given in steps.items()}}
    for inputs in ((x, w, b), (x, w)):
        moved = (tensor(a, device) for a in inputs)
        same(tensors.ConvTranspose(*moved, **attrs), numbers.ConvTranspose(*inputs, **attrs), 1e-12)


@pytest.mark.parametrize("seed", range(60))
def test_maxima_of_random_geometry(seed, device):
    """The index of the first maximum, among few different numbers; padding has none."""
    rng = np.random.default_rng(seed)
    rank, (n, c) = rng.integers(1, 4), rng.integers(1, 4, 2).tolist()
    kernel, strides, dilations = rng.integers(1, (5, 4, 3), (rank, 3)).T
    extents = dilations * (kernel - 1) + 1
    begins, ends = rng.integers(0, (extents + 1) // 2 + seed % 2, (2, rank))
    size = np.maximum(extents - begins - ends, 1) + rng.integers(0, 7, rank)
    x = rng.integers(-2, 2, (n, c, *size)).astype(float)
    x[rng.random(x.shape) < 0.2] = -np.inf
    steps = {"kernel_shape": kernel, "strides": strides, "dilations": dilations,
             "pads": (*begins, *ends)}  # fmt: skip
    attrs = {name: tuple(map(int, given)) for name, given in steps.items()}
    attrs |= {"ceil_mode": int(rng.integers(2)), "storage_order": int(rng.integers(4) == 0)}
    y, places = tensors.MaxPool(tensor(x, device), outputs=2, **attrs)
    wanted, first = numbers.MaxPool(x, outputs=2, **attrs)
    for found in (y, tensors.MaxPool(tensor(x, device), **attrs), numbers.MaxPool(x, **attrs)):
        same(found, wanted, 0)
    has_entries = numbers.MaxPool(np.zeros_like(x), **attrs) == 0
    np.testing.assert_array_equal(host(places)[has_entries], first[has_entries])
    if not attrs["storage_order"]:
        np.testing.assert_array_equal(x.ravel()[first[has_entries]], wanted[has_entries])


def test_the_inverse_transform_of_real_numbers(device):
    x = np.random.default_rng(0).standard_normal((2, 3, 1))
    found = tensors.DFT(tensor(x, device), None, np.array(1), inverse=1)
    same(found, numbers.DFT(x, None, np.array(1), inverse=1), 1e-12)


@pytest.mark.parametrize("shapes", [((9, 30, 20), (9, 20, 1)), ((2, 1, 60, 50), (3, 50, 1))])
def test_vectors_of_a_stack(shapes, device):
    """Large enough to be multiplied as rows."""
    a, b = map(np.random.default_rng(0).standard_normal, shapes)
    same(tensors.MatMul(tensor(a, device), tensor(b, device)), numbers.MatMul(a, b), 1e-12)


@pytest.mark.parametrize("turned", [False, True])
def test_rows_of_a_stack_by_a_matrix(turned, device):
    """Also rows that do not lie in line."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((3, 5, 7, 4)), rng.standard_normal((4, 6))
    x = there(a, device)
    x = x.transpose(0, 3).contiguous().transpose(0, 3) if turned else x
    same(tensors.MatMul(x, there(b, device)), a @ b, 1e-12)
    same(tensors.MatMul(x[:0], there(b, device)), a[:0] @ b, 1e-12)


def test_entries_of_a_vector(device):
    """Gathered and added, with places that count from the end and places that are met twice."""
    x, places = np.arange(6.0), np.array([1, -1, 1])
    there = tensor(x, device), tensor(places, device)
    for name in ("Gather", "GatherElements"):
        same(getattr(tensors, name)(*there), x[places], 0)
    column, updates = x[:, None], np.array([[1.0], [2.0], [3.0]])
    found = tensors.ScatterElements(
        tensor(column, device), there[1][:, None], tensor(updates, device), reduction="add"
    )
    wanted = numbers.ScatterElements(column, places[:, None], updates, reduction="add")
    same(found, wanted, 0)
    arrays = column, places[:, None], updates
    found = tensors.ScatterND(*(tensor(a, device) for a in arrays), reduction="add")
    same(found, numbers.ScatterND(*arrays, reduction="add"), 0)


@pytest.mark.parametrize("n", [600, 601])
@pytest.mark.parametrize("turned", [False, True])
def test_a_row_times_a_large_matrix_on_several_threads(n, turned, device):
    rng, before = np.random.default_rng(0), torch.get_num_threads()
    row, b = rng.standard_normal((1, n)), rng.standard_normal((n, 500))
    torch.set_num_threads(2)
    try:
        if turned:
            found = tensors.MatMul(there(b.T.copy(), device), there(row.T.copy(), device)).T
        else:
            found = tensors.MatMul(there(row, device), there(b, device))
    finally:
        torch.set_num_threads(before)
    same(found, row @ b, 1e-12)


LONG = {
    "Gather": ((1500,), (2000,), {}),
    "Gather by rows": ((300, 4), (50, 40), {}),
    "GatherElements": ((1500,), (2000,), {}),
    "GatherElements by columns": ((30, 40), (30, 40), {"axis": 1}),
    "ScatterElements": ((2000,), (2000,), {"reduction": "add"}),
    "ScatterND": ((1500, 1), (1500,), {"reduction": "add"}),
    "ScatterND by columns": ((1500, 1), (1500, 1), {"reduction": "add"}),
    "ScatterND of matrices": ((1500, 2), (1500,), {"reduction": "add"}),
}
"""Many indices: their shape, the shape of x or of the updates, attributes."""


@pytest.mark.parametrize("negative", [False, True])
@pytest.mark.parametrize("name", LONG)
def test_many_indices_that_are_known(name, negative, device):
    """Nonnegative indices are taken as they are; a negative index counts from the end."""
    op, (places, shape, attrs) = name.split()[0], LONG[name]
    rng, n = np.random.default_rng(0), 25
    indices = rng.integers(0, n, places)
    indices[7] -= n * negative
    x = rng.standard_normal(shape)
    inputs = [x, indices]
    if op.startswith("Scatter"):
        onto = (n,) * indices.shape[-1] + shape[1:] if op == "ScatterND" else shape
        inputs = [rng.standard_normal(onto), indices, x]
    expected = getattr(numbers, op)(*inputs, **attrs)
    known = [None, indices, None][: len(inputs)]
    function, count = bound(op, inputs, known, attrs, expected.shape)
    found = function(*(tensor(y, device) for y in inputs[:count]))
    assert function.keywords.get("nonnegative", False) is not negative
    np.testing.assert_allclose(host(found), expected, rtol=1e-12)


@pytest.mark.parametrize("reduction", ["none", "add", "max"])
@pytest.mark.parametrize("are_known", [True, False])
@pytest.mark.parametrize("name", [name for name in LONG if name.startswith("Scatter")])
def test_zeros_that_are_known(name, are_known, reduction, device):
    """Updates are written to new zeros, which no later call sees."""
    op, (places, shape, _), n = name.split()[0], LONG[name], 2000
    rng = np.random.default_rng(0)
    indices = rng.integers(0, 50, places)
    if reduction == "none":  # each place once
        indices.reshape(len(indices), -1)[:, 0] = rng.permutation(n)[: len(indices)]
    updates = rng.standard_normal(shape)
    onto = (n,) * indices.shape[-1] + shape[1:] if op == "ScatterND" else (n,)
    known = [np.zeros(onto), indices if are_known else None, None]
    function, _ = bound(op, (known[0], indices, updates), known, {"reduction": reduction}, onto)
    assert function.keywords["blank"]
    for scale in (1, 2):
        given = indices, scale * updates
        expected = getattr(numbers, op)(np.zeros(onto), *given, reduction=reduction)
        found = function(*(tensor(y, device) for y in (known[0], *given)))
        np.testing.assert_allclose(host(found), expected, rtol=1e-12)
