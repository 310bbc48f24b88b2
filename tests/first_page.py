"""The shell commands of README, each as it stands in a clone of its own: an empty environment.

`python -m tests.first_page` needs git and PyPI, and ends with 1 where a command fails. The whole
suite is not run once more: of pytest's command, the tests of names.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


def commands() -> list[str]:
    """The lines of README's shell blocks."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)
    return [line for block in blocks for line in block.splitlines()]


def run(command: str) -> bool:
    """Whether a command succeeds in a new clone of what is committed."""
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    with tempfile.TemporaryDirectory() as folder:
        clone = ["git", "clone", "-q", str(ROOT), folder]
        subprocess.run(clone, check=True)
        told = {**kept, "PYTEST_ADDOPTS": "tests/suite/test_names.py"}
        return subprocess.run(command, shell=True, cwd=folder, env=told).returncode == 0


if __name__ == "__main__":
    failed = [command for command in commands() if not run(command)]
    print(f"{len(commands())} commands of README, failed: {failed or 'none'}")
    sys.exit(bool(failed or not commands()))
