"""K-FAC, E-KFAC and Shampoo: Kronecker factors from the structure of the weight Jacobians.

For the gradients and their scaling, see `gradients`. Factors are sums over batches, which
`batch_sums` takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, Unpack

import numpy as np

from ...jacobians import reading
from ...jacobians.arguments import passes_options_to, validated
from ...jacobians.arrays import dtype_of, host, like
from ...jacobians.errors import InputError, UnsupportedOp
from ...jacobians.readings import module_of
from ..data.adapter import Data, Every
from ..data.comm import Comm, sum_arrays
from ..model.primal.inputs import Specs
from ..model.primal.model import ModelLike
from ..resume import ResumeFile
from .batch_sums import Moments, Statistics, statistics, sum_stacks
from .gradients import FisherType, Gradients, Target, per_sample, squares
from .kronecker import Again, Factors, KroneckerFactored, Moment, decompose, rebuilt
from .sharded import shard as shard_factors

Approximation = Literal["expand", "reduce"]

Bases = list[tuple[np.ndarray, np.ndarray]]
"""The eigenvectors of A and of B for every layer."""

FoundFactors = tuple[list[Factors], Specs]
"""The blocks of K, and the tensors of all layers."""

FindFactors = Callable[[Statistics], FoundFactors]


class GradientOptions(Every, total=False):
    """The options of the gradients, which `Target` describes, and of passes over data."""

    fisher_type: FisherType
    joint: bool
    progress: bool | None
    shard: bool
    resume: ResumeFile | None


@passes_options_to(Target, statistics)
@validated
def kfac(
    model: ModelLike, inputs: Data, *, approximation: Approximation = "expand",
    **options: Unpack[GradientOptions],
) -> KroneckerFactored:  # fmt: skip
    """K = blockdiag(A ⊗ B) with A = mean of x xᵀ, B = c Σ g gᵀ: the Kronecker factors of F.

    `approximation` says how positions that share a weight count (kernels, tokens): `"expand"`
    treats each position as a separate sample; `"reduce"` takes the mean of x and the sum of g over
    the positions of a sample. Biases and scales have blocks of their own; with `joint=True` a
    weight and the bias that is added to its product are one matrix, whose inputs x end in a 1.

    `inputs` are one batch, or data (a list of batches, a function that returns an iterator over
    them, or arrays or an npz file with `batch_size`): then A and B are sums over all batches, which
    are linearised one at a time.

    `fisher_type`: F is exact (`"type-2"`), of `samples` draws by `seed` (`"mc"`), empirical, with
    the loss `of` (`"empirical"`), or B = I (`"forward-only"`). Scaling: c = 1 for
    `reduction="sum"`, and 1 over the number of terms, the rows of `at` along `axis`, for `"mean"`;
    with `"empirical"`, `reduction` is also the model's own reduction from losses to `of`.

    With `comm`, a communicator of ranks that all call this with batches of their own, the factors
    are of all batches, added in one all-reduce, and K is the same on every rank: see `ranked`. With
    `shard=True`, each rank keeps and decomposes the factors of some of the tensors alone, which are
    `K.local`; a product with K or its inverse is then one all-reduce, entered by all ranks.
    With `client`, a `distributed.Client`, the batches of the data are split among its workers: each
    sums over its own batches, and keeps up to `keep` bytes of them for the second pass of `ekfac`.
    The draws of `fisher_type="mc"` do not depend on the number of either. Within a batch,
    cotangents are divided among as many threads as NumPy's linear algebra has, if the extra
    `runtime` is installed.

    - `model`: the model, as `load` gives it.
    - `at`: the tensor before the loss, such as logits, by name; by default the only floating
      output.
    - `of`: the loss, by name, where `fisher_type="empirical"`.
    - `wrt`: the weights, by name; by default all floating initializers, and of a file of PyTorch
      the parameters of the module.
    - `likelihood`: `"categorical"`, `"bernoulli"` or `"gaussian"`, with parameters `at`; see
      `fisher`.
    - `axis`: the axis of `at` along which a row is one term of the loss.
    - `samples`: the number of draws of each term, where `fisher_type="mc"`.
    - `seed`: the seed of these draws, the same by all engines. Over batches, each sample has draws
      of its own, from the seed and its contents.
    - `engine`: `"onnxruntime"` (default where installed), `"numpy"`, `"torch"` or `"jax"` runs
      the model.
    - `straight_through`: True lets tangents pass rounding and quantisation; see `linearize`.
    - `batch_size`: the rows of a batch, where `inputs` are arrays or the path of an npz file.
    - `shared`: inputs that all batches have in common, by name.
    - `progress`: True shows a bar at once, False none, None after two seconds; see `oj.progress`.
    - `resume`: a `ResumeFile`, from which sums over batches go on after an interruption.

    Shapes: K is (n, n), n the size of `wrt`; for a weight with i inputs and o outputs A is (i, i)
    and B is (o, o). Raises `InputError` for an option or a name that does not fit, `UnsupportedOp`
    for a weight whose use is not a Kronecker product, or mixes samples, `LimitError` where the
    factor of a lookup table would be too large. `K.inverse` raises `InputError` where K is singular
    without damping.

    Sources: Martens and Grosse, 2015; Grosse and Martens, 2016; Eschenhagen et al., 2023.
    """
    data = statistics(model, inputs, "K-FAC", **options)
    return factored_by(partial(kronecker_factors, approximation), data)


@passes_options_to(Target, statistics)
@validated
def ekfac(
    model: ModelLike, inputs: Data, *, approximation: Approximation = "expand",
    **options: Unpack[GradientOptions],
) -> KroneckerFactored:  # fmt: skip
    """E = Q diag(λ) Qᵀ: the eigenvectors Q of K-FAC, with λ = c Σₙ (Qᵀ vec Gₙ)² of F itself.

    No matrix with these eigenvectors is closer to F in the Frobenius norm.
    Takes two passes over data.

    - `model`, `inputs`, `approximation`: the model, one point or data, and how positions that share
      a weight count, as for `kfac`.
    - `at`, `of`, `wrt`, `likelihood`, `axis`, `fisher_type`, `reduction`, `samples`, `seed`,
      `joint`, `engine`, `straight_through`, `batch_size`, `shared`, `keep`, `progress`,
      `resume`, `client`, `comm`, `shard`: as for `kfac`.

    Shapes: E and Q are (n, n), λ is (n,), n the size of `wrt`. Raises the errors of `kfac`, and
    `InputError` for `fisher_type="forward-only"`, which has no gradients; `UnsupportedOp` also for
    a weight whose uses overlap, as W and Wᵀ do.

    Source: George et al., "Fast approximate natural gradient descent in a Kronecker-factored
    eigenbasis", 2018.
    """
    data = statistics(model, inputs, "E-KFAC", **options)
    return factored_by(partial(corrected_factors, approximation), data)


def as_found(block: Factors) -> Factors:
    """A block as it is."""
    return block


def factored_by(
    find: FindFactors, data: Statistics, finish: Callable[[Factors], Factors] = as_found
) -> Any:
    """K of the factors that `find` gives, here and at other points, each block by `finish`.

    Where ranks shard K, each of them finishes and keeps its own blocks alone.
    """
    if data.sharded is not None:
        return shard_factors(data.sharded, *find(data), finish)
    move = data.elsewhere and Again(partial(factored_there, find, data.elsewhere, finish))
    blocks, domain = find(data)
    return KroneckerFactored(map(finish, blocks), domain, move)


def factored_there(
    find: FindFactors, elsewhere: Callable[[Any], Statistics],
    finish: Callable[[Factors], Factors], inputs: Any,
) -> KroneckerFactored:  # fmt: skip
    """K at another point."""
    found: KroneckerFactored = factored_by(find, elsewhere(inputs), finish)
    return found


def corrected_factors(approximation: str, data: Statistics) -> FoundFactors:
    """A and B of every layer, with the eigenvalues of E."""
    with_gradients(data, "E-KFAC")
    blocks, domain = kronecker_factors(approximation, data)
    check_apart(KroneckerFactored(blocks, domain), "E-KFAC")
    decompose(blocks) if data.comm is None else decompose_over_ranks(data.comm, blocks)
    bases = [(f.a.basis[1], f.b.basis[1]) for f in blocks]
    found = data.total(
        partial(sum_stacks, partial(rotated_squares, bases), read=partial(in_basis, bases))
    )
    c = data.scale(found)
    corrected = [f.with_values(c * values) for f, (values,) in zip(blocks, found.sums, strict=True)]
    return corrected, domain


def rotate_rows(rows: np.ndarray, basis: np.ndarray) -> np.ndarray:
    """Rows (..., groups, samples, positions, n) in a basis (groups, n, n)."""
    *lead, samples, positions, n = rows.shape
    found: np.ndarray = rows.reshape(*lead, samples * positions, n) @ basis  # few large products
    return found.reshape(rows.shape)


def in_basis(bases: Bases, k: int, x: np.ndarray) -> np.ndarray:
    """The inputs of layer k in its basis."""
    return rotate_rows(x, bases[k][0])


def rotated_squares(bases: Bases, k: int, x: np.ndarray, g: np.ndarray) -> tuple[np.ndarray]:
    """Σₙ Gₙ ∘ Gₙ in the basis of layer k, in which the inputs are given."""
    return (squares(x, rotate_rows(g, bases[k][1])),)


def with_gradients(data: Statistics, what: str) -> None:
    """Raises `InputError` where there are no gradients."""
    if data.target.fisher_type == "forward-only":
        raise InputError(f"{what} is made of gradients: fisher_type='forward-only' has none")


def check_apart(K: KroneckerFactored, what: str) -> None:
    """Raises `UnsupportedOp` where uses overlap: the Gₙ of an entry is the sum over its uses."""
    if K.overlapping is None:
        return
    raise UnsupportedOp(
        f"{what} has no form for {K.overlapping!r}, whose entries meet the model in more than one "
        f"matrix, as W and Wᵀ do: leave it out of wrt=, or take kfac, fisher or empirical_fisher"
    )


def kronecker_factors(approximation: str, data: Statistics) -> FoundFactors:
    """A and B of every layer, and the tensors of all layers."""
    found = data.total(partial(second_moments, approximation == "reduce"))
    c, inputs, outputs = data.scale(found), [], []
    for parts, (A, rows, B) in zip(found.parts, found.sums, strict=True):
        inputs.append(Moment(A / rows))
        groups, _, n = next(iter(parts.values())).out_shape
        if data.target.fisher_type == "forward-only":
            B, c = like(np.broadcast_to(np.eye(n), (groups, n, n)), A), 1.0
        outputs.append(Moment(c * B))
    return [Factors(parts, inputs[k], outputs[found.twins.get(k, k)])
            for k, parts in enumerate(found.parts)], found.domain  # fmt: skip


def second_moments(reduce: bool, found: Gradients) -> Moments:
    """Σ x xᵀ, its number of terms and Σ g gᵀ; with `reduce`, of the mean x and the sum of g. A bias
    has the g of the weight to whose product it is added.
    """

    def right(k: int, _: np.ndarray, g: np.ndarray) -> tuple[Any]:
        if k in found.twins:
            return (0.0,)
        g = g.sum(axis=-2, keepdims=True) if reduce else g
        return (gram(module_of(g).moveaxis(g, 0, 1)),)

    backward = sum_stacks(right, found) or [(0.0,)] * len(found.layers)
    rows = []
    for layer, back in zip(found.layers, backward, strict=True):
        x = layer.x.mean(axis=-2, keepdims=True) if reduce else layer.x
        rows.append((gram(x), x.shape[1] * x.shape[2], *back))
    return rows


def gram(x: np.ndarray) -> np.ndarray:
    """XᵀX per group, of the rows along all other axes, (groups, ..., columns).

    Rows are taken as they lie in memory. Where most of them lie within a column, none is copied.
    """
    if not isinstance(x, np.ndarray):
        rows = x.reshape(len(x), -1, x.shape[-1])
        return rows.swapaxes(-1, -2) @ rows
    x = x.transpose(0, *sorted(range(1, x.ndim - 1), key=lambda axis: -x.strides[axis]), -1)
    outer = next((a for a in range(1, x.ndim - 1) if x.strides[a] < x.strides[-1]), 1)
    inner = math.prod(x.shape[outer:-1])
    outer = outer if inner >= x.shape[-1] else 1
    rows = x.reshape(*x.shape[:outer], math.prod(x.shape[outer:-1]), x.shape[-1])
    return (rows.swapaxes(-1, -2) @ rows).sum(axis=tuple(range(1, outer)))


@passes_options_to(Target, statistics)
@validated
def shampoo(
    model: ModelLike, inputs: Data, *, power: float = 0.5, **options: Unpack[GradientOptions]
) -> KroneckerFactored:
    """S = blockdiag(Lᵖ ⊗ Rᵖ) with L = c Σₙ Gₙ Gₙᵀ and R = c Σₙ Gₙᵀ Gₙ, Gₙ as in F.

    p = `power`: 1/2 as in Shampoo, whose steps use S⁻¹ᐟ² = L⁻¹ᐟ⁴ ⊗ R⁻¹ᐟ⁴.

    - `model`, `inputs`: the model, and one point or data, as for `kfac`.
    - `at`, `of`, `wrt`, `likelihood`, `axis`, `fisher_type`, `reduction`, `samples`, `seed`,
      `joint`, `engine`, `straight_through`, `batch_size`, `shared`, `keep`, `progress`,
      `resume`, `client`, `comm`, `shard`: as for `kfac`.

    Shapes: S is (n, n), n the size of `wrt`; for a weight with i inputs and o outputs Gₙ is (i, o),
    L is (i, i) and R is (o, o). Raises the errors of `ekfac`: `InputError`, `UnsupportedOp`.

    Source: Gupta, Koren, Singer, "Shampoo: preconditioned stochastic tensor optimization", 2018.
    """
    data = statistics(model, inputs, "Shampoo", **options)
    return factored_by(side_factors, data, partial(powered, power))


def side_factors(data: Statistics) -> FoundFactors:
    """L and R of every layer."""
    with_gradients(data, "Shampoo")
    found = data.total(partial(sum_stacks, side_moments))
    c = data.scale(found)
    blocks = [Factors(parts, Moment(c * left), Moment(c * right))
              for parts, (left, right) in zip(found.parts, found.sums, strict=True)]  # fmt: skip
    check_apart(KroneckerFactored(blocks, found.domain), "Shampoo")
    return blocks, found.domain


def side_moments(_: int, x: np.ndarray, g: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Σ G Gᵀ and Σ Gᵀ G, per group."""
    G = per_sample(x, g)
    op = reading(G)
    left = op.Einsum(G, G, equation="kgnio,kgnjo->gij")
    return left, op.Einsum(G, G, equation="kgnip,kgniq->gpq")


def powered(power: float, block: Factors) -> Factors:
    """Lᵖ ⊗ Rᵖ of L ⊗ R."""
    sides = ((values**power, vectors) for values, vectors in (block.a.basis, block.b.basis))
    a, b = (Moment(rebuilt(*side)) for side in sides)
    return replace(block, a=a, b=b)


def decompose_over_ranks(comm: Comm, blocks: Sequence[Factors]) -> None:
    """The eigenvectors of all factors, of which each rank computes its share: the same on all."""
    distinct = {id(m): m for f in blocks for m in (f.a, f.b)}  # a bias shares one with its weight
    moments = sorted(distinct.values(), key=lambda m: -m.matrix.size)

    def found() -> tuple[list[np.ndarray], None]:
        arrays: list[np.ndarray] = []
        for k, moment in enumerate(moments):
            if k % comm.size == comm.rank:
                arrays += map(host, moment.basis)
            else:
                zero = np.zeros(moment.matrix.shape, dtype_of(moment.matrix))
                arrays += zero[..., 0], zero
        return arrays, None

    arrays, _ = sum_arrays(comm, found)
    for moment, values, vectors in zip(moments, arrays[::2], arrays[1::2], strict=True):
        vars(moment)["basis"] = like(values, moment.matrix), like(vectors, moment.matrix)
