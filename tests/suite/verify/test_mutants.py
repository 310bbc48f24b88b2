"""A proof refutes every rule that was changed a little, in every case, or is not called a proof.

Each rule is scaled by 1 + 2⁻²⁰, loses each of its blocks, and has each of its comparisons moved by
1/64, in each case whose derivative that changes. Operators without a definition apart from their
rule are not proved: `test_unproved_operators_are_listed` has them.
"""

import dataclasses
from functools import partial
from itertools import count

import pytest
import sympy as sp

import onnxjac as oj
from house import ROOT
from onnxjac.modes.verify.cases import CASES
from onnxjac.modes.verify.check import AGREES, REFUTED, CaseCheck
from onnxjac.modes.verify.check import UNPROVED as NOTHING
from onnxjac.modes.verify.definition import block_slices
from onnxjac.modes.verify.proof import Proof
from onnxjac.modes.verify.transcriptions import TRANSCRIPTIONS
from onnxjac.ops.registry import DECLARATIONS, find, full_name
from onnxjac.ops.rules.elementwise import Elementwise
from onnxjac.ops.symbols import Tensor

TINY, STEP = 1 + 2.0**-20, 1 / 64

COMPARISONS = {"Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal", "Sign"}


def is_circular(key):
    """Whether an operator has no definition but the operators that it is composed of."""
    return find(*key).is_composed and full_name(*key) not in TRANSCRIPTIONS


RULED = [key for key in CASES if find(*key)]
PROVED = [(*key, k) for key in RULED for k in range(len(CASES[key]))
          if not is_circular(key) and not find(*key).is_composed]  # fmt: skip
UNPROVED = [key for key in RULED if is_circular(key)]


@pytest.fixture
def mutate(monkeypatch):
    """Replace the rule of an operator, which a composed one has too: its definition's blocks."""
    rules = {}

    def install(key, change):
        old = rules.setdefault(key, find(*key))  # no change is made to a changed rule

        def rule(op, node):
            return change(op, node, old.rule)

        monkeypatch.setitem(DECLARATIONS, key, dataclasses.replace(old, rule=rule))

    yield install
    monkeypatch.undo()


class Shifted:
    """What a rule computes with; the left side of comparison n is moved."""

    def __init__(self, op, n):
        self.op, self.n, self.seen = op, n, count()

    def __getattr__(self, name):
        call = getattr(self.op, name)
        return partial(self.compare, name, call) if name in COMPARISONS else call

    def compare(self, name, call, x, *rest, **attrs):
        moves = varies(x) and (name != "Equal" or all(map(varies, rest)))
        if moves and next(self.seen) == self.n:
            x = self.op.Add(x, STEP)
        return call(x, *rest, **attrs)


def varies(x):
    """Whether a tensor depends on symbols, other than an index that was rounded."""
    return isinstance(x, Tensor) and any(e.free_symbols for e in x.exprs.ravel())


def scaled(op, node, rule):
    return {slot: TINY * J for slot, J in rule(op, node).items()}


def without(slot):
    return lambda op, node, rule: {k: J for k, J in rule(op, node).items() if k != slot}


def refuted(case):
    """Whether a proof of the case is refuted, or ends in an error of the rule."""
    try:
        return any(v.outcome == REFUTED for v in CaseCheck(case).first())
    except oj.OnnxJacError:  # of the rule: 0 / 0, for example
        return True


def slots(case):
    """(output, input) of the blocks of a case whose true derivative is not zero."""
    check = CaseCheck(case)
    places = block_slices(check.reading.values, check.of, check.wrt)
    held = (pair for pair, (rows, columns) in places.items()
            if any(e != 0 for e in sp.simplify(check.truth[rows, columns])))  # fmt: skip
    return [(case.results.index(o), case.names.index(i)) for o, i in held]


@pytest.mark.sampled(0.015)
@pytest.mark.parametrize(("op_type", "domain", "k"), PROVED)
def test_a_scaled_rule_and_one_without_a_block_are_refuted(op_type, domain, k, mutate):
    key, case = (op_type, domain), CASES[op_type, domain][k]
    held = slots(case)
    if not held:
        pytest.skip("J = 0")
    rule = ("ScatterElements", "") if op_type == "Scatter" else key  # which replaces it
    mutate(rule, scaled)
    assert refuted(case)
    for slot in held:
        mutate(rule, without(slot))
        assert refuted(case), slot


EQUAL = "it chooses among equal forms by accuracy, and both were proved"
SMOOTH = {"Asinh": 1, "Atan": 1, "Sigmoid": 1, "Tanh": 1, "Gelu": 2, "LinearRegressor": 1,
          "LinearClassifier": 1, "SVMRegressor": 1, "SVMClassifier": 1}  # fmt: skip
MODES = {
    ("Pow", 0): "its sign counts at a base of 0 alone, where the slope is declared, not proved",
    ("GridSample", 12): "its sign counts between a pixel and its mirror image, where y is flat",
    **{(name, k): EQUAL for name, most in SMOOTH.items() for k in range(most)},
}
"""(operator, number of a comparison) -> why no case refutes a rule where it is moved."""


@pytest.mark.sampled(0.1)
@pytest.mark.parametrize("key", sorted({key[:2] for key in PROVED}), ids=str)
def test_a_rule_with_a_moved_condition_is_refuted(key, mutate, request):
    """Each comparison of entries that the rule makes, by some case of the operator."""
    cases = CASES[key][: None if request.config.getoption("--whole") else ENOUGH]
    for n in count():
        reached = [case for case in cases if compares(key, case, n, mutate)]
        if not reached:
            break
        mutate(key, lambda op, node, rule, n=n: rule(Shifted(op, n), node))
        assert any(map(refuted, reached)) != ((key[0], n) in MODES), n


ENOUGH = 6
"""The number of cases of an operator; with --whole, all of them."""


def compares(key, case, n, mutate):
    """Whether the rule of a case makes its comparison n."""
    met = []

    def watched(op, node, rule):
        shifted = Shifted(op, -1)
        blocks = rule(shifted, node)
        met.append(next(shifted.seen) > n)
        return blocks

    mutate(key, watched)
    _ = CaseCheck(case).matrix
    return any(met)


# -- the broken rules that once passed -------------------------------------------------------------


@pytest.mark.parametrize(("op_type", "wrong"), [
    ("Relu", "Piecewise((x, x > 1), (0, True))"),
    ("Relu", "Piecewise((x, x > 1/8), (0, True))"),
    ("HardSwish", "Piecewise((0, x <= -4), (x, x >= 4), (x*(x + 3)/6, True))"),
    ("Elu", "Piecewise((x, x > 1/2), (alpha*(exp(x) - 1), True))"),
])  # fmt: skip
def test_a_moved_kink_is_refuted(op_type, wrong, mutate):
    moved = Elementwise(wrong)
    mutate((op_type, ""), lambda op, node, rule: moved(op, node))
    proof = oj.prove(op_type)
    assert (proof.verdict, bool(proof), proof.outcome) == ("wrong", False, "refuted")


@pytest.mark.parametrize("factor", [1.0, 7.0])
def test_dropout_in_training_has_a_case(factor, mutate):
    mutate(("Dropout", ""), lambda op, node, rule: {
        slot: J if len(node.inputs) < 3 else factor * J for slot, J in rule(op, node).items()
    })  # fmt: skip
    assert bool(oj.prove("Dropout")) == (factor == 1)


# -- what is composed of other operators -----------------------------------------------------------

NOT_PROVED = {"MaxRoiPool", "RNN", "GRU", "LSTM"}
"""ONNX's operators without a definition apart from the composition that is differentiated."""


def test_the_page_counts_what_is_proved():
    page = " ".join((ROOT / "docs/results/findings.md").read_text("utf-8").split())
    proved = [key for key in CASES if key not in UNPROVED]
    runtime = sum(domain == "com.microsoft" for _, domain in proved)
    cases = [case for key in proved for case in CASES[key]]
    assert f"{len(proved) - runtime} operators of ONNX and {runtime} of `com.microsoft`" in page
    assert f"are proved in {len(cases)} cases" in page
    assert f"{sum(case.second for case in cases)} of the cases prove the second" in page
    assert f"have cases, {sum(map(len, CASES.values()))} in all" in page


def test_unproved_operators_are_listed():
    assert {name for name, domain in UNPROVED if not domain} == NOT_PROVED
    assert {domain for _, domain in UNPROVED} <= {"", "com.microsoft"}


@pytest.mark.sampled(0.15)
@pytest.mark.parametrize("key", UNPROVED, ids=str)
def test_compositions_are_not_called_proved(key):
    """Its values agree with ONNX Runtime's kernel, where that has one: no proof, and not true."""
    proof = Proof(*key, CASES[key][:2])
    assert (proof.verdict, bool(proof)) == ("not compared", False)
    assert {r.outcome for r in proof.results} <= {AGREES, NOTHING}
    assert "no proof" in proof.markdown()


@pytest.mark.parametrize("name", ["FastGelu", "BiasGelu", "FusedMatMul", "CDist"])
def test_a_composition_with_other_values_than_the_runtime_is_wrong(name, monkeypatch):
    key, old = (name, "com.microsoft"), find(name, "com.microsoft")

    def thrice(op, node):
        return tuple(op.Mul(3.0, y) for y in old.definition(op, node))

    monkeypatch.setitem(DECLARATIONS, key, dataclasses.replace(old, definition=thrice))
    proof = oj.prove(*key)
    assert proof.verdict == "wrong"
    assert "against the runtime's kernel" in proof.markdown()
