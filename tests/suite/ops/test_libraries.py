"""The kernels over arrays of other libraries against the NumPy kernels, for ONNX's own cases and
hand-written ones.
"""

import numpy as np
import pytest

from onnxjac.ops.numbers import numbers

from .libraries import CASES, case, jax_of, same, some_by_jax, torch_of
from .test_numbers import HALVES, UNARY

pytestmark = pytest.mark.peers

every_library = pytest.mark.parametrize("library", ["torch", "jax"], indirect=True)


@pytest.fixture
def library(request):
    pytest.importorskip(request.param)
    return jax_of() if request.param == "jax" else torch_of(request.getfixturevalue("device"))


@some_by_jax
@pytest.mark.parametrize(("node", "feeds"), CASES)
def test_case_of_onnx(library, node, feeds):
    """As the numbers reading gives it, in double precision."""
    inputs, attrs, expected = case(node, feeds)
    moved = [None if x is None else library.there(x) for x in inputs]
    found = library.kernels.run(node.op_type, moved, attrs, outputs=len(node.output))
    assert len(found) == len(expected)
    for y, wanted in zip(found, expected, strict=True):
        same(y, wanted, 1e-12)


@every_library
@pytest.mark.parametrize("dtype", [np.float32, np.float64, *HALVES])
@pytest.mark.parametrize("name", sorted(UNARY))
def test_dtype_is_kept(library, name, dtype):
    if name not in library.own:
        pytest.skip("run on the host")
    x = np.random.default_rng(0).uniform(0.02, 0.98, (8, 16)).astype(dtype)
    tolerance = {2: 1e-2, 4: 1e-5, 8: 1e-12}[np.dtype(dtype).itemsize]
    found = getattr(library.kernels, name)(library.there(x))
    same(found, getattr(numbers, name)(x), tolerance)


@every_library
def test_a_convolution_without_windows(library):
    x, w = np.ones((1, 1, 2, 1)), np.ones((1, 1, 3, 2))
    same(library.kernels.Conv(library.there(x), library.there(w)), numbers.Conv(x, w), 0)


@some_by_jax
@pytest.mark.parametrize("seed", range(60))
def test_convolutions_of_random_geometry(seed, library):
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
    moved = (library.there(a) for a in (x, w, b))
    same(library.kernels.Conv(*moved, **attrs), numbers.Conv(x, w, b, **attrs), 1e-12)


@some_by_jax
@pytest.mark.parametrize("seed", range(60))
def test_transposed_convolutions_of_random_geometry(seed, library):
    """Margins of all kinds: torch has those that cut off as much at either end, and few entries
    after the last window.
    """
    rng = np.random.default_rng(seed)
    rank, (n, c, m, group) = rng.integers(1, 4), rng.integers(1, 4, 4).tolist()
    kernel, strides, dilations = rng.integers(1, (6, 4, 3), (rank, 3)).T
    extra = rng.integers(0, np.maximum(strides, dilations))
    size = rng.integers(1, 7, rank)
    reached = (size - 1) * strides + dilations * (kernel - 1) + 1 + extra
    begins = rng.integers(0, (reached + 1) // 2)
    ends = begins if seed % 2 else rng.integers(0, (reached + 1) // 2)
    x = rng.standard_normal((n, group * c, *size))
    w, b = rng.standard_normal((group * c, m, *kernel)), rng.standard_normal(group * m)
    steps = {"strides": strides, "dilations": dilations, "pads": (*begins, *ends),
             "output_padding": extra}  # fmt: skip
    attrs = {"group": group, **{name: tuple(map(int, given)) for name, given in steps.items()}}
    for inputs in ((x, w, b), (x, w)):
        moved = (library.there(a) for a in inputs)
        same(
            library.kernels.ConvTranspose(*moved, **attrs),
            numbers.ConvTranspose(*inputs, **attrs),
            1e-12,
        )


@every_library
def test_the_inverse_transform_of_real_numbers(library):
    x = np.random.default_rng(0).standard_normal((2, 3, 1))
    found = library.kernels.DFT(library.there(x), None, np.array(1), inverse=1)
    same(found, numbers.DFT(x, None, np.array(1), inverse=1), 1e-12)


@every_library
@pytest.mark.parametrize("shapes", [((9, 30, 20), (9, 20, 1)), ((2, 1, 60, 50), (3, 50, 1))])
def test_vectors_of_a_stack(shapes, library):
    """Large enough to be multiplied as rows."""
    a, b = map(np.random.default_rng(0).standard_normal, shapes)
    same(library.kernels.MatMul(library.there(a), library.there(b)), numbers.MatMul(a, b), 1e-12)


@every_library
def test_entries_of_a_vector(library):
    """Gathered and added, with places that count from the end and places that are met twice."""
    x, places = np.arange(6.0), np.array([1, -1, 1])
    there = library.there(x), library.there(places)
    for name in ("Gather", "GatherElements"):
        same(getattr(library.kernels, name)(*there), x[places], 0)
    column, updates = x[:, None], np.array([[1.0], [2.0], [3.0]])
    found = library.kernels.ScatterElements(
        library.there(column), there[1][:, None], library.there(updates), reduction="add"
    )
    wanted = numbers.ScatterElements(column, places[:, None], updates, reduction="add")
    same(found, wanted, 0)
    arrays = column, places[:, None], updates
    found = library.kernels.ScatterND(*(library.there(a) for a in arrays), reduction="add")
    same(found, numbers.ScatterND(*arrays, reduction="add"), 0)
