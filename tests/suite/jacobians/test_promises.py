"""Promises of operators beyond their numbers: pickling, flop counts, error messages."""

import io
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

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
    Jacobian,
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
    progress,
    stack,
)
from onnxjac.jacobians.arrays import as_array
from onnxjac.jacobians.base import Wrapper
from onnxjac.jacobians.errors import InputError, UnsupportedOp, closest
from onnxjac.jacobians.hooks import wrapped

from .examples import EXAMPLES, Draw, matrices


@pytest.mark.parametrize("missing", ["_apply", "_transpose"])
def test_an_operator_says_what_it_does_and_what_its_transpose_is(missing):
    given = {name: lambda *_: None for name in {"_apply", "_transpose"} - {missing}}
    with pytest.raises(TypeError, match=missing):
        type("Half", (Jacobian,), given)((2,), (2,), float)


def test_a_sum_counts_its_additions():
    d = Diagonal(np.arange(1.0, 6.0))
    assert Sum((d, d, d)).flops == 3 * d.flops + 2 * 5


def test_a_factor_that_is_the_identity_costs_nothing():
    assert Kron(np.ones((3, 4)), Eye(5), batch=()).flops == 2 * 3 * 4 * 5
    assert Kron(Eye(3), np.ones((5, 2)), batch=()).flops == 2 * 3 * 2 * 5


def test_the_rows_of_a_block_share_the_width():
    d = Diagonal(np.arange(2.0, 4.0))
    text = str(Block([[d] * 9 for _ in range(3)]))
    assert text.count("[diag(2), ") == 3
    assert text.count(" more ") == 3


def test_a_graph_without_edges_costs_nothing():
    assert Dag(((2,), (3,)), (), (0,), (1,), np.dtype(float)).flops == 0


def test_a_number_in_an_array_is_no_vector():
    with pytest.raises(ValueError, match=r"a vector of 3 .*not an array of shape \[\]"):
        Diagonal(np.arange(1.0, 4.0)) @ np.array(2.0)


def test_the_seconds_of_a_bar_are_those_since_the_start(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(progress.time, "monotonic", lambda: 1007.0)
    progress.Bar(progress.Counter("reading", "rows", 10, stream, 0.0, start=1000.0))
    assert stream.getvalue().endswith(", 7 s")


def test_a_hint_names_up_to_three():
    names = [f"fc1.{part}" for part in ("weight", "offset", "running_mean", "running_var")]
    expected = " Did you mean 'fc1.weight' or 'fc1.offset' or 'fc1.running_mean'?"
    assert closest("fc1", names) == expected


@pytest.mark.parametrize(
    ("error", "advice"), [(UnsupportedOp, "to_jax"), (ValueError, "bring it to the CPU")]
)
def test_why_an_array_cannot_be_read(error, advice):
    def unreadable(self, *_, **__):
        raise error("no numbers here")

    with pytest.raises(InputError, match=advice):
        as_array(type("Array", (), {"__array__": unreadable})())


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
"""Invalid arguments for each kind; the last test here fails for a kind without an entry."""


@pytest.mark.parametrize(
    ("kind", "make"), [(kind, make) for kind, makes in MISFITS.items() for make in makes],
    ids=lambda x: getattr(x, "__qualname__", ""),
)  # fmt: skip
def test_constructors_reject_wrong_arguments(kind, make):
    with pytest.raises(InputError):
        make()


def test_every_kind_says_what_does_not_fit():
    assert MISFITS.keys() == {kind for kind, _ in EXAMPLES.values()} | {Convolution}


def test_lists_are_arrays():
    assert_array_equal(Diagonal([1.0, 2.0]) @ np.ones(2), [1, 2])
    assert_array_equal(Take([1, 0, 1], 0, (2,), float) @ np.array([3.0, 4.0]), [4, 3, 4])
    assert_array_equal(Scatter([1, 1], 0, (2,), float) @ np.array([3.0, 4.0]), [0, 7])


def test_products_and_indices_reject_other_objects():
    J = Diagonal(np.ones(3))
    wrong = {
        "rows, not NoneType": lambda: J @ None,
        "a vector of 3, not str": lambda: J.matvec("a"),
        "a vector of 3, not NoneType": lambda: J.matvec(None),
        "not object": lambda: object() @ J,
        "two indices, not 3": lambda: J[0, 0, 0],
        "a real number": lambda: Scalar(2 + 0j, (3,), float),
    }
    for said, product in wrong.items():
        with pytest.raises(InputError, match=said):
            product()


def test_equal_sizes_do_not_make_a_broadcast():
    with pytest.raises(InputError, match="1, 3"):
        broadcast((1, 3), (3, 1), float)


def test_a_wrapper_multiplies_out_in_the_order_of_its_operator(inside):
    J = Dense(np.arange(6.0).reshape(2, 3))
    inside.forbid_columns()
    named = type("Named", (Wrapper,), {"_transpose": lambda self: self.operator.T})
    assert_array_equal(named(J).toarray(), J.a)


def test_matvec_names_ravel_for_a_tensor():
    J = Dense(np.ones((2, 6)))
    with pytest.raises(InputError, match=r"a vector of 6, .* x.ravel\(\) is such a vector"):
        J.matvec(np.ones((2, 3)))
    for wrong in (lambda: J.rmatvec(np.ones((2, 3))), lambda: J @ wrapped(np.ones((2, 3)))):
        with pytest.raises(InputError, match=r"mismatch|multiply") as caught:
            wrong()
        assert "ravel" not in str(caught.value)
