"""Save: a file, whole or not at all; a model with its weights beside it where it is too large."""

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

LIMIT = 2**31 - 2**20
"""Bytes that one protobuf message may have, less what surrounds the tensors."""

Target = str | os.PathLike[str]


def save(proto: onnx.ModelProto, path: Target, *, limit: int = LIMIT) -> None:
    """Write the model to `path`; above `limit` bytes its tensors go to a file beside it.

    That file has a name of its own, `path` + ".0123456789abcdef.data", which the model says: no
    model is ever found with the tensors of another. Files of such names, which earlier models at
    `path` had, are removed. A file appears when it is complete: a full disk or an interrupt leaves
    none behind, and those that were there as they were. A file that is overwritten keeps its mode.

    Raises `OnnxJacError` where they cannot be written.
    """
    with drafts(path) as draft:
        if tensor_bytes(proto) <= limit:
            onnx.save_model(proto, draft)
        elif draft == Path(path):
            raise OnnxJacError(f"{os.fspath(path)!r} is no file, and the model needs two.")
        else:
            ir.save(ir.from_proto(proto), draft, external_data=data_name(draft.name))


def save_text(text: str, path: Target) -> None:
    """Write a text, which ends with one line feed, in UTF-8; as `save` does."""
    with drafts(path) as draft:
        draft.write_text(text.rstrip() + "\n", encoding="utf-8")


@contextmanager
def drafts(path: Target) -> Iterator[Path]:
    """A path to write to; when that is done, all files beside it go to where `path` is.

    What is no file, a terminal or a pipe, is written to at once.
    """
    with refusals(path):
        target = Path(path)
        if target.exists() and not target.is_file():
            yield target
            return
        target = target.resolve()  # a link stays, and leads to the new file
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".onnxjac-") as folder:
            yield Path(folder) / target.name
            place(Path(folder), target)


def place(folder: Path, target: Path) -> None:
    """Move the file named as the target, and before it the files that it refers to.

    Afterwards the files of data of models that were there go. Other writers wait meanwhile: else
    they would lose files which nothing refers to yet.
    """
    with alone(target.parent):
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
def alone(folder: Path) -> Iterator[None]:
    """No other process or thread is in here with the same folder, where the system can tell."""
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
    """Errors of the system as one line."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise OnnxJacError(f"cannot write {os.fspath(path)!r}: {reason}") from error


def tensor_bytes(proto: onnx.ModelProto) -> int:
    """Bytes of the initializers, which are nearly all of a large model."""
    return sum(len(tensor.raw_data) for tensor in proto.graph.initializer)
