"""Output: sections of text for people, one JSON object for machines, or one HTML page.

Pictures are images within the page, in the colours of the reader's theme.
"""

from __future__ import annotations

import base64
import io
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, is_dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from ...jacobians.errors import OnnxJacError
from ...jacobians.hooks import html
from ..linear.check import NOT_COMPARED, RIGHT, WRONG, Check
from ..linear.explanation import Explanation
from ..linear.linearization import Linearization
from ..model.markup import FAINT, Markup, tag
from ..model.primal.model import Model
from .canvas import pyplot
from .document import THEME, document, section
from .plots import plot_graph, plot_jacobian, plot_spectrum

COMMON = {
    "command": "the name of the command",
    "ok": "whether all is well; false goes with a status that is not 0",
    "warnings": "the warnings, a list of texts",
    "error": "where something was refused: its `type` and `message`; then no other keys follow",
}
"""Keys of every JSON object -> what they mean."""


class Output:
    """Prints the findings of a command on stdout, and warnings and errors, a line each, on stderr.

    With `as_json` stdout has one JSON object at the end and nothing else. `quiet` leaves out
    warnings, progress, and which files were written.
    """

    def __init__(self, command: str, *, as_json: bool = False, quiet: bool = False) -> None:
        self.command, self.as_json, self.quiet = command, as_json, quiet
        self.facts: dict[str, Any] = {}
        self.warnings: list[str] = []

    def tell(self, text: str, **facts: Any) -> None:
        """Print a section at once, and keep its facts for the JSON object."""
        self.facts |= facts
        if not self.as_json:
            print(as_flags(text), flush=True)

    def wrote(self, path: str, what: str, **facts: Any) -> None:
        """Report a file that was written."""
        self.facts |= {"file": path, **facts}
        if not (self.as_json or self.quiet):
            print(f"{path}: {what}", flush=True)

    def warn(self, message: object) -> None:
        """Report a warning."""
        text = as_flags(one_line(message))
        self.warnings.append(text)
        if not self.quiet:
            complain(f"warning: {text}")

    def end(self, verdict: str) -> int:
        """Print the JSON object, if asked for; returns the exit status."""
        self._print(verdict == RIGHT, self.facts)
        return {RIGHT: 0, WRONG: 1, NOT_COMPARED: 3}[verdict]

    def refused(self, error: BaseException, options: Iterable[str] = ()) -> int:
        """Report an error in one line, not in a traceback; returns the exit status.

        What the functions take by keyword is named as the command's options; what a loss takes
        stays as it is, `--loss cross_entropy at=logits`.
        """
        message = one_line(error) or "out of memory"
        for name in () if message.startswith("--loss: ") else options:
            message = re.sub(rf"(?<![\w-]){name}=(['\"]?)([\w.]*)\1", rf"--{name} \2", message)
            message = message.replace(f"{name} is empty", f"--{name} is empty")
            message = message.replace("  ", " ").replace(" ,", ",")
        complain(f"error: {message}")
        self._print(False, {"error": {"type": type(error).__name__, "message": message}})
        return 1

    def _print(self, ok: bool, facts: Mapping[str, Any]) -> None:
        if self.as_json:
            found = {"command": self.command, "ok": ok, "warnings": self.warnings, **facts}
            text = json.dumps(json_value(found), ensure_ascii=False, indent=1)
            print(as_flags(text), flush=True)


FLAGS = re.compile(r"\b(straight_through|dynamic_batch)=True")
"""Options of Python that commands have as flags."""


def as_flags(text: str) -> str:
    """A text that names options of Python by the flags of the commands.

    >>> as_flags("straight_through=True passes roundings")
    '--straight-through passes roundings'
    """
    return FLAGS.sub(lambda found: f"--{found[1].replace('_', '-')}", text)


def json_value(value: Any) -> Any:
    """A value in JSON types; numbers that are not finite become null.

    >>> json_value({"a": np.array([1.0, np.inf]), "b": (np.float32(2), "text")})
    {'a': [1.0, None], 'b': [2.0, 'text']}
    """
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): json_value(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(part) for part in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int) else str(value)


def one_line(message: object) -> str:
    """A text without line breaks."""
    return " ".join(str(message).split())


def complain(message: object) -> None:
    """One line on stderr."""
    with suppress(OSError):  # there is nowhere else to report it
        print("onnxjac:", one_line(message), file=sys.stderr)


INK, GROUND = "#010203", "#fdfcfb"
"""Placeholder colours for matplotlib, replaced by the colours of the theme."""

STYLED = dict.fromkeys(
    ("text.color", "axes.edgecolor", "axes.labelcolor", "axes.titlecolor", "xtick.color",
     "ytick.color", "grid.color", "legend.edgecolor"), INK,
) | dict.fromkeys(("figure.facecolor", "savefig.facecolor"), GROUND)  # fmt: skip

EMPTY = "#dddddd"
"""The background of a picture with black or white numbers in its cells."""


def page(
    source: str, model: Model, J: Linearization, summary: list[str], outcome: Check,
    explanation: Explanation, *, seed: int = 0,
) -> str:  # fmt: skip
    """The whole page; `summary` has the sections of the report as text."""
    return document(
        Path(source).name,
        str(J),
        section("Summary", tag("pre", *(tag("div", line, **{"class": "hanging"})
                                        for text in summary for line in text.splitlines()))),
        section("Check", Markup(html(outcome))),
        section("Pictures", *pictures(J, seed)),
        section("Explanation", Markup(html(explanation))),
        section("Operators", Markup(html(J))),
        section("Model", Markup(html(model))),
        subject="Jacobian",
    )


def pictures(J: Linearization, seed: int) -> Iterator[Markup]:
    """Blocks, singular values, and the graph before and after elimination."""
    if find_spec("matplotlib") is None:
        yield tag("p", "Pictures need matplotlib: pip install 'onnxjac[plots]'.", style=FAINT)
        return
    shown = (
        picture("Blocks: outputs by inputs", lambda: plot_jacobian(J, seed=seed), ground=EMPTY),
        picture("Singular values", lambda: plot_spectrum(J, seed=seed)),
        picture("Operators, as the rules give them", lambda: plot_graph(J)),
        picture("Operators, after elimination", lambda: plot_graph(J, after=True)),
    )
    yield Markup(f'<div class="pictures">{"".join(shown)}</div>')


# -- pictures --------------------------------------------------------------------------------------


def picture(title: str, draw: Callable[[], Any], *, ground: str = GROUND) -> Markup:
    """A picture under its title, or a sentence where it cannot be drawn."""
    try:
        svg = base64.b64encode(draw_svg(draw, ground).encode()).decode()
        shown: object = tag("img", src=f"data:image/svg+xml;base64,{svg}", alt=title)
    except (OnnxJacError, np.linalg.LinAlgError) as error:
        shown = tag("p", f"Not drawn: {error}", style=FAINT)
    return tag("figure", tag("figcaption", tag("b", title)), shown)


def draw_svg(draw: Callable[[], Any], ground: str) -> str:
    """A figure as SVG, in the colours of the theme."""
    plt = pyplot()
    plt.switch_backend("agg")  # no window, even where there is a display
    with plt.rc_context({**STYLED, "axes.facecolor": ground, "svg.hashsalt": "onnxjac"}):
        axes = draw()
        text = io.StringIO()
        # images within the picture have twice the resolution of a page
        axes.figure.savefig(text, format="svg", dpi=144, metadata={"Date": None})
        plt.close(axes.figure)
    svg = text.getvalue()
    start = svg.index("<svg")
    head = svg.index(">", start) + 1
    body = svg[head:].replace(INK, "currentColor").replace(GROUND, "var(--ground)")
    return f"{svg[start:head]}<style>{THEME}</style>{body}"
