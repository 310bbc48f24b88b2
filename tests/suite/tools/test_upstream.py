"""Reports for other libraries: each script still prints a wrong number, the one of its page."""

import contextlib
import io
import re
from importlib.util import find_spec

import pytest

from house import ROOT

PAGES = sorted(p for p in (ROOT / "docs/results/upstream").glob("*.md") if p.name != "README.md")

MODULES = {"PyTorch": "torch", "JAX": "jax", "TensorFlow": "tensorflow", "onnx-ad": "onnx_ad",
           "ONNX Runtime": "onnxruntime", "onnx": "onnx"}  # fmt: skip
"""Library -> its module."""

LINE = re.compile(r"(.+): (\S+), exact (\S+)")

FIELD = re.compile(r"^- (Library|Operators|Seen with|Reported): (.+)$", re.M)


def parts(page):
    """The script of a page, the lines that it prints, and the page's fields."""
    text = page.read_text(encoding="utf-8")
    script, printed = (re.search(rf"```{kind}\n(.*?)```", text, re.S)[1]
                       for kind in ("python", "text"))  # fmt: skip
    lines = [LINE.fullmatch(line) for line in printed.splitlines()]
    return script, lines, dict(FIELD.findall(text))


def run(script, library):
    """The lines that a script prints; JAX's double precision is on for the script alone."""
    said, precision = io.StringIO(), contextlib.nullcontext()
    if library == "JAX":
        import jax

        script = script.replace('jax.config.update("jax_enable_x64", True)', "")
        precision = jax.enable_x64(True)
    with precision, contextlib.redirect_stdout(said):
        exec(compile(script, "report", "exec"), {"__name__": "report"})
    return [LINE.fullmatch(line) for line in said.getvalue().splitlines()]


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore")  # the exporter that PyTorch deprecates is reported too
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_reported_number_is_still_wrong(page):
    script, printed, fields = parts(page)
    library = fields["Library"]
    if find_spec(MODULES[library]) is None:
        pytest.skip(f"{library} is not installed")
    for now, before in zip(run(script, library), printed, strict=True):
        name, value, exact = now.groups()
        assert (name, exact) == (before[1], before[3])
        error = abs(float(value) - float(exact))
        assert not error <= 1e-5 * (1 + abs(float(exact))), (
            f"{library} gives {value} for {name}, and that is right: take the line out of "
            f"{page.name}, and say there which version has mended it"
        )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_report_is_whole_and_in_the_words_of_its_library(page):
    script, printed, fields = parts(page)
    assert fields.keys() == {"Library", "Operators", "Seen with", "Reported"}
    assert "onnxjac" not in script
    assert printed
    assert all(printed)
