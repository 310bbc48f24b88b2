"""The release: the recipe for conda states pyproject's versions, and only a tag uploads."""

import ast
import re
import tomllib

import pytest

from house import ROOT, modules
from supply.versions import PACKAGES, PYTHONS, Outcome, table

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
RECIPE = ROOT / ".github" / "conda" / "recipe.yaml"
WORKFLOW = ROOT / ".github" / "workflows" / "release.yml"


@pytest.fixture(scope="module")
def recipe():
    """The recipe, read."""
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load(RECIPE.read_text(encoding="utf-8"))


def test_the_recipe_has_the_version_licence_and_summary_of_the_project(recipe):
    assert recipe["context"]["version"] == PROJECT["version"]
    assert recipe["about"]["license"] == PROJECT["license"]
    assert recipe["about"]["license_file"] == PROJECT["license-files"]
    assert recipe["about"]["summary"] == PROJECT["description"]


def test_the_recipe_needs_what_the_project_needs(recipe):
    needed = [f"python{PROJECT['requires-python']}", *PROJECT["dependencies"]]
    assert [name.replace(" ", "") for name in recipe["requirements"]["run"]] == needed
    (script,) = PROJECT["scripts"].items()
    assert recipe["build"]["python"]["entry_points"] == [" = ".join(script)]


def test_only_a_tag_uploads_and_only_what_was_checked():
    yaml = pytest.importorskip("yaml")
    workflow = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))
    assert {"push", "pull_request", "workflow_dispatch"} <= workflow[True].keys()  # YAML reads `on`
    upload = workflow["jobs"].pop("upload")
    assert upload["needs"] == "build"
    assert upload["if"] == "github.event_name == 'push' && github.ref_type == 'tag'"
    assert "publish" not in str(workflow)


def test_versions_are_tried_on_every_promised_python():
    tests = (ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8")
    promised = re.search(r"python: \[(.*?)\]", tests)[1].replace('"', "").split(", ")
    assert [f"python{version}" for version in promised] == PYTHONS
    assert PYTHONS[0].removeprefix("python") in PROJECT["requires-python"]


def test_a_missing_wheel_is_a_row_of_the_table():
    line = table([Outcome("oldest", ("3.14.0",), "there is no wheel of one of them")]).splitlines()[
        2
    ]
    assert line.startswith("| oldest | 3.14.0 |")
    assert line.count("|") == 4 + len(PACKAGES)


def test_annotations_that_are_read_at_import_name_no_array_with_brackets():
    """`@function.register` evaluates annotations, and csr_array has brackets from SciPy 1.16 on."""
    read = [(path.name, ast.unparse(node.args), ast.unparse(node.returns or ast.Constant(None)))
            for path in modules().values() for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.FunctionDef)
            and any(isinstance(d, ast.Attribute) and d.attr == "register"
                    for d in node.decorator_list)]  # fmt: skip
    assert read
    assert not [each for each in read if "_array[" in f"{each}"]
