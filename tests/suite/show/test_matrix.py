"""Pictures of a matrix: its entries, the norms of its blocks, its sparsity."""

from itertools import pairwise

import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.colors import LogNorm
from numpy.testing import assert_allclose, assert_array_equal

import onnxjac as oj
from estimators.examples import Hidden
from onnxjac.jacobians import Dense, Diagonal, Zero
from onnxjac.modes.show.canvas import Side, matrix_sides
from onnxjac.modes.show.matrix import BLOCK_TENSORS, TILES, block_norms, write_numbers
from show.examples import RNG, curved, dense


def drawn(ax):
    """The numbers of the one image on the axes."""
    (image,) = ax.images
    return image.get_array()


def texts(ticks):
    return [tick.get_text() for tick in ticks]


@pytest.fixture(scope="module")
def J():
    return dense()


def test_one_block_shows_its_entries(J):
    block = J["y", "x"]
    ax = block.plot()
    assert_allclose(drawn(ax), block.toarray())
    assert ax.get_xlabel() == "wrt (columns): x 3×4"
    assert ax.get_ylabel() == "of (rows): y 3×2"
    low, high = ax.images[0].get_clim()
    assert -low == high == np.abs(block.toarray()).max()


def test_several_tensors_show_norms(J):
    ax = J.plot()
    blocks = [[J[of, wrt] for wrt in ("x", "W")] for of in ("y", "z")]
    expected = [[np.linalg.norm(block.toarray()) for block in row] for row in blocks]
    assert_allclose(drawn(ax).filled(0), expected)
    assert_array_equal(drawn(ax).mask, [[False, False], [False, True]])
    assert texts(ax.get_xticklabels()) == ["x 3×4", "W 4×2"]
    assert texts(ax.get_yticklabels()) == ["y 3×2", "z 3×4"]
    assert [t.get_text() for t in ax.texts][-1] == "0"


def test_the_transpose_has_its_sides_exchanged(J):
    ax = J.T.plot()
    assert_allclose(drawn(ax).filled(0), drawn(J.plot()).filled(0).T)
    assert (ax.get_ylabel(), ax.get_xlabel()) == ("wrt (rows)", "of (columns)")


def test_entries_of_several_tensors(J):
    ax = J.plot(entries=True)
    assert_allclose(drawn(ax), J.toarray())
    assert len(ax.lines) == 2
    assert texts(ax.get_xticklabels()) == ["x 3×4", "W 4×2"]


def test_a_hessian_has_its_tensors_on_both_sides():
    H = curved()
    rows, columns = matrix_sides(H)
    assert rows.labels == columns.labels == ("x 3×4", "W 4×2")
    corner = np.linalg.norm(H["x", "W"].toarray())
    assert_allclose(drawn(H.plot())[0, 1], corner)


def test_a_large_block_is_drawn_in_tiles():
    A = RNG.standard_normal((30, 700)) * np.linspace(1, 2, 700)
    ax = Dense(A).plot(entries=False)
    cuts = [np.linspace(0, n, TILES + 1).round().astype(int) for n in A.shape]
    tiles = [[A[a:b, c:d] for c, d in pairwise(cuts[1])] for a, b in pairwise(cuts[0])]
    expected = [[np.sqrt(np.mean(tile**2)) for tile in row] for row in tiles]
    assert_allclose(drawn(ax), expected)


def test_norms_are_exact_where_blocks_are_low():
    A = Hidden(RNG.standard_normal((6, 40)))
    found = block_norms(A, (0, 2, 6), (0, 30, 40), probes=6)
    expected = [[np.linalg.norm(A.a[a:b, c:d]) for c, d in ((0, 30), (30, 40))]
                for a, b in ((0, 2), (2, 6))]  # fmt: skip
    assert_allclose(found.values, expected)
    assert (found.error, found.products, A.count) == (0, 6, 6)


def test_the_side_with_fewer_products_is_taken():
    A = Hidden(RNG.standard_normal((40, 6)))
    found = block_norms(A, (0, 30, 40), (0, 6))
    assert_allclose(found.values[0], np.linalg.norm(A.a[:30]))
    assert found.products == 6


def test_norms_are_estimated_with_an_error():
    A = RNG.standard_normal((100, 160))
    found = block_norms(Hidden(A), (0, 100), (0, 60, 160), probes=50)
    expected = [[np.linalg.norm(A[:, :60]), np.linalg.norm(A[:, 60:])]]
    assert 0 < found.error < 0.1
    assert found.products == 50
    assert_allclose(found.values, expected, rtol=4 * found.error)
    title = Hidden(RNG.standard_normal((240, 240))).plot(entries=False).get_title()
    assert "standard error up to" in title


def test_many_tensors_are_taken_together():
    labels = tuple(f"w{k} 1" for k in range(100))
    found = Side("wrt", labels, tuple(range(101))).merged(BLOCK_TENSORS)
    assert len(found.labels) == BLOCK_TENSORS
    assert found.edges[0] == 0
    assert found.edges[-1] == 100
    assert found.labels[0] == "w0 … (3)"


def test_norms_far_apart_have_a_log_scale():
    specs = (oj.TensorSpec("a", (1,), np.dtype(float)), oj.TensorSpec("b", (1,), np.dtype(float)))
    operator = Diagonal(np.array([1e-4, 1.0]))
    operator.domain = specs
    assert isinstance(operator.plot().images[0].norm, LogNorm)


def test_numbers_are_dark_on_light_and_light_on_dark():
    ax = plt.subplots()[1]
    values = np.array([[1.0, 100.0]])
    write_numbers(ax, ax.imshow(values, "viridis"), values)
    assert [text.get_color() for text in ax.texts] == ["white", "black"]


def test_spy_shows_the_pattern(J):
    ax = J["y", "x"].spy()
    pattern = oj.pattern(J["y", "x"])
    assert_array_equal(drawn(ax).filled(0) > 0, pattern.toarray())
    assert ax.get_title() == f"{pattern.nnz} of 6 × 12 entries, {100 * pattern.nnz / 72:.2g}%"


def test_spy_of_a_dense_matrix_says_so_and_is_not_black():
    ax = Dense(np.ones((2, 3))).spy()
    assert ax.get_title() == "6 of 2 × 3 entries"
    assert "dense" in ax.texts[0].get_text()
    assert ax.images[0].get_alpha() < 0.2
    assert not Diagonal(np.ones(2)).spy().texts


def test_spy_counts_in_tiles():
    n = 500
    ax = Diagonal(np.ones(n)).spy()
    shares = drawn(ax).filled(0)
    assert shares.shape == (200, 200)
    cuts = np.diff(np.linspace(0, n, 201).round())
    assert_allclose(np.sum(shares * np.outer(cuts, cuts)), n)
    assert shares.diagonal().all()
    assert len(ax.figure.axes) == 2


@pytest.mark.parametrize("draw", ["plot", "spy"])
def test_given_axes_are_used(J, draw):
    ax = plt.subplots(1, 2)[1]
    assert getattr(J, draw)(ax=ax[1]) is ax[1]
    with pytest.raises(oj.InputError, match="Axes"):
        getattr(J, draw)(ax=ax)


def test_a_matrix_without_entries_is_refused():
    with pytest.raises(oj.InputError, match="no entries"):
        Zero((0,), (3,), np.dtype(float)).plot()
    with pytest.raises(oj.InputError, match="ndarray"):
        oj.plots.plot_jacobian(np.eye(2))
