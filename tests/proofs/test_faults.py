"""A rule with a fault has no proof: the checks of `prove` are not empty."""

import dataclasses

import pytest

from onnxjac.jacobians import Embed, Permutation
from onnxjac.jacobians.errors import OnnxJacError
from onnxjac.modes.proofs.case import Case
from onnxjac.modes.proofs.cases.table import at, ints
from onnxjac.modes.proofs.check import Check
from onnxjac.modes.proofs.identity import EXACT, REFUTED
from onnxjac.ops.registry import DECLARATIONS, find


@pytest.fixture
def replace(monkeypatch):
    """Give an operator another rule for the time of a test: new(old rule, op, node)."""

    def install(op_type, new):
        old = find(op_type)
        rule = lambda op, node: new(old.rule, op, node)  # noqa: E731
        monkeypatch.setitem(DECLARATIONS, (op_type, ""), dataclasses.replace(old, rule=rule))

    return install


def outcomes(case):
    return {v.outcome for v in Check(case).first()}


def wrong_sign(rule, op, node):
    return {slot: -J for slot, J in rule(op, node).items()}


def wrong_axis(rule, op, node):
    """The axes of a square matrix stay as they are."""
    return {(0, 0): Permutation((0, 1), node.x_shape, node.dtype)}


def missing_broadcast(rule, op, node):
    """The second operand reaches the first row alone."""
    rows, columns = node.y_shape
    blocks = dict(rule(op, node))
    blocks[0, 1] = Embed(((0, 1, 1), (0, 1, columns)), (rows, columns), node.dtype)
    return blocks


FAULTS = [
    (wrong_sign, Case("Tanh", (at(2),))),
    (wrong_sign, Case("MatMul", (at(2, 2), at(2, 1, seed=1)))),
    (wrong_sign, Case("ReduceMax", (at(2, 2), ints(1)))),
    (wrong_axis, Case("Transpose", (at(2, 2),))),
    (missing_broadcast, Case("Add", (at(2, 2), at(1, 2, seed=1)))),
]


@pytest.mark.parametrize(("fault", "case"), FAULTS, ids=lambda x: getattr(x, "__name__", str(x)))
def test_a_fault_is_refuted(replace, fault, case):
    assert outcomes(case) == {EXACT}
    replace(case.op_type, fault)
    assert REFUTED in outcomes(case)


def test_a_sum_over_the_wrong_axis_is_refuted(replace):
    """Softmax normalised along the other axis."""

    def turned(rule, op, node):
        step = dataclasses.replace(node.step, attrs={**node.step.attrs, "axis": 0})
        return rule(op, type(node)(step, node.inputs, node.outputs))

    case = Case("Softmax", (at(2, 2),), {"axis": 1})
    assert outcomes(case) == {EXACT}
    replace("Softmax", turned)
    assert REFUTED in outcomes(case)


def test_a_forgotten_broadcast_changes_the_shape(replace):
    """An operator between other shapes does not even reach the comparison."""
    replace("Add", lambda rule, op, node: {(0, 1): Permutation((0,), (2,), node.dtype)})
    with pytest.raises(OnnxJacError, match="between shapes"):
        outcomes(Case("Add", (at(2, 2), at(2, seed=1))))


def test_a_forgotten_block_is_refuted(replace):
    """An absent key is a claim that the derivative is zero."""
    replace("Mul", lambda rule, op, node: {(0, 0): rule(op, node)[0, 0]})
    assert REFUTED in outcomes(Case("Mul", (at(2), at(2, seed=1))))


def test_a_wrong_vjp_is_refuted_by_the_second_derivative(replace, monkeypatch):
    """A factor of the first derivative that is held constant."""

    def frozen(rule, op, node):
        return {slot: J for slot, J in rule(op, node).items() if slot == (0, 0)}

    case = Case("Mul", (at(2), at(2, seed=1)))
    check = Check(case)
    assert {v.outcome for v in check.first()} == {EXACT}
    replace("Mul", frozen)
    assert REFUTED in {v.outcome for v in check.second()}
