"""Examples of every kind of operator, each with its matrix in plain NumPy.

`test_laws.py` fails for a kind without an example.
"""

from collections.abc import Callable

import numpy as np

from onnxjac.jacobians import (
    Block,
    BlockDiagonal,
    Broadcast,
    Cast,
    Circulant,
    Conjugate,
    Contraction,
    Cumulative,
    Dag,
    Dense,
    Diagonal,
    Edge,
    Embed,
    Eye,
    Fourier,
    Identity,
    Jacobian,
    Joint,
    Kron,
    LowRank,
    Part,
    Permutation,
    Product,
    Reshape,
    Scalar,
    Scatter,
    Slice,
    Sum,
    SumTo,
    Sylvester,
    Take,
    Zero,
    implicit_kron,
    slab,
    stack,
    take_flat,
)


class Draw:
    """Random numbers of one dtype."""

    def __init__(self, seed: int, dtype: type = np.float64) -> None:
        self.rng, self.dtype = np.random.default_rng(seed), np.dtype(dtype)

    def normal(self, *shape: int) -> np.ndarray:
        if self.dtype.kind in "iu":
            return self.rng.integers(1, 5, shape).astype(self.dtype)
        drawn = self.rng.standard_normal(shape)
        if self.dtype.kind == "c":
            drawn = drawn + 1j * self.rng.standard_normal(shape)
        return drawn.astype(self.dtype)


Example = Callable[[Draw], tuple[Jacobian, np.ndarray]]

EXAMPLES: dict[str, tuple[type[Jacobian], Example]] = {}
"""name -> (kind, function that draws an operator and its matrix)."""


def example(kind):
    """Register a function `draw -> (operator, matrix)` as an example of a kind."""

    def register(function):
        EXAMPLES[function.__name__] = kind, function
        return function

    return register


def moved(in_shape, move):
    """The matrix of a linear map, column by column."""
    n = int(np.prod(in_shape))
    return np.stack([np.ravel(move(e.reshape(in_shape))) for e in np.eye(n)], axis=1)


@example(Identity)
def identity(draw):
    return Identity((2, 3), draw.dtype), np.eye(6)


@example(Zero)
def zero(draw):
    return Zero((2, 3), (4,), draw.dtype), np.zeros((6, 4))


@example(Scalar)
def scalar(draw):
    return Scalar(-2.5, (2, 2), draw.dtype), -2.5 * np.eye(4)


@example(Scalar)
def minus_one(draw):
    return Scalar(-1, (3,), draw.dtype), -np.eye(3)


@example(Cast)
def cast(draw):
    return Cast((2, 3), draw.dtype, draw.dtype), np.eye(6)


@example(Conjugate)
def conjugate(draw):
    a = draw.normal(3, 2)
    return Conjugate(Dense(a)), a.conj()


@example(Diagonal)
def diagonal(draw):
    d = draw.normal(2, 3)
    return Diagonal(d), np.diag(d.ravel())


@example(Diagonal)
def diagonal_of_a_row(draw):
    d = draw.normal(3)
    return Diagonal(d, (4, 2, 3)), np.diag(np.tile(d, 8))


@example(Diagonal)
def diagonal_of_a_column(draw):
    d = draw.normal(4, 1)
    return Diagonal(d, (4, 3)), np.diag(np.repeat(d, 3))


@example(Diagonal)
def diagonal_of_rank_0(draw):
    return Diagonal(np.array(3, draw.dtype)), np.array([[3.0]])


@example(Dense)
def dense(draw):
    a = draw.normal(6, 4)
    return Dense(a, (2, 3), (2, 2)), a


@example(BlockDiagonal)
def block_diagonal(draw):
    blocks, matrix = draw.normal(2, 3, 4, 2), np.zeros((2, 3, 4, 2, 3, 2), draw.dtype)
    for i, j in np.ndindex(2, 3):
        matrix[i, j, :, i, j, :] = blocks[i, j]
    return BlockDiagonal(blocks), matrix.reshape(24, 12)


@example(LowRank)
def low_rank(draw):
    u, v = draw.normal(6, 2), draw.normal(4, 2)
    return LowRank(u, v, (2, 3), (2, 2)), u @ v.T


@example(Kron)
def kron(draw):
    a, b = draw.normal(2, 3), draw.normal(4, 5)
    return implicit_kron(a, b), np.kron(a, b)


@example(Kron)
def kron_with_identity_on_the_left(draw):
    b = draw.normal(3, 5)
    return implicit_kron(Eye(4), b), np.kron(np.eye(4), b)


@example(Kron)
def kron_with_identity_on_the_right(draw):
    a = draw.normal(3, 5)
    return implicit_kron(a, Eye(2)), np.kron(a, np.eye(2))


@example(Kron)
def square_kron(draw):
    a, b = draw.normal(3, 3), draw.normal(2, 2)
    return implicit_kron(a, b), np.kron(a, b)


@example(Kron)
def kron_of_rectangles_that_is_square(draw):
    a, b = draw.normal(2, 3), draw.normal(3, 2)
    return implicit_kron(a, b), np.kron(a, b)


@example(Kron)
def batched_kron(draw):
    """A direct sum over a batch (i, j) of kron(A[i, j], B[j])."""
    a, b = draw.normal(2, 3, 2, 2), draw.normal(3, 2, 2)
    matrix = np.zeros((2, 3, 4, 2, 3, 4), draw.dtype)
    for i, j in np.ndindex(2, 3):
        matrix[i, j, :, i, j, :] = np.kron(a[i, j], b[j])
    return implicit_kron(a, b), matrix.reshape(24, 24)


@example(Kron)
def kron_of_one_factor_for_a_batch(draw):
    b = draw.normal(3, 2)
    return implicit_kron(Eye(2), b, (4,)), np.kron(np.eye(8), b)


@example(Slice)
def slice_(draw):
    spans = (1, 2, 2), (0, 1, 3), (4, -2, 3)
    return Slice(spans, (4, 3, 5), draw.dtype), moved((4, 3, 5), lambda x: x[1:4:2, :, ::-2])


@example(Slice)
def slice_of_nothing(draw):
    return Slice(((0, 1, 0), (0, 1, 2)), (3, 2), draw.dtype), np.zeros((0, 6))


@example(Slice)
def slab_of_an_axis(draw):
    return slab((3, 5, 2), -2, 1, 4, draw.dtype), moved((3, 5, 2), lambda x: x[:, 1:4])


@example(Embed)
def embed(draw):
    spans = (1, 2, 2), (0, 1, 3), (4, -2, 3)
    return Embed(spans, (4, 3, 5), draw.dtype), moved((4, 3, 5), lambda x: x[1:4:2, :, ::-2]).T


@example(Embed)
def embed_reversed(draw):
    spans = (3, -1, 4), (5, 3, 1)
    return Embed(spans, (4, 7), draw.dtype), moved((4, 7), lambda x: x[::-1, 5:6]).T


@example(Embed)
def embed_a_number(draw):
    return Embed((), (), draw.dtype), np.eye(1)


@example(Take)
def take(draw):
    index = np.array([[2, 0, 2], [1, 1, 3]])
    return Take(index, 1, (2, 4, 3), draw.dtype), moved((2, 4, 3), lambda x: x[:, index])


@example(Take)
def take_one(draw):
    return Take(np.array(1), -1, (2, 3), draw.dtype), moved((2, 3), lambda x: x[:, 1])


@example(Scatter)
def scatter(draw):
    index = np.array([[2, 0, 2], [1, 1, 3]])
    return Scatter(index, -2, (2, 4, 3), draw.dtype), moved((2, 4, 3), lambda x: x[:, index]).T


@example(Scatter)
def scatter_one(draw):
    return Scatter(np.array(1), 0, (3, 2), draw.dtype), moved((3, 2), lambda x: x[1]).T


@example(Product)
def take_flat_positions(draw):
    index = np.array([[5, 0], [5, 3]])
    return take_flat(index, (2, 3), draw.dtype), moved((2, 3), lambda x: x.ravel()[index])


@example(Reshape)
def reshape(draw):
    return Reshape((3, 4), (2, 6), draw.dtype), np.eye(12)


@example(Permutation)
def permutation(draw):
    return Permutation((2, 0, 1), (2, 3, 4), draw.dtype), moved(
        (2, 3, 4), lambda x: x.transpose(2, 0, 1)
    )


@example(Broadcast)
def broadcast(draw):
    matrix = moved((3, 1), lambda x: np.broadcast_to(x, (2, 3, 4)))
    return Broadcast((2, 3, 4), (3, 1), draw.dtype), matrix


@example(Broadcast)
def broadcast_a_number(draw):
    return Broadcast((2, 3), (), draw.dtype), np.ones((6, 1))


@example(SumTo)
def sum_to(draw):
    return SumTo((3, 1), (2, 3, 4), draw.dtype), moved((2, 3, 4), lambda x: x.sum((0, 2)))


@example(Contraction)
def contraction(draw):
    a, b = draw.normal(2, 3), draw.normal(3, 4)
    sizes = {"i": 2, "j": 3, "k": 4, "l": 2}
    J = Contraction(((a, "ij"), (b, "jk")), "lj", "ikl", sizes)
    matrix = np.einsum("ij,jk,ml->iklmj", a, b, np.eye(2))
    return J, matrix.reshape(16, 6)


@example(Contraction)
def contraction_with_repeated_labels(draw):
    a = draw.normal(3, 3, 2)
    J = Contraction(((a, "iij"),), "i", "ij", {"i": 3, "j": 2})
    return J, np.einsum("iij,ik->ijk", a, np.eye(3)).reshape(6, 3)


@example(Contraction)
def contraction_of_a_number_with_more_sizes_than_labels(draw):
    """A label that occurs in no term is no axis, whatever its size."""
    J = Contraction(((np.ones((), draw.dtype), ""),), "i", "i", {"i": 2, "j": 3})
    return J, np.eye(2)


@example(Contraction)
def contraction_with_more_sizes_than_labels(draw):
    a = draw.normal(2, 3)
    J = Contraction(((a, "ij"),), "j", "i", {"k": 4, "i": 2, "l": 0, "j": 3})
    return J, a


@example(Contraction)
def contraction_with_labels_of_a_factor_alone(draw):
    a = draw.normal(2, 3, 4)
    J = Contraction(((a, "ijk"),), "i", "", {"i": 2, "j": 3, "k": 4})
    wide = a.astype(np.result_type(a, float))
    return J, wide.sum((1, 2)).reshape(1, 2)


@example(Contraction)
def contraction_with_axes_of_length_1(draw):
    a, b = draw.normal(1, 3), draw.normal(1)
    J = Contraction(((a, "ij"), (b, "l")), "i", "ij", {"i": 1, "j": 3, "l": 1})
    return J, (a * b).reshape(3, 1)


@example(Contraction)
def contraction_over_an_empty_axis(draw):
    J = Contraction(((draw.normal(2, 0), "ij"),), "jk", "ik", {"i": 2, "j": 0, "k": 3})
    return J, np.zeros((6, 0))


@example(Contraction)
def contraction_over_an_empty_axis_of_a_factor(draw):
    J = Contraction(((draw.normal(2, 0), "ij"),), "i", "i", {"i": 2, "j": 0})
    return J, np.zeros((2, 2))


@example(Cumulative)
def cumulative(draw):
    return (Cumulative(1, (2, 4, 3), draw.dtype, exclusive=False, reverse=False),
            moved((2, 4, 3), lambda x: np.cumsum(x, 1)))  # fmt: skip


@example(Cumulative)
def cumulative_exclusive_from_the_end(draw):
    return Cumulative(-1, (2, 4), draw.dtype, exclusive=True, reverse=True), np.kron(
        np.eye(2), np.triu(np.ones((4, 4)), 1)
    )


@example(Fourier)
def fourier(draw):
    def transform(x):
        z = np.fft.fft(x[..., 0] + 1j * x[..., 1], axis=1)
        return np.stack([z.real, z.imag], axis=-1)

    return Fourier(1, (2, 4, 2), draw.dtype), moved((2, 4, 2), transform)


@example(Fourier)
def fourier_inverse(draw):
    def transform(x):
        z = np.fft.ifft(x[..., 0] + 1j * x[..., 1], axis=0)
        return np.stack([z.real, z.imag], axis=-1)

    return Fourier(-3, (4, 3, 2), draw.dtype, inverse=True), moved((4, 3, 2), transform)


@example(Circulant)
def circulant(draw):
    c = draw.normal(4)
    return Circulant(c), np.stack([np.roll(c, k) for k in range(4)], axis=1)


@example(Circulant)
def circulant_of_a_batch_of_images(draw):
    c = draw.normal(2, 4)
    block = np.stack([np.roll(c, k, (0, 1)).ravel() for k in np.ndindex(2, 4)], axis=1)
    return Circulant(c, (3, 2, 4)), np.kron(np.eye(3), block)


@example(Product)
def product(draw):
    a, d, b = draw.normal(2, 3), draw.normal(4, 2), draw.normal(8, 6)
    J = implicit_kron(Eye(4), a.T) @ Diagonal(d) @ Dense(b)
    return J, np.kron(np.eye(4), a.T) @ np.diag(d.ravel()) @ b


@example(Product)
def product_across_a_reshape(draw):
    a, d = draw.normal(6, 6), draw.normal(2, 3)
    return Permutation((1, 0), (3, 2), draw.dtype) @ Diagonal(d) @ Dense(a), (
        moved((3, 2), lambda x: x.T) @ np.diag(d.ravel()) @ a
    )


@example(Sum)
def sum_(draw):
    a, b = draw.normal(2, 3), draw.normal(6, 9)
    return implicit_kron(a, Eye(3)) + Dense(b, (2, 3), (3, 3)), np.kron(a, np.eye(3)) + b


@example(Sum)
def sum_across_a_reshape(draw):
    a, d = draw.normal(6, 6), draw.normal(2, 3)
    return implicit_kron(a, Eye(1)) + Diagonal(d), a + np.diag(d.ravel())


@example(Block)
def block(draw):
    a, d, b = draw.normal(2, 3), draw.normal(2), draw.normal(4, 3)
    J = Block([[Dense(a), Diagonal(d)], [Dense(b), None]])
    return J, np.block([[a, np.diag(d)], [b, np.zeros((4, 2))]])


@example(Block)
def stacked(draw):
    a, b = draw.normal(2, 3), draw.normal(4, 3)
    return stack([Dense(a), Dense(b)]), np.concatenate([a, b])


@example(Dag)
def diamond(draw):
    """x -> (p, q) -> y, a second source that joins at q, and p as a further sink."""
    a, b, c, d, e = (draw.normal(3, 3) for _ in range(5))
    edges = (Edge(0, 2, Dense(a)), Edge(0, 3, Dense(b)), Edge(1, 3, Dense(e)),
             Edge(2, 4, Dense(c)), Edge(3, 4, Dense(d)))  # fmt: skip
    J = Dag(((3,),) * 5, edges, (0, 1), (4, 2), draw.dtype)
    return J, np.block([[c @ a + d @ b, d @ e], [a, np.zeros((3, 3))]])


class Matrices(Joint):
    """One program that maps two vectors to two others."""

    def __init__(self, blocks, dtype):
        widths, heights = [b.shape[1] for b in blocks[0]], [row[0].shape[0] for row in blocks]
        super().__init__(*({k: ((n,), dtype) for k, n in enumerate(sizes)}
                           for sizes in (widths, heights)))  # fmt: skip
        self.blocks, self.dtype = blocks, dtype

    def run(self, op, tangents, wanted):
        found = {}
        for o in wanted:
            for i, v in tangents.items():
                part = Dense(self.blocks[o][i])._apply(op, v)
                found[o] = op.Add(found[o], part) if o in found else part
        return found

    def transposed(self):
        columns = zip(*self.blocks, strict=True)
        return Matrices([[b.T for b in column] for column in columns], self.dtype)

    def arrays(self):
        yield from (block for row in self.blocks for block in row)


def matrices(draw):
    blocks = [[draw.normal(m, n) for n in (3, 2)] for m in (2, 4)]
    return Matrices(blocks, draw.dtype), blocks


@example(Part)
def a_part_of_a_program(draw):
    joint, blocks = matrices(draw)
    return joint.part(1, 0), blocks[1][0]


@example(Dag)
def a_program_that_runs_once_for_all_its_parts(draw):
    joint, blocks = matrices(draw)
    edges = [Edge(i, 2 + o, joint.part(o, i)) for o in range(2) for i in range(2)]
    J = Dag(((3,), (2,), (2,), (4,)), edges, (0, 1), (2, 3), draw.dtype)
    return J, np.block(blocks)


@example(Dag)
def a_vertex_that_is_source_and_sink(draw):
    a, b = draw.normal(3, 2), draw.normal(2, 3)
    edges = Edge(0, 1, Dense(a)), Edge(1, 2, Dense(b))
    J = Dag(((2,), (3,), (2,)), edges, (0, 1), (1, 2), draw.dtype)
    return J, np.block([[a, np.eye(3)], [b @ a, b]])


@example(Dag)
def one_edge_beside_zero_blocks(draw):
    """Sources and sinks without edges still have columns and rows."""
    a = draw.normal(2, 3)
    J = Dag(((2,), (3,), (2,), (1,)), (Edge(1, 2, Dense(a)),), (0, 1), (3, 2), draw.dtype)
    return J, np.block([[np.zeros((1, 5))], [np.zeros((2, 2)), a]])


@example(Dag)
def one_edge_beside_an_empty_tensor(draw):
    a = draw.normal(2, 3)
    return Dag(((0,), (3,), (2,)), (Edge(1, 2, Dense(a)),), (0, 1), (2,), draw.dtype), a


@example(Dag)
def one_edge_from_a_vertex_named_twice(draw):
    a = draw.normal(2, 3)
    J = Dag(((3,), (2,)), (Edge(0, 1, Dense(a)),), (0, 0), (1, 1), draw.dtype)
    return J, np.block([[a, a], [a, a]])


@example(Sylvester)
def sylvester(draw):
    a, b = (draw.normal(n, n) / 4 + 3 * np.eye(n) for n in (3, 2))
    a, b = a.astype(draw.dtype), b.astype(draw.dtype)
    return Sylvester(a, b), np.linalg.inv(np.kron(a, np.eye(2)) + np.kron(np.eye(3), b))


@example(Dag)
def a_chain_beside_zero_blocks(draw):
    a, b = draw.normal(2, 3), draw.normal(4, 2)
    edges = Edge(0, 2, Dense(a)), Edge(2, 3, Dense(b))
    J = Dag(((3,), (2,), (2,), (4,), (1,)), edges, (0, 1), (3, 4), draw.dtype)
    return J, np.block([[b @ a, np.zeros((4, 2))], [np.zeros((1, 5))]])
