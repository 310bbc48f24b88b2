"""A measurement in a process of its own, so that all start from the same state."""

import json
import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
SCRIPT = """
import json, sys
from pathlib import Path
from endurance import measures
kind, arguments = json.loads(sys.argv[1])
if kind == "weights":
    arguments[0] = Path(arguments[0])
print(json.dumps(getattr(measures, kind)(*arguments)))
"""
ALONE = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


def apart(kind, *arguments):
    """The result of a function of `measures`, called in a new process."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps([kind, arguments])], cwd=TESTS,
        env=os.environ | ALONE, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)
