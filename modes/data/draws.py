"""Draws: random numbers that belong to a sample, whatever batch, rank or order it comes in.

A sample of data has a seed of its own, which a seed and its contents give. Number j of the draws of
a seed is a function of both, SplitMix64 by its counter, so that numbers of all samples are computed
side by side: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from math import prod
from typing import final

import numpy as np

from ...jacobians import Shape
from ...jacobians.arguments import CHECKS
from ...jacobians.arrays import host
from .batches import Batch
from .stream import digest

GAMMA = np.uint64(0x9E3779B97F4A7C15)
"""The step of the counter, an odd number near 2⁶⁴ over the golden ratio."""


@final
@dataclass(frozen=True, eq=False)
class SampleSeeds:
    """A seed for each sample of a batch, (N,), of 64 bits."""

    seeds: np.ndarray


CHECKS[SampleSeeds] = "the seeds of samples", lambda value: isinstance(value, SampleSeeds)

Seed = int | SampleSeeds


def sample_seeds(seed: int, batch: Batch) -> Seed:
    """A seed for each sample of a batch, from its contents: equal samples have equal ones.

    Where the tensors have no common number of samples, there is one seed for the whole batch.
    """
    arrays = [np.asarray(host(x)) for _, x in sorted(batch.items())]
    rows = [x for x in arrays if x.ndim]
    if len({len(x) for x in rows}) != 1 or any(x.dtype.hasobject for x in rows):
        return (int(digest(batch)[:16], 16) + seed) % 2**63
    contents = [[x[n].tobytes() for x in rows] for n in range(len(rows[0]))]
    found = [blake2b(b"".join(parts), digest_size=8).digest() for parts in contents]
    own = np.frombuffer(b"".join(found), np.uint64)
    return SampleSeeds(scrambled(own + seeds_in_order(seed, 1)))


def uniform_numbers(seed: Seed, draws: int, shape: Shape) -> np.ndarray:
    """Numbers between 0 and 1, (draws, *shape), where the first axis of `shape` is of samples.

    A sample may have several rows of that axis, one after the other, and its numbers depend on the
    seed of the sample alone; for one seed, or seeds of other samples, a row is a sample.
    """
    count = shape[0] if shape else 1
    if not (entries := prod(shape)):
        return np.zeros((draws, *shape))
    if isinstance(seed, SampleSeeds) and not count % max(len(seed.seeds), 1):
        seeds = seed.seeds
    elif isinstance(seed, SampleSeeds):
        seeds = seeds_in_order(int(np.bitwise_xor.reduce(seed.seeds)), count)
    else:
        seeds = seeds_in_order(seed, count)
    numbers = np.arange(1, entries // len(seeds) + 1, dtype=np.uint64)
    streams = scrambled(seeds + GAMMA * np.arange(draws, dtype=np.uint64)[:, None])
    bits = scrambled(streams[..., None] + GAMMA * numbers)
    return ((bits >> np.uint64(11)) + 0.5).reshape(draws, *shape) * 2.0**-53


def seeds_in_order(seed: int, count: int) -> np.ndarray:
    """Seeds of samples that are known by their position alone."""
    places = np.arange(count, dtype=np.uint64)
    return scrambled(np.array([seed % 2**64], np.uint64) + GAMMA * places)


def scrambled(x: np.ndarray) -> np.ndarray:
    """The output of SplitMix64 for states x."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(x ^ (x >> np.uint64(31)))
