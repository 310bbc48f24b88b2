"""The metadata of the package: its version and its submodules."""

import tomllib
from importlib.metadata import version

import pytest

import onnxjac
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
