"""Wrong arguments of operators and wrong operands: one error that names the kind and the shapes."""

from dataclasses import replace

import numpy as np
import pytest

from onnxjac.jacobians import (
    Block,
    BlockDiagonal,
    Broadcast,
    Cast,
    Circulant,
    Conjugate,
    Contraction,
    Convolution,
    Cumulative,
    Dag,
    Dense,
    Diagonal,
    Edge,
    Embed,
    Eye,
    Fourier,
    Geometry,
    Identity,
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
    broadcast,
    implicit_kron,
    label_sizes,
    stack,
)
from onnxjac.jacobians.arrays import as_array
from onnxjac.jacobians.errors import InputError, UnsupportedOp
from onnxjac.jacobians.hooks import wrapped

from ..jacobians.examples import EXAMPLES, Draw, matrices

ONES, F = np.ones, np.dtype(float)
GEOMETRY = Geometry((1, 2, 5), (3, 2, 2), (1, 3, 4), (1,), (1,), (0, 0), 1)

MISFITS = {
    Identity: [lambda: Identity(3, F), lambda: Identity((-1, 2), F), lambda: Identity((1.5,), F)],
    Zero: [lambda: Zero((2,), "ab", F), lambda: Zero((2,), None, F)],
    Scalar: [lambda: Scalar(1j, (2,), F), lambda: Scalar(ONES(2), (2,), F),
             lambda: Scalar(1, 2, F)],
    Cast: [lambda: Cast(2, F, F), lambda: Cast((2,), "S1", F)],
    Conjugate: [lambda: Conjugate(Dense(ONES(2)))],
    Diagonal: [lambda: Diagonal(ONES(3), (2,)), lambda: Diagonal(ONES((2, 3)), (3,)),
               lambda: Diagonal(np.array(["a"]))],
    Dense: [lambda: Dense(ONES(3)), lambda: Dense(ONES((2, 3)), (3,)),
            lambda: Dense(ONES((2, 3)), None, (2, 2)), lambda: Dense([[1, 2], [3]])],
    BlockDiagonal: [lambda: BlockDiagonal(ONES(3))],
    LowRank: [lambda: LowRank(ONES((3, 2)), ONES((4, 1))),
              lambda: LowRank(ONES(3), ONES((3, 1))),
              lambda: LowRank(ONES((3, 2)), ONES((4, 2)), (2,))],
    Kron: [lambda: Kron(Eye(2), Eye(3), ()), lambda: implicit_kron(ONES(3), Eye(2)),
           lambda: Eye(-1), lambda: implicit_kron(ONES((2, 3, 3)), ONES((4, 2, 2))),
           lambda: Kron(ONES((3, 2, 2)), Eye(2), (2,))],
    Contraction: [
        lambda: Contraction((), "i", "i", {"i": 2}),
        lambda: Contraction(((ONES(3), "i"),), "i", "i", {"i": 2}),
        lambda: Contraction(((ONES((3, 2)), "i"),), "i", "i", {"i": 3}),
        lambda: Contraction(((ONES(3), "i"),), "ij", "i", {"i": 3, "j": 2}),
        lambda: Contraction(((ONES(3), "i"),), "i", "ik", {"i": 3}),
        lambda: label_sizes(((2, 3),), ("ijk",)), lambda: label_sizes(((2, 3),), ()),
    ],
    Convolution: [
        lambda: Convolution(ONES((3, 2, 3)), "x", "u", GEOMETRY),
        lambda: Convolution(ONES(GEOMETRY.w), "x", "w", GEOMETRY),
        lambda: Convolution(ONES(GEOMETRY.w), "x", "y", GEOMETRY),
        lambda: Convolution(ONES(GEOMETRY.w), "x", "u", replace(GEOMETRY, u=(1, 2, 4))),
        lambda: Convolution(ONES(GEOMETRY.w), "x", "u", replace(GEOMETRY, u=(1, 3, 5))),
        lambda: Convolution(ONES(GEOMETRY.w), "x", "u", replace(GEOMETRY, pads=(0,))),
        lambda: Convolution(ONES(GEOMETRY.w), "x", "u", replace(GEOMETRY, group=2)),
    ],
    Cumulative: [lambda: Cumulative(2, (3, 4), F, exclusive=False, reverse=False),
                 lambda: Cumulative(0, (), F, exclusive=False, reverse=False)],
    Fourier: [lambda: Fourier(0, (4, 3), F), lambda: Fourier(1, (4, 2), F),
              lambda: Fourier(2, (4, 2), F)],
    Circulant: [lambda: Circulant(ONES(3), (3, 2)), lambda: Circulant(np.array(1.0)),
                lambda: Circulant(ONES((2, 3)), (3,)), lambda: Circulant(ONES(0))],
    Reshape: [lambda: Reshape((3,), (2, 2), F)],
    Permutation: [lambda: Permutation((0, 0), (2, 3), F), lambda: Permutation((1, 0), (2,), F)],
    Broadcast: [lambda: Broadcast((3,), (2,), F), lambda: Broadcast((3,), (3, 1), F)],
    SumTo: [lambda: SumTo((2,), (3,), F), lambda: SumTo((3, 1), (3,), F)],
    Slice: [lambda: Slice(((0, 1, 4),), (3,), F), lambda: Slice(((0, 1, 2),), (3, 3), F),
            lambda: Slice(((0, -1, 2),), (3,), F), lambda: Slice(((0, 0, 2),), (3,), F)],
    Embed: [lambda: Embed(((2, 1, 2),), (3,), F), lambda: Embed(((0, 1),), (3,), F)],
    Take: [lambda: Take(np.array([3]), 0, (3,), F), lambda: Take(np.array([0]), 1, (3,), F),
           lambda: Take(np.array([0.5]), 0, (3,), F)],
    Scatter: [lambda: Scatter(np.array([-4]), 0, (3,), F),
              lambda: Scatter(np.array([0]), -2, (3,), F)],
    Product: [lambda: Product(()), lambda: Product((Dense(ONES((2, 3))), Dense(ONES((2, 3))))),
              lambda: Dense(ONES((2, 3))) @ Diagonal(ONES(2))],
    Sylvester: [lambda: Sylvester(ONES((2, 3)), ONES((2, 2))), lambda: Sylvester(ONES(2), ONES(3))],
    Sum: [lambda: Sum(()), lambda: Sum((Dense(ONES((2, 3))), Dense(ONES((3, 2))))),
          lambda: Dense(ONES((2, 3))) + Diagonal(ONES(2))],
    Block: [
        lambda: Block([]), lambda: Block([[None]]), lambda: stack([]),
        lambda: Block([[Diagonal(ONES(2))], [Diagonal(ONES(2)), None]]),
        lambda: Block([[Diagonal(ONES(2)), None], [Diagonal(ONES(2)), None]]),
        lambda: Block([[Diagonal(ONES(2)), Diagonal(ONES(3))]]),
        lambda: stack([Diagonal(ONES(2)), Diagonal(ONES(3))]),
        lambda: Block([[Diagonal(ONES((3, 1))), Dense(ONES((3, 2)))]]),
    ],
    Part: [
        lambda: matrices(Draw(0))[0].part(2, 0),
        lambda: matrices(Draw(0))[0].part(0, 2),
    ],
    Dag: [
        lambda: Dag(((2,), (3,)), [Edge(0, 1, Diagonal(ONES(2)))], (0,), (1,), F),
        lambda: Dag(((2,), (2,)), [Edge(1, 0, Diagonal(ONES(2)))], (0,), (1,), F),
        lambda: Dag(((2,), (2,)), [Edge(0, 2, Diagonal(ONES(2)))], (0,), (1,), F),
        lambda: Dag(((2,), (2,)), [], (0,), (2,), F),
    ],
}  # fmt: skip
"""Invalid arguments for each kind."""


@pytest.mark.parametrize(
    ("kind", "make"), [(kind, make) for kind, makes in MISFITS.items() for make in makes],
    ids=lambda x: getattr(x, "__qualname__", ""),
)  # fmt: skip
def test_constructors_reject_wrong_arguments(kind, make):
    with pytest.raises(InputError):
        make()


def test_every_kind_says_what_does_not_fit():
    assert MISFITS.keys() == {kind for kind, _ in EXAMPLES.values()} | {Convolution}


@pytest.mark.parametrize(
    ("error", "advice"), [(UnsupportedOp, "to_jax"), (ValueError, "bring it to the CPU")]
)
def test_why_an_array_cannot_be_read(error, advice):
    def unreadable(self, *_, **__):
        raise error("no numbers here")

    with pytest.raises(InputError, match=advice):
        as_array(type("Array", (), {"__array__": unreadable})())


J, D = Dense(ONES((3, 4))), Diagonal(ONES(3))
MISMATCH = r"(expected|mismatch|multiply)(?!.*ravel)"

OPERANDS = {
    "nothing": (lambda: D @ None, "rows, not NoneType"),
    "a text for a vector": (lambda: D.matvec("a"), "a vector of 3, not str"),
    "nothing for a vector": (lambda: D.matvec(None), "a vector of 3, not NoneType"),
    "another object": (lambda: object() @ D, "not object"),
    "a number for a vector": (
        lambda: D @ np.array(2.0), r"a vector of 3 .*not an array of shape \[\]"),
    "a complex factor": (lambda: Scalar(2 + 0j, (3,), F), "a real number"),
    "three indices": (lambda: D[0, 0, 0], "two indices, not 3"),
    "an index out of range": (lambda: J[6], "does not fit a side of length 3"),
    "a trace of a rectangle": (lambda: J.trace(), "square operator"),
    "a vector too long": (lambda: J @ ONES(5), MISMATCH),
    "leading axes that are none": (lambda: J @ ONES((4, 2, 2)), MISMATCH),
    "a matrix too low": (lambda: J @ ONES((3, 1)), MISMATCH),
    "a tensor for a vector": (
        lambda: J.matvec(ONES((2, 2))), r"a vector of 4, .* x.ravel\(\) is such a vector"),
    "another tensor": (lambda: J.rmatvec(ONES((2, 2))), MISMATCH),
    "a tensor of another library": (lambda: J @ wrapped(ONES((2, 2))), MISMATCH),
    "a product": (lambda: D @ Diagonal(ONES(4)), "multiply operators of shape"),
    "a sum": (lambda: D + Diagonal(ONES(4)), "add operators of shape"),
    "a reshape": (lambda: Reshape((2, 3), (5,), F), "Reshape: "),
    "a broadcast of as many entries": (lambda: broadcast((1, 3), (3, 1), F), "1, 3"),
    "a product of identities": (lambda: implicit_kron(Eye(2), Eye(3)), "two identities"),
}  # fmt: skip


@pytest.mark.parametrize("case", OPERANDS)
def test_operators_reject_other_operands(case):
    call, message = OPERANDS[case]
    with pytest.raises(InputError, match=message):
        call()
