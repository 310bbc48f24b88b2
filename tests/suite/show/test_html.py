"""Every object has HTML for notebooks: balanced, escaped, without scripts, of bounded size."""

import re

import numpy as np
import pytest

import onnxjac as oj
from onnxjac.jacobians import Dense, Diagonal, Product, Sum
from onnxjac.jacobians.hooks import html
from onnxjac.jacobians.text import Table
from onnxjac.modes.model.markup import card, grid
from onnxjac.modes.show.document import document
from show.examples import EVIL, X, hostile, long, network, scalar
from show.markup import Markup

from ..jacobians.examples import EXAMPLES, Draw

PLAIN = {
    "b", "details", "div", "pre", "small", "summary", "table", "tbody", "td", "th", "thead", "tr",
}  # fmt: skip


def checked(thing):
    """The HTML of an object, checked for harmless elements and no colours."""
    source = thing._repr_html_()
    page = Markup(source)
    assert page.elements <= PLAIN
    assert {name for name, _ in page.attributes} <= {"style", "open", "colspan", "data-head"}
    assert "#" not in "".join(part.split('"')[0] for part in source.split('style="')[1:])
    return page


def test_a_narrow_page_has_the_head_of_a_column_beside_each_cell():
    """The cell that spans all columns has none."""
    made = grid(Table("", ("name", "flops"), (("Conv", "7"), ("and 3 more",)), ("flops",)))
    assert re.findall(r'data-head="(\w+)">(\w+)<', made) == [("name", "Conv"), ("flops", "7")]
    assert "td::before { content: attr(data-head)" in document("a", "b", made, subject="c")


@pytest.fixture(scope="module")
def J():
    return oj.linearize(network(), {"x": X}, wrt=["x", "W"])


@pytest.fixture(scope="module")
def things(J):
    """One object of each kind with an HTML representation."""
    G, model = J @ J.T, network()
    batches = [{"x": X}, {"x": X + 1}]
    return {
        "model": model, "jacobian": J, "transpose": J.T, "block": J["y", "W"], "gram": G,
        "sum": G + oj.identity_like(G), "compiled": G.compile("numpy"), "index": J[:2, 3:5],
        "hessian": oj.hessian(model, {"x": X}, weights=np.ones((1, 3))), "check": J.check(),
        "planned": J.plan(products=1000), "explanation": J.explain(), "local": J.explain("r"),
        "ggn": oj.gauss_newton(scalar(), {"x": X}, of="s", at="y"),
        "checkpointed": oj.linearize(model, {"x": X}, checkpoint=2), "inverse": oj.inverse(G),
        "streamed": oj.streamed(lambda b: oj.linearize(model, b), batches, reduction="sum"),
        "stacked": oj.streamed(lambda b: oj.linearize(model, b), batches, reduction="stack"),
        "trace": oj.estimators.trace(G), "diagonal": oj.estimators.diagonal(G),
        "density": oj.estimators.spectral_density(G), "proof": oj.prove("Relu"),
        "zero proof": oj.prove("Shape"), "solution": oj.newton_cg(scalar(), {"x": X}, of="s"),
    }  # fmt: skip


@pytest.mark.parametrize("about", ["", "of <3> rows"])
def test_a_card_has_a_line_about_its_title_if_there_is_something_to_say(about):
    made = card("A & B", about)
    assert Markup(made).text == "A & B" + about
    assert made.count("<div") == 2 + bool(about)


def test_formulas_over_several_lines_keep_their_columns(J):
    """Notebooks may render `pre` in another font."""
    text = J.explain("r")._repr_html_()
    assert re.search(r"<pre [^>]*white-space:pre;font-family:monospace[^>]*>[^<]*⎧x", text)


KINDS = (
    "model", "jacobian", "transpose", "block", "gram", "sum", "compiled", "index", "hessian",
    "check", "planned", "explanation", "local", "ggn", "checkpointed", "inverse", "streamed",
    "stacked", "trace", "diagonal", "density", "proof", "zero proof", "solution",
)  # fmt: skip


def test_every_kind_is_listed(things):
    assert tuple(sorted(things)) == tuple(sorted(KINDS))


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_shows_itself(things, name):
    assert checked(things[name]).text.strip()


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_operator_shows_its_mathematics(name):
    operator, _ = EXAMPLES[name][1](Draw(0))
    page = checked(operator)
    assert repr(operator)[:60] in page.text


def test_html_rejects_other_objects():
    with pytest.raises(TypeError, match="cannot show int"):
        html(3)


def test_a_jacobian_shows_names_shapes_and_shares(J):
    text = checked(J).text
    for part in ("∂r/∂x, Relu", "∂h/∂W, MatMul", "1×3 ← 4×3", "diag(1×1×2×4)"):
        assert part in text


def test_shares_agree_with_the_estimated_time():
    text = checked(Product((Dense(np.ones((900, 900))), Diagonal(np.ones(900))))).text
    dense, diagonal = map(int, re.findall(r"(\d+) %", text))
    assert dense > 90
    assert 99 <= dense + diagonal <= 101
    assert "nothing was measured" in text


def test_a_transpose_shows_where_its_blocks_come_from(J):
    assert "(∂r/∂x, Relu" in checked(J.T).text


def test_html_shows_the_program_once_it_is_chosen():
    J = oj.linearize(network(), {"x": X})
    assert "as products take them" not in checked(J).text
    J @ np.ones(8)
    assert "as products take them" in checked(J).text


# -- names that are markup -------------------------------------------------------------------------


def test_names_do_not_become_markup():
    model = hostile()
    J = oj.linearize(model, {EVIL[0][1]: np.ones(4)})
    H = oj.hessian(model, {EVIL[0][1]: np.ones(4)}, weights=np.ones(4))
    shown = (model, J, J.T, J @ J.T, H, J.explain(), J.explain(EVIL[1][0]), J.explain(EVIL[1][1]),
             J.explain(EVIL[0][1]), J.check())  # fmt: skip
    for thing in shown:
        checked(thing)
    assert EVIL[1][0] in checked(J).text
    assert "alert(2)" in checked(model).text


# -- networks with thousands of nodes --------------------------------------------------------------


@pytest.fixture(scope="module")
def deep():
    return oj.linearize(long(), {"t0": np.ones(4)})


def test_long_networks_are_abbreviated(deep):
    for thing in (deep, deep.route.model):
        page = checked(thing)
        assert "… 4,960 more" in page.text
        assert page.size < 200_000
    assert "99 % of the time" in checked(deep).text


def test_long_explanations_are_abbreviated():
    found = oj.linearize(long(600), {"t0": np.ones(4)}).explain()
    page, text = checked(found), str(found)
    assert "… 560 more" in page.text
    assert page.size < 100_000
    assert "\n… 560 more\n" in text
    assert len(text) < 20_000
    assert "Node_30 " in text
    assert "Node_31 " not in text
    assert "Node_591 " in text
    assert len(found.rows) == 600


def test_wide_and_deep_trees_are_bounded():
    D = Diagonal(np.ones(4))
    S = Sum((Product((D, Sum((Product((D, D) * 4),) * 20)) * 2),) * 45)
    page = checked(S)
    assert page.size < 200_000
    assert "… 5 more" in page.text
