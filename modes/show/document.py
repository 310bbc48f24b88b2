"""Document: the frame of every HTML page, in the colours of the reader's theme."""

from __future__ import annotations

from importlib.metadata import version

from ..model.markup import FAINT, Markup, tag

THEME = (
    ":root{color:#1a1a1a;--ground:#ffffff}"
    "@media (prefers-color-scheme:dark){:root{color:#e6e6e6;--ground:#121212}}"
)
"""Style of the page, and of each picture, which does not inherit from the page."""

STYLE = """
:root { color-scheme: light dark; background: var(--ground); }
body { max-width: 76rem; margin: 0 auto; padding: 1.5rem; font: 15px/1.5 system-ui, sans-serif;
  overflow-wrap: break-word; }
td[style*="text-align:left"] { white-space: normal !important; overflow-wrap: anywhere; }
td td, td th { padding-right: .4em !important; }
h1 { font-size: 1.6rem; margin: 0 0 .2em; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2em 0 .6em; border-bottom: 1px solid; padding-bottom: .2em; }
pre { font: 13px/1.5 ui-monospace, monospace; white-space: pre-wrap !important;
  overflow-wrap: anywhere; }
.hanging { padding-left: 12ch; text-indent: -12ch; }
figure { margin: 0; } figure img { width: 100%; max-width: 44rem; display: block; }
figcaption { margin-bottom: .4em; }
.pictures { display: grid; grid-template-columns: repeat(auto-fit, minmax(28rem, 1fr)); gap: 2rem; }
details { font-size: 13px; margin: .3em 0; }
@media (max-width: 60rem) { .pictures { grid-template-columns: 1fr; } }
@media (max-width: 40rem) { body { padding: 1rem; }
  thead { display: none; } table, tbody, tr { display: block; }
  tr { border-bottom: 1px solid; padding: .3em 0; }
  td { display: flex; gap: 1em; justify-content: space-between; padding-right: 0 !important;
    white-space: normal !important; overflow-wrap: anywhere; }
  td::before { content: attr(data-head); opacity: .7; white-space: nowrap; } }
"""
"""Of the page; names break where a table is too wide; in a narrow page, each cell of a table is a
line, with the head of its column.
"""

META = Markup(
    '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
)


def document(title: str, about: str, *sections: Markup, subject: str) -> str:
    """The whole page: what it shows, a line about it, and sections; `subject` is for its tab."""
    style = tag("style", Markup(THEME + STYLE))
    head = tag("head", META, tag("title", f"{title}: {subject}"), style)
    made = tag("p", tag("small", f"Made by onnxjac {version('onnxjac')}."), style=FAINT)
    body = tag("body", tag("h1", title), tag("div", about, style=FAINT), *sections, made)
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}"


def section(title: str, *parts: Markup) -> Markup:
    """A heading, and parts below it."""
    return tag("section", tag("h2", title), *parts)
