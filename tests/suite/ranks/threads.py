"""Ranks as threads of this process, which meet at a barrier: a `Comm` for tests."""

from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from operator import add
from threading import Barrier

PATIENCE = 60
"""Seconds after which ranks that do not all meet are an error."""


class Threads:
    """One rank; `sent` are the bytes of its all-reduces."""

    def __init__(self, rank, size, barrier, board):
        self.rank, self.size, self.barrier, self.board, self.sent = rank, size, barrier, board, []

    def allgather(self, value):
        self.board[self.rank] = value
        self.barrier.wait()
        found = list(self.board)
        self.barrier.wait()
        return found

    def allreduce(self, array):
        self.sent.append(array.nbytes)
        return reduce(add, self.allgather(array.copy()))


def on_ranks(size, script):
    """script(comm) on every rank: the results in order; the first error of a rank is raised."""
    found = outcomes(size, script)
    for error in found:
        if isinstance(error, Exception):
            raise error
    return found


def outcomes(size, script):
    """What script(comm) returns or raises on every rank."""
    barrier, board = Barrier(size, timeout=PATIENCE), [None] * size

    def run(rank):
        try:
            return script(Threads(rank, size, barrier, board))
        except Exception as error:
            return error

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(run, range(size)))
