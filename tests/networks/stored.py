"""The exported architectures, with the values that PyTorch computed in double precision."""

from pathlib import Path

import numpy as np

import onnxjac as oj

FILES = Path(__file__).parent / "files"
MODELS = sorted(path.name.removesuffix(".onnx") for path in FILES.glob("*.onnx"))
NAMES = sorted(path.stem for path in FILES.glob("*.npz"))


def stored(file):
    """The values computed by PyTorch, in double precision, by key."""
    with np.load(FILES / f"{file.partition('.')[0]}.npz") as arrays:
        return {k: a.astype(float) if a.dtype == np.float16 else a for k, a in arrays.items()}


def below(kind, values):
    """The values stored under `kind/...`, by tensor."""
    return {k.removeprefix(f"{kind}/"): v for k, v in values.items() if k.startswith(f"{kind}/")}


def loaded(file, dtype="float64"):
    """The model, its point, and the stored values."""
    values = stored(file)
    model = oj.load(FILES / f"{file}.onnx", dtype=dtype)
    return model, {k: x for k, x in below("at", values).items() if k in model.inputs}, values
