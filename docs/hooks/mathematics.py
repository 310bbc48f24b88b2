"""LaTeX becomes MathML when the site is built, so that browsers need no script for it."""

import html
import re
from typing import Any

from latex2mathml.converter import convert

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(content: str, **_: Any) -> str:
    """The page with its formulas as MathML."""
    return FORMULA.sub(_formula, content)


def _formula(found: re.Match[str]) -> str:
    tag, latex = found.groups()
    return convert(html.unescape(latex), display="block" if tag == "div" else "inline")
