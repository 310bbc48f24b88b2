"""Benchmarks: what one product costs, ours beside the best of the peers.

    python -m tests.benchmarks [--only NAME ...] [--rounds N] [--json FILE] [--markdown FILE]

A workload (`workloads/`) is one computation, written once and read as an ONNX model, by JAX and by
PyTorch (`readings/`). A contender (`contenders/`) makes its products with the derivative, in a
process of its own (`worker`); rounds of them are interleaved (`rounds`); `table` compares.
"""
