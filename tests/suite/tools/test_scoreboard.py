"""The scoreboard: ours are right, errors of others are found, and a planted error of ours too."""

from dataclasses import replace

import pytest

from scoreboard.page import every_row, page, reports, spans
from scoreboard.points import OPERATORS, SPECIAL, places
from scoreboard.rows import Row, is_near, numbers, rows_of, sweep
from scoreboard.ways import LIBRARIES, ORDER, OWN, Way

EXACT = Row("Det", "ordinary", ("Det(2×2)", "u = [1.0]"), OWN.name, "jet", 2, 4.0, 4.0)


@pytest.fixture(scope="module")
def rows():
    """The rows of an operator of which other libraries are known to be wrong."""
    return list(sweep("CumProd"))


def test_own_derivatives_are_right_at_every_point(rows):
    own = [row for row in rows if row.library == OWN.name]
    assert {row.order for row in own} == set(range(1, ORDER + 1))
    assert {"ordinary", "a zero", "zeros", "ties", "two zeros of 4"} <= {row.point for row in own}
    assert not [row for row in own if row.is_wrong or row.found is None]


@pytest.mark.peers
def test_known_errors_of_others_are_found(rows):
    pytest.importorskip("torch")
    pytest.importorskip("onnx_ad")
    pytest.importorskip("jax")
    wrong = {(row.library, row.way) for row in rows if row.is_wrong}
    assert {("PyTorch", "jvp of jvp"), ("onnx-ad", "forward of forward")} <= wrong
    assert ("JAX", "jvp of jvp") in {(row.library, row.way) for row in rows} - wrong


def test_a_wrong_rule_of_ours_would_be_seen(monkeypatch):
    taken = OWN.ways[0].take

    def scaled(line, order):
        return [1.001 * d for d in taken(line, order)]

    wrong = replace(OWN.ways[0], take=scaled)
    monkeypatch.setattr("scoreboard.rows.OWN", replace(OWN, ways=(wrong,)))
    monkeypatch.setattr("scoreboard.rows.installed", lambda: iter(()))
    assert all(row.is_wrong for row in rows_of(SPECIAL["Det"][0])[:2])


def test_orders_before_an_error_are_kept():
    def take(curve, order):
        if order > 2:
            raise ValueError
        return [1.0, 2.0][:order]

    found = dict(numbers(Way("jet", take, together=True), None))
    assert found == {1: 1.0, 2: 2.0, 3: None, 4: None}


def test_a_way_that_traces_goes_where_shapes_are_traced_once():
    first, *others = places(OPERATORS[0])
    way = Way("accumulator", lambda curve, order: 0.0, every=2)
    assert way.goes(first)
    assert not any(way.goes(place) for place in others if place.point in {"0-d", "empty"})
    assert not any(way.goes(place) for place in places(OPERATORS[1]))


def test_an_error_has_a_kind_unless_it_is_small():
    kinds = {4.0: "", 4.001: "another number", 0.0: "zero", float("nan"): "NaN",
             float("inf"): "infinite", None: ""}  # fmt: skip
    assert {found: replace(EXACT, found=found).kind for found in kinds} == kinds
    assert is_near(1e-6, 0.0)


def test_pages_show_a_wrong_number_beside_ours_and_lead_to_its_report():
    rows = [EXACT, replace(EXACT, library="PyTorch", way="jvp of jvp", found=8.5)]
    assert "| PyTorch | [Det](upstream/pytorch-det" in page(rows)
    assert "| 4 | 8.5 | 4 |" in page(rows)
    assert "| PyTorch | jvp of jvp | 2 | 4 | 8.5 | 4 |" in every_row(rows)
    assert "u = [1.0]" in every_row(rows)


def test_every_report_of_a_swept_library_is_of_an_operator_of_the_scoreboard():
    swept = {library.name for library in LIBRARIES.values()}
    named = {operator for library, operator in reports() if library in swept}
    assert named - {"none"} <= set(OPERATORS)


def test_orders_are_written_as_spans():
    assert spans([1, 2, 4]) == "1-2, 4"
