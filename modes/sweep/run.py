"""Run: the whole sweep, or a shard of it, in several processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context

from ...jacobians.errors import UnknownTensor, closest
from ...jacobians.progress import Tick
from .cases import Case, model_cases, node_cases
from .examine import Result, examine

Shard = tuple[int, int]
"""(k, n): every n-th case from the k-th on, k = 1 … n."""


@cache
def all_cases() -> tuple[Case, ...]:
    """All that ONNX ships: one operator each, then whole models."""
    return (*node_cases(), *model_cases())


def chosen(operators: Sequence[str], shard: Shard) -> list[int]:
    """The positions of the cases of some operators, or of all, in a shard."""
    known = {case.op_type for case in all_cases()}
    for name in operators:
        if name not in known:
            raise UnknownTensor(f"ONNX has no case of {name!r}.{closest(name, known)}")
    held = [k for k, case in enumerate(all_cases()) if not operators or case.op_type in operators]
    return held[shard[0] - 1 :: shard[1]]


def examine_at(position: int) -> Result:
    """The case at a position, examined."""
    return examine(all_cases()[position])


def sweep(positions: Sequence[int], jobs: int, tick: Tick) -> list[Result]:
    """The results of some cases, in their order."""
    results = []
    for result in examined(positions, min(jobs, len(positions) // 32)):
        results.append(result)
        tick(1)
    return results


def examined(positions: Sequence[int], jobs: int) -> Iterator[Result]:
    """The results as they come, of one process or of several."""
    if jobs < 2:
        yield from map(examine_at, positions)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(examine_at, positions, chunksize=8)
