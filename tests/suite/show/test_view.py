"""The view: a model's graph as one page, in Chromium where it and Playwright are installed."""

import json
import re
import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx.parser
import pytest
from numpy.testing import assert_allclose
from onnx import numpy_helper
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info

import onnxjac as oj
from onnxjac.__main__ import main
from onnxjac.modes.model.markup import Page
from onnxjac.modes.show.view import view
from show.markup import Markup
from show.running import DIGITS, SAMPLES, answer, refused

BAD = """</script><script>document.title='owned'</script><img src=x onerror="alert('owned')">"""


def data(page):
    """What a page holds."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return json.loads(found[1])


def linearized(text, **inputs):
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {text}')
    return oj.linearize(oj.load(model), inputs)


def chain(steps):
    """A model of tanh and residuals, in scopes of two nodes."""
    nodes, last = [], "x"
    for k in range(steps // 2):
        nodes += [make_node("Tanh", [last], [f"t{k}"], name=f"/layer.{k}/Tanh"),
                  make_node("Add", [last, f"t{k}"], [f"y{k}"], name=f"/layer.{k}/Add")]  # fmt: skip
        last = f"y{k}"
    return built(nodes, "chain", "x", last)


def built(nodes, name, first, last):
    """J of some nodes on 3 floats, whatever their names."""
    ends = ([make_tensor_value_info(end, 1, [3])] for end in (first, last))
    version = make_opsetid("", 21)
    model = make_model(make_graph(nodes, name, *ends), opset_imports=[version], ir_version=10)
    return oj.linearize(oj.load(model), {first: np.full(3, 0.1, "f")})


@pytest.fixture
def hostile():
    """A page of a model whose names are markup."""
    last = "$data /* dagre */"
    nodes = [make_node("Tanh", ["x"], [BAD], name=BAD), make_node("Relu", [BAD], [last], name=BAD)]
    return built(nodes, BAD, "x", last).view().html


def test_blocks_are_the_blocks_of_the_jacobian():
    """Norms against the matrices, exact for single operators; shapes, kinds and families."""
    A = np.arange(6.0).reshape(3, 2)
    J = linearized("g (double[4,3] x, double[3,2] A) => (double[4,2] y) "
                   "{ h = MatMul(x, A)  y = Tanh(h) }", x=np.ones((4, 3)), A=A)  # fmt: skip
    assert "save('graph.html')" in repr(J.view())
    found = data(J.view().html)
    names = [name for name, *_ in found["tensors"]]
    blocks = {(names[found["nodes"][b["node"]]["in"][b["in"]]]): b for b in found["blocks"]}
    assert set(blocks) == {"x", "A", "h"}
    assert found["flops"] == J.flops == sum(b["flops"] for b in blocks.values()) + 4 * 2
    assert_allclose(float(blocks["x"]["norm"]), 2 * np.linalg.norm(A), rtol=5e-3)
    assert (blocks["x"]["shape"], blocks["x"]["family"]) == ("4×2 ← 4×3", "matrix")
    assert (blocks["h"]["kind"], blocks["h"]["family"]) == ("diag", "diagonal")
    assert_allclose(float(blocks["h"]["norm"]),
                    np.linalg.norm(1 - np.tanh(np.ones((4, 3)) @ A) ** 2), rtol=5e-3)  # fmt: skip
    assert found["tensors"][names.index("h")][1:] == ["4×2", "float64", False]
    assert [names[t] for t in found["wrt"]] == ["x", "A"]
    rules = [found["rules"][node["rule"]] for node in found["nodes"]]
    assert rules[0]["text"][0] == "y[*n, i, k] = sum(a[*n, i, j]*b[*n, j, k], j)"
    assert "<mfrac>" in rules[1]["mathml"][1]


def test_the_page_needs_nothing_else_and_runs_its_own_script_alone(hostile):
    """No markup of a name is markup of the page: elements and attributes are the template's."""
    J = linearized("g (float[3] x) => (float[3] y) { h = Tanh(x)  y = Relu(h) }", x=np.ones(3, "f"))
    found, plain = Markup(hostile), Markup(J.view().html)
    assert found.elements == plain.elements
    assert not {key for key, _ in found.attributes} & {"src", "href", "onerror"}
    assert "default-src 'none'" in hostile
    assert data(hostile)["title"] == BAD
    assert data(hostile)["tensors"][1][0] == BAD
    assert hostile.count("<script") == 2


def test_a_notebook_shows_it_in_a_frame(hostile):
    frame = Markup(Page(hostile)._repr_html_())
    attributes = dict(frame.attributes)
    assert frame.elements == {"iframe"}
    assert (attributes["sandbox"], attributes["srcdoc"]) == ("allow-scripts", hostile)


def test_the_transpose_and_a_loop_are_viewed():
    J = linearized("""g (float[2] x) => (float[2] y) { n = Constant<value_int=3>()
        c = Constant<value = bool {1}>()
        y = Loop(n, c, x) <body = b (int64 i, bool k, float[2] s) => (bool k2, float[2] t)
            { k2 = Identity(k)  t = Tanh(s) }> }""", x=np.ones(2, "f"))  # fmt: skip
    assert sum(b["kind"] == "diag" for b in data(J.T.view().html)["blocks"]) == 3


def test_the_command_writes_the_page(capsys, monkeypatch, tmp_path):
    (tmp_path / "here").mkdir()
    target = str(tmp_path / "graph.html")
    assert answer(capsys, "view", DIGITS, "-o", target)[0] == 0
    with open(target, encoding="utf-8") as file:
        found = data(file.read())
    assert (len(found["nodes"]), found["title"]) == (9, "digits.onnx")
    monkeypatch.chdir(tmp_path / "here")
    assert answer(capsys, "view", DIGITS)[1].startswith("digits.html: ")
    with open(target, encoding="utf-8") as file:
        assert (tmp_path / "here" / "digits.html").read_text("utf-8") == file.read()
    assert "no tensor 'z'" in refused(capsys, "view", DIGITS, "--of", "z", "-o", target)


# -- in a browser ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser():
    """Chromium, of the system or of Playwright."""
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as running:
        try:
            made = running.chromium.launch(executable_path=shutil.which("chromium"),
                                           args=["--no-sandbox"])  # fmt: skip
        except api.Error as error:
            pytest.skip(f"no Chromium: {error}")
        yield made
        made.close()


def opened(browser, folder, page, *, width=1280, scheme="light"):
    """A page in the browser, which fails the test by any error."""
    (folder / "page.html").write_text(page, encoding="utf-8")
    tab = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    tab.errors = []
    tab.on("pageerror", lambda error: tab.errors.append(str(error)))
    tab.on("console", lambda message: tab.errors.append(message.text))
    tab.goto((folder / "page.html").as_uri())
    return tab


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_two_tensors_have_a_block(browser, tmp_path, width, scheme):
    """Nothing overflows, colours follow the theme, rules are mathematics, tables scroll."""
    J = oj.linearize(oj.load(DIGITS), {"image": np.ones((1, 1, 8, 8), "f")})
    tab = opened(browser, tmp_path, J.view().html, width=width, scheme=scheme)
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    red, *_ = tab.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g)")
    assert (int(red) > 128) == (scheme == "light")
    tab.locator("g.node", has_text="Relu").first.click()
    assert tab.locator("aside math").count() == 2
    assert tab.evaluate("getComputedStyle(document.querySelector('.scroll')).overflowX") == "auto"
    tab.locator("g.node.end").first.click()
    tab.evaluate("pick(tensors[data.of[0]])")
    assert tab.locator("aside h2").inner_text() == "∂logits / ∂image"
    assert "10 ← 1×1×8×8" in tab.locator("aside").inner_text()
    assert tab.locator("g.edge.on").count() > 5
    assert not tab.errors


def test_names_are_no_code(browser, tmp_path, hostile):
    tab = opened(browser, tmp_path, hostile)
    tab.locator("g.node", has_text="Tanh").click()
    tab.fill("#query", "script")
    tab.locator("#found button").first.click()
    assert "Jacobian" in tab.title()
    assert tab.locator("img").count() == 0
    assert not tab.errors


def test_a_thousand_nodes_are_folded_searched_and_fluid(browser, tmp_path):
    tab = opened(browser, tmp_path, chain(1000).view().html)
    assert tab.evaluate("items.size") == 502  # scopes, input, output
    tab.fill("#query", "t321")
    tab.keyboard.press("Enter")
    assert tab.evaluate("chosen[0].name") == "t321"
    assert tab.evaluate("items.size") == 503  # its scope is unfolded
    tab.locator("#unfold").click()
    assert tab.evaluate("items.size") == 1002
    assert tab.evaluate("shown.size") < 200
    frame = tab.evaluate("""() => { const times = [];
        for (let k = 0; k < 30; k++) { view.y -= 40; const a = performance.now(); draw(false);
            times.push(performance.now() - a); }
        return times.sort((a, b) => a - b)[15]; }""")
    assert frame < 50  # ms; about 1 on an idle machine
    assert not tab.errors


OUTSIDE = """() => {
  const width = document.documentElement.clientWidth, found = [];
  for (const e of document.querySelectorAll("body *")) {
    const box = e.getBoundingClientRect();
    if (e.closest("main svg, script, style") || !box.width) continue;
    const cut = /hidden|clip/.test(getComputedStyle(e).overflowX)
      || e.matches("aside, .scroll, [style*=overflow-x]");
    if (box.right > width + 1 || box.left < -1 || cut && e.scrollWidth > e.clientWidth + 1)
      found.push(`${e.tagName} ${e.textContent.slice(0, 40)}`);
  }
  const parts = "header > *, main > *, aside, g.node text, .edge text";
  const boxes = [...document.querySelectorAll(parts)].map(e => [e, e.getBoundingClientRect()])
    .filter(([e, r]) => r.width);
  for (const [e, a] of boxes) for (const [f, b] of boxes)
    if (e !== f && !e.contains(f) && !f.contains(e)
        && (e.tagName === "text") === (f.tagName === "text")
        && a.left + 1 < b.right && b.left + 1 < a.right
        && a.top + 4 < b.bottom && b.top + 4 < a.bottom)
      found.push(`${e.textContent.slice(0, 40)} over ${f.textContent.slice(0, 40)}`);
  return found;
}"""
"""Elements beyond the sides of the page, text that is cut, and parts of the page or labels of the
graph that lie over each other.
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 1024, 800, 390])
def test_nothing_is_cut_and_nothing_overlaps(browser, tmp_path, width, scheme):
    J = oj.linearize(oj.load(DIGITS), {"image": np.ones((1, 1, 8, 8), "f")})
    page = view(J, "a_file_of_a_long_name_" * 4 + ".onnx").html
    tab = opened(browser, tmp_path, page, width=width, scheme=scheme)
    assert tab.evaluate(OUTSIDE) == []
    tab.evaluate("look(nodes[0])")
    assert tab.evaluate(OUTSIDE) == []
    tab.evaluate("pick(tensors[data.wrt[0]]), pick(tensors[data.of[0]])")
    assert tab.evaluate(OUTSIDE) == []


def long_names():
    """Six layers whose weights and tensors have the names that exporters give."""
    nodes, held, last = [], [], "x"
    rng = np.random.default_rng(0)
    for k in range(6):
        layer = f"/n/encoder/layer.{k}/attention/output/dense"
        names = f"{layer}/MatMul_output_0", f"{layer}/Tanh_output_0"
        held.append(numpy_helper.from_array(rng.standard_normal((8, 8), np.float32), f"{layer}.w"))
        nodes += [make_node("MatMul", [last, f"{layer}.w"], names[:1], name=f"{layer}/MatMul"),
                  make_node("Tanh", names[:1], names[1:], name=f"{layer}/Tanh")]  # fmt: skip
        last = names[1]
    ends = [make_tensor_value_info(n, 1, ["batch", 8]) for n in ("x", last)]
    graph = make_graph(nodes, "g", ends[:1], ends[1:], held)
    return make_model(graph, opset_imports=[make_opsetid("", 21)], ir_version=10)


PAGES = {
    "compare": lambda model, data: oj.compare(model, model, data).view(),
    "sensitivities": lambda model, data: oj.sensitivities(
        oj.with_loss(model, "cross_entropy"), {**data, "target": np.arange(4)}).view(),
    "explain": lambda model, data: oj.integrated_gradients(model, data, steps=4).view(),
}  # fmt: skip


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Pages of a network for images, and of one with long names; the report is by the command."""
    folder, data = tmp_path_factory.mktemp("pages"), {"image": np.load(SAMPLES)["image"][:4]}
    file, report = str(folder / "long.onnx"), str(folder / "report.html")
    onnx.save(long_names(), file)
    assert main(["report", file, "--html", report]) == 0
    x = np.random.default_rng(0).standard_normal((4, 8)).astype("f")
    made = {(kind, name): make(oj.load(path), at).html for kind, make in PAGES.items()
            for name, path, at in (("digits", DIGITS, data), ("long", file, {"x": x}))}
    return {**made, ("report", "long"): Path(report).read_text("utf-8")}


def test_no_page_scrolls_sideways(browser, pages, tmp_path):
    """Long names break; in a narrow page each cell is a line, with the head of its column."""
    found = {}
    for kind, page in pages.items():
        tab = opened(browser, tmp_path, page)
        for width, scheme in ((1280, "light"), (1024, "dark"), (800, "light"), (390, "dark")):
            tab.emulate_media(color_scheme=scheme)
            tab.set_viewport_size({"width": width, "height": 800})
            found[kind, width] = tab.evaluate(OUTSIDE)[:3], tab.errors
        tab.close()
    assert {at: wrong for at, wrong in found.items() if any(wrong)} == {}


def test_labels_that_differ_stay_different(browser, tmp_path):
    names = [f"a_long_prefix_of_names/{k}/a_middle/{k % 2}/and_a_long_suffix" for k in range(4)]
    nodes = [make_node("Tanh", [a], [b], name=b) for a, b in pairwise(["x", *names])]
    tab = opened(browser, tmp_path, built(nodes, "g", "x", names[-1]).view().html)
    for labels in ("[...tensorNames.values()]", "[...nodeNames.values()]"):
        assert tab.evaluate(f"new Set({labels}).size === {labels}.length && {labels}.length >= 4")
