"""Which rules are derived: the table, its numbers on the page, and a derivation that is wrong."""

from collections import Counter
from pathlib import Path

import pytest

from onnxjac import InputError, derive, prove
from onnxjac.modes.verify.cases import CASES
from onnxjac.modes.verify.derivation import derived_from
from onnxjac.ops.registry import full_name
from onnxjac.ops.rules.elementwise import FORMULAS
from onnxjac.ops.rules.reductions import SUMS
from verify import derived


def test_a_wrong_text_is_refuted(monkeypatch):
    monkeypatch.setitem(derived.TEXTS, "Softmax", lambda case, x: f"y[a,b] = exp({x}[a,b])")
    assert derived.derivation("Softmax")[0] == derived.NOT


@pytest.mark.parametrize("text", [
    "y = prod(x[i], i)", "y[i] = max(x[i, j], j)", "y[2*i + t] = sum(x[i]*w[t], t)",
    "y[f, k] = sum(x[2*f + t]*cos(k*t), t)",
])  # fmt: skip
def test_derive_rejects_other_notation(text):
    """Products, maxima, indices of y that are computed, and indices as numbers."""
    with pytest.raises(InputError):
        derive("test::Refused", text)


def test_the_page_has_the_numbers():
    rows = [(full_name(*key), *derived.derivation(*key)) for key in CASES]
    count = Counter(how for _, how, _ in rows)
    assert count[derived.FORMULA] == len(FORMULAS) + len(SUMS)
    page = (Path(__file__).resolve().parents[3] / "docs/results/findings.md").read_text()
    assert f"Of the {len(rows)} operators" in page
    for how, number in count.items():
        assert f"| {how} | {number} |" in page
    for name, how, why in rows:
        if how == derived.NOT:
            assert why, f"{name}: no reason in BY_HAND"
            assert f"| {name} | {why} |" in page
    assert {name for name, how, _ in rows if how == derived.NOT} == derived.REASONS.keys()


def test_a_proof_says_what_its_rule_is_derived_from():
    """Where the rule is made of it, and for no other rule."""
    found = {key for key in CASES if derived_from(*key)}
    assert found == {(name, "") for name in {*FORMULAS, *SUMS}}
    assert "The rule is derived from tanh(x) by SymPy." in prove("Tanh").markdown()
    assert "is derived" not in prove("Softmax").markdown()
