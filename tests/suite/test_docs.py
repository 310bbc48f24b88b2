"""The documentation: notebooks as they are committed, every public name, the page for new ops."""

import ast
import doctest
import inspect
import re
import tomllib
from operator import attrgetter
from types import ModuleType

import nbformat
import numpy as np
import onnx.parser
import pytest

import onnxjac as oj
from house import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
DOCS = ROOT / "docs"
CONFIGURATION = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")

every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


@every_notebook
def test_notebooks_have_no_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in cells)


def test_notebooks_are_numbered():
    numbers = [int(path.stem[:2]) for path in NOTEBOOKS]
    assert numbers == list(range(1, len(NOTEBOOKS) + 1))


@every_notebook
def test_notebooks_are_on_the_site(path):
    assert f"- notebooks/{path.stem}.md" in CONFIGURATION


def public_names():
    """Every public name of `onnxjac` and of its submodules."""
    for name in oj.__all__:
        value = getattr(oj, name)
        inside = value.__all__ if isinstance(value, ModuleType) else ()
        yield from (f"{name}.{part}" for part in inside) if inside else (name,)


def test_the_reference_has_every_public_name_once():
    text = "\n".join(page.read_text() for page in (DOCS / "reference").glob("*.md"))
    found = re.findall(r"^::: onnxjac\.(.+)$", text, re.MULTILINE)
    assert sorted(found) == sorted([*public_names(), "jacobians.Jacobian"])


def shown(text):
    """The code of the examples in a text."""
    return "\n".join(example.source for example in doctest.DocTestParser().get_examples(text))


@pytest.mark.parametrize("name", list(public_names()))
def test_every_public_name_has_an_example(name):
    """On a page, where it is called `oj.NAME`, or in its own docstring."""
    value, (*_, alone) = attrgetter(name)(oj), name.split(".")
    assert inspect.isclass(value) or callable(value)
    pages = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
    code = "\n".join(shown(page.read_text(encoding="utf-8")) for page in pages)
    own = shown(inspect.getdoc(value))
    assert re.search(rf"\boj\.{name}\b", code) or re.search(rf"\b{alone}\b", own)


MEMBERS = re.compile(r"^::: onnxjac\.(\S+)\n    options:\n(?:.*\n)?      members: \[(.*)\]$", re.M)


def documented_functions():
    """Every public function, and every method listed in the reference."""
    yield from (name for name in public_names() if inspect.isfunction(attrgetter(name)(oj)))
    for page in sorted((DOCS / "reference").glob("*.md")):
        for owner, listed in MEMBERS.findall(page.read_text(encoding="utf-8")):
            names = (f"{owner}.{member}" for member in listed.split(", "))
            yield from (name for name in names if inspect.isfunction(attrgetter(name)(oj)))


FUNCTIONS = list(documented_functions())

NO_ARRAYS = {
    "defines", "derive", "jacobian", "kernel", "prove", "tags", "zero",  # of operators, by name
    "progress",  # of whatever runs in its block
    "Linearization.explain", "Hessian.explain", "Linearization.check",  # of words
}  # fmt: skip
"""The functions that neither take nor give arrays, operators or models."""

NO_ERRORS = {
    "progress",  # takes any truth value
    "Linearization.check",  # an error becomes a line of its result
    "Linearization.plan", "Hessian.plan",  # any number of products, any memory
    "jacobians.Jacobian.diagonal",  # of any operator
}  # fmt: skip


def test_the_functions_of_the_reference_are_found():
    """The next tests cover these functions; no exception is out of date."""
    some = {"linearize", "estimators.trace", "Model.run", "jacobians.Jacobian.toarray"}
    assert {*FUNCTIONS} >= some | NO_ARRAYS | NO_ERRORS


@pytest.mark.parametrize("name", FUNCTIONS)
def test_signatures_name_every_option(name):
    """No `**options`, but where they are the attributes of any operator."""
    found = inspect.signature(attrgetter(name)(oj)).parameters.values()
    named = {"defines", "derive", "jacobian", "prove", "zero"}
    assert any(p.kind is p.VAR_KEYWORD for p in found) == (name in named)


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in NO_ARRAYS])
def test_every_docstring_says_shapes(name):
    """After `Shape:` or `Shapes:`."""
    assert re.search(r"\bShapes?: \S", inspect.getdoc(attrgetter(name)(oj)))


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in NO_ERRORS])
def test_every_docstring_says_what_it_raises(name):
    """After the word `raises`, an error of the library by its name."""
    _, *raised = re.split(r"\b[Rr]aises\s", inspect.getdoc(attrgetter(name)(oj)))
    errors = [getattr(oj, error, None) for error in re.findall(r"`(\w+)`", " ".join(raised))]
    assert any(inspect.isclass(e) and issubclass(e, oj.OnnxJacError) for e in errors)


def explained():
    """Every public function and class, the classes that these functions return, and all methods."""
    modules = (oj, oj.estimators, oj.plots, oj.preconditioners, oj.jacobians)
    values = [getattr(module, name) for module in modules for name in module.__all__]
    functions = filter(inspect.isfunction, values)
    returned = {f: str(inspect.signature(f).return_annotation) for f in functions}
    made = [inspect.unwrap(f).__globals__.get(word) for f, text in returned.items()
            for word in re.findall(r"\w+", text)]  # fmt: skip
    classes = dict.fromkeys(filter(inspect.isclass, [*values, *made]))
    values += [member for kind in classes for name, member in inspect.getmembers(kind, callable)
               if not name.startswith("_")]  # fmt: skip
    classes = [kind for kind in classes if not issubclass(kind, Exception | dict)]
    ours = [*classes, *filter(inspect.isfunction, values), *filter(inspect.ismethod, values)]
    named = {f"{value.__module__}.{value.__qualname__}": value for value in ours}
    return {name: value for name, value in named.items() if name.startswith("onnxjac.")}


EXPLAINED = explained()


def test_public_names_are_found():
    some = {"hessian.Hessian.apply", "data.cluster.distributed", "curvature.kfac.shampoo",
            "curvature.kronecker.KroneckerFactored.inverse", "solvers.problem.Problem.hess",
            "estimators.trace.trace", "model.primal.model.Model.run"}  # fmt: skip
    assert EXPLAINED.keys() >= {f"onnxjac.modes.{name}" for name in some}
    assert EXPLAINED.keys() >= {"onnxjac.jacobians.matrices.Kron", "onnxjac.jacobians.dag.stack"}


@pytest.mark.parametrize("value", EXPLAINED.values(), ids=EXPLAINED)
def test_every_docstring_explains_every_parameter(value):
    """By its name in backticks; a name of one letter may stand in a formula."""
    text, names = inspect.getdoc(value), inspect.signature(value).parameters.keys() - {"self"}
    ways = {name: rf"\b{name}\b" if len(name) == 1 and name != "a" else rf"`\*{{0,2}}{name}\b"
            for name in names}  # fmt: skip
    assert sorted(name for name in names if not re.search(ways[name], text)) == []


def test_every_page_is_in_the_navigation():
    pages = [page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")]
    assert [page for page in pages if page not in CONFIGURATION] == []


LINKS = re.compile(r"\]\((?!https?:|#)([^)#]+)[^)]*\)")

GENERATED = "reference/command-line.md"


ROOT_PAGES = {"README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"}


def test_root_has_four_pages_and_reports_are_in_their_folder():
    assert {page.name for page in ROOT.glob("*.md")} == ROOT_PAGES


def test_readme_shows_a_result_within_a_screen():
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert next(k for k, line in enumerate(lines) if line.startswith("∂/∂")) < 45


def test_links_lead_to_files():
    """On GitHub and on the site: files outside `docs/` are linked directly."""
    dead = [(page.name, target) for page in (*DOCS.rglob("*.md"), *ROOT.glob("*.md"))
            for target in LINKS.findall(re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL))
            if not (page.parent / target).exists() and not target.endswith(GENERATED)]  # fmt: skip
    assert dead == []


def test_the_site_needs_no_other_host():
    """No fonts, scripts or styles from elsewhere."""
    assert "font: false" in CONFIGURATION
    assert "http" not in CONFIGURATION


def test_the_documentation_is_not_shipped():
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert not any("docs" in name for name in packages["packages"])
    manifest = ROOT / "MANIFEST.in"
    assert not manifest.exists() or "include" not in manifest.read_text()


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
@pytest.mark.usefixtures("clean_registry")
def test_the_operator_on_the_page_for_new_ones(metric):
    """Adding an op: the rule that the page shows is right."""
    page = (DOCS / "adding-an-op.md").read_text(encoding="utf-8")
    rule = next(block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    exec("from __future__ import annotations\n" + rule, {"defines": oj.defines})
    model = oj.load(onnx.parser.parse_model(f"""
    <ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>
    distances (double[3, 4] a, double[2, 4] b) => (double[3, 2] y)
    {{ y = com.microsoft.CDist <metric = "{metric}"> (a, b) }}"""))
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((3, 4)), rng.standard_normal((2, 4))
    J = oj.linearize(model, {"a": a, "b": b}, engine="numpy")
    distances = np.linalg.norm(a[:, None] - b, axis=-1)
    expected = distances if metric == "euclidean" else distances**2
    np.testing.assert_allclose(J.primal["y"], expected)
    assert J.check()


def test_examples_run_on_the_oldest_scipy():
    """The oldest SciPy supports rng= in svds, but not in the eigenvalue solvers."""
    pages = [*DOCS.rglob("*.md"), *ROOT.glob("*.md"), *NOTEBOOKS]
    calls = re.compile(r"\b(?:eigsh?|lobpcg)\([^\n]*\brng=")
    assert not [page.name for page in pages if calls.search(page.read_text())]
    assert "scipy>=1.16" in (ROOT / "pyproject.toml").read_text()


def places():
    """The files and names of the code, `path.py::Name.name`, that the pages lead to."""
    place = re.compile(r"`((?:jacobians|ops|modes)/[\w/]+\.py(?:::[\w.]+)?)`")
    for page in (DOCS / "explanation" / "architecture.md", ROOT / "CONTRIBUTING.md"):
        yield from place.findall(page.read_text())


@pytest.mark.parametrize("place", sorted(set(places())))
def test_the_walks_lead_to_code_that_is_there(place):
    path, _, name = place.partition("::")
    inside = ast.parse((ROOT / path).read_text())
    for part in filter(None, name.split(".")):
        (inside,) = (node for node in inside.body if getattr(node, "name", "") == part)
