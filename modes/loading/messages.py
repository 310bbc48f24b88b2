"""What other libraries say in twenty lines, said in one."""

from __future__ import annotations


def first_line(error: BaseException, limit: int = 300) -> str:
    """The first line with text of an error's message, or its type.

    >>> first_line(ValueError("bad node\\n\\n==> Context: node 3"))
    'bad node'
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:limit] if lines else type(error).__name__
