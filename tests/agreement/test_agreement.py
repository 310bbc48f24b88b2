"""The differential test itself: its graphs, and that it finds planted faults."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import checker

from onnxjac.modes.linear.linearization import Linearization

from .catalogue import CATALOGUE
from .make import case
from .trial import examined, trial


def test_graphs_are_valid_and_the_same_every_time():
    for number in range(30):
        made = case(0, number)
        assert made.model == case(0, number).model
        checker.check_model(made.model)


def test_many_operators_and_opsets_are_drawn():
    made = [case(3, number) for number in range(400)]
    assert len({op for c in made for op in c.operators}) >= 140
    assert {c.model.opset_import[0].version for c in made} >= {*range(7, 27)}
    assert len(CATALOGUE) >= 140


@pytest.mark.parametrize("number", range(4))
def test_some_graphs_agree(number):
    verdict = trial(17, number)
    assert verdict.kind == "agreed", verdict.text


def test_a_broken_way_is_found_and_shrunk(monkeypatch):
    monkeypatch.setattr(
        Linearization, "toarray", lambda J, **_: 1.001 * (J @ np.eye(J.shape[1])), raising=False
    )
    found = trial(17, 0)
    assert found.kind == "finding"
    assert found.text.startswith("toarray: off by")
    assert found.text.count(" = ") < 8  # few nodes are left


def test_a_wrong_rule_is_found_by_the_judge(monkeypatch):
    product = Linearization._flat_product
    monkeypatch.setattr(
        Linearization, "_flat_product", lambda J, v, columns: 1.001 * product(J, v, columns)
    )
    made = case(17, 0)
    text = examined(made, 17, 0, 0).text
    assert text.startswith(("torch", "differences")), text
