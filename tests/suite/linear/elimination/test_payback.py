"""Payback: accumulated blocks pay off within the expected products; planning is cheap."""

from onnxjac.modes.linear.elimination.accumulation import Way
from onnxjac.modes.linear.elimination.plan import REPAID, plan

from .chains import perceptron

ROOM = 2**28


def after(dag, planned, rows):
    """The number of products that save the arithmetic of `rows` rows."""
    return rows * dag.flops / (dag.flops - planned.flops)


def test_a_plan_that_pays_late_waits_for_many_products():
    """40 outputs per sample cost as much as 40 products."""
    dag = perceptron((40, 512, 512, 40), batch=64, weights=False)
    planned = plan(dag, products=1000, memory=ROOM)
    assert REPAID < after(dag, planned, rows=40) < 100
    assert plan(dag, products=30, memory=ROOM) is dag
    assert plan(dag, products=100, memory=ROOM) is dag


def test_a_plan_that_pays_early_is_made_for_thirty():
    dag = perceptron((40, 512, 512, 10), batch=64, weights=False)
    planned = plan(dag, products=REPAID, memory=ROOM)
    assert after(dag, planned, rows=10) < REPAID


def test_no_operator_is_tried_where_not_even_a_free_one_would_pay(monkeypatch):
    tried, hollow = [], Way.hollow
    monkeypatch.setattr(Way, "hollow", lambda way: tried.append(way) or hollow(way))
    wide = perceptron((64, 64, 64, 64), batch=64)
    assert plan(wide, products=1, memory=ROOM) is wide
    assert not tried
    plan(wide, products=10**6, memory=ROOM)
    assert tried
