"""Devices: `comm="jax"`, a batch that JAX has sharded over devices, as one point.

The operator of sharded arrays is one program for all devices: XLA computes on each the part of its
samples, and inserts the all-reduce that adds them. So the arrays are taken as they are.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from ...jacobians.errors import InputError
from .batches import Batch, as_batch

JAX = "jax"
"""The value of `comm=` for arrays that JAX has sharded."""


def is_jax(comm: Any) -> bool:
    """Whether `comm` is this value, and no communicator."""
    return isinstance(comm, str) and comm == JAX


def on_devices(inputs: Any, shared: Batch, engine: str | None) -> tuple[dict[str, Any], str]:
    """The point of sharded `inputs`, with `shared` on each of their devices, and the engine.

    Raises `InputError` where the inputs are no dict with an array that JAX has sharded, and for
    another engine.
    """
    batch = as_batch(inputs)
    if engine not in (None, JAX):
        raise InputError(f"comm='jax' is for engine='jax', not for engine={engine!r}")
    mesh = next(filter(None, map(mesh_of, batch.values())), None)
    if mesh is None:
        raise InputError(
            "comm='jax' is for arrays that JAX has sharded along their samples, and none of "
            f"{', '.join(batch) or 'no inputs'} is: jax.device_put(x, NamedSharding(mesh, "
            "PartitionSpec('data'))), or leave comm out"
        )
    return {**replicated(shared, mesh), **batch}, JAX


def mesh_of(x: Any) -> Any:
    """The mesh of the devices that hold parts of an array; None where JAX has not sharded it."""
    kind = getattr(sys.modules.get("jax"), "Array", None)
    if kind is None or not isinstance(x, kind) or x.sharding.is_fully_replicated:
        return None
    return getattr(x.sharding, "mesh", None)


def replicated(shared: Mapping[str, Any], mesh: Any) -> dict[str, Any]:
    """The arrays on all devices of a mesh."""
    from jax import device_put
    from jax.sharding import NamedSharding, PartitionSpec

    everywhere = NamedSharding(mesh, PartitionSpec())
    return {name: x if mesh_of(x) else device_put(x, everywhere) for name, x in shared.items()}
