"""String matching."""

from __future__ import annotations

import re

import numpy as np

from ...jacobians.arrays import Array
from ...jacobians.errors import OnnxJacError
from .table import kernel

WORK = 10**8
"""The most characters that a match may examine: about a second."""

TOKEN = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\((?:\?(?:P?<\w+>|[a-zA-Z-]*:))?|\{\d*,?\d*\}|.", re.DOTALL
)
"""An escape, a character class, the beginning of a group, a count, or one character."""

UNKNOWN = re.compile(r"\(\?(?:[=!(#>]|<[=!]|P=)|\\[1-9]")
"""Python patterns that RE2 lacks: lookahead, lookbehind, backreferences, conditionals."""


@kernel("RegexFullMatch")
def regex_full_match(x: Array, *, pattern: str | None = None) -> Array:
    """Whether the pattern matches the whole string, for every string of x.

    Python backtracks, so that a pattern with too many ways to match is refused.
    """
    if pattern is None:
        raise OnnxJacError("there is no pattern to match: set the attribute 'pattern'")
    if UNKNOWN.search(pattern):
        raise OnnxJacError(f"the pattern {pattern!r} has what RE2 does not know")
    strings = [str(text) for text in x.flat]
    longest = max(map(len, strings), default=0)
    if ways(pattern, longest) * (longest + len(pattern)) * len(strings) > WORK:
        raise OnnxJacError(
            f"the pattern {pattern!r} could match strings of {longest} characters in too many "
            "ways: write it without repetitions inside repetitions, and with fewer of them"
        )
    matches = re.compile(pattern).fullmatch
    return np.array([matches(text) is not None for text in strings], bool).reshape(x.shape)


def ways(pattern: str, length: int) -> int:
    """An upper bound on the number of ways to match a string, capped above `WORK`.

    >>> ways("a+b", 10), ways("(yes|no)?", 10), ways("(a|a)*b", 40) > WORK
    (11, 3, True)
    """
    outer: list[tuple[int, int]] = []
    others, made, last = 0, 1, 1  # alternatives before this one, parts before the last, the last
    for token in TOKEN.findall(pattern):
        if token[0] == "(":
            outer.append((others, made * last))
            others, made, last = 0, 1, 1
        elif token == ")" and outer:
            last = others + made * last
            others, made = outer.pop()
        elif token == "|":
            others, made, last = others + made * last, 1, 1
        elif token in "*+?" or token[0] == "{":
            last = repeated(last, most(token, length))
        else:
            made, last = made * last, 1
        made, last = min(made, 2 * WORK), min(last, 2 * WORK)
    return others + made * last


def most(token: str, length: int) -> int:
    """The most iterations of a repetition, each of them nonempty."""
    if token in ("*", "+"):
        return length
    counts = token.strip("{}").split(",")
    return 1 if token == "?" else min(int(counts[-1] or length), length)


def repeated(ways: int, turns: int) -> int:
    """The number of ways of up to `turns` iterations, each with `ways` ways."""
    return turns + 1 if ways == 1 else min(ways ** min(turns, 64) + turns, 2 * WORK)
