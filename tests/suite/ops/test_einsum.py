"""Einsum: a product is linear in each operand, so that NumPy gives both derivatives."""

from itertools import pairwise

import numpy as np
import onnx.parser
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj

DIAGONAL = [
    ("bqd,bkd,bq->bkq", {"b": 2, "q": 2, "k": 2, "d": 2}),
    ("bqd,bkd,bq->bkq", {"b": 2, "q": 3, "k": 5, "d": 4}),
    ("bij,bjk,bi->bki", dict.fromkeys("bijk", 2)),
    ("ac,cda,bad->abc", dict.fromkeys("abcd", 2)),
    ("ij,jk,i->ki", {"i": 2, "j": 3, "k": 4}),
    ("ij,kj,i->ki", {"i": 3, "j": 3, "k": 3}),
    ("ab,bc,ca->b", {"a": 2, "b": 3, "c": 4}),
    ("ab,bc,ca->a", dict.fromkeys("abc", 2)),
]
"""Equations in which a label stays that is the diagonal of a Kronecker factor."""


def drawn(seed):
    """A random equation of two or three terms, with sizes that are often alike."""
    rng = np.random.default_rng(seed)
    labels = list("abcde"[: rng.integers(2, 6)])
    terms = ["".join(rng.choice(labels, min(len(labels), rng.integers(1, 4)), replace=False))
             for _ in range(rng.integers(2, 4))]  # fmt: skip
    used = sorted(set("".join(terms)))
    out = "".join(rng.permutation([label for label in used if rng.random() < 0.6]))
    alike = rng.random() < 0.4
    return f"{','.join(terms)}->{out}", {x: 2 if alike else int(rng.integers(1, 4)) for x in used}


def model_of(terms, out, sizes, equation):
    def declared(name, labels):
        return f"double[{','.join(str(sizes[x]) for x in labels)}] {name}".replace("[]", "")

    operands = [declared(name, term) for name, term in zip("xyz", terms, strict=False)]
    return oj.load(onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 21]> g ({", ".join(operands)}) => '
        f'({declared("o", out)}) {{ o = Einsum<equation="{equation}">'
        f'({", ".join("xyz"[: len(terms)])}) }}'
    ))  # fmt: skip


def units(shape):
    """All tensors of a shape with a single entry, which is 1."""
    return np.eye(int(np.prod(shape))).reshape(-1, *shape)


@pytest.mark.parametrize(
    ("equation", "sizes"), [*DIAGONAL, *map(drawn, range(150))],
    ids=lambda x: x if isinstance(x, str) else "".join(map(str, x.values())),
)  # fmt: skip
def test_derivatives_of_einsum_agree_with_each_operand(equation, sizes):
    terms, out = equation.split("->")[0].split(","), equation.split("->")[1]
    rng = np.random.default_rng(0)
    shapes = [[sizes[label] for label in term] for term in terms]
    xs = [rng.standard_normal(shape) for shape in shapes]
    weights = rng.standard_normal([sizes[label] for label in out])

    def at(**changed):
        return np.einsum(equation, *(changed.get(n, x) for n, x in zip("xyz", xs, strict=False)))

    model, point = model_of(terms, out, sizes, equation), dict(zip("xyz", xs, strict=False))
    rows = [at(**{name: e}).ravel() for name, x in point.items() for e in units(x.shape)]
    J = oj.linearize(model, point, of="o", wrt=list(point))
    assert_allclose(J.toarray(), np.transpose(rows), atol=1e-12)
    assert_allclose(J.T @ weights.ravel(), np.array(rows) @ weights.ravel(), atol=1e-12)

    H = oj.hessian(model, point, of="o", wrt=list(point), weights=weights).toarray()
    ends = np.cumsum([0, *(x.size for x in xs)])
    spans = {name: slice(*ends) for name, ends in zip(point, pairwise(ends), strict=True)}
    for i, j in [(i, j) for i in point for j in point if i < j]:
        block = [[(at(**{i: a, j: b}) * weights).sum() for b in units(point[j].shape)]
                 for a in units(point[i].shape)]  # fmt: skip
        assert_allclose(H[spans[i], spans[j]], block, atol=1e-12)
        assert_allclose(H[spans[j], spans[i]], np.transpose(block), atol=1e-12)
