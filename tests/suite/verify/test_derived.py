"""Which rules are derived: the table, its numbers on the page, and a derivation that is wrong."""

from collections import Counter

import pytest

from onnxjac import InputError, derive, prove
from onnxjac.modes.verify.cases import CASES
from onnxjac.modes.verify.derivation import derived_from
from onnxjac.ops.derive import find_derivation
from onnxjac.ops.indexed import INDEXED
from onnxjac.ops.registry import full_name
from onnxjac.ops.rules.elementwise import FORMULAS
from verify import derived


def test_a_wrong_text_is_refuted(monkeypatch):
    monkeypatch.setitem(derived.TEXTS, "LpNormalization", lambda case, x: f"y[a,b] = exp({x}[a,b])")
    assert derived.derivation("LpNormalization")[0] == derived.NOT


@pytest.mark.parametrize("text", [
    "y = prod(x[i], i)", "y[i] = max(x[i, j], j)", "y[2*i + t] = sum(x[i]*w[t], t)",
    "y[f, k] = sum(x[2*f + t]*cos(k*t), t)",
])  # fmt: skip
def test_derive_rejects_other_notation(text):
    """Products, maxima, indices of y that are computed, and indices as numbers."""
    with pytest.raises(InputError):
        derive("test::Refused", text)


def test_the_page_has_the_tables():
    rows = derived.find_rows()
    count = Counter(how for _, how, _ in rows)
    assert count[derived.FORMULA] + count[derived.INDICES] >= 90
    for name in {*FORMULAS, *INDEXED} - {"com.microsoft::Range"}:  # it has no case
        assert find_derivation(name.rpartition("::")[2], name.rpartition("::")[0]), name
    assert derived.section(rows) in derived.PAGE.read_text(encoding="utf-8")
    assert {name for name, how, _ in rows if how == derived.NOT} == derived.REASONS.keys()
    assert {name for name, how, _ in rows if how == derived.TESTED} == derived.MEASURED.keys()


def test_a_proof_says_what_its_rule_is_derived_from():
    """Where the rule is made of it, and for no other rule."""
    found = {full_name(*key) for key in CASES if derived_from(*key)}
    assert found == {full_name(*key) for key in CASES if derived.derivation(*key)[0]
                     in (derived.FORMULA, derived.INDICES)}  # fmt: skip
    pages = {name: " ".join(prove(name).markdown().split()) for name in ("Tanh", "Softmax", "Det")}
    assert "The rule is derived from tanh(x) by SymPy." in pages["Tanh"]
    assert "is derived from y[*r, k] = exp(x[*r, k])/sum" in pages["Softmax"]
    assert "is derived" not in pages["Det"]
