"""The command line: `python -m tests.benchmarks`, from the root of the repository."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from . import __doc__ as description
from .contenders import MODULES
from .document import document, record
from .limits import Machine
from .report import Outcome
from .rounds import Worker, measure, workers
from .table import COMPARED, EACH, compared, each, show
from .worker import WARM
from .workloads import GROWTH, HIDDEN, SCALED, WORKLOADS, find

THREADS = 2
VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def arguments() -> argparse.Namespace:
    """The parsed command line."""
    parser = argparse.ArgumentParser(
        "python -m tests.benchmarks", description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    known = ", ".join([*WORKLOADS, "growth"])
    add = parser.add_argument
    add("--only", nargs="+", default=[""], help=f"workloads, or how they begin: {known}")
    add("--products", nargs="+", help="jvp, vjp, ggn, hvp, jvp×16 …; by default all")
    add("--contenders", nargs="+", help="contenders, or how they begin; by default all")
    add("--rounds", type=int, default=7)
    add("--threads", type=int, default=THREADS, help="threads and cores of every contender")
    add("--budget", type=float, default=0.15, help="seconds of one turn")
    add("--device", default="cpu", help="where PyTorch and JAX compute: cpu, cuda")
    add("--warm", type=float, default=WARM, help="seconds of steps before their timing")
    add("--note", default="", help="a sentence for the page, such as what else ran")
    add("--json", type=Path, help="write everything that was measured")
    add("--markdown", type=Path, help="write the page of results")
    return parser.parse_args()


def same_machine(device: str, threads: int) -> None:
    """Limit every child process to as many cores as threads, and silence XLA.

    OPENBLAS_CORETYPE is removed, so that OpenBLAS detects the actual processor. On a GPU, all
    compute in full single precision, take memory as they need it, and compile on all cores.
    """
    os.environ.pop("OPENBLAS_CORETYPE", None)
    os.environ.update(dict.fromkeys(VARIABLES, str(threads)), TF_CPP_MIN_LOG_LEVEL="3")
    if device != "cpu":
        os.environ.update(NVIDIA_TF32_OVERRIDE="0", XLA_PYTHON_CLIENT_PREALLOCATE="false")
    elif hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def chosen(only: list[str]) -> list[str]:
    """The workloads of these names; what is no name stands for all that begin with it."""
    every = (*WORKLOADS, *GROWTH)
    begins = tuple(name for name in only if name not in every)
    names = [name for name in every if name in only or (begins and name.startswith(begins))]
    return names + [name for name in (*SCALED, *HIDDEN) if name in only]


def taking_part(asked: list[str]) -> list[str]:
    """The contenders of these names; what is not a name stands for all that begin with it."""
    return [c for c in MODULES if c != "machine"
            and any(c == name or (name not in MODULES and c.startswith(name)) for name in asked)]


def all_outcomes(asked: argparse.Namespace) -> Iterator[Outcome]:
    """The outcomes of all workloads, each in new processes; a GPU's, slow to start, are kept."""
    names, contenders = chosen(asked.only), taking_part(asked.contenders or [""])
    for group in [[name] for name in names] if asked.device == "cpu" else [names]:
        with workers(["machine", *contenders], asked.device, asked.warm) as started:
            for name in group:
                yield from outcomes(name, started, asked)


def outcomes(name: str, started: list[Worker], asked: argparse.Namespace) -> Iterator[Outcome]:
    """The outcomes of all products of one workload; only a CPU's have the machine's limit."""
    workload, settings = find(name), {"rounds": asked.rounds, "budget": asked.budget}
    for worker in started:
        worker.ask("workload", name)
    machine, *others = started
    limits = Machine(machine, **settings) if asked.device == "cpu" else None
    for product in asked.products or workload.products:
        found = measure(others, product, **settings)
        rows = next((m.result.size for m in found if m.result is not None), 0)
        limit = limits.least(workload, product, rows) if limits else None
        yield Outcome(name, product, workload.tolerance, found, limit)


def main() -> None:
    """Measure, show, write."""
    asked = arguments()
    same_machine(asked.device, asked.threads)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that paused workers end as well
    measured: list[Outcome] = []
    for outcome in all_outcomes(asked):
        measured.append(outcome)
        show(f"{outcome.workload} {outcome.product}", EACH, each([outcome]))
        write(measured, asked)  # intermediate results: the rest may take long
    show("ours and the best peer", COMPARED, compared(measured))


def write(measured: list[Outcome], asked: argparse.Namespace) -> None:
    """Write the requested files."""
    if asked.json:
        found = record(measured, asked.rounds, asked.threads) | {"note": asked.note}
        asked.json.write_text(json.dumps(found, indent=1))
    if asked.markdown:
        asked.markdown.write_text(document(measured, asked.rounds, asked.threads))


if __name__ == "__main__":
    main()
