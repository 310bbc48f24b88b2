"""Where derivatives do not exist: documented kinks against the branches of definitions."""

from itertools import islice

import numpy as np
import pytest
import sympy as sp

from onnxjac.modes.linearize import linearize
from onnxjac.modes.verify.case import Case, positive, signed
from onnxjac.modes.verify.cases import CASES
from onnxjac.ops.conventions import SECOND
from onnxjac.ops.formulas import NAMES, parse
from onnxjac.ops.kinks import kink_set, kinks, kinks_of
from onnxjac.ops.node import schema_defaults
from onnxjac.ops.registry import DECLARATIONS, find
from onnxjac.ops.rules.elementwise import FORMULAS
from verify.crossing import crossings, order_at_origin

TIE, ZERO, NORM, LINE = "tie", "zero", "norm", "line"

PHRASES = {
    TIE: ("are equal", "min or max"), ZERO: ("an entry is",), NORM: ("norm is 0", "variance is 0"),
    LINE: ("on a line", "activations", "attain"),
}  # fmt: skip
"""The phrases that describe each kind of boundary."""

ENOUGH = 12
"""The number of cases tested per operator with kinks; without kinks, all are."""

RELU = ["Relu"]
FURTHER = [
    Case("LpPool", (signed(1, 1, 3),), {"kernel_shape": [2], "p": 1}),
    Case("GlobalLpPool", (signed(1, 1, 3),), {"p": 1}),
    Case("CDist", (signed(1, 2), np.zeros((1, 2))), {"metric": "euclidean"},
         domain="com.microsoft"),
]
RECURRENT = {"RNN": (1, 1, 1), "GRU": (3, 2, 2), "LSTM": (4, 3, 3)}

NOT_DECIDED = {
    "DynamicQuantizeLinear": "its results are rounded: no case",
    "Range": "how many entries it has is read from the point, not from symbols",
    "MoEGroupRouter": "which experts it takes is decided by indices, and no entry is counted",
    **dict.fromkeys(("RNN", "GRU", "LSTM"), "its activations decide: with Relu below"),
}
"""Operators whose kinks are not searched for in their cases."""

DECIDED = [key for key in CASES if key[0] not in FORMULAS and key[0] not in NOT_DECIDED]


def kind_of(boundary):
    """The kind of boundary: a tie of two entries, a zero entry, or another surface."""
    if boundary.is_Symbol:
        return ZERO
    terms = boundary.as_coefficients_dict()
    return TIE if sorted(terms.values()) == [-1, 1] and all(t.is_Symbol for t in terms) else LINE


def found_in(case):
    """(kind, order) of the kinks of a case: from a few crossings if kinks are documented."""
    first = islice(crossings(case), 4 if kink_set(case.op_type, case.domain) else None)
    met = {(kind_of(c.boundary), c.order) for c in first if c.order is not None}
    if not met:
        orders = {order_at_origin(case, name) for name in case.floating(case.wrt)}
        met = {(NORM, k) for k in orders if k is not None}
    return met


@pytest.mark.sampled(0.3)
@pytest.mark.parametrize("key", DECIDED, ids=str)
def test_kinks_are_the_branches_of_the_definition(key):
    """Without an entry, no branch affects value or derivatives; with one, the kinds match."""
    text = kink_set(*key)
    cases = [*CASES[key][: ENOUGH if text else None], *(c for c in FURTHER if c.op_type == key[0])]
    found = set().union(*map(found_in, cases))
    kinds = {kind for kind, _ in found}
    kinds = {LINE} if LINE in kinds else kinds  # one of which may go through 0
    assert kinds == {k for k, said in PHRASES.items() if any(map(text.count, said))}
    assert bool(found) == bool(text)
    assert (min((order for _, order in found), default=None) == 2) == (SECOND in text)


def meets(kink, values):
    """Whether a point, given by the values of inputs and attributes, lies on the kink."""
    here = kink.where.subs(values)
    return bool(here.is_integer if kink.whole else here == 0)


@pytest.mark.parametrize("op_type", FORMULAS)
def test_formulas_have_their_kinks_where_the_definition_has_them(op_type):
    """The kinks crossed are those of the formula, with their orders, and none is missing."""
    met = set()
    for case in CASES[op_type, ""]:
        held = attributes(case)
        for crossing in crossings(case):
            values = held | operands(crossing)
            here = {k for k in kinks(op_type) if meets(k, values)}
            if crossing.order is None:  # 0 is an integer, but x mod y is continuous there
                assert op_type == "Mod" or not here
                continue
            assert here
            assert {k.order for k in here} == {crossing.order} or excepted(here, values)
            met |= here
    assert met == set(kinks(op_type))


def excepted(here, values):
    """Whether the attributes are exceptions, for which the first derivatives agree."""
    return any(values[s] == value for k in here for s, value in k.unless)


def attributes(case):
    """Symbol -> value, with the defaults."""
    given = schema_defaults(case.op_type, "", case.version) | dict(case.attrs)
    return {NAMES[k]: sp.Rational(str(np.float32(v))) for k, v in given.items() if k in NAMES}


def operands(crossing):
    """The values of x and y on the boundary."""
    symbols = sorted(crossing.boundary.free_symbols, key=str)
    return {NAMES[n]: crossing.at[s] for n, s in zip("xy", symbols, strict=False)}


@pytest.mark.parametrize("op_type", RECURRENT)
def test_the_kinks_of_activations_agree_with_the_operator(op_type):
    gates, activations, outputs = RECURRENT[op_type]
    weights = (positive(1, gates, 1), signed(1, gates, 1, seed=1))
    attrs = {"hidden_size": 1, "activations": RELU * activations}
    case = Case(op_type, (signed(1, 1, 1), *weights), attrs, outputs=min(outputs, 2))
    assert {c.order for c in crossings(case)} & {0, 1}
    assert "activations" in kink_set(op_type)


@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax", "Attention"])
def test_decisions_that_change_nothing_are_seen_as_such(op_type):
    """The maximum is subtracted and added again."""
    met = [c for case in CASES[op_type, ""] for c in crossings(case)]
    assert met
    assert {c.order for c in met} == {None}


def test_where_the_variance_is_0_the_first_derivative_agrees_with_a_difference():
    """There y = (x - μ) / ε."""
    x = np.array([[1.0, 1.0, 1.0], [1.0, 2.0, 4.0]])
    case = Case("MeanVarianceNormalization", (x,), {"axes": [1]})
    J = linearize(case.model, case.point, engine="numpy").toarray()
    np.testing.assert_allclose(J[:3, :3], 1e9 * (np.eye(3) - 1 / 3), rtol=1e-6)
    alone = Case("MeanVarianceNormalization", (x[1:],), {"axes": [1]})
    plain = linearize(alone.model, alone.point, engine="numpy").toarray()
    np.testing.assert_allclose(J[3:, 3:], plain, rtol=1e-12)


def test_every_entry_belongs_to_an_operator_that_is_checked():
    kinked = {key for key, said in DECLARATIONS.items() if said.kinks and said.kinks.where}
    jumps = {key for key in kinked if (found := find(*key)) and found.zero}
    names = {name for name, _ in kinked - jumps if name not in NOT_DECIDED}
    assert names <= {name for name, _ in DECIDED}
    assert not {name for name, domain in kinked if not domain} & FORMULAS.keys()


def test_the_kinks_of_an_operator_are_told_in_words():
    assert kink_set("Shrink") == "x = -lambd or x = lambd"
    assert kink_set("Elu") == "x = 0, unless alpha = 1"
    assert kink_set("Softsign") == "x = 0" + SECOND
    assert kink_set("Gelu") == ""


def test_one_sided_limits_tell_the_order_of_a_kink():
    """A jump, a bend, a change of curvature, and pieces that are the same function."""
    orders = {"1, x > 0": 0, "x, x > 0": 1, "x**2, x > 0": 2, "0, x > 0": None}
    for piece, order in orders.items():
        found = [k.order for k in kinks_of(parse(f"Piecewise(({piece}), (0, True))"))]
        assert found == ([] if order is None else [order])
