"""Output: sections of text for people, or one JSON object for machines."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, is_dataclass
from typing import Any

import numpy as np

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
            print(text, flush=True)

    def wrote(self, path: str, what: str, **facts: Any) -> None:
        """Report a file that was written."""
        self.facts |= {"file": path, **facts}
        if not (self.as_json or self.quiet):
            print(f"{path}: {what}", flush=True)

    def warn(self, message: object) -> None:
        """Report a warning."""
        self.warnings.append(one_line(message))
        if not self.quiet:
            complain(f"warning: {message}")

    def end(self, ok: bool) -> int:
        """Print the JSON object, if asked for; returns the exit status."""
        self._print(ok, self.facts)
        return 0 if ok else 1

    def refused(self, error: BaseException, options: Iterable[str] = ()) -> int:
        """Report an error in one line, not in a traceback; returns the exit status.

        What the functions take by keyword is named as the command's options.
        """
        message = one_line(error) or "out of memory"
        for name in options:
            message = re.sub(rf"(?<![\w-]){name}=(['\"]?)([\w.]*)\1", rf"--{name} \2", message)
            message = message.replace(f"{name} is empty", f"--{name} is empty")
            message = message.replace("  ", " ").replace(" ,", ",")
        complain(f"error: {message}")
        self._print(False, {"error": {"type": type(error).__name__, "message": message}})
        return 1

    def _print(self, ok: bool, facts: Mapping[str, Any]) -> None:
        if self.as_json:
            found = {"command": self.command, "ok": ok, "warnings": self.warnings, **facts}
            print(json.dumps(plain(found), ensure_ascii=False, indent=1), flush=True)


def plain(value: Any) -> Any:
    """A value in JSON types; numbers that are not finite become null.

    >>> plain({"a": np.array([1.0, np.inf]), "b": (np.float32(2), "text")})
    {'a': [1.0, None], 'b': [2.0, 'text']}
    """
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
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
