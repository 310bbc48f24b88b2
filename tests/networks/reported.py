"""Report and check ONNX files, each in a process of its own, and print the table of FILES.md.

python tests/networks/reported.py LIST.json, where LIST.json holds [file, source, options] for each
file, as seen from the current folder; options are those of `onnxjac report`, such as
["--wrt", "embedding.weight"].
"""

import json
import subprocess
import sys
import time
from pathlib import Path

LIMIT = 1200
"""Seconds for one file: a report takes about 150 products and runs, of 2 s for a large image."""

HEAD = (
    "| file | source | KiB | nodes | options | tests passed | s | error |\n"
    "|---|---|--:|--:|---|--:|--:|--:|"
)


def row(file, source, options):
    """The tests that `onnxjac report` passes, and the error of J v against central differences."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "onnxjac", "report", file, "--json"]
    try:
        done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=LIMIT)
        found = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, ValueError) as error:
        found = {"error": {"message": type(error).__name__}}
    seconds, size = time.perf_counter() - start, Path(file).stat().st_size / 1024
    tests = found.get("check", [])
    passed = f"{sum(test['passed'] for test in tests)} of {len(tests)}"
    result = found["error"]["message"][:90] if found.get("error") else passed
    error = f"{tests[-1]['error']:.0e}" if tests else ""
    nodes = found.get("model", {}).get("nodes", "")
    shown = " ".join(text if text.startswith("--") else f"`{text}`" for text in options)
    cells = (file, source, f"{size:.0f}", nodes, shown, result, f"{seconds:.0f}", error)
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    print(HEAD)
    for entry in json.loads(Path(sys.argv[1]).read_text()):
        print(row(*entry), flush=True)
