"""Save: files written completely or not at all; the weights of a large model go beside it."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from stat import S_IMODE

import onnx
import onnx_ir as ir

from ...jacobians.errors import OnnxJacError

try:
    import fcntl
except ModuleNotFoundError:  # Windows
    fcntl = None  # type: ignore[assignment]

MESSAGE_BYTES = 2**31 - 2**20
"""Bytes of tensors in one protobuf message, with room for everything else."""

Target = str | os.PathLike[str]


def save(proto: onnx.ModelProto, path: Target, *, limit: int = MESSAGE_BYTES) -> None:
    """Write the model to `path`; above `limit` bytes its tensors go to a file beside it.

    The file beside it has a unique name, `path` + ".0123456789abcdef.data", which the model refers
    to, so that no model is ever read with the tensors of another model. Data files of earlier
    models at `path` are removed. A file appears only when complete: a full disk or an interrupt
    leaves no partial file, and existing files as they were. A file that is overwritten keeps its
    mode.

    Raises `OnnxJacError` where a file cannot be written.
    """
    with drafts(path) as draft:
        if sum(len(tensor.raw_data) for tensor in proto.graph.initializer) <= limit:
            onnx.save_model(proto, draft)
        elif draft == Path(path):
            raise OnnxJacError(f"{os.fspath(path)!r} is no file, and the model needs two.")
        else:
            ir.save(ir.from_proto(proto), draft, external_data=data_name(draft.name))


def save_text(text: str, path: Target) -> None:
    """Write a text in UTF-8, ending in one line feed, completely or not at all like `save`."""
    with drafts(path) as draft:
        draft.write_text(text.rstrip() + "\n", encoding="utf-8")


@contextmanager
def drafts(path: Target) -> Iterator[Path]:
    """A temporary path to write to; its file, and all files beside it, are then moved to `path`.

    A target that is not a regular file, such as a terminal or a pipe, is written to directly.
    """
    with refusals(path):
        target = Path(path)
        if target.exists() and not target.is_file():
            yield target
            return
        target = target.resolve()  # a link stays, and leads to the new file
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".onnxjac-") as folder:
            yield Path(folder) / target.name
            move_into_place(Path(folder), target)


def move_into_place(folder: Path, target: Path) -> None:
    """Move the file named like the target into place, after the files that it refers to.

    Then the data files of earlier models are removed. Other writers wait in the meantime, since
    they would lose files that nothing refers to yet.
    """
    with lock_folder(target.parent):
        if target.exists():
            for made in folder.iterdir():
                made.chmod(S_IMODE(target.stat().st_mode))
        names = {made.name for made in folder.iterdir()} - {target.name}
        beside = [target.parent / name for name in names]
        try:
            for new in (*beside, target):
                os.replace(folder / new.name, new)
        except BaseException:
            for new in beside:
                new.unlink(missing_ok=True)
            raise
        pattern = re.compile(re.escape(data_name(target.name, "@")).replace("@", "[0-9a-f]{16}"))
        for old in target.parent.iterdir():
            if pattern.fullmatch(old.name) and old not in beside:
                with suppress(OSError):  # still open elsewhere, on some systems
                    old.unlink()


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """An exclusive lock on a folder among processes and threads, where the system has locks."""
    if fcntl is None:
        yield
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some file systems have no locks
            fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


def data_name(name: str, token: str | None = None) -> str:
    """The name of a data file that belongs to the model with this name, and to no other."""
    return f"{name}.{token or token_hex(8)}.data"


@contextmanager
def refusals(path: Target) -> Iterator[None]:
    """Errors of the operating system become an `OnnxJacError` of one line."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise OnnxJacError(f"cannot write {os.fspath(path)!r}: {reason}") from error
