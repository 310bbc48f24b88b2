"""Draw the rooms of the package: `python docs/images/rooms.py` writes `rooms.svg` beside this.

Each box is a folder, or a file directly in `modes/`. It stands above all that it imports, and lines
that other lines imply are left out.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests" / "suite"))

from house import reduced, rooms  # noqa: E402  (the path comes first)

WIDTH, HEIGHT, GAP, PAD = 112, 26, 54, 12
PAGE = 960

STYLE = """<style>
rect{fill:#fff;stroke:#555} rect.folder{fill:#e8eefc} line{stroke:#999}
text{font:12px sans-serif;text-anchor:middle;fill:#111}
</style>"""


def main() -> None:
    """Write the picture."""
    (HERE / "rooms.svg").write_text(picture(reduced(rooms())), encoding="utf-8")


def picture(below: dict[str, set[str]]) -> str:
    """The SVG of boxes in rows, each box a row above the highest box that it imports."""
    height = heights(below)
    rows: list[list[str]] = [[] for _ in range(max(height.values()) + 1)]
    for name in sorted(below):
        rows[height[name]].append(name)
    place = {}
    for k, row in enumerate(reversed(rows)):
        step = PAGE / len(row)
        place.update({name: (step * (i + 0.5), PAD + k * GAP) for i, name in enumerate(row)})
    pairs = ((upper, lower) for upper in sorted(below) for lower in sorted(below[upper]))
    lines = [line(place[upper], place[lower]) for upper, lower in pairs]
    boxes = [box(name, *place[name]) for name in sorted(below)]
    tall = PAD * 2 + (len(rows) - 1) * GAP + HEIGHT
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {PAGE} {tall}">'
    return "\n".join([head, STYLE, *lines, *boxes, "</svg>", ""])


def heights(below: dict[str, set[str]]) -> dict[str, int]:
    """The row of each box."""
    found: dict[str, int] = {}

    def height(name: str) -> int:
        if name not in found:
            found[name] = 1 + max(map(height, below[name]), default=-1)
        return found[name]

    return {name: height(name) for name in below}


def line(upper: tuple[float, float], lower: tuple[float, float]) -> str:
    """A line from the bottom of a box to the top of one below."""
    (x, y), (u, v) = upper, lower
    return f'<line x1="{x:g}" y1="{y + HEIGHT:g}" x2="{u:g}" y2="{v:g}"/>'


def box(name: str, x: float, y: float) -> str:
    """A box with its name; folders are coloured."""
    kind = "folder" if name.endswith("/") else "file"
    size = f'width="{WIDTH}" height="{HEIGHT}" rx="4"'
    return (
        f'<rect class="{kind}" x="{x - WIDTH / 2:g}" y="{y:g}" {size}/>'
        f'<text x="{x:g}" y="{y + 17:g}">{name}</text>'
    )


if __name__ == "__main__":
    main()
