"""Save: a file, whole or not at all; a model with its weights beside it where it is too large."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import onnx
import onnx_ir as ir

from ...jacobians.errors import OnnxJacError

LIMIT = 2**31 - 2**20
"""Bytes that one protobuf message may have, less what surrounds the tensors."""

Target = str | os.PathLike[str]


def save(proto: onnx.ModelProto, path: Target, *, limit: int = LIMIT) -> None:
    """Write the model to `path`; above `limit` bytes its tensors go to `path` + ".data".

    The files appear when they are complete: a full disk or an interrupt leaves none behind, and
    those that were there as they were. Raises `OnnxJacError` where they cannot be written.
    """
    with drafts(path) as draft:
        if tensor_bytes(proto) > limit:
            ir.save(ir.from_proto(proto), draft, external_data=f"{draft.name}.data")
        else:
            onnx.save_model(proto, draft)


def save_text(text: str, path: Target) -> None:
    """Write a text, which ends with one line feed, in UTF-8; as `save` does."""
    with drafts(path) as draft:
        draft.write_text(text.rstrip() + "\n", encoding="utf-8")


@contextmanager
def drafts(path: Target) -> Iterator[Path]:
    """A path to write to; when that is done, all files beside it go to where `path` is.

    The file itself goes last, so that whoever finds it finds what it refers to. What is no file, a
    terminal or a pipe, is written to at once.
    """
    with refusals(path):
        target = Path(path)
        if target.exists() and not target.is_file():
            yield target
            return
        target = target.resolve()  # a link stays, and leads to the new file
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".onnxjac-") as folder:
            draft = Path(folder) / target.name
            yield draft
            for made in sorted(Path(folder).iterdir(), key=draft.__eq__):
                os.replace(made, target.parent / made.name)


@contextmanager
def refusals(path: Target) -> Iterator[None]:
    """What the system says, in one line."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise OnnxJacError(f"cannot write {os.fspath(path)!r}: {reason}") from error


def tensor_bytes(proto: onnx.ModelProto) -> int:
    """What the initializers take, which is nearly all of a large model."""
    return sum(len(tensor.raw_data) for tensor in proto.graph.initializer)
