"""The `--help` text of every command becomes a page."""

import contextlib
import io
import os
from unittest import mock

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

PAGE = "reference/command-line.md"

INTRODUCTION = """\
# Command line

`onnxjac COMMAND`, also as `python -m onnxjac`. What follows is what `--help` prints.
"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The files, with the page."""
    from onnxjac.modes.show.commands import COMMANDS

    names = [command.name for command in COMMANDS]
    parts = [f"## {name}\n\n```text\n{printed(name)}\n```\n" for name in names]
    files.append(File.generated(config, PAGE, content="\n".join([INTRODUCTION, *parts])))
    return files


def printed(command: str) -> str:
    """The help of a command, as on a terminal of 90 columns."""
    from onnxjac import __version__
    from onnxjac.modes.show.commands import parser

    text = io.StringIO()
    with (
        mock.patch.dict(os.environ, {"COLUMNS": "90", "NO_COLOR": "1"}),
        contextlib.redirect_stdout(text),
        contextlib.suppress(SystemExit),
    ):
        parser(__version__).parse_args([command, "--help"])
    return text.getvalue().rstrip()
