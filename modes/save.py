"""Save: a model to a file, whole or not at all; weights beside it where it would be too large."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import onnx

from ..jacobians.errors import OnnxJacError

LIMIT = 2**31 - 2**20
"""Bytes that one protobuf message may have, less what surrounds the tensors."""


def save(proto: onnx.ModelProto, path: str | os.PathLike[str], *, limit: int = LIMIT) -> None:
    """Write the model to `path`; above `limit` bytes its tensors go to `path` + ".data".

    The file appears when it is complete: a full disk or an interrupt leaves none behind.
    """
    target = Path(path)
    try:
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".onnxjac-") as folder:
            draft = Path(folder) / target.name
            if tensor_bytes(proto) > limit:
                onnx.save_model(
                    proto, draft, save_as_external_data=True, location=f"{target.name}.data"
                )
                os.replace(f"{draft}.data", f"{target}.data")
            else:
                onnx.save_model(proto, draft)
            os.replace(draft, target)
    except OSError as error:
        raise OnnxJacError(f"cannot write {str(target)!r}: {error.strerror or error}") from error


def tensor_bytes(proto: onnx.ModelProto) -> int:
    """What the initializers take, which is nearly all of a large model."""
    return sum(len(tensor.raw_data) for tensor in proto.graph.initializer)
