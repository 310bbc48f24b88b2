"""Text: operators, and lists of anything, in one line that people can read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

WIDTH = 200
"""Characters of one line, roughly."""


def joined(
    parts: Sequence[Any], sign: str, text: Callable[[Any], str] = str, width: int = WIDTH
) -> str:
    """Parts with a sign between them; of too many the first, how many more there are, the last.

    Of thousands of parts only those that are shown are turned into text.

    >>> joined(range(5), " + ")
    '0 + 1 + 2 + 3 + 4'
    >>> joined(range(5000), " + ", width=40)
    '0 + 1 + 2 + … 4,996 more … + 4999'
    """
    words = first_words(parts, sign, text, width)
    if len(words) == len(parts) and fits(words, sign, width):
        return sign.join(words)
    half = max(width // 2 - 10, 1)
    words = [clipped(word, half) for word in words]
    while len(words) > 1 and not (len(words) < len(parts) and fits(words, sign, half)):
        words.pop()
    more = len(parts) - len(words) - 1
    last = [clipped(text(parts[-1]), half)] if len(parts) > 1 else []
    return sign.join([*words, *([f"… {more:,} more …"] if more > 0 else []), *last])


def first_words(
    parts: Sequence[Any], sign: str, text: Callable[[Any], str], width: int
) -> list[str]:
    """The text of parts until a line is full."""
    words: list[str] = []
    for part in parts:
        words.append(text(part))
        if not fits(words, sign, width):
            break
    return words


def fits(words: list[str], sign: str, width: int) -> bool:
    """Whether words with a sign between them are a line."""
    return sum(map(len, words)) + len(sign) * (len(words) - 1) <= width


def clipped(text: str, width: int = WIDTH) -> str:
    """A text, its end left out where it is too long.

    >>> clipped("diag(512) · conv", 11)
    'diag(512)…'
    """
    return text if len(text) <= width else f"{text[: width - 1].rstrip()}…"
