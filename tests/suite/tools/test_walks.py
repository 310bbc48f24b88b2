"""The walks of architecture.md enter few types and files, and the page lists them."""

import os
import re
import subprocess
import sys

import pytest

from walks import PAGE

pytest.importorskip("onnxruntime")

MOST = {
    "`linearize`": (35, 18), "`J @ v`": (17, 7), "a further point and `J @ v`": (19, 10),
    "`value_and_grad` in a loop": (12, 5), "a further point and `G @ v` of Gauss-Newton": (27, 16),
    "`export` with a loop": (42, 23),
}  # fmt: skip
"""The most files and types of a walk. The limits only fall; they rose by the file of `as_model`."""


@pytest.fixture(scope="module")
def page():
    """The page that a process without caches writes."""
    path = os.pathsep.join(filter(None, [str(PAGE.parents[2]), *sys.path]))
    run = subprocess.run([sys.executable, "-m", "tests.walks", "--print"], check=True, text=True,
                         env={**os.environ, "PYTHONPATH": path}, capture_output=True)  # fmt: skip
    return run.stdout


def test_walks_enter_few_types_and_files(page):
    rows = re.findall(r"^\| (.*) \| (\d+) \| (\d+): ", page, re.M)
    assert {walk for walk, *_ in rows} == MOST.keys()
    assert not {walk: (files, types) for walk, files, types in rows
                if int(files) > MOST[walk][0] or int(types) > MOST[walk][1]}  # fmt: skip


def test_the_page_lists_them(page):
    """`python -m tests.walks` writes the list."""
    assert page == PAGE.read_text()
