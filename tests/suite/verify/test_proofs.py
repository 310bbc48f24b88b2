"""Every rule is the derivative of its definition, by SymPy; a wrong one is refuted."""

import ast
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import onnxjac
from onnxjac.modes.verify import transcriptions
from onnxjac.modes.verify.cases import CASES
from onnxjac.modes.verify.check import EXACT, CaseCheck
from onnxjac.modes.verify.definition import (
    BODY,
    FORMULA,
    REFERENCE,
    STATED,
    TRANSCRIPTION,
    WRITTEN,
    Specification,
)
from onnxjac.ops.numbers.pointwise import UFUNCS
from onnxjac.ops.numbers.table import KERNELS
from onnxjac.ops.registry import DECLARATIONS, find
from onnxjac.ops.symbols.pointwise import ACTIVATIONS

EVERY = [case for cases in CASES.values() for case in cases]

WITHOUT_A_PROOF = {"Gradient", "Adagrad", "Adam", "Momentum"}
"""Rules of operators that are replaced by plain ones, which have proofs."""


@pytest.mark.sampled(0.35)
@pytest.mark.parametrize("case", EVERY, ids=str)
def test_the_rule_is_the_derivative(case):
    check = CaseCheck(case)
    found = check.first()
    assert found
    assert {v.outcome for v in found} == {EXACT}, [str(v) for v in found if v.outcome != EXACT]


@pytest.mark.sampled(0.2)
@pytest.mark.parametrize("case", [case for case in EVERY if case.second], ids=str)
def test_the_recorded_vjp_has_the_second_derivative(case):
    found = CaseCheck(case).second()
    assert {v.outcome for v in found} <= {EXACT}, list(map(str, found))


@pytest.mark.parametrize("name", CASES, ids=str)
def test_every_rule_has_a_second_derivative(name):
    """At least one small case of every rule covers the second derivative."""
    assert any(case.second for case in CASES[name])


@pytest.mark.parametrize("case", EVERY, ids=str)
def test_the_definition_is_the_operator(case):
    """At the point, the expressions have the values that the model computes."""
    if find(case.op_type, case.domain) and find(case.op_type, case.domain).random and case.attrs:
        pytest.skip("every engine draws other numbers")
    check = CaseCheck(case)
    with engine_of(case) as made:
        for name in check.of:
            found = check.definition.outputs[name].values
            np.testing.assert_allclose(found, made[name], rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("case", EVERY, ids=str)
def test_no_definition_runs_a_kernel_of_the_numbers(case, monkeypatch):
    """Over expressions; integer computations are left to the numbers reading."""
    sources = {BODY, FORMULA, REFERENCE, STATED, TRANSCRIPTION, WRITTEN}
    for name in KERNELS.keys() - UFUNCS.keys():
        monkeypatch.setitem(KERNELS, name, refusing(KERNELS[name]))
    assert CaseCheck(case).definition.source in sources


def refusing(kernel):
    """The kernel, which refuses arrays of objects."""

    def call(*inputs, **attrs):
        assert not any(isinstance(x, np.ndarray) and x.dtype.hasobject for x in inputs)
        return kernel(*inputs, **attrs)

    return call


def test_the_specification_has_no_kernel_of_the_numbers():
    """For every operator, whether in a case or not."""
    spec = Specification({})
    own = {id(kernel) for name, kernel in KERNELS.items() if name not in UFUNCS}
    assert all(id(spec.kernel(name)) not in own for name in KERNELS)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_a_declared_formula_is_not_compared_with_itself(name):
    """What symbols compute by the formula of the rule is proved against ONNX's function body."""
    assert {CaseCheck(case).definition.source for case in CASES[name, ""]} == {BODY}


FOLDER = Path(transcriptions.__file__).parent
TRANSCRIBED = [FOLDER / name for name in ("transcriptions.py", "cases.py", "contrib_cases.py")]


@pytest.mark.parametrize("path", TRANSCRIBED, ids=lambda path: path.stem)
def test_a_transcription_imports_nothing_that_it_judges(path):
    """No kernel of the numbers reading, no rule, no operator."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    origins = {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert not {o for o in origins if {"numbers", "rules", "jacobians"} & set(o.split("."))}


@contextmanager
def engine_of(case):
    """The outputs of the model, by ONNX Runtime where it can."""
    try:
        point = {k: x.astype(case.model.inputs[k].dtype) for k, x in case.point.items()}
        yield case.model.run(point)
    except onnxjac.OnnxJacError as error:
        pytest.skip(str(error).splitlines()[0])


def test_nearly_every_rule_has_a_proof():
    """At least 95 % of ONNX's operators with a rule are among the cases."""
    ruled = {
        (d.op_type, d.domain) for d in DECLARATIONS.values()
        if d.zero is None and d.domain in ("", "ai.onnx.ml") and find(d.op_type, d.domain)
    }  # fmt: skip
    missing = {name for name, _ in ruled - CASES.keys()}
    assert missing <= WITHOUT_A_PROOF
    assert len(missing) <= 0.05 * len(ruled)
