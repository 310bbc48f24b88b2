"""Colourings: every entry can be recovered, from few products."""

import sys
from itertools import combinations

import numpy as np
import pytest
from scipy.sparse import coo_array, csr_array, diags_array, eye_array, kron, random_array
from scipy.sparse.csgraph import connected_components

from onnxjac.jacobians import Dense
from onnxjac.jacobians.errors import InputError
from onnxjac.modes.sparse import coloring
from onnxjac.modes.sparse.coloring import PARTITIONS, width


def arrow(n):
    """A full first row and column, and the diagonal."""
    edge, zero = np.arange(n), np.zeros(n, int)
    at = np.concatenate([edge, zero, edge]), np.concatenate([zero, edge, edge])
    return csr_array(coo_array((np.ones(3 * n), at), (n, n)).tocsr() != 0)


def grid(n):
    """The five-point stencil."""
    line = eye_array(n, k=1) + eye_array(n, k=-1)
    return csr_array(kron(line, eye_array(n)) + kron(eye_array(n), line) + eye_array(n * n)) != 0


def scattered(n):
    A = random_array((n, n), density=4 / n, random_state=1)
    return csr_array(A + A.T + eye_array(n)) != 0


def band(n, k):
    """k diagonals on each side."""
    return csr_array(sum(eye_array(n, k=d) for d in range(-k, k + 1))) != 0


def without_diagonal(n):
    """The adjacency pattern of a tree of paths from one centre, with a zero diagonal."""
    parent = np.maximum(np.arange(1, n) - 3, 0)
    edges = coo_array((np.ones(n - 1), (np.arange(1, n), parent)), (n, n))
    return csr_array(edges + edges.T) != 0


PATTERNS = {"arrow": arrow(200), "grid": grid(13), "scattered": scattered(300), "band": band(50, 3),
            "tree": without_diagonal(40)}  # fmt: skip

every_pattern = pytest.mark.parametrize("name", PATTERNS)


@every_pattern
@pytest.mark.parametrize("partition", PARTITIONS)
def test_entries_are_read_back(name, partition):
    pattern = PATTERNS[name]
    A = csr_array(pattern, dtype=float)
    A.data = np.random.default_rng(0).standard_normal(A.nnz)
    A = csr_array(A + A.T)
    found = coloring(pattern, partition)
    V, U = found.seeds
    assert V.shape[1] + U.shape[1] == found.products
    error = abs(found.decompress(A @ V, A.T @ U) - A).max()
    assert error <= (1e-14 if found.substitution else 0)


def test_rectangles_are_colored_but_by_partitions_that_need_a_square():
    A = np.where(np.random.default_rng(1).random((30, 50)) < 0.1, 1.0, 0)
    for partition in ("column", "row", "bidirectional"):
        found = coloring(A, partition)
        assert np.array_equal(found.values(Dense(A)), A[A != 0])
    for partition in ("star", "symmetric", "acyclic"):
        with pytest.raises(InputError, match="square"):
            coloring(A, partition)
    with pytest.raises(InputError, match="partition"):
        coloring(A, "diagonal")


@every_pattern
def test_columns_of_a_color_share_no_row(name):
    found = coloring(PATTERNS[name])
    assert (PATTERNS[name].astype(int) @ found.seeds[0]).max() == 1


def test_every_partition_takes_its_known_number_of_products():
    assert {p: coloring(arrow(200), p).products for p in PARTITIONS} == {
        "column": 200, "row": 200, "bidirectional": 3, "star": 2, "symmetric": 2,
        "acyclic": 2,
    }  # fmt: skip
    assert coloring(np.eye(5)).products == 1
    assert coloring(np.zeros((3, 4))).products == 0
    assert {coloring(np.zeros((0, 0)), p).products for p in PARTITIONS} == {0}


@pytest.mark.parametrize("name", ["arrow", "band", "grid", "scattered"])
def test_colors_are_few_more_than_the_longest_row(name):
    """A colouring needs as many colours as the longest row; greedy ones use few more."""
    pattern = PATTERNS[name]
    assert width(pattern) <= coloring(pattern).products <= 1.5 * width(pattern)


@every_pattern
def test_more_freedom_takes_no_more_products(name):
    for partition in ("bidirectional", "star", "symmetric", "acyclic"):
        assert coloring(PATTERNS[name], partition).products <= coloring(PATTERNS[name]).products


@pytest.mark.parametrize(("name", "most"), [("arrow", 2), ("scattered", 20), ("tree", 3)])
def test_symmetry_saves_products(name, most):
    assert coloring(PATTERNS[name], "star").products <= most < coloring(PATTERNS[name]).products


@every_pattern
def test_no_path_of_four_has_two_colors(name):
    """The definition of a star colouring, checked on every path."""
    pattern = PATTERNS[name].toarray() & ~np.eye(PATTERNS[name].shape[0], dtype=bool)
    color = coloring(PATTERNS[name], "star").columns
    near = [np.flatnonzero(row) for row in pattern]
    for b, c in zip(*np.nonzero(pattern), strict=True):
        assert color[b] != color[c]
        before = {color[a] for a in near[b] if a != c and color[a] == color[c]}
        after = {color[d] for d in near[c] if d != b and color[d] == color[b]}
        assert not (before and after and len(near[b]) > 1 and len(near[c]) > 1)


NINE = csr_array(kron(band(9, 1), band(9, 1))) != 0
"""Squares of bilinear finite elements."""


@pytest.mark.parametrize(("pattern", "most"), [
    (NINE, 6), (PATTERNS["grid"], 4), (PATTERNS["scattered"], 10), (band(900, 1), 2),
])  # fmt: skip
def test_an_acyclic_coloring_takes_fewer_products_than_a_star(pattern, most):
    assert coloring(pattern, "acyclic").products <= most < coloring(pattern, "star").products


@pytest.mark.parametrize("name", ["grid", "scattered", "tree"])
def test_two_colors_make_a_forest(name):
    """#edges = #vertices − #trees, for every pair of colours."""
    pattern = PATTERNS[name]
    color = coloring(pattern, "acyclic").columns
    for c, d in combinations(range(color.max() + 1), 2):
        some = np.flatnonzero((color == c) | (color == d))
        part = pattern[some][:, some].toarray() & ~np.eye(len(some), dtype=bool)
        assert not np.any(part & (color[some][:, None] == color[some]))
        trees = connected_components(part, directed=False)[0]
        assert np.count_nonzero(part) == 2 * (len(some) - trees)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rounding_errors_add_up_along_a_path_only(dtype):
    """A tridiagonal matrix from two products: entries are solved for from its ends."""
    n = 2000
    rng = np.random.default_rng(0)
    A = csr_array(diags_array([rng.random(n), np.ones(n - 1), np.ones(n - 1)], offsets=[0, 1, -1]))
    A = csr_array(A.astype(dtype))
    found = coloring(A, "acyclic")
    B = found.decompress(A @ found.seeds[0].astype(dtype), np.zeros((n, 0), dtype))
    assert found.products == 2
    assert B.dtype == dtype
    assert abs(B - A).max() <= n * np.finfo(dtype).eps


def test_where_there_are_too_many_paths_columns_are_coloured(monkeypatch):
    monkeypatch.setattr(sys.modules[coloring.__module__], "PATHS", 0)
    for partition in ("star", "acyclic"):
        assert coloring(NINE, partition).products == coloring(NINE).products


def test_an_operator_is_sent_to_its_pattern():
    with pytest.raises(InputError, match=r"not an operator: pattern\(J\)"):
        coloring(Dense(np.eye(2)))
