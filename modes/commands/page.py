"""Page: a report as one HTML file, with nothing from elsewhere: no scripts, no fonts, no links."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from ...jacobians.hooks import html
from ..checking.check import Check
from ..explaining.explanation import Explanation
from ..linearization import Linearization
from ..plots import plot_graph, plot_jacobian, plot_spectrum
from ..reporting import report as text
from ..reporting.html.elements import FAINT, Markup, tag
from ..reporting.spectrum import Spectrum
from ..reporting.timings import Timings
from .pictures import DARK, EMPTY, LIGHT, picture
from .point import At

COLORS = (
    ":root {{ color-scheme: light dark; color: {}; background: {}; }}\n"
    "@media (prefers-color-scheme: dark) {{ :root {{ color: {}; background: {}; }} }}"
).format(*LIGHT, *DARK)

STYLE = """
body { max-width: 76rem; margin: 0 auto; padding: 1.5rem; font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .2em; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2em 0 .6em; border-bottom: 1px solid; padding-bottom: .2em; }
pre { font: 13px/1.5 ui-monospace, monospace; overflow-x: auto; }
figure { margin: 0; } figure img { width: 100%; max-width: 44rem; display: block; }
figcaption { margin-bottom: .4em; }
.pictures { display: grid; grid-template-columns: repeat(auto-fit, minmax(28rem, 1fr)); gap: 2rem; }
details { font-size: 13px; margin: .3em 0; }
@media (max-width: 60rem) { .pictures { grid-template-columns: 1fr; } }
"""

META = Markup(
    '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
)


@dataclass(frozen=True)
class Findings:
    """All that a report found."""

    at: At
    source: str
    J: Linearization
    explanation: Explanation
    outcome: Check
    spectrum: Spectrum
    times: Timings


def page(found: Findings, seed: int = 0) -> str:
    """The whole page."""
    title = Path(found.source).name
    style = tag("style", Markup(COLORS + STYLE))
    head = tag("head", META, tag("title", f"{title}: Jacobian"), style)
    body = tag("body", tag("h1", title), tag("div", str(found.J), style=FAINT),
               *sections(found, seed), footer())  # fmt: skip
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}"


def sections(found: Findings, seed: int) -> Iterator[Markup]:
    """One part after the other."""
    at, J = found.at, found.J
    summary = (
        text.of_model(at.model, found.source, at.point, at.given),
        text.of_jacobian(J, found.explanation), text.of_spectrum(found.spectrum),
        text.of_timings(found.times),
    )  # fmt: skip
    yield section("Summary", tag("pre", "\n".join(summary)))
    yield section("Check", Markup(html(found.outcome)))
    yield section("Pictures", *pictures(J, seed))
    yield section("Explanation", Markup(html(found.explanation)))
    yield section("Operators", Markup(html(J)))
    yield section("Model", Markup(html(at.model)))


def section(title: str, *parts: Markup) -> Markup:
    """A heading, and what is below it."""
    return tag("section", tag("h2", title), *parts)


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


def footer() -> Markup:
    """What made it."""
    return tag("p", tag("small", f"Made by onnxjac {version('onnxjac')}."), style=FAINT)
