"""The metadata of the package: its version and its submodules."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import version

import pytest
import yaml

import onnxjac
from errors.test_missing_libraries import MODULES
from house import ROOT, folders, modules

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

every_module = pytest.mark.parametrize("path", modules().values(), ids=modules().keys())


def test_version_is_the_one_in_pyproject():
    assert onnxjac.__version__ == PYPROJECT["project"]["version"] == version("onnxjac")


def test_types_are_shipped():
    assert (ROOT / "py.typed").exists()
    assert "py.typed" in PYPROJECT["tool"]["setuptools"]["package-data"]["onnxjac"]


def test_every_folder_is_in_the_list_of_packages():
    parts = [folder.relative_to(ROOT).parts for folder in folders()]
    found = sorted(".".join(("onnxjac", *part)) for part in parts)
    assert found == sorted(PYPROJECT["tool"]["setuptools"]["packages"])


@pytest.mark.parametrize("folder", list(folders()), ids=lambda folder: folder.name)
def test_every_folder_is_a_package(folder):
    assert (folder / "__init__.py").exists()


@pytest.mark.parametrize("folder", list(folders()), ids=lambda folder: folder.name)
def test_no_module_takes_the_name_of_a_function_of_its_package(folder):
    """The first import of the module would replace the function."""
    tree = ast.parse((folder / "__init__.py").read_text())
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    assert defined.isdisjoint(path.stem for path in (*folder.glob("*.py"), *folder.glob("*/")))


def test_the_workflows_run_the_commands_of_contributing():
    text = (ROOT / "CONTRIBUTING.md").read_text().partition("```sh")[2].partition("```")[0]
    asked = [part.split("#")[0].strip().removeprefix(".venv/bin/").replace("'", '"')
             for line in text.strip().splitlines() for part in line.split("&&")]  # fmt: skip
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())
    run = {step.get("run") for job in workflow["jobs"].values() for step in job["steps"]}
    assert {*asked[1:], ".ci/run"} <= run  # the first one makes a virtual environment
    for path in (ROOT / ".github").rglob("*.yml"):
        assert yaml.safe_load(path.read_text()), path


def test_the_citation_names_this_version():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["version"] == PYPROJECT["project"]["version"]
    assert PYPROJECT["project"]["license"] == f"{cited['license']} AND MIT"  # dagre is under MIT


def test_the_layout_in_the_readme_is_the_first_sentence_of_each_folder():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| \[`([\w/]+)/`\]\(\1\) \| (.+) \|$", text, re.M))
    tops = [f for f in folders() if f != ROOT and len(f.relative_to(ROOT).parts) < 3]
    sentences = {}
    for folder in tops:
        tree = ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))
        first = (ast.get_docstring(tree) or "").partition("\n")[0]
        sentences[folder.relative_to(ROOT).as_posix()] = first.partition(": ")[2].rstrip(".")
    assert rows == sentences


HEAVY = ("sympy", "onnx.reference", "scipy.cluster", "scipy.fft", "scipy.optimize", "scipy.spatial",
         "scipy.stats", "pandas", *MODULES)  # fmt: skip


@pytest.mark.parametrize("code", ["import onnxjac", "import onnxjac.__main__"])
def test_an_import_loads_no_large_library(code):
    """Modules are counted, as seconds depend on the machine."""
    code += "; import sys; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names = found.stdout.split()
    assert not [name for name in names if name.startswith(HEAVY)]


LATER = """
import sys, onnx_ir
sys.modules.pop("onnxjac", None)
import onnxjac
size = onnx_ir.SymbolicDim("max(N, 3)") + 1
import sympy
assert type(size._expr) is sympy.Add and size.evaluate({"N": 7}) == 8
assert onnx_ir.SymbolicDim(sympy.Symbol("N")) == "N" and not hasattr(onnx_ir._core.sympy, "none")
"""


@pytest.mark.parametrize("first", ["", "import sympy", "import onnxjac", "from onnxjac import ops"])
def test_symbolic_sizes_are_of_sympy(first):
    subprocess.run([sys.executable, "-c", f"{first}\n{LATER}"], check=True)


def test_the_package_is_not_imported_by_the_name_of_the_checkout():
    assert sys.modules.get(ROOT.name) in (None, sys.modules["onnxjac"])
