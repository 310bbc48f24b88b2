"""Report and check ONNX files, each in a process of its own, and print a row of a table for each.

python tests/networks/reported.py LIST.json, where LIST.json holds [file, source, options] for each
file; options are those of `onnxjac report`, such as ["--wrt", "embedding.weight"].
"""

import json
import subprocess
import sys
import time
from pathlib import Path

LIMIT = 400
"""Seconds for one file."""

HEAD = (
    "| file | source | KiB | nodes | options | result | s | error |\n"
    "|---|---|--:|--:|---|---|--:|--:|"
)


def row(file, source, options):
    """The result of `onnxjac report`, and the error of J v against central differences."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "onnxjac", "report", file, "--json"]
    try:
        done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=LIMIT)
        found = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, ValueError) as error:
        found = {"error": {"message": type(error).__name__}}
    seconds, size = time.perf_counter() - start, Path(file).stat().st_size / 1024
    tests = found.get("check", [])
    failed = [test["name"] for test in tests if not test["passed"]]
    result = found["error"]["message"] if found.get("error") else ", ".join(failed) or "passes"
    error = f"{tests[-1]['error']:.0e}" if tests else ""
    nodes = found.get("model", {}).get("nodes", "")
    cells = (Path(file).name, source, f"{size:.0f}", nodes, " ".join(options), result[:90],
             f"{seconds:.0f}", error)  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    print(HEAD)
    for entry in json.loads(Path(sys.argv[1]).read_text()):
        print(row(*entry), flush=True)
