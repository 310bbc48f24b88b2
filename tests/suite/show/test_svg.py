"""Pictures as SVG: the pixels, bars and curves that a reader sees."""

import base64
import struct
import zlib
from xml.etree import ElementTree

import numpy as np
import pytest

from onnxjac.modes.show import svg


def pixels(address):
    """The RGB bytes of a PNG, read by its specification."""
    data = base64.b64decode(address.removeprefix("data:image/png;base64,"))
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, place = {}, 8
    while place < len(data):
        (n,) = struct.unpack(">I", data[place : place + 4])
        kind, body = data[place + 4 : place + 8], data[place + 8 : place + 8 + n]
        (code,) = struct.unpack(">I", data[place + 8 + n : place + 12 + n])
        assert code == zlib.crc32(kind + body)
        chunks[kind], place = body, place + 12 + n
    w, h, bits, colour, *_ = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert (bits, colour) == (8, 2)
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(h, 1 + 3 * w)
    assert not rows[:, 0].any()
    return rows[:, 1:].reshape(h, w, 3)


def drawn(picture):
    """The elements of an SVG, by tag."""
    found = {}
    for element in ElementTree.fromstring(picture).iter():
        found.setdefault(element.tag, []).append(element)
    return found


def test_signed_maps_are_blue_below_zero_and_red_above():
    image, bar = drawn(svg.heat(np.array([[-2.0, 0.0, 2.0]]), "map"))["image"]
    blue, white, red = pixels(image.get("href"))[0].tolist()
    assert (blue, white, red) == ([5, 48, 97], [247, 247, 247], [103, 0, 31])
    assert pixels(bar.get("href")).shape == (1, 64, 3)
    texts = [element.text for element in drawn(svg.heat(np.array([[-2.0, 1.0]]), "map"))["text"]]
    assert texts == ["−2", "2"]
    image, _ = drawn(svg.heat(np.array([[0.0, 3.0]]), "map"))["image"]
    assert pixels(image.get("href"))[0].tolist() == [[68, 1, 84], [253, 231, 37]]


def test_photographs_and_overlays_have_the_pixels_given():
    grey = np.array([[[0.0, 1.0], [0.5, 0.25]]])
    (image,) = drawn(svg.photograph(grey, "x"))["image"]
    assert pixels(image.get("href"))[..., 0].tolist() == [[0, 255], [128, 64]]
    colour = np.stack([np.eye(2), 0 * np.eye(2), 1 - np.eye(2)])
    (image,) = drawn(svg.photograph(colour, "x"))["image"]
    assert pixels(image.get("href"))[0].tolist() == [[255, 0, 0], [0, 0, 255]]
    (image,) = drawn(svg.overlay(grey, np.array([[0.0]]), "x"))["image"]
    assert pixels(image.get("href"))[..., 0].tolist() == [[0, 255], [128, 64]]
    assert svg.resize_map(np.ones((2, 3)), (7, 5)).tolist() == np.ones((7, 5)).tolist()


def test_bars_start_at_zero_and_have_colours_of_signs():
    right = drawn(svg.bars([1.0, 4.0], ["a", "b"], "t"))["rect"]
    assert [float(bar.get("width")) for bar in right] == [130, 520]
    left, right = drawn(svg.bars([-2.0, 4.0], ["a", "b"], "t"))["rect"]
    assert (left.get("fill"), right.get("fill")) == (svg.BLUE, svg.VERMILLION)
    ends = float(left.get("x")) + float(left.get("width")), float(right.get("x"))
    assert ends == pytest.approx([430, 430])
    assert "rect" in drawn(svg.bars([0.0, np.nan], ["a", "b"], "t"))


def test_curves_fall_by_a_decade_at_equal_distance():
    found = drawn(svg.log_chart([("values", [1.0, 0.1, 0.01, 0.0, np.nan])], "abcde", "t", 0.1))
    *points, legend = (float(circle.get("cy")) for circle in found["circle"])
    assert legend == 10
    one, tenth, hundredth, zero = points
    assert tenth - one == pytest.approx(hundredth - tenth)
    assert zero == hundredth  # the lower end
    assert {"1e-2", "1e-1", "1e0"} <= {text.text for text in found["text"]}
    assert any(float(line.get("y1")) == tenth and "dash" in line.get("style")
               for line in found["line"])  # fmt: skip


def test_names_are_text():
    for picture in (svg.bars([1.0], ["<b>"], "<i>"), svg.log_chart([("s", [1.0])], ["<b>"], "<i>"),
                    svg.mark_words(["<b>"], [1.0], "<i>")):  # fmt: skip
        found = drawn(picture)
        assert not {"b", "i"} & found.keys()
        assert "<b>" in "".join(ElementTree.fromstring(picture).itertext())
