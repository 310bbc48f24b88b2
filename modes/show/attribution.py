"""Pictures of attributions: maps beside and over images, words on coloured grounds, bars."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ...jacobians import hooks
from ...jacobians.errors import InputError
from ...jacobians.hooks import html
from ..attribution.attribution import Attribution
from ..model.markup import Markup, Page, card, tag
from . import svg
from .document import document, section

PAGE_SAMPLES, IN_NOTEBOOK = 16, 3
"""At most this many samples are shown on a page, and in a notebook."""

FEATURES = 24
"""At most this many features have a bar."""

Tokens = Sequence[Sequence[str]] | None


@html.register
def _(found: Attribution) -> str:
    """The first samples."""
    shown = (
        part
        for k in range(min(found.samples, IN_NOTEBOOK))
        for part in draw_pictures(found, k, None)
    )
    return card(repr(found), about(found), row(*shown))


@hooks.view.register
def _(found: Attribution, tokens: Tokens, title: str) -> Page:
    """A section for each sample."""
    if tokens is not None and len(tokens) < found.samples:
        raise InputError(f"tokens= has words of {len(tokens)} samples, not of {found.samples}")
    parts = [section(heading(found, k), row(*draw_pictures(found, k, tokens)))
             for k in range(min(found.samples, PAGE_SAMPLES))]  # fmt: skip
    if found.samples > PAGE_SAMPLES:
        parts.append(tag("p", f"and {found.samples - PAGE_SAMPLES} more samples"))
    looks = f"What {found.of} looks at"
    told = ". ".join(filter(None, [looks * bool(title), found.method, about(found)]))
    return Page(document(title or looks, told, *parts, subject=found.method))


def row(*figures: Markup) -> Markup:
    """Figures side by side, where there is room."""
    return tag("div", *figures, style="display:flex;flex-wrap:wrap;gap:1em 2em")


def about(found: Attribution) -> str:
    """How well the numbers add up, and which colours mean what."""
    colours = "Red raises it, blue lowers it." if found.signed else ""
    if found.gap is None:
        return colours
    gap = float(np.abs(found.gap).max(initial=0.0))
    return f"{colours} The numbers add up to the change of f from the baseline; gap {gap:.2g}."


def heading(found: Attribution, k: int) -> str:
    """The sample, and its f."""
    value = f"f = {svg.three_digits(float(found.values[k]))}" if k < len(found.values) else ""
    gap = "" if found.gap is None or k >= len(found.gap) else f", gap {found.gap[k]:.2g}"
    return f"Sample {k}: {value}{gap}"


def draw_pictures(found: Attribution, k: int, tokens: Tokens) -> Iterator[Markup]:
    """The pictures of one sample."""
    for name in found.maps:
        x, picture = found.inputs[name], found.picture(name, k if found.maps[name].ndim > 1 else 0)
        if picture.ndim == 2:
            yield from of_image(found, name, k, picture)
        elif x.ndim == 3:
            words = list(tokens[k]) if tokens is not None else list(map(str, range(len(picture))))
            if len(words) != len(picture):
                raise InputError(f"tokens= has {len(words)} words for the {len(picture)} tokens of "
                                 f"sample {k}")  # fmt: skip
            yield svg.figure(f"{name}[{k}]", svg.mark_words(words, picture.tolist(), found.method))
        else:
            yield of_features(f"{name}[{k}]" if x.ndim > 1 else name, picture.ravel(), found.method)


def of_image(found: Attribution, name: str, k: int, picture: np.ndarray) -> Iterator[Markup]:
    """The image, the map, and the map over the image."""
    images = found.images or ({name: found.inputs[name]} if found.inputs[name].ndim == 4 else {})
    for source, image in images.items():
        if len(image) == found.samples:
            yield svg.figure(f"{source}[{k}]", svg.photograph(image[k], f"{source}[{k}]"))
    none = "" if picture.any() else ": 0 everywhere, no place speaks for it"
    yield svg.figure(f"{found.method}, {name}{none}", svg.heat(picture, found.method))
    for source, image in images.items():
        if len(image) == found.samples:
            title = f"{found.method} over {source}"
            yield svg.figure(title, svg.overlay(image[k], np.abs(picture), title))


def of_features(name: str, picture: np.ndarray, method: str) -> Markup:
    """Bars of the features that count most, in their order."""
    chosen = np.sort(np.argsort(-np.abs(picture), kind="stable")[:FEATURES])
    more = "" if len(chosen) == len(picture) else f", the {len(chosen)} largest of {len(picture):,}"
    labels = [f"feature {j}" for j in chosen]
    return svg.figure(f"{name}{more}", svg.bars(picture[chosen].tolist(), labels, method))
