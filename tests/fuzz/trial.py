"""Trial: load, linearise and multiply with a mutated model; the verdict."""

from __future__ import annotations

import os
import re
import traceback
import warnings
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np

import onnxjac as oj
from onnxjac.modes.show.report import draw_inputs

from .watch import Watch

LIMITS = oj.Limits(bytes=64 * 2**20, dense=64 * 2**20, nodes=5_000, steps=2_000, depth=16)
"""The limits of a trial; its process has slightly higher ones."""


class Verdict(NamedTuple):
    """How a trial ended: `result`, the name of an `OnnxJacError`, or `finding` with a text."""

    kind: str
    text: str = ""


def trial(data: bytes, number: int, folder: Path, watch: Watch) -> Verdict:
    """One trial; the model is loaded from bytes or from a file."""
    source: Any = data
    if number % 2:
        source = folder / "model" / "model.onnx"
        source.write_bytes(data)
    watch.begin(folder / "model")
    try:
        differentiate(source, number)
        verdict = Verdict("result")
    except oj.OnnxJacError as error:
        verdict = refusal(error)
    except Exception as error:
        verdict = Verdict("finding", summary(error))
    opened = watch.end()
    return Verdict("finding", f"outside: {opened}") if opened else verdict


def differentiate(source: Any, number: int) -> None:
    """Load, linearise at a small random point, and compute a JVP and a VJP."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = oj.load(source, limits=LIMITS)
        J = oj.linearize(model, draw_inputs(model, {}, seed=number))
        u = J @ np.ones(J.shape[1], J.dtype)
        J.T @ u


def refusal(error: oj.OnnxJacError) -> Verdict:
    """The verdict on an error; a finding if it hides a MemoryError or has several lines."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, MemoryError) and not isinstance(cause, oj.LimitError):
            return Verdict("finding", summary(cause))
        cause = cause.__cause__ or cause.__context__
    if "\n" in str(error):
        return Verdict("finding", f"several lines: {summary(error)}")
    return Verdict(type(error).__name__)


def summary(error: BaseException) -> str:
    """Type, message without numbers, and the innermost function of the package."""
    places = traceback.extract_tb(error.__traceback__)
    root = os.path.dirname(oj.__file__)
    own = [p for p in places if p.filename.startswith(root) and "/tests/" not in p.filename]
    where = f"{os.path.relpath(own[-1].filename, root)}:{own[-1].name}" if own else "?"
    text = str(error).strip().splitlines()[0][:120] if str(error).strip() else ""
    return f"{type(error).__name__} in {where}: {re.sub(r'[0-9]+', '#', text)}"


def prepared(folder: Path) -> Path:
    """The folder of the trials: a secret file, and next to the model a link to it."""
    inside = folder / "model"
    (inside / "folder").mkdir(parents=True)
    (folder / "secret.bin").write_bytes(Random(0).randbytes(4096))
    (inside / "data.bin").write_bytes(bytes(4096))
    os.mkfifo(inside / "pipe.bin")
    (inside / "link.bin").symlink_to(folder / "secret.bin")
    return folder
