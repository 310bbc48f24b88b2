"""The networks, each with its point and the tensors to differentiate by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import onnxjac as oj

ROOT = Path(__file__).parents[2]
FILES = ROOT / "tests" / "networks" / "files"
EXPORTED = ("mlp", "cnn", "encoder")


@dataclass(frozen=True)
class Network:
    """A model in a file or in memory, a point, and the tensors to differentiate by."""

    name: str
    source: Any
    point: Mapping[str, Any]
    of: str | None = None
    wrt: tuple[str, ...] | None = None

    def linearized(self, dtype: str | None, engine: str) -> oj.Linearization:
        """J at the point, in single precision unless `dtype` says otherwise."""
        model = oj.load(self.source, dtype=dtype)
        point = {name: x for name, x in self.point.items() if name in model.inputs}
        return oj.linearize(model, point, of=self.of, wrt=self.wrt, engine=engine)


def single(x: np.ndarray) -> np.ndarray:
    """Floating arrays cast to float32; indices unchanged."""
    return x.astype(np.float32) if x.dtype.kind == "f" else x


def below(kind: str, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The values stored under `kind/...`, by tensor."""
    return {k.removeprefix(f"{kind}/"): v for k, v in values.items() if k.startswith(f"{kind}/")}


def digits() -> Network:
    """The network of the README, with respect to its images and its largest weight."""
    with np.load(ROOT / "notebooks" / "models" / "digits_samples.npz") as file:
        image = file["image"]
    source = ROOT / "notebooks" / "models" / "digits.onnx"
    return Network("digits", source, {"image": image}, "logits", ("image", "fc1.weight"))


def exported(name: str) -> Network:
    """A network of tests/models, with respect to its input and all weights."""
    with np.load(ROOT / "tests" / "models" / f"{name}.npz") as file:
        values = dict(file)
    source, wrt = ROOT / "tests" / "models" / f"{name}.onnx", tuple(below("tangent", values))
    return Network(name, source, {"x": single(values["x"])}, None, wrt)


def architecture(file: str) -> Network:
    """A network of tests/networks, with respect to its inputs and all weights."""
    with np.load(FILES / f"{file.partition('.')[0]}.npz") as stored:
        values = dict(stored)
    point = {name: single(x) for name, x in below("at", values).items()}
    return Network(file, FILES / f"{file}.onnx", point, "y", tuple(below("tangent", values)))


def from_the_wheel(name: str) -> Network:
    """A network from the onnx wheel, with respect to its input."""
    from models import light

    proto = light.light(name)
    return Network(name, proto, {k: single(x) for k, x in light.draw(proto).items()})


def files() -> list[str]:
    """The names of the architectures, of the newer export where there are two."""
    names = {path.name.removesuffix(".onnx") for path in FILES.glob("*.onnx")}
    return sorted(n for n in names if n.removesuffix(".legacy") not in names - {n})


def makers() -> dict[str, Any]:
    """name -> function that builds the network."""
    from models import light

    made = {"digits": digits}
    made |= {name: partial(exported, name) for name in EXPORTED}
    made |= {name: partial(architecture, name) for name in files()}
    return made | {name: partial(from_the_wheel, name) for name in light.NAMES}
