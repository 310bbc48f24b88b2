"""Products of matrices, Einsum and Fourier transforms: Kronecker products and contractions."""

from __future__ import annotations

import math
import string
from collections.abc import Iterable

import numpy as np

from ...jacobians import (
    Diagonal,
    Fourier,
    Jacobian,
    Op,
    Reshape,
    Shape,
    Take,
    broadcast,
    label_sizes,
    shape_of,
)
from ...jacobians.errors import OnnxJacError, UnsupportedOp
from ...jacobians.symint import Number, largest, same, smallest
from ..indexed import declare_indexed
from ..indices import count_up
from ..node import Node
from ..numbers.matmul import contraction_order
from ..registry import Blocks, jacobian, says
from .layout import in_front

declare_indexed(
    "MatMul",
    {
        (True, True): "y[*n, i, k] = sum(a[*n, i, j]*b[*n, j, k], j)",
        (True, False): "y[*n, i] = sum(a[*n, i, j]*b[j], j)",
        (False, True): "y[*n, k] = sum(a[j]*b[*n, j, k], j)",
        (False, False): "y = sum(a[j]*b[j], j)",
    },
    by=lambda node: tuple(len(shape_of(x)) > 1 for x in node.inputs),
)
declare_indexed(
    "Gemm",
    {
        (a == "ji", b == "kj"): f"y[i, k] = alpha*sum(a[{', '.join(a)}]*b[{', '.join(b)}], j)"
        " + beta*c[...]"
        for a in ("ij", "ji")
        for b in ("jk", "kj")
    },
    by=lambda node: (bool(node.transA), bool(node.transB)),
)


LABELS = 48
"""The most labels of an equation: NumPy has 52, and the others label axes of right-hand sides."""


def equation_of(node: Node) -> tuple[tuple[str, ...], str]:
    """The terms and the output of an Einsum."""
    terms, out = expand_equation(node.equation, tuple(len(shape_of(x)) for x in node.inputs))
    if (count := len({*"".join(terms)})) > LABELS:
        raise UnsupportedOp(
            f"the equation has {count} labels, and derivatives may have {LABELS}: write it as "
            "several Einsums"
        )
    return terms, out


def einsum_text(equation: tuple[tuple[str, ...], str]) -> str:
    """An equation as index notation.

    >>> einsum_text((("ij", "jk"), "ik"))
    'y[i, k] = sum(x0[i, j]*x1[j, k], j)'
    """
    terms, out = equation
    entries = (spell_entry(f"x{k}", term) for k, term in enumerate(terms))
    gone = "".join(f", {c}" for c in dict.fromkeys("".join(terms)) if c not in out)
    product = "*".join(entries)
    return f"{spell_entry('y', out)} = " + (f"sum({product}{gone})" if gone else product)


def spell_entry(name: str, labels: str) -> str:
    """The entry of a tensor at some indices."""
    return f"{name}[{', '.join(labels) or '()'}]"


declare_indexed("Einsum", einsum_text, by=equation_of, shown=(("ij", "jk"), "ik"), broadcasts=True)


def expand_equation(equation: str, ranks: tuple[int, ...]) -> tuple[tuple[str, ...], str]:
    """Terms and output of an einsum equation with ellipses spelt out and the output made explicit.

    >>> expand_equation("...ij, jk", (3, 2))
    (('Aij', 'jk'), 'Aik')
    """
    left, arrow, out = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    widths = [r - len(t.replace("...", "")) for t, r in zip(terms, ranks, strict=True)]
    free = [c for c in string.ascii_uppercase + string.ascii_lowercase if c not in equation]
    dots = "".join(free[: max([0, *(w for t, w in zip(terms, widths, strict=True) if "..." in t)])])
    spelt = tuple(
        t.replace("...", dots[len(dots) - w :] if w else "")
        for t, w in zip(terms, widths, strict=True)
    )
    if not arrow:
        letters = "".join(terms).replace("...", "")
        out = dots + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    return spelt, out.replace("...", dots)


def product_bytes(node: Node, *, left_to_right: bool = False) -> int:
    """Bytes of the largest intermediate product of an Einsum, in NumPy's order or from left to
    right; 0 where the operands do not fit.
    """
    try:
        equation, shapes = node.equation, tuple(shape_of(x) for x in node.inputs)
        order = [(0, 1), *((0, n) for n in range(len(shapes) - 2, 0, -1))]
        if not left_to_right:
            order = (contraction_order(equation, *shapes) or [])[1:]
        return int(largest_product(equation, shapes, order) * node.x.itemsize)
    except (AttributeError, IndexError, TypeError, ValueError, ArithmeticError):
        return 0  # the kernel will say what is wrong


says("Einsum", memory=product_bytes)


def largest_product(
    equation: str, shapes: tuple[tuple[int, ...], ...], order: Iterable[tuple[int, ...]]
) -> int:
    """Elements of the largest intermediate product; each is appended to the remaining operands.

    If three or more operands are contracted at once, all terms that the loop visits are counted.

    >>> largest_product("a,b,ab->", ((2,), (3,), (2, 3)), [(0, 1), (0, 1)])
    6
    """
    terms, out = expand_equation(equation, tuple(map(len, shapes)))
    sizes, most = label_sizes(shapes, terms), 0
    left = [set(term) for term in terms]
    for group in order:
        met = set[str]().union(*(left[k] for k in group))
        left = [labels for k, labels in enumerate(left) if k not in group]
        left.append(met & set(out).union(*left))
        held = left[-1] if len(group) < 3 else met
        most = max(most, math.prod(sizes[label] for label in held))
    return most


SIGNAL, WINDOW = 0, 2


# -- DFT and STFT: linear in the signal, with complex numbers as pairs on the last axis ------------


@jacobian("DFT", grows=True)
def dft(op: Op, node: Node) -> Blocks:
    """truncation · transform · truncation or zero-padding to the transform's length."""
    shape = node.x_shape
    check_parts(node, shape)
    axis = (node.ints(2) or (-2,))[0] % len(shape)
    half, given = bool(node.onesided and node.inverse), (node.ints(1) or (0,))[0]
    n = (2 * (shape[axis] - 1) if half else shape[axis]) if same(given, 0) else given
    J = complex_of_length(shape, axis, n // 2 + (not same(n, 0)) if half else n, node.dtype)
    if half:
        J = embed_spectrum(op, J.out_shape, axis, n, node.dtype) @ J
    J = Fourier(axis, J.out_shape, node.dtype, inverse=bool(node.inverse)) @ J
    return {(0, 0): in_front(node.y_shape, J.out_shape, node.dtype).T @ J}


def check_parts(node: Node, shape: Shape) -> None:
    """Raises `OnnxJacError` unless the last axis holds (re, im) pairs, or real parts only."""
    if shape[-1] not in (1, 2):
        raise OnnxJacError(f"{node.step} takes numbers as pairs on the last axis, not "
                           f"{node.step.inputs[SIGNAL]} {list(node.x_shape)}")  # fmt: skip


def complex_of_length(shape: Shape, axis: int, n: Number, dtype: np.dtype) -> Jacobian:
    """Truncation or zero-padding to n entries, with zero imaginary parts for real signals."""
    cut = tuple(smallest(m, n) if k == axis else m for k, m in enumerate(shape))
    full = (*(n if k == axis else m for k, m in enumerate(shape[:-1])), 2)
    return in_front(cut, full, dtype) @ in_front(cut, shape, dtype).T


def embed_spectrum(op: Op, shape: Shape, axis: int, n: Number, dtype: np.dtype) -> Jacobian:
    """Half a spectrum embedded in a whole one, for transforms of which only the real part is used.

    Entries with a mirror image count twice.
    """
    j = count_up(op, shape[axis])
    single = op.Or(op.Equal(j, 0), op.Equal(op.Mul(j, 2), n))
    weight = op.Where(single, *(np.full((), c, dtype) for c in (1, 2)))
    column = op.Reshape(weight, (-1, *(1,) * (len(shape) - 1 - axis)))
    full = tuple(n if k == axis else m for k, m in enumerate(shape))
    return in_front(shape, full, dtype) @ Diagonal(column, shape)


@jacobian("STFT", grows=True)
def stft(op: Op, node: Node) -> Blocks:
    """transform · diag(window) · framing in the signal; transform · diag(frames) in the window.

    A real signal may lack the axis of its parts.
    """
    shape = (*node.x_shape, 1) if len(node.x_shape) == 2 else node.x_shape
    if len(shape) != 3:
        raise OnnxJacError(f"{node.step} takes [batch, length, parts], not "
                           f"{node.step.inputs[SIGNAL]} {list(node.x_shape)}")  # fmt: skip
    check_parts(node, shape)
    window, frames, n = node.input(WINDOW), node.y_shape[1], node.x_shape[1]
    if window is not None:
        n = shape_of(window)[0]
    elif given := node.ints(3):
        n = largest(given[0], 0)
    (step,) = node.ints(1) or (1,)
    starts = op.Reshape(op.Mul(count_up(op, frames), step), (frames, 1))
    at = op.Add(starts, count_up(op, n))
    cut = Take(at, 1, shape, node.dtype) @ Reshape(shape, node.x_shape, node.dtype)
    framed = cut.out_shape
    whole = complex_of_length(framed, 2, n, node.dtype)
    transform = Fourier(2, whole.out_shape, node.dtype)
    spectrum = in_front(node.y_shape, transform.out_shape, node.dtype).T @ transform @ whole
    if window is None:
        return {(0, SIGNAL): spectrum @ cut}
    column = op.Reshape(window, (n, 1))
    blocks = {(0, SIGNAL): spectrum @ Diagonal(column, framed) @ cut}
    if node.wants(WINDOW):
        lift = broadcast((n, 1), framed, node.dtype) @ Reshape((n, 1), (n,), node.dtype)
        blocks[0, WINDOW] = spectrum @ Diagonal(cut._apply(op, node.x)) @ lift
    return blocks
