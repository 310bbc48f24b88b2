"""The distributions: reproducible, complete, and with nothing else in them."""

import tarfile
import tomllib
import zipfile

import pytest

from house import ROOT, modules
from supply.distribution import build

NAME = "onnxjac"
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
EPOCHS = {"one": 1_600_000_000, "again": 1_600_000_000}
DAGRE = "modes/show/dagre.LICENSE"
METADATA = {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "top_level.txt", "licenses/LICENSE",
            f"licenses/{DAGRE}"}  # fmt: skip
DATA = {"py.typed", "modes/show/view.html", "modes/show/dagre.min.js", DAGRE}
BESIDE = {"LICENSE", "README.md", "pyproject.toml", "MANIFEST.in", "PKG-INFO", "setup.cfg"}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Two builds of the sdist and the wheel."""
    folders = {name: tmp_path_factory.mktemp(name) for name in EPOCHS}
    return {name: build(folder, EPOCHS[name]) for name, folder in folders.items()}


@pytest.fixture(scope="module")
def sources():
    """The files of the package, by their path in the tree."""
    return {str(path.relative_to(ROOT)) for path in modules().values()} | DATA


@pytest.mark.parametrize("kind", [0, 1], ids=["sdist", "wheel"])
def test_two_builds_are_the_same_bytes(built, kind):
    one, again = built["one"][kind], built["again"][kind]
    assert one.name == again.name
    assert one.read_bytes() == again.read_bytes()


def test_the_wheel_holds_the_package_and_its_metadata(built, sources):
    information = f"{NAME}-{VERSION}.dist-info"
    expected = {f"{NAME}/{name}" for name in sources} | {f"{information}/{n}" for n in METADATA}
    with zipfile.ZipFile(built["one"][1]) as wheel:
        assert set(wheel.namelist()) == expected


def test_the_sdist_holds_what_builds_the_wheel(built, sources):
    with tarfile.open(built["one"][0]) as sdist:
        names = {m.name.removeprefix(f"{NAME}-{VERSION}/") for m in sdist if m.isfile()}
    assert {name for name in names if ".egg-info/" not in name} == sources | BESIDE


def test_no_file_in_either_is_of_this_machine(built):
    with tarfile.open(built["one"][0]) as sdist:
        assert {(m.mtime, m.uid, m.gid, m.uname) for m in sdist} == {(EPOCHS["one"], 0, 0, "")}
    with zipfile.ZipFile(built["one"][1]) as wheel:
        assert {file.date_time[:3] for file in wheel.infolist()} == {(2020, 9, 13)}
