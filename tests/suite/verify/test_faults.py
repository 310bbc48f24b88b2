"""A faulty rule has no proof: the checks of `prove` are effective."""

import dataclasses
from functools import partial

import numpy as np
import pytest

from onnxjac.jacobians import Embed, Permutation
from onnxjac.jacobians.errors import OnnxJacError
from onnxjac.modes.verify.case import Case, ints, numbers, signed
from onnxjac.modes.verify.check import EXACT, REFUTED, CaseCheck
from onnxjac.ops.numbers import numbers as plain
from onnxjac.ops.numbers.table import KERNELS
from onnxjac.ops.numbers.windows import Windows
from onnxjac.ops.registry import DECLARATIONS, find


@pytest.fixture
def replace(monkeypatch):
    """Replace the rule of an operator during a test: new(old rule, op, node)."""

    def install(op_type, new):
        old = find(op_type)
        rule = lambda op, node: new(old.rule, op, node)  # noqa: E731
        monkeypatch.setitem(DECLARATIONS, (op_type, ""), dataclasses.replace(old, rule=rule))

    return install


def outcomes(case):
    return {v.outcome for v in CaseCheck(case).first()}


def wrong_sign(rule, op, node):
    return {slot: -J for slot, J in rule(op, node).items()}


def wrong_axis(rule, op, node):
    """The axes of a square matrix are not transposed."""
    return {(0, 0): Permutation((0, 1), node.x_shape, node.dtype)}


def missing_broadcast(rule, op, node):
    """The second operand is added to the first row only."""
    rows, columns = node.y_shape
    blocks = dict(rule(op, node))
    blocks[0, 1] = Embed(((0, 1, 1), (0, 1, columns)), (rows, columns), node.dtype)
    return blocks


FAULTS = [
    (wrong_sign, Case("Tanh", (signed(2),))),
    (wrong_sign, Case("MatMul", (signed(2, 2), signed(2, 1, seed=1)))),
    (wrong_sign, Case("ReduceMax", (signed(2, 2), ints(1)))),
    (wrong_axis, Case("Transpose", (signed(2, 2),))),
    (missing_broadcast, Case("Add", (signed(2, 2), signed(1, 2, seed=1)))),
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

    case = Case("Softmax", (signed(2, 2),), {"axis": 1})
    assert outcomes(case) == {EXACT}
    replace("Softmax", turned)
    assert REFUTED in outcomes(case)


def test_a_forgotten_broadcast_changes_the_shape(replace):
    """An operator with wrong shapes is rejected before the comparison."""
    replace("Add", lambda rule, op, node: {(0, 1): Permutation((0,), (2,), node.dtype)})
    with pytest.raises(OnnxJacError, match="between shapes"):
        outcomes(Case("Add", (signed(2, 2), signed(2, seed=1))))


def test_a_forgotten_block_is_refuted(replace):
    """An absent key claims that the derivative is zero."""
    replace("Mul", lambda rule, op, node: {(0, 0): rule(op, node)[0, 0]})
    assert REFUTED in outcomes(Case("Mul", (signed(2), signed(2, seed=1))))


def test_a_wrong_vjp_is_refuted_by_the_second_derivative(replace, monkeypatch):
    """A factor of the first derivative is held constant."""

    def frozen(rule, op, node):
        return {slot: J for slot, J in rule(op, node).items() if slot == (0, 0)}

    case = Case("Mul", (signed(2), signed(2, seed=1)))
    check = CaseCheck(case)
    assert {v.outcome for v in check.first()} == {EXACT}
    replace("Mul", frozen)
    assert REFUTED in {v.outcome for v in check.second()}


# -- faults in the kernels of the numbers reading, which the rules' products call --------------


def turned(kernel, x, w, *others, **attrs):
    """The kernel flipped: a convolution instead of a correlation."""
    return kernel(x, w[..., ::-1], *others, **attrs)


def swapped(kernel, *inputs, pads=(), **attrs):
    """The padding at the beginning and at the end swapped."""
    return kernel(*inputs, pads=pads[::-1], **attrs)


def shifted(kernel, x, index, *others, **attrs):
    """Every index one too far."""
    return kernel(x, (index + 1) % x.shape[attrs.get("axis", 0)], *others, **attrs)


def reversed_(kernel, *inputs, **attrs):
    """The entries of the last axis in reverse order."""
    return kernel(*inputs, **attrs)[..., ::-1]


def upside_down(kernel, *inputs, **attrs):
    """The entries of the first axis in reverse order."""
    return kernel(*inputs, **attrs)[::-1]


SHIFTED = {"kernel_shape": [2], "pads": [1, 0]}
BOTH = "Conv ConvTranspose"
"""With the fault in both, one is still the adjoint of the other."""
KERNEL_FAULTS = [
    (BOTH, turned, Case("Conv", (signed(1, 1, 3), signed(1, 1, 2, seed=1)), wrt=(0,))),
    (BOTH, turned, Case("ConvTranspose", (signed(1, 1, 2), signed(1, 1, 2, seed=1)), wrt=(0,))),
    ("Conv", turned, Case("Conv", (signed(1, 1, 3), signed(1, 1, 2, seed=1)))),
    ("Conv", swapped, Case("Conv", (signed(1, 1, 3), signed(1, 1, 2, seed=1)), {"pads": [1, 0]})),
    ("Conv", swapped, Case("AveragePool", (signed(1, 1, 3),), SHIFTED)),
    ("Conv", swapped, Case("LpPool", (signed(1, 1, 3),), SHIFTED)),
    ("ConvTranspose", turned, Case("ConvTranspose", (signed(1, 1, 2), signed(1, 1, 2, seed=1)))),
    ("ConvTranspose", turned, Case("Col2Im", (signed(1, 2, 2), ints(3), ints(2)))),
    ("MaxPool", swapped, Case("MaxPool", (numbers(1, 3, 2).reshape(1, 1, 3),), SHIFTED)),
    ("Gather", shifted, Case("Gather", (signed(3), ints(2, 0)))),
    ("Gather", shifted, Case(
        "MaxRoiPool", (signed(1, 1, 2, 2), numbers(0, 0, 0, 1, 1).reshape(1, 5)),
        {"pooled_shape": [1, 2]}, wrt=(0,))),
    ("ScatterND", upside_down, Case("ScatterND", (signed(3), ints([2], [0]), signed(2, seed=1)))),
    ("ScatterND", upside_down, Case("MaxUnpool", (signed(1, 1, 1), ints(0).reshape(1, 1, 1)),
                                    {"kernel_shape": [2]})),
    ("Transpose", reversed_, Case("DepthToSpace", (signed(1, 4, 1, 2),), {"blocksize": 2})),
    ("Expand", reversed_, Case("Tile", (signed(2, 2), ints(1, 2)))),
    ("Concat", reversed_, Case("Concat", (signed(1, 2), signed(1, 1, seed=1)), {"axis": -1})),
    ("CumSum", reversed_, Case("CumSum", (signed(2, 3), np.array(1)))),
    ("ReduceSum", reversed_, Case("ReduceMean", (signed(2, 2), ints(0)))),
]  # fmt: skip


@pytest.mark.parametrize(
    ("names", "fault", "case"), KERNEL_FAULTS, ids=lambda x: getattr(x, "__name__", str(x))
)
def test_a_fault_in_a_kernel_is_refuted(monkeypatch, names, fault, case):
    """The definition does not run the kernel, so the two differ."""
    assert outcomes(case) == {EXACT}
    for name in names.split():
        wrong = partial(fault, KERNELS[name])
        monkeypatch.setitem(KERNELS, name, wrong)
        monkeypatch.setitem(vars(plain), name, wrong)
    assert REFUTED in outcomes(case)


STRIDED = {"kernel_shape": [2], "strides": [2]}


@pytest.mark.parametrize("case", [
    Case("Conv", (signed(1, 2, 5), signed(2, 1, 2, seed=1)), {"strides": [2], "group": 2}),
    Case("ConvTranspose", (signed(1, 1, 3), signed(1, 1, 2, seed=1)), {"strides": [2]}),
    Case("AveragePool", (signed(1, 1, 4),), STRIDED),
    Case("MaxPool", (numbers(1, 2, 4, 3).reshape(1, 1, 4),), STRIDED),
], ids=str)  # fmt: skip
def test_a_wrong_stride_is_refuted(monkeypatch, case):
    """Windows with stride 1, whatever the declared stride."""
    assert outcomes(case) == {EXACT}

    def reach(self, axis, tap):
        first = tap * self.dilations[axis]
        return slice(first, first + self.count[axis])

    monkeypatch.setattr(Windows, "reach", reach)
    assert REFUTED in outcomes(case)
