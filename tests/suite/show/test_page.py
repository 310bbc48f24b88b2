"""The page: a report as one HTML file that needs nothing else."""

import base64
import re
from xml.etree import ElementTree

import onnx
import pytest

from onnxjac.modes.show import output as module
from show.markup import Markup
from show.running import DIGITS, answer, written


def reported(capsys, folder, *argv):
    target = folder / "page.html"
    status, out, err = answer(capsys, "report", *argv, "--html", str(target))
    assert status == 0
    found = Markup(target.read_text("utf-8"))
    assert not found.elements & {"script", "link"}
    return found, out, err


def pictures(found):
    return [base64.b64decode(image["src"].partition("base64,")[2]).decode()
            for image in found.images]  # fmt: skip


def test_all_that_the_text_says_and_pictures(capsys, tmp_path):
    pytest.importorskip("matplotlib")
    found, out, _ = reported(capsys, tmp_path, DIGITS)
    for line in out.splitlines():
        later = line.startswith(("check", "memory", "next"))  # J holds more after these products
        later |= line[12:].startswith(("onnxjac", "--"))
        if not later and "error" not in line and "page.html" not in line:
            assert line.strip() in found.text
    assert "KiB; the matrix would take 2.5 KiB" in found.text
    assert "all 14 tests passed" in found.text
    assert [image["alt"] for image in found.images] == [
        "Blocks: outputs by inputs", "Singular values",
        "Operators, as the rules give them", "Operators, after elimination",
    ]  # fmt: skip
    addresses = [value for key, value in found.attributes if key in ("src", "href")]
    assert all(address.startswith("data:") for address in addresses)
    for svg in pictures(found):
        root = ElementTree.fromstring(svg)
        assert root.tag.endswith("svg")
        assert "prefers-color-scheme:dark" in svg
        assert "currentColor" in svg
        assert not re.search(r"#010203|#fdfcfb", svg)


def test_without_matplotlib_it_says_so(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    found, _, _ = reported(capsys, tmp_path, DIGITS)
    assert not found.images
    assert "onnxjac[plots]" in found.text
    assert "all 14 tests passed" in found.text


def test_a_picture_that_cannot_be_drawn_says_why(capsys, tmp_path):
    pytest.importorskip("matplotlib")
    graph = "g (float[3] x, float[3] y) => (float[3] z) { s = Sign(x) z = Mul(s, y) }"
    found, _, _ = reported(capsys, tmp_path, written(tmp_path, graph), "--wrt", "x", "--quiet")
    assert "Not drawn: nothing leads from wrt to of" in found.text


def test_names_do_not_become_markup(capsys, tmp_path):
    path = tmp_path / "<script>.onnx"
    model = onnx.helper.make_model(onnx.helper.make_graph(
        [onnx.helper.make_node("Tanh", ["<script>x"], ["y"])], "g",
        [onnx.helper.make_tensor_value_info("<script>x", 1, [3])],
        [onnx.helper.make_tensor_value_info("y", 1, [3])],
    ), opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)  # fmt: skip
    onnx.save(model, path)
    found, _, _ = reported(capsys, tmp_path, str(path))
    assert "<script>x" in found.text
