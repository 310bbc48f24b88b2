"""Replay: a program over tensors on a GPU as one CUDA graph.

A program of small tensors takes as long as it takes to launch its kernels, one after the other. A
CUDA graph launches them all at once, from inputs in fixed memory to outputs in fixed memory. After
some calls a program of several kernels is captured as such a graph, if copying its inputs and
outputs takes no longer than launching.
Source: the CUDA C++ Programming Guide, "CUDA Graphs".
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ...jacobians.threads import Lock
from .table import Tensor

Run = Callable[..., tuple[Any, ...]]

EAGER_CALLS = 8
"""The calls of a program before it is captured, which must not meet what happens only once."""

BYTES_PER_LAUNCH = 1 << 23
"""The most bytes of inputs and outputs for each kernel, which take as long to copy, at some 2 TB/s,
as a launch, some 4 µs."""

CAPTURED_BYTES = 1 << 28
"""The most bytes of inputs and outputs, which a graph holds once more."""


def replay_on_gpu(run: Run, fresh: int | None = None) -> Run:
    """(*inputs) ↦ outputs, as `run`, whose steps follow from the shapes of its inputs.

    The first `fresh` inputs, by default all, may hold other numbers at each call; the others are
    tensors that nobody writes to.
    """
    return Replayed(run, fresh) if torch.cuda.is_available() else run


class Replayed:
    """A program that becomes a graph.

    `run` answers calls that need gradients and calls within another capture; and all calls if a
    step needs the host, so that it cannot be captured.
    """

    def __init__(self, run: Run, fresh: int | None = None) -> None:
        self.run, self.fresh, self.calls, self.lock = run, fresh, 0, Lock()
        self.graph: CapturedGraph | None = None

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        if (self.graph is None and self.calls > EAGER_CALLS) or not fits_graph(inputs):
            return self.run(*inputs)
        with self.lock:
            self.calls += 1
            if self.calls == EAGER_CALLS + 1:
                self.graph = capture_graph(self.run, inputs, self.fresh)
            return self.run(*inputs) if self.graph is None else self.graph(*inputs)


def fits_graph(inputs: tuple[Any, ...]) -> bool:
    """Whether all inputs are tensors on the current GPU, and we are on its default stream."""
    here = torch.cuda.current_stream()
    return (
        all(isinstance(x, torch.Tensor) for x in inputs)
        and all(x.device == here.device and not x.requires_grad for x in inputs)
        and here == torch.cuda.default_stream()
        and not torch.cuda.is_current_stream_capturing()
    )


@torch.no_grad()
def capture_graph(run: Run, inputs: tuple[Tensor, ...], fresh: int | None) -> CapturedGraph | None:
    """The graph of a program; None where it cannot be captured, is too large or no quicker."""
    try:
        with OnGPU() as watched:
            outputs = run(*inputs)
        bytes = sum(x.nbytes for x in (*inputs, *outputs))
        quicker = watched.kernels > 1 and bytes <= min(
            CAPTURED_BYTES, BYTES_PER_LAUNCH * (watched.kernels - 1)
        )
        return CapturedGraph(run, inputs, fresh) if quicker and watched.alone else None
    except RuntimeError:  # a step needs the host, or memory is short
        return None


class OnGPU(TorchDispatchMode):
    """Counts kernels, and notes whether they are `alone`: no tensor is on the CPU, and no number or
    size is waited for.

    A capture would fail there, and PyTorch's allocator does not recover from a capture that failed.
    """

    WAITS = frozenset({torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape})

    kernels, alone = 0, True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:  # fmt: skip
        made = func(*args, **(kwargs or {}))
        tensors = tensors_in((args, kwargs, made))
        self.alone &= self.WAITS.isdisjoint(func.tags) and all(x.is_cuda for x in tensors)
        views = all(result.alias_info is not None for result in func._schema.returns)
        self.kernels += not views and any(y.numel() for y in tensors_in(made))
        return made


def tensors_in(tree: Any) -> Iterator[Tensor]:
    """The tensors among nested arguments or results."""
    return (x for x in tree_leaves(tree) if isinstance(x, torch.Tensor))


class CapturedGraph:
    """A captured program, with the memory of its inputs and outputs."""

    def __init__(self, run: Run, inputs: tuple[Tensor, ...], fresh: int | None) -> None:
        self.fresh = len(inputs) if fresh is None else fresh
        self.inputs, self.copied = [x.clone() for x in inputs], [*map(weakref.ref, inputs)]
        self.graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self.graph.capture_begin(capture_error_mode="thread_local")
            try:
                self.outputs = run(*self.inputs)
            finally:
                self.graph.capture_end()
        torch.cuda.current_stream().wait_stream(stream)

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """The outputs in new memory. An input that nobody writes to is copied when it is another
        tensor than at the call before.
        """
        moved = [k for k, x in enumerate(inputs) if k < self.fresh or self.copied[k]() is not x]
        if moved:
            torch._foreach_copy_([self.inputs[k] for k in moved], [inputs[k] for k in moved])
            for k in moved:
                self.copied[k] = weakref.ref(inputs[k])
        self.graph.replay()
        made = [torch.empty_like(y) for y in self.outputs]
        torch._foreach_copy_(made, list(self.outputs))
        return (*made,)
