"""Watch: the files that Python opens, and the processes it starts, during a trial."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

FORBIDDEN = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork",
             "socket.connect", "pickle.find_class", "ctypes.dlopen")  # fmt: skip

HOME = tuple({sys.prefix, sys.base_prefix, str(Path(__file__).resolve().parents[2]), "/usr/lib"})
"""The folders of Python's modules, which may be imported late."""


class Watch:
    """Between `begin` and `end`, records files opened outside of one folder."""

    def __init__(self) -> None:
        self.folder: str | None = None
        self.opened: list[str] = []
        sys.addaudithook(self._audit)

    def begin(self, folder: Path) -> None:
        """From now on, allow only this folder."""
        self.folder, self.opened = str(folder), []

    def end(self) -> list[str]:
        """Stop, and return the violations."""
        self.folder = None
        return self.opened

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.folder is None:
            return
        if event in FORBIDDEN:
            self.opened.append(f"{event} {arguments[:1]}")
        if event == "open" and isinstance(arguments[0], str | bytes):
            path = os.path.realpath(os.fsdecode(arguments[0]))
            if not path.startswith((self.folder, *HOME)):
                self.opened.append(path)
