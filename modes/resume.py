"""Resume: long work keeps its state in a file, and goes on from it to the same bits.

A work is a stack of loops, one inside the other: the columns of a matrix, the iterations for one of
them, the batches of a product. `Work.loop` gives the state at which a loop begins, its start or
what the file has of it, and `Loop.step` takes the state after each turn. A turn of an outer loop
ends those inside it. The file has the states of all loops that have begun, from the outside in, so
that the same code, run again, comes to where it was.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar, final

import numpy as np

from ..jacobians.arguments import Positive, validated
from ..jacobians.arrays import cast_to, host
from ..jacobians.base import Holder
from ..jacobians.errors import InputError, OnnxJacError, warn
from ..jacobians.placing import HOST
from .data.comm import Comm, agreed, tell_all
from .data.ranks import Ranks
from .linear.derivatives.settled import settled_ways
from .linear.elimination.adaptive import Adaptive
from .linear.linearization import Linearization
from .model.save import Target
from .state_file import ABOUT, FORMAT, FileContents, as_written, replace_file

T = TypeVar("T")


@final
@validated
class ResumeFile:
    """A file that keeps the state of long work, written anew after `every` products or batches.

    Give it as `resume=` to an estimator, a solver or a function of Kronecker factors. Where the
    file is not there, the work begins, and writes it; where it is, the work goes on from it, and
    ends with the same bits as without an interruption. A finished work leaves a file too, of which
    the same call makes its result with hardly a product. To begin again, remove the file. Products
    of models do not adapt to their number meanwhile, which would change their bits.

    A file is of one work: another operator, model, batch, right-hand side, seed or option raises an
    `InputError` that names it. Arrays of floats are the same up to rounding, ε^⅔ of their norm: a
    machine that rounds in another way goes on too, but not to the same bits. Over ranks, rank 0
    writes and all read one file, on a disk that they share; factors have a file for each rank,
    `name.rank0.npz` and so on.

    The file is an npz of NumPy, without Python objects, and replaced as a whole: an interruption
    while it is written leaves the state before. Where it cannot be written, a warning says so, and
    the work goes on.

    - `file`: its path, in a folder that exists.
    - `every`: the number of products, or for Kronecker factors of batches, from one writing to the
      next. A file is about as large as what the work holds in memory.

    >>> ResumeFile("run.npz", every=10)
    ResumeFile('run.npz', every=10)
    """

    def __init__(self, file: Target, *, every: Positive = 100) -> None:
        self.file, self.every = Path(file), every

    def __repr__(self) -> str:
        return f"ResumeFile({os.fspath(self.file)!r}, every={self.every})"


def file_of_rank(resume: ResumeFile, comm: Comm) -> ResumeFile:
    """The file of one rank, where the ranks do not have the same state."""
    name = f"{resume.file.stem}.rank{comm.rank}{resume.file.suffix}"
    return ResumeFile(resume.file.with_name(name), every=resume.every)


@final
class Loop:
    """A loop of a work: `state` is where it begins, and then where it is."""

    def __init__(self, work: Work, name: str, state: tuple[Any, ...]) -> None:
        self.work, self.name, self.state = work, name, state

    def step(self, *state: Any, products: int = 0) -> None:
        """The state after one more turn, in which the loop itself took some `products`.

        The work keeps the arrays, which nobody may write to from now on.
        """
        self.work.advance(self, state, products)


@final
class Work:
    """The loops of a work, the innermost last, and `count`, the products that it took.

    Without a file it only counts. `kind` and `options`, by name, tell which work it is. All ranks
    of a `comm` are in the same state, and enter all methods together.
    """

    def __init__(
        self, resume: ResumeFile | None = None, kind: str = "",
        options: Mapping[str, Any] | None = None, comm: Comm | None = None,
    ) -> None:  # fmt: skip
        self.resume, self.kind, self.comm = resume, kind, comm
        self.options = json.loads(json.dumps(options or {}, default=str))
        self.count, self.unsaved = 0, False
        self.loops: list[Loop] = []
        self.checks: dict[str, np.ndarray] = {}
        self.held: FileContents | None = None
        if resume is not None:
            self.held = self._opened(resume.file)
            self.count = self.held.count if self.held else 0

    def _opened(self, file: Path) -> FileContents | None:
        """What the file has, the same on all ranks; None where there is none yet."""
        mine: list[FileContents | None] = []

        def read() -> list[int] | None:
            if not file.parent.is_dir():
                raise InputError(f"{os.fspath(file)!r} is in no folder that exists: make it first")
            mine.append(held := FileContents.read(file) if file.exists() else None)
            if held is None:
                return None
            self._compare("kind of work", held.kind, self.kind)
            for name in sorted(held.options.keys() | self.options):
                self._compare(name, held.options.get(name), self.options.get(name))
            return held.mark

        marks = [read()] if self.comm is None else agreed(self.comm, read)
        if any(mark != marks[0] for mark in marks):
            raise InputError(f"ranks see different files at {self.path}: give a path on a disk "
                             "that all ranks share")  # fmt: skip
        return mine[0]

    @property
    def path(self) -> str:
        """The path of the file, as errors show it."""
        return repr(os.fspath(self.resume.file)) if self.resume else ""

    def _compare(self, name: str, old: Any, new: Any) -> None:
        if old != new:
            raise self._other(name, f", {old!r} there and {new!r} here")

    def _other(self, name: str, how: str = "") -> InputError:
        """The error for a file of another work."""
        return InputError(f"{self.path} keeps the state of other work, with another {name}{how}: "
                          "remove it, or give a file of another name")  # fmt: skip

    def same(self, name: str, make: Callable[[], Any]) -> None:
        """Raises `InputError` where the rows of an array differ from the rows of the file.

        Rows (..., n) are compared up to rounding, each in its norm; the file gets what it has not.
        """
        if self.resume is None:
            return
        new = np.atleast_1d(np.asarray(host(make())))
        new = new.astype(np.result_type(new.dtype, np.float32))
        old = self.held.checks.get(name, new) if self.held else new

        def compare() -> None:
            if (old.shape, old.dtype) != (new.shape, new.dtype):
                raise self._other(name)
            apart, whole = (np.linalg.norm(x, axis=-1) for x in (new - old, old))
            close = apart <= float(np.finfo(new.dtype).eps) ** (2 / 3) * whole
            if not (close.all() or np.array_equal(new, old, equal_nan=True)):
                raise self._other(name, ", by more than rounding")

        self._together(compare)
        self.checks[name] = old

    def loop(self, name: str, *start: Any) -> Loop:
        """A loop inside those that have begun, with its state: `start`, or what the file has.

        Arrays of the file fit the ones of the start, or are their leading part, and are put there.
        """
        state = start
        if self.held is not None and self.held.states:
            held = self.held
            state = self._together(lambda: held.next(self.path, name, start))
        made = Loop(self, name, state)
        if self._writes:
            self.loops.append(made)
        return made

    def _together(self, find: Callable[[], T]) -> T:
        """The result find(); where it raises on some ranks, an error on all of them."""
        return find() if self.comm is None else tell_all(self.comm, find)

    @property
    def _writes(self) -> bool:
        return self.resume is not None and (self.comm is None or self.comm.rank == 0)

    def advance(self, loop: Loop, state: tuple[Any, ...], products: int) -> None:
        """Set the state of a loop, which ends those inside it; write where it is time to."""
        before, self.count = self.count, self.count + products
        if not self._writes:
            return
        loop.state, self.unsaved = state, True
        del self.loops[self.loops.index(loop) + 1 :]
        every = self.resume.every if self.resume else 1
        if self.count // every > before // every:
            self._write()

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """The block in which the work is done; the state at its end is written, also where an error
        or the user ends it.
        """
        with settled_ways() if self.resume else nullcontext():
            try:
                yield
            finally:
                if self._writes and self.unsaved:
                    self._write()

    def _write(self) -> None:
        """Write the file, or warn: work does not end because its state cannot be kept."""
        assert self.resume is not None
        try:
            replace_file(self.resume.file, self._contents())
            self.unsaved = False
        except OnnxJacError as error:
            warn(f"{error}: the work goes on, but would not go on from here once interrupted")

    def _contents(self) -> Iterator[tuple[str, np.ndarray]]:
        """The arrays of the file by name."""
        loops: list[tuple[str, list[list[int]]]] = []
        for loop in self.loops:
            loops.append((loop.name, []))
            for i, x in enumerate(loop.state):
                array, axes = as_written(np.asarray(host(x)))
                loops[-1][1].append(axes)
                yield f"{len(loops) - 1}.{i}", array
        yield from ((f"check{i}", x) for i, x in enumerate(self.checks.values()))
        about = {"format": FORMAT, "work": self.kind, "options": self.options, "count": self.count,
                 "checks": [*self.checks], "loops": loops}  # fmt: skip
        yield ABOUT, np.frombuffer(json.dumps(about).encode(), np.uint8)


def begin_work(
    resume: ResumeFile | None, kind: str, A: Any, options: Mapping[str, Any]
) -> tuple[Work, Any]:
    """The work with an operator A, which the file knows by its product with one vector, and A,
    compiled where it adapts to the number of products.
    """
    if resume is None:
        return Work(), A
    n, place = A.shape[1], getattr(A, "place", None) or HOST
    told = {"shape": A.shape, "dtype": A.dtype, "place": place.name, **options}
    work, v = Work(resume, kind, told, comm_of(A)), np.random.default_rng(0).standard_normal(n)
    A = A.compile() if any(map(is_adaptive, parts_of_operator(A))) else A
    with work.going_on():
        work.same("operator", lambda: cast_to(A.matvec(v), A.dtype))
    return work, A


def is_adaptive(A: Any) -> bool:
    """Whether later products with the Jacobian at a point take another way than the first ones."""
    return isinstance(A, Adaptive) or (isinstance(A, Linearization) and A.make is None)


def comm_of(A: Any) -> Comm | None:
    """The ranks that products with A are over; None where they are of this process alone."""
    shares = (getattr(part, "shares", None) for part in parts_of_operator(A))
    return next((held.comm for held in shares if isinstance(held, Ranks)), None)


def parts_of_operator(A: Any) -> Iterator[Any]:
    """The operator and those that it is made of."""
    yield A
    inner = A.contents() if isinstance(A, Holder) else ()
    for part in (getattr(A, "operator", None), *inner):
        if isinstance(part, Holder):
            yield from parts_of_operator(part)
