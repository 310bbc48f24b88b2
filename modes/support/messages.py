"""One line for the errors of other libraries."""

from __future__ import annotations


def first_line(error: BaseException, limit: int = 300) -> str:
    r"""The first line of the original cause of an error, or the type of the cause.

    >>> first_line(ValueError("bad node\n\n==> Context: node 3"))
    'bad node'
    """
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:limit] if lines else type(error).__name__
