"""The sweep: every case that ONNX ships is differentiated and checked, operator by operator."""

import json
import re
from collections import Counter
from itertools import chain

import numpy as np
import pytest
from onnx import defs

from onnxjac.ops import DECLARATIONS, Declaration, find
from sweep.__main__ import chosen, main
from sweep.cases import DIFFERENTIABLE, KINDS, NONE, UNKNOWN, model_cases, node_cases, tag
from sweep.examine import WAYS, examine

OPERATORS = sorted({case.op_type for case in node_cases()})

PRODUCTS, SAMPLE = 16, 4
"""The number of cases per operator whose products are checked, and of those checked in every way;
with --whole, all of them.
"""


@pytest.mark.sampled(0.4)
@pytest.mark.parametrize("op_type", OPERATORS)
def test_every_case_of(op_type, request):
    """Products are right and adjoint for most cases; graphs and second derivatives for some."""
    cases = [case for case in node_cases() if case.op_type == op_type]
    every = request.config.getoption("--whole")
    order = np.random.default_rng(0).permutation(len(cases))
    products, some = (order if every else order[:count] for count in (PRODUCTS, SAMPLE))
    assert_all_pass(
        [examine(cases[k], WAYS if k in some else ("slope", "adjoint")) for k in products]
    )


@pytest.mark.parametrize("kind", KINDS)
def test_every_whole_model_of(kind):
    assert_all_pass([examine(case) for case in model_cases() if case.kind == kind])


def assert_all_pass(results):
    """No check fails, and every case with a path along tagged ports was checked."""
    assert [(r.name, r.failed, r.message) for r in results if r.failed] == []
    tagged = [r for r in results if r.kind == "node" and r.tag != NONE]
    assert [r.name for r in tagged if not r.checked] == []


def test_onnx_tags_as_many_cases_as_we_count():
    if defs.onnx_opset_version() == 28:
        tags = Counter(tag(case.model) for case in node_cases())
        assert tags == {DIFFERENTIABLE: 1051, UNKNOWN: 225, NONE: 608}


def test_a_wrong_rule_is_found(monkeypatch):
    """Tanh with a wrong derivative fails the slope check only."""
    right = find("Tanh")

    def wrong(op, node):
        return {key: 1.001 * J for key, J in right.rule(op, node).items()}

    monkeypatch.setitem(DECLARATIONS, ("Tanh", ""), Declaration("Tanh", "", wrong))
    case = next(case for case in node_cases() if case.op_type == "Tanh")
    assert examine(case).failed == ("slope",)


def test_shards_are_all_of_it_once():
    parts = (chosen(["Softmax"], (k, 3)) for k in (1, 2, 3))
    assert sorted(chain(*parts)) == chosen(["Softmax"], (1, 1))


def test_the_page_has_a_row_for_each_operator(capsys, tmp_path):
    assert main(["--op", "Floor", "Tanh", "--jobs", "1"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^\| Tanh \| 2 \| 2 \| 0 \| 0 \| 2 \|", shown, re.M)
    assert re.search(r"^\| Floor .* the result is piecewise constant \|$", shown, re.M)
    file = tmp_path / "page.md"
    assert main(["--op", "Floor", "Tanh", "--jobs", "1", "-o", str(file)]) == 0
    assert file.read_text("utf-8") == shown


def test_json_lists_every_case(capsys):
    assert main(["--op", "Tanh", "--jobs", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {case["op_type"] for case in found} == {"Tanh"}
    assert all(case["errors"]["slope"] < 1 and not case["failed"] for case in found)


def test_an_unknown_operator_is_refused():
    with pytest.raises(SystemExit, match="no case of Sofmax"):
        main(["--op", "Sofmax"])
