"""Devices: `comm="jax"`, arrays that JAX has sharded over the devices of one process or of several.

In one process, the operator of a sharded batch is one program for all devices: XLA computes on each
the part of its samples, and inserts the all-reduce that adds them. So the batch is one point. Where
jax.distributed has several processes, each is a rank, whose batch is the part on its own devices.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from ...jacobians.errors import InputError
from .batches import Batch, as_batch
from .comm import Comm, as_comm

JAX = "jax"
"""The value of `comm=` for arrays that JAX has sharded."""


def is_jax(comm: Any) -> bool:
    """Whether `comm` is this value, and no communicator."""
    return isinstance(comm, str) and comm == JAX


def on_devices(
    inputs: Any, shared: Batch, engine: str | None
) -> tuple[Any, Comm | None, Batch, str]:
    """The point of sharded `inputs`, with `shared` on all of their devices; or, of several
    processes, the batch of this one. Beside it the communicator, other shared inputs, the engine.

    Raises `InputError` where the inputs are no dict with an array that JAX has sharded, and for
    another engine.
    """
    if engine not in (None, JAX):
        raise InputError(f"comm='jax' is for engine='jax', not for engine={engine!r}")
    batch = as_batch(inputs)
    mesh = next(filter(None, map(mesh_of, batch.values())), None)
    if mesh is None:
        raise InputError(
            "comm='jax' is for arrays that JAX has sharded along their samples, and none of "
            f"{', '.join(batch) or 'no inputs'} is: jax.device_put(x, NamedSharding(mesh, "
            "PartitionSpec('data'))), or leave comm out"
        )
    if sys.modules["jax"].process_count() == 1:
        return {**replicated(shared, mesh), **batch}, None, {}, JAX
    return {name: part_of_process(x) for name, x in batch.items()}, as_comm(JAX), shared, JAX


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


def part_of_process(x: Any) -> Any:
    """The samples of an array on the devices of this process; all of one that is not sharded."""
    from jax.experimental.multihost_utils import global_array_to_host_local_array as part

    mesh = mesh_of(x)
    return x if mesh is None else part(x, mesh, x.sharding.spec)
