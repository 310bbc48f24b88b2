"""What the package promises about itself: its version, its parts, and that nobody must scroll."""

import ast
import tomllib
from importlib.metadata import version

import pytest

import onnxjac
from house import ROOT, folders, modules

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LONGEST_FILE = 250
LONGEST_FUNCTION = 60

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


@every_module
def test_files_are_short(path):
    assert len(path.read_text().splitlines()) <= LONGEST_FILE


@every_module
def test_functions_are_short(path):
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    functions = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, kinds)]
    long = [f.name for f in functions if f.end_lineno - f.lineno >= LONGEST_FUNCTION]
    assert not long
