"""The vocabulary lists ONNX's operators, as every reading has them."""

import ast
import inspect

import numpy as np
import pytest

from onnxjac.jacobians.readings import Reading
from onnxjac.jacobians.vocabulary import Vocabulary
from onnxjac.ops import Recorder, numbers
from vocabulary import PAGE, schemas, written

OPERATORS = [schema.name for schema in schemas()]


def test_the_page_is_as_onnx_has_it():
    text = PAGE.read_text(encoding="utf-8")
    assert written(text) == text, "run `python -m tests.vocabulary`"


def test_all_operators_are_listed():
    listed = {name for name in vars(Vocabulary) if name[0].isupper()}
    assert listed == {*OPERATORS}
    assert len(listed) > 180


@pytest.mark.parametrize("op", [numbers, Recorder({"": 21})], ids=["numbers", "graphs"])
def test_a_reading_has_each_of_them(op):
    assert all(callable(getattr(op, name)) for name in OPERATORS)
    with pytest.raises(AttributeError):
        _ = op.matmul


def test_all_readings_have_the_questions_of_rules():
    asked = {name for name in vars(Vocabulary) if name[0].islower()}
    asked |= {*Vocabulary.__annotations__}
    assert asked == {"cast", "convolves_samples", "flow", "recurs", "scanned"}
    assert all(hasattr(Reading, name) for name in asked)


def test_a_call_by_its_signature():
    told = inspect.signature(Vocabulary.Concat)
    told.bind(None, np.ones(1), np.ones(1), axis=0)
    with pytest.raises(TypeError):
        told.bind(None, np.ones(1))
    assert inspect.signature(Vocabulary.LeakyRelu).parameters["alpha"].default == 0.01
    assert ast.parse(PAGE.read_text(encoding="utf-8"))
