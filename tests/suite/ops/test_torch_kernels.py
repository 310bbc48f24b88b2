"""What the torch kernels alone have; for all else, see `test_libraries.py`."""

import numpy as np
import pytest

from onnxjac.ops.numbers import numbers

from .libraries import same

torch = pytest.importorskip("torch")
from onnxjac.ops.torch import bound, tensors  # noqa: E402
from onnxjac.ops.torch.table import host, tensor  # noqa: E402

pytestmark = pytest.mark.peers


def there(x, device):
    """An array as a tensor, if torch has its dtype; anything else as it is."""
    return tensor(x, device) if isinstance(x, np.ndarray) else x


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


@pytest.mark.parametrize("turned", [False, True])
def test_rows_of_a_stack_by_a_matrix(turned, device):
    """Also rows that do not lie in line."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((3, 5, 7, 4)), rng.standard_normal((4, 6))
    x = there(a, device)
    x = x.transpose(0, 3).contiguous().transpose(0, 3) if turned else x
    same(tensors.MatMul(x, there(b, device)), a @ b, 1e-12)
    same(tensors.MatMul(x[:0], there(b, device)), a[:0] @ b, 1e-12)


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
def test_updates_of_known_zeros_are_written_to_new_ones(name, are_known, reduction, device):
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


def test_operators_without_a_kernel_run_on_the_host_and_return(device):
    x = torch.ones(2, dtype=torch.uint8, device=device)
    assert tensors.BitShift(x, x, direction="LEFT").device == x.device
    assert "BitShift" in tensors.on_host


def test_a_transposed_convolution_may_leave_nothing(device):
    x, w = torch.ones(1, 2, 1, device=device), torch.ones(2, 1, 2, device=device)
    assert tensors.ConvTranspose(x, w, pads=(1, 1)).shape == (1, 1, 0)
