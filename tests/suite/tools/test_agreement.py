"""The differential test itself: its graphs, and that it finds planted faults."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import checker

from agreement import contrib
from agreement.catalogue import CATALOGUE
from agreement.graph import contained
from agreement.make import case
from agreement.trial import examined, trial
from onnxjac.modes.linear.linearization import Linearization


def test_graphs_are_valid_and_the_same_every_time():
    for number in range(30):
        made = case(0, number)
        assert made.model == case(0, number).model
        checker.check_model(made.model)


@pytest.fixture(scope="module")
def drawn():
    return [case(3, number) for number in range(400)]


def test_many_operators_and_opsets_are_drawn(drawn):
    made = drawn
    assert len({op for c in made for op in c.operators}) >= 140
    assert {c.model.opset_import[0].version for c in made} >= {*range(7, 27)}
    assert len(CATALOGUE) >= 140


def depth(nodes, functions):
    """How many bodies, and functions that are called, stand in one another."""
    held = [depth(functions[n.op_type], functions) for n in nodes if n.op_type in functions]
    held += [depth(a.g.node, functions) for n in nodes for a in n.attribute if a.HasField("g")]
    return 1 + max(held, default=-1)


def test_half_of_the_graphs_are_of_newer_kinds(drawn):
    newer = [c for c in drawn if "newer" in c.traits]
    assert 160 <= len(newer) <= 240
    for trait in ("long", "drawn", "half", "narrow"):
        assert sum(trait in c.traits for c in newer) >= 10, trait
    deep = [depth(c.model.graph.node, {f.name: f.node for f in c.model.functions}) for c in newer]
    assert sum(d >= 4 for d in deep) >= 20  # three in a function
    assert sum(bool({*c.of} & {*c.wrt}) for c in newer) >= 10
    assert sum(any(w not in c.point and w[0] == "t" for w in c.wrt) for c in newer) >= 40
    nodes = [n for c in newer for n in contained(c.model.graph.node)]
    assert len({n.op_type for n in nodes if n.domain == contrib.DOMAIN}) >= 10
    assert {"SequenceMap", "Optional", "LSTM"} <= {n.op_type for n in nodes}
    assert sum("" in n.output for n in nodes) >= 10


@pytest.mark.parametrize("number", range(4))
def test_some_graphs_agree(number):
    verdict = trial(17, number)
    assert verdict.kind == "agreed", verdict.text


@pytest.mark.peers
@pytest.mark.parametrize("number", [1, 3])
def test_some_graphs_agree_by_xla(number):
    pytest.importorskip("jax")
    verdict = trial(17, number, jax=True)
    assert (verdict.kind, verdict.text) == ("agreed", "")
    assert verdict.compared > 8


@pytest.mark.peers
def test_a_wrong_product_by_xla_is_found(inside):
    pytest.importorskip("jax")
    from onnxjac.modes.model.programs.jax import Program

    inside.change_products(Program, lambda product, *given: 1.001 * product(*given))
    assert examined(case(17, 1), 17, 1, 0, jax=True).text.startswith("XLA: J")


def test_a_broken_way_is_found_and_shrunk(monkeypatch):
    monkeypatch.setattr(
        Linearization, "toarray", lambda J, **_: 1.001 * (J @ np.eye(J.shape[1])), raising=False
    )
    found = trial(17, 0)
    assert found.kind == "finding"
    assert found.text.startswith("toarray: off by")
    assert found.text.count(" = ") < 8  # few nodes are left


def test_a_wrong_rule_is_found_by_the_judge(inside):
    inside.change_products(Linearization, lambda product, *given: 1.001 * product(*given))
    made = case(17, 0)
    text = examined(made, 17, 0, 0).text
    assert text.startswith(("torch", "differences")), text
