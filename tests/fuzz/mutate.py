"""Mutate: the model of a trial, determined by its seed and number."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import NamedTuple

import onnx
from google.protobuf.message import DecodeError

from . import attacks  # noqa: F401  (registers its mutations)
from .corpus import Seed
from .mutations import STRUCTURAL, any_field

BYTES = 0.15
"""The share of trials that change the serialised bytes instead of the model."""


class Mutant(NamedTuple):
    """A mutated model: its origin, the changes, and its bytes."""

    origin: str
    changes: tuple[str, ...]
    data: bytes


def mutant(corpus: list[Seed], seed: int, number: int) -> Mutant:
    """The mutant of this seed and number."""
    rng = Random(f"{seed}:{number}")
    origin = rng.choice(corpus[:40]) if rng.random() < 0.35 else rng.choice(corpus)
    if rng.random() < BYTES:
        return Mutant(origin.name, ("bytes",), changed_bytes(rng, origin.data))
    model = onnx.ModelProto.FromString(origin.data)
    changes = []
    for _ in range(1 if rng.random() < 0.7 else 2):
        mutation = any_field if rng.random() < 0.3 else rng.choice(STRUCTURAL)
        with suppress(DecodeError, ValueError, TypeError):  # an earlier one may preclude it
            mutation(rng, model)
        changes.append(mutation.__name__)
    return Mutant(origin.name, tuple(changes), serialized(model, origin.data))


def serialized(model: onnx.ModelProto, origin: bytes) -> bytes:
    """The bytes of the model; the origin's where protobuf cannot serialise it."""
    try:
        return model.SerializeToString(deterministic=True)
    except Exception:
        return origin


def changed_bytes(rng: Random, data: bytes) -> bytes:
    """Bits flipped, bytes replaced, inserted or cut out, or the end missing."""
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        at, action = rng.randrange(len(made)), rng.randrange(5)
        if action <= 1:
            made[at] ^= 1 << rng.randrange(8)
        elif action == 2:
            made[at] = rng.choice((0, 0x7F, 0x80, 0xFF))
        elif action == 3:
            made[at:at] = rng.randbytes(rng.randrange(1, 5))
        else:
            del made[at : at + rng.randrange(1, 9)]
        if not made:
            return b""
    return bytes(made)
