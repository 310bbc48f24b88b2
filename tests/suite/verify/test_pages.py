"""A page for every operator: tags, the step to J, integers, products, a script; or the reason."""

import itertools
import re

import numpy as np
import pytest
import sympy as sp

import onnxjac as oj
from onnxjac.modes.verify import derivation, integers, proof, steps
from onnxjac.modes.verify.cases import CASES
from onnxjac.modes.verify.coverage import DOMAINS, operators
from onnxjac.modes.verify.definition import symbolic_matrix
from onnxjac.modes.verify.flow_cases import BODIES
from onnxjac.modes.verify.page import WIDTH
from onnxjac.modes.verify.proof import EQUATION, proof_of
from onnxjac.ops.registry import DECLARATIONS, find

OURS = [(op_type, domain) for domain in DOMAINS for op_type in operators(domain)]
RUNTIME = [key for key in DECLARATIONS if key[1] == "com.microsoft" and find(*key)]
SHORT = 110
"""Lines of a page without its verdicts."""

NO_INTEGERS = {"com.microsoft::NGramRepeatBlock"}
"""Operators without a case of 2 to 6 entries at integers: the page says so."""


@pytest.mark.sampled(0.12)
@pytest.mark.parametrize(("op_type", "domain"), [*OURS, *RUNTIME], ids=str)
def test_a_page_has_every_part_or_a_reason(op_type, domain):
    found = proof_of(op_type, domain)
    if found.stated:
        assert found.stated.sentence
        assert (found.outcome != "zero") or EQUATION in [s.title for s in found.sections()]
        return
    table = proof.differentiability(found).markdown()
    assert "`xs` may name" in table
    step = proof.from_equation(found, False).markdown()
    assert "∂" in step
    assert "/∂" in step or "No single formula" in step
    script = proof.by_torch(found).markdown()
    assert "torch.onnx.export" in script or "No script: " in script
    example = proof.in_integers(found).markdown()
    if found.title not in NO_INTEGERS:
        check_numbers(found, example)
    lines = "\n".join([table, step, example, script]).splitlines()
    assert len(lines) <= SHORT
    assert all(len(line) <= 120 for line in "\n".join([step, example]).splitlines())


def check_numbers(found, text):
    """What is printed: integers go in, and J v and Jᵀ u are those of differences."""
    words = " ".join(text.split())
    tangents = re.findall(r"tangent v = (\[.*?\]): J v = (\[.*?\])", words)
    cotangents = re.findall(r"cotangent u = (\[.*?\]): Jᵀ u = (\[.*?\])", words)
    assert len(tangents) == len(cotangents) == len(found.examples) > 0
    for example, pair, other in zip(found.examples, tangents, cotangents, strict=True):
        entries = sum(example.point[name].size for name in example.wrt)
        assert 2 <= entries <= 6
        for name in example.point:
            x = example.point[name]
            assert x.dtype.kind in "iub" or (x == np.round(x)).all(), name
            assert f"{name} = {proof.array_text(x)}" in words
        v, ours = map(numbers, pair)
        u, pulled = map(numbers, other)
        slopes = example.slopes
        scale = max(1, np.abs(slopes).max())
        np.testing.assert_allclose(ours, slopes @ v, rtol=2e-5, atol=2e-5 * scale)
        np.testing.assert_allclose(pulled, slopes.T @ u, rtol=2e-5, atol=2e-5 * scale)


def numbers(text):
    return np.array([float(x) for x in text.strip("[]").split(", ")])


def test_a_wrong_product_is_seen(monkeypatch):
    monkeypatch.setattr(integers.Example, "forward", property(lambda e: 2 * (e.matrix @ e.v)))
    found = proof_of("Softmax")
    with pytest.raises(AssertionError):
        check_numbers(found, proof.in_integers(found).markdown())


SOME = ("Softmax", "MatMul", "Transpose", "Reshape", "DepthToSpace", "TopK", "GatherElements",
        "ScatterND", "CumSum", "Conv", "ConvTranspose", "Pad", "DFT", "ReduceL2", "Tile", "Concat",
        "BatchNormalization", "LogSoftmax", "Einsum", "AveragePool", "Col2Im", "LRN")  # fmt: skip


@pytest.mark.parametrize("op_type", SOME)
def test_the_formula_has_the_entries_of_the_operator(op_type):
    """Every index is put into the formula, and its value compared with the matrix."""
    case = derivation.plainest(CASES[op_type, ""])
    check, outputs, blocks = derivation.opaque(case)
    names = steps.Names({**check.symbols, **outputs})
    held = {**names.tensors}
    for (_, i), J in blocks.items():
        truth = symbolic_matrix(J, check.op)
        terms = steps.entry_terms(J, names)
        out, columns = steps.index_labels(J.out_shape), steps.index_labels(J.in_shape, "′")
        places = itertools.product(np.ndindex(*J.out_shape), np.ndindex(*J.in_shape))
        for k, (p, q) in enumerate(places):
            at = {s: n for s, n in zip((*out, *columns), (*p, *q), strict=True) if s.free_symbols}
            value = sum((valued(t, at, held, names) for t in terms), sp.S.Zero)
            assert sp.simplify(value - truth[divmod(k, truth.cols)]) == 0, (i, p, q)


def valued(term, at, held, names):
    """Σ factor · [where] at indices that are numbers."""
    total = sp.S.Zero
    for run in itertools.product(*(range(n) for _, n in term.sums)):
        here = {**at, **dict(zip((s for s, _ in term.sums), run, strict=True))}
        if all(filled(w, here, held, names) == True for w in term.where):  # noqa: E712
            total += filled(term.factor, here, held, names)
    return total


def filled(expr, at, held, names):
    def entry(function):
        name, place = function.func.__name__, tuple(int(i) for i in function.args)
        array = np.squeeze(held[name].exprs if name in held else names.own[name])
        inside = all(0 <= i < n for i, n in zip(place, array.shape, strict=True))
        return sp.sympify(array[place]) if inside else sp.S.Zero

    made = sp.sympify(expr).subs(at)
    made = made.replace(lambda e: isinstance(e, sp.core.function.AppliedUndef), entry)
    return made.doit()


@pytest.mark.parametrize("name", BODIES)
def test_a_small_model_proves_what_no_single_node_shows(name):
    domain, _, op_type = name.rpartition("::")
    found = proof_of(op_type, domain)
    assert found.outcome == "exact"
    assert len(found.results[0].first) > 0


def test_softmax_is_a_diagonal_minus_a_product():
    text = oj.prove("Softmax").markdown()
    assert "δ_ii′ δ_jj′ y_ij - δ_jj′ y_ij*y_i′j" in text or "δ_jj′ y_ij - y_ij*y_ij′" in text


def test_every_form_has_the_same_sections():
    found = oj.prove("Softmax")
    titles = [section.title for section in found.sections() if section.title]
    assert re.findall("^## (.*)$", str(found), re.M) == titles
    html = found._repr_html_()
    assert all(title in html for title in titles)
    assert "δ_ii′" in html
    assert "Jᵀ u = " in html


def test_a_full_page_has_every_case():
    found = oj.prove("Softmax")
    short, full = found.markdown(), found.markdown(full=True)
    assert all(str(case) in full for case in found.cases)
    assert len(full.splitlines()) >= len(short.splitlines())
    assert max(map(len, short.partition("## By PyTorch")[0].splitlines())) <= WIDTH + 40
