"""Same input, same bits: a script gives the same numbers in fresh processes, however busy the
machine is, and no clock or thread of the package decides on products.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

from house import ROOT


def started(*command):
    """A process in which the package can be imported as here."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True,
                            env=environment)  # fmt: skip


def test_two_processes_give_the_same_bits():
    """The second one runs beside two busy loops."""
    script, found = str(Path(__file__).parent / "bits.py"), []
    for busy in (0, 2):
        loops = [started("-c", "while True: pass") for _ in range(busy)]
        try:
            output, _ = (run := started(script)).communicate(timeout=300)
        finally:
            for loop in loops:
                loop.kill()
                loop.communicate()
        assert run.returncode == 0
        found.append(output.splitlines())
    assert len(found[0]) > 25
    assert found[0] == found[1]


def test_no_clock_and_no_thread_decides_on_products():
    """Apart from progress bars, servers of data, reports of times, and the thread in which a long
    run of the engine waits for Ctrl-C.
    """
    words = re.compile(r"perf_counter|monotonic|process_time|Thread\(|timeout|setswitchinterval")
    free = re.compile(r"jacobians/progress|modes/data/|modes/show/report|programs/onnxruntime")
    found = [
        str(path.relative_to(ROOT)) for room in ("jacobians", "ops", "modes")
        for path in (ROOT / room).rglob("*.py")
        if not free.search(path.as_posix()) and words.search(path.read_text())
    ]  # fmt: skip
    assert not found
