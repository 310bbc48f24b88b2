"""Pictures as SVG and HTML text, without matplotlib: images, bars, curves on a log axis, words.

A picture follows the colours of the page: text and lines are `currentColor`. Images are PNG data
inside the SVG, so that a page needs no other file.
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Sequence
from itertools import cycle
from typing import Any

import numpy as np

from ..model.markup import FAINT, Markup, tag
from .canvas import BLUE, PALETTE, VERMILLION, shortened

MAGNITUDES = ("440154", "472d7b", "3b528b", "2c728e", "21918c", "28ae80", "5ec962", "addc30",
              "fde725")  # fmt: skip
"""Colours for numbers from zero upwards: matplotlib's viridis, at nine places."""

SIGNED = ("053061", "2166ac", "4393c3", "92c5de", "f7f7f7", "f4a582", "d6604d", "b2182b", "67001f")
"""Colours from negative, blue, to positive, red. Source: Brewer, colorbrewer2.org, RdBu."""

SIDE = 320
"""Pixels of the longer side of an image."""

LETTER_PIXELS = 7
"""The width of a letter of `FONT`, at most, on average."""

FONT = "font-family:system-ui,sans-serif;font-size:12px;fill:currentColor"


def colours(x: np.ndarray, scale: Sequence[str]) -> np.ndarray:
    """Numbers from 0 to 1 as RGB bytes, (*shape, 3).

    >>> colours(np.array([0.0, 1.0]), MAGNITUDES).tolist()
    [[68, 1, 84], [253, 231, 37]]
    """
    anchors = np.array([[int(c[k : k + 2], 16) for k in (0, 2, 4)] for c in scale], float)
    place = np.clip(np.nan_to_num(x), 0, 1) * (len(scale) - 1)
    low = np.minimum(place.astype(int), len(scale) - 2)
    part = (place - low)[..., None]
    return ((1 - part) * anchors[low] + part * anchors[low + 1]).round().astype(np.uint8)


def png(pixels: np.ndarray) -> str:
    """RGB bytes (height, width, 3) as the data address of a PNG."""
    h, w, _ = pixels.shape
    rows = np.concatenate([np.zeros((h, 1), np.uint8), pixels.reshape(h, 3 * w)], axis=1)

    def chunk(kind: bytes, data: bytes) -> bytes:
        size, code = (struct.pack(">I", n) for n in (len(data), zlib.crc32(kind + data)))
        return size + kind + data + code

    parts = (chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, 8, 2, 0, 0, 0)),
             chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)), chunk(b"IEND", b""))  # fmt: skip
    data = b"\x89PNG\r\n\x1a\n" + b"".join(parts)
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


def svg(width: float, height: float, *parts: object, title: str) -> Markup:
    """An SVG image that shrinks with the page, under its title for those who do not see it."""
    style = f"max-width:100%;height:auto;width:{width:.0f}px;{FONT}"
    return tag("svg", tag("title", title), *parts, style=style, role="img",
               viewBox=f"0 0 {width:.0f} {height:.0f}")  # fmt: skip


def figure(title: str, *parts: object) -> Markup:
    """A picture under its title."""
    return tag("figure", tag("figcaption", tag("b", title)), *parts, style="margin:0 0 1em")


def words(x: float, y: float, text: str, anchor: str = "start", turn: float = 0) -> Markup:
    """Text in an SVG that starts, or ends, at a place; turned by degrees."""
    a, b = f"{x:.1f}", f"{y:.1f}"
    turned = f"rotate({turn:g} {a} {b})" if turn else False
    return tag("text", text, style=f"text-anchor:{anchor}", x=a, y=b, transform=turned)


# -- images ----------------------------------------------------------------------------------------


def photograph(image: np.ndarray, title: str) -> Markup:
    """An image (C, H, W), from its least to its largest number: in colours, or its mean in grey."""
    low, high = float(image.min()), float(image.max())
    shown = (image - low) / max(high - low, np.finfo(float).tiny)
    grey = np.broadcast_to(shown.mean(axis=0), (3, *image.shape[1:]))
    return pixels_shown((shown if len(image) == 3 else grey).transpose(1, 2, 0), title)


def heat(values: np.ndarray, title: str, *, bar: bool = True) -> Markup:
    """Numbers (H, W) as colours: from 0 upwards, or blue to red where there are negative ones."""
    most, signed = float(np.abs(values).max(initial=0.0)), bool((values < 0).any())
    unit = values / (most or 1.0)
    scale = SIGNED if signed else MAGNITUDES
    shown = colours((unit + 1) / 2 if signed else unit, scale) / 255
    legend = ("−" + three_digits(most) if signed else "0", three_digits(most)) if bar else None
    return pixels_shown(shown, title, legend, scale)


def overlay(image: np.ndarray, values: np.ndarray, title: str) -> Markup:
    """An image (C, H, W) in grey under the colours of a map (h, w) from 0 upwards."""
    low, high = float(image.min()), float(image.max())
    grey = ((image - low) / max(high - low, np.finfo(float).tiny)).mean(axis=0)[..., None]
    part = resize_map(values, grey.shape[:2]) / (float(values.max(initial=0.0)) or 1.0)
    tint = colours(part, MAGNITUDES) / 255
    weight = 0.65 * np.clip(part, 0, 1)[..., None]
    return pixels_shown((1 - weight) * grey + weight * tint, title)


def resize_map(values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers (h, w) between which (H, W) are linear, with pixels as areas.

    >>> resize_map(np.array([[0.0, 4.0]]), (1, 4))
    array([[0., 1., 3., 4.]])
    """
    for axis, n in enumerate(shape):
        m = values.shape[axis]
        at = np.clip((np.arange(n) + 0.5) * m / n - 0.5, 0, m - 1)
        low = np.minimum(at.astype(int), max(m - 2, 0))
        part = np.expand_dims(at - low, 1 - axis)
        high = np.take(values, np.minimum(low + 1, m - 1), axis)
        values = (1 - part) * np.take(values, low, axis) + part * high
    return values


def pixels_shown(
    shown: np.ndarray, title: str, legend: tuple[str, str] | None = None,
    scale: Sequence[str] = MAGNITUDES,
) -> Markup:  # fmt: skip
    """RGB from 0 to 1, (H, W, 3), with a bar of colours and its ends below."""
    h, w = shown.shape[:2]
    zoom = SIDE / max(h, w)
    H, W = max(zoom * h, 1.0), max(zoom * w, 1.0)
    smooth = "auto" if zoom < 1 else "pixelated"
    bytes_of = (255 * np.clip(shown, 0, 1)).round().astype(np.uint8)
    parts = [tag("image", href=png(bytes_of), width=f"{W:.0f}", height=f"{H:.0f}",
                 preserveAspectRatio="none", style=f"image-rendering:{smooth}")]  # fmt: skip
    if legend is None:
        return svg(W, H, *parts, title=title)
    ramp = png(colours(np.linspace(0, 1, 64), scale)[None])
    parts.append(tag("image", href=ramp, x="60", y=f"{H + 8:.0f}", width=f"{SIDE - 120}",
                     height="10", preserveAspectRatio="none"))  # fmt: skip
    parts += [words(54, H + 17, legend[0], "end"), words(SIDE - 54, H + 17, legend[1])]
    return svg(max(W, SIDE), H + 24, *parts, title=title)


# -- charts ----------------------------------------------------------------------------------------


def bars(values: Sequence[float], labels: Sequence[str], title: str) -> Markup:
    """A horizontal bar for each number, from zero, with its label and the number."""
    most = max((abs(v) for v in values if math.isfinite(v)), default=0.0) or 1.0
    names = shortened(labels, 26)
    height, left, width = 18, max(170, LETTER_PIXELS * max(map(len, names), default=0) + 12), 520
    signed = any(v < 0 for v in values)
    zero, reach = (left + width / 2, width / 2) if signed else (left, width)
    parts = []
    for k, (value, label) in enumerate(zip(values, names, strict=True)):
        length = reach * min(abs(value), most) / most if math.isfinite(value) else 0.0
        start, y = zero - length if value < 0 else zero, height * k
        parts += [
            words(left - 8, y + 13, label, "end"),
            tag("rect", x=f"{start:.1f}", y=y + 3, width=f"{length:.1f}", height=height - 6,
                fill=BLUE if value < 0 or not signed else VERMILLION),
            words(left + width + 8, y + 13, three_digits(value)),
        ]  # fmt: skip
    return svg(left + width + 70, max(height * len(values), 1), *parts, title=title)


def log_chart(
    series: Sequence[tuple[str, Sequence[float]]], labels: Sequence[str], title: str,
    threshold: float | None = None,
) -> Markup:  # fmt: skip
    """Curves of positive numbers over named places on a log axis, and a line at a threshold.

    Zeros are drawn at the lower end; numbers that are not finite are left out.
    """
    seen = [v for _, values in series for v in values if math.isfinite(v) and v > 0]
    seen += [threshold] if threshold else []
    low = math.floor(math.log10(min(seen, default=1e-3)))
    high = max(math.ceil(math.log10(max(seen, default=1.0))), low + 1)
    names = shortened(labels, 22)
    reach = LETTER_PIXELS * max(map(len, names), default=0)  # of the longest name, on its slant
    left, right, top, bottom = max(56, reach * 2 // 3), 16, 28, max(132, reach * 4 // 5 + 24)
    width = max(560, 16 * len(labels))
    height = 220

    def x_of(k: int) -> float:
        return left + width * (k + 0.5) / max(len(labels), 1)

    def y_of(value: float) -> float:
        place = (math.log10(value) if value > 0 else low) - low
        return top + height * (1 - place / (high - low))

    every = max(1, (high - low) // 6)
    parts: list[Markup] = []
    for power in range(low, high + 1, every):
        y = y_of(10.0**power)
        parts += [
            line(left, y, left + width, y, "opacity:.2"),
            words(left - 6, y + 4, f"1e{power}", "end"),
        ]
    if threshold:
        y = y_of(threshold)
        parts += [line(left, y, left + width, y, "stroke-dasharray:6 4"),
                  words(left + width, y - 4, "tolerance", "end")]  # fmt: skip
    for k, name in enumerate(names):
        parts.append(words(x_of(k), top + height + 14, name, "end", -50))
    room = min(180, width // max(len(series), 1))
    for n, ((name, values), colour) in enumerate(zip(series, cycle(PALETTE), strict=False)):
        at = [(x_of(k), y_of(v)) for k, v in enumerate(values) if math.isfinite(v)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
        parts.append(tag("polyline", points=path, fill="none", stroke=colour))
        parts += [tag("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=3, fill=colour) for x, y in at]
        parts += [tag("circle", cx=left + 8 + room * n, cy=10, r=4, fill=colour),
                  words(left + 18 + room * n, 14, name)]  # fmt: skip
    return svg(left + width + right, top + height + bottom, *parts, title=title)


def line(x: float, y: float, to_x: float, to_y: float, style: str = "") -> Markup:
    """A line in the colour of the text."""
    a, b, c, d = (f"{end:.1f}" for end in (x, y, to_x, to_y))
    return tag("line", style=f"stroke:currentColor;{style}", x1=a, y1=b, x2=c, y2=d)


def three_digits(value: float) -> str:
    """A number in three digits.

    >>> three_digits(0.0), three_digits(1234.5), three_digits(-3.21e-7)
    ('0', '1.23e+03', '−3.21e-07')
    """
    return f"{value:.3g}".replace("-", "−", 1) if value < 0 else f"{value:.3g}"


# -- words -----------------------------------------------------------------------------------------


def mark_words(tokens: Sequence[str], values: Sequence[float], title: str) -> Markup:
    """Words on grounds that are the stronger, the larger their number: red above zero, blue below.

    The number of each is its tooltip.
    """
    most = max((abs(v) for v in values if math.isfinite(v)), default=0.0) or 1.0
    spans: list[Any] = []
    for token, value in zip(tokens, values, strict=True):
        share = min(abs(value) / most, 1.0) if math.isfinite(value) else 0.0
        rgb = "33,102,172" if value < 0 else "213,94,0"
        style = (f"background:rgba({rgb},{0.75 * share:.3f});padding:.15em .3em;margin:.1em;"
                 "border-radius:.25em;display:inline-block;white-space:pre")  # fmt: skip
        spans.append(tag("span", token, style=style, title=three_digits(value)))
    ends = ("blue −" + three_digits(most), "red ") if any(v < 0 for v in values) else ("0", "")
    small = tag("div", tag("small", f"{ends[0]} … {ends[1]}{three_digits(most)}"), style=FAINT)
    return tag("div", *spans, small, style="line-height:2", role="img", title=title)
