"""The benchmarks of defaults and of payback run, and their verdicts match their numbers."""

import doctest
import gc
from dataclasses import replace

import pytest

from benchmarks import defaults, payback
from benchmarks.defaults import NODE, Cost, Pauses
from benchmarks.workloads import find


def test_python_may_take_so_long_for_a_node_and_no_longer():
    at_the_bound = Cost("relinearize", 2 * 0.01 + 200 * NODE, 0.01, 200)
    assert at_the_bound.runs == pytest.approx(at_the_bound.bound)
    longer, shorter = (replace(at_the_bound, seconds=s) for s in (0.031, 0.029))
    assert [cost.cells[-1] for cost in (longer, shorter)] == ["not met", "met"]


def test_a_recurrent_layer_counts_as_its_turns():
    pytest.importorskip("onnxruntime")
    starts, found = defaults.costs("lstm", repeats=1)
    assert [cost.task for cost in found] == list(defaults.RUNS)
    assert found[0].nodes > 32 * 10
    assert min(*starts, *(cost.runs for cost in found)) > 0


def test_the_longest_product_is_compared_with_those_before_it():
    (*_, met), _ = defaults.rows_longest("tiny", 5)
    assert met in ("met", "not met")


def test_collecting_garbage_is_no_part_of_a_product():
    with Pauses() as pauses:
        seconds = pauses.without(gc.collect)
    assert 0 < seconds < pauses.longest == pauses.total


def test_stages_of_payback_cost_time():
    stages = dict(payback.stages(find("tiny")))
    assert list(stages) == ["eliminate", "plan", "compile"]
    assert all(found.spent > 0 for found in stages.values() if found is not None)
    assert None not in (stages["eliminate"], stages["compile"])


@pytest.mark.parametrize(("found", "verdict"), [
    (None, ("declined", "met")),
    (payback.Repayment(0.3, 0.01, 0.02), ("30", "met")),
    (payback.Repayment(0.4, 0.01, 0.02), ("40", "not met")),
    (payback.Repayment(0.4, 0.02, 0.01), ("inf", "not met")),
])  # fmt: skip
def test_when_a_preparation_pays(found, verdict):
    assert payback.row("w", "plan", found)[-2:] == verdict


def test_examples_of_the_defaults_run():
    failed, tried = doctest.testmod(defaults)
    assert tried
    assert not failed
