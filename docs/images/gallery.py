"""Draw the gallery: `python docs/images/gallery.py` runs the code of `docs/gallery.md`.

The first block of the page is what all the others begin with; each other block draws the picture
below it, which is written with few colours, so that it is small.
"""

import re
import warnings
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from PIL import Image

import onnxjac as oj

DOCS = Path(__file__).resolve().parents[1]

COLORS = 64


def blocks() -> tuple[str, dict[str, str]]:
    """What all pictures begin with, and the code of each picture by its name in `docs/`."""
    text = (DOCS / "gallery.md").read_text(encoding="utf-8")
    start, *others = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    names = re.findall(r"^!\[[^\]]+\]\((.+)\)$", text, re.M)
    return start, dict(zip(names, others, strict=True))


def picture(code: str) -> bytes:
    """The picture that some code draws, as PNG."""
    plt.close("all")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", oj.OnnxJacWarning)
        exec(blocks()[0] + code, {})
    return small(plt.gcf())


def small(figure: Any) -> bytes:
    """A figure as PNG of few colours."""
    whole, made = BytesIO(), BytesIO()
    figure.savefig(whole, dpi=110, bbox_inches="tight", metadata={"Software": None})
    colours = Image.open(whole).convert("RGB").quantize(COLORS, dither=Image.Dither.NONE)
    colours.save(made, "PNG", optimize=True)
    return made.getvalue()


if __name__ == "__main__":
    for name, code in blocks()[1].items():
        made = picture(code)
        (DOCS / name).write_bytes(made)
        print(f"{name}: {len(made) // 1024} KB")
