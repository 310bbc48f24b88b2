"""The gallery: the code of every picture draws, and the committed pictures are small."""

import importlib.util
from io import BytesIO
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SMALL = 60_000
"""The most bytes of a picture."""

pytest.importorskip("matplotlib")
spec = importlib.util.spec_from_file_location("gallery", DOCS / "images" / "gallery.py")
gallery = importlib.util.module_from_spec(spec)
spec.loader.exec_module(gallery)
CODES = gallery.blocks()[1]


@pytest.mark.sampled(0.4)
@pytest.mark.parametrize("name", CODES)
def test_code_of_the_gallery_draws_its_picture(name, monkeypatch):
    from PIL import Image

    monkeypatch.chdir(ROOT)
    made, kept = (Image.open(x) for x in (BytesIO(gallery.picture(CODES[name])), DOCS / name))
    assert made.getcolors(256)[1:], "one colour alone"
    for drawn, committed in zip(made.size, kept.size, strict=True):
        assert abs(drawn - committed) < 0.1 * committed


def test_pictures_of_the_gallery_are_on_the_page_and_small():
    files = [*(DOCS / "images" / "gallery").iterdir()]
    assert {path.relative_to(DOCS).as_posix() for path in files} == CODES.keys()
    assert [path.name for path in files if path.stat().st_size > SMALL] == []
